"""The minimum cover of ``export_merged`` on trees no environment would make, by brute force."""

import itertools
import math
from collections import Counter

import attrs
import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from focus_core import ActorRecord, Agent, Collection, Collector, Critic, Problem, Span, Tree
from focus_core.lanes import export_actor, export_merged, split_merged
from focus_core.testing import CountdownEnv, RandomPolicy
from focus_core.tree.tree import ROOT

COLLECTOR = Collector(Agent(RandomPolicy(), CountdownEnv()), critic=Critic.constant(0.5))


@st.composite
def collections(draw):
    """Random shapes: empty, equal, removed and dropped edges, re-rendered chats."""
    tree = Tree(draw(st.lists(st.integers(1, 3), max_size=2)))
    advantages = [math.nan]
    for node in range(1, draw(st.integers(1, 14)) + 1):
        parent = draw(st.integers(max(0, node - 4), node - 1))
        tokens = draw(st.lists(st.integers(1, 2), max_size=3))
        fresh = draw(st.integers(0, 4)) == 4
        tree.add(
            parent,
            tokens,
            [-0.125 * (node + place) for place in range(len(tokens))],
            rendered=draw(st.lists(st.integers(8, 9), min_size=int(fresh), max_size=2)),
            fresh=fresh,
        )
        if not tree.alive[parent] or draw(st.integers(0, 9)) == 9:
            tree.remove([node])
        advantages.append(draw(st.sampled_from([0.5, -0.25, 0.0, 0.01, math.nan])))
    collection = Collection(tree, Problem("?"), [], "", Counter(), {}, 0, COLLECTOR)
    collection.advantages = np.asarray(advantages)
    collection.min_abs_advantage = draw(st.sampled_from([None, 0.0, 0.1]))
    return collection


def edge_by_edge(collection):
    """One record per trained edge, straight from the tree: what merging and splitting must give."""
    tree, records = collection.tree, []
    for node in tree.edges():
        advantage, parent = collection.advantages[node], tree.parent[node]
        tokens, logprobs = tree.generated(node)
        if not len(tokens) or not abs(advantage) >= (collection.min_abs_advantage or 0.0):
            continue
        prefix = tree.prefix(parent)
        whole = np.concatenate((prefix, tokens))
        padded = np.concatenate((np.zeros(len(prefix), np.float32), logprobs))
        span = Span(len(prefix), len(whole), float(advantage), node, parent)
        metadata = {"group_index": 0, "edge": node, "parent": parent, "problem": None}
        records.append(ActorRecord(whole, padded, (span,), metadata))
    return records


def sequence(tree, node):
    """Edges whose tokens the edge to ``node`` continues, then that edge."""
    edges = [node]
    while (node := tree.parent[node]) != ROOT and not tree.fresh[node]:
        edges.append(node)
    return edges[::-1]


@given(collections())
@settings(max_examples=120)
def test_merged_and_single_records_train_the_same_tokens(collection):
    def trained(records):
        return Counter(
            (
                span.edge,
                tuple(record.tokens[:at].tolist()),
                int(record.tokens[at]),
                float(record.logprobs[at]),
                span.advantage,
            )
            for record in records
            for span in record.spans
            for at in range(span.start, span.stop)
        )

    single, merged = edge_by_edge(collection), export_merged(collection)
    assert trained(merged) == trained(single)
    spans = Counter(span.edge for record in merged for span in record.spans)
    assert spans == Counter(record.metadata["edge"] for record in single)
    assert all(count == 1 for count in spans.values())
    event(f"records saved: {min(len(single) - len(merged), 3)}")


@given(collections())
@settings(max_examples=120)
def test_the_cover_is_one_sequence_per_trained_edge_without_a_trained_descendant(collection):
    tree = collection.tree
    trained = {record.metadata["edge"] for record in edge_by_edge(collection)}
    threshold = collection.min_abs_advantage or 0.0
    assert trained == {
        node
        for node in tree.edges()
        if len(tree.generated(node)[0]) and abs(collection.advantages[node]) >= threshold
    }
    maximal = {
        edge
        for edge in trained
        if not any(other != edge and edge in sequence(tree, other) for other in trained)
    }
    merged = export_merged(collection)
    assert {record.metadata["edge"] for record in merged} == maximal
    assert len(merged) == len(maximal)
    for record in merged:
        leaf = record.metadata["edge"]
        assert record.spans[-1].edge == leaf
        assert record.spans[-1].stop == len(record.tokens)
        assert [span.edge for span in record.spans] == [
            edge for edge in sequence(tree, leaf) if edge in {s.edge for s in record.spans}
        ]
        whole = np.concatenate((tree.prefix(tree.parent[leaf]), tree.generated(leaf)[0]))
        np.testing.assert_array_equal(record.tokens, whole)


@given(collections())
@settings(max_examples=120)
def test_no_other_cover_has_fewer_sequences_or_tokens(collection):
    """All sets of ends are tried: those on whose sequences every trained edge lies are covers."""
    tree = collection.tree
    trained = {record.metadata["edge"] for record in edge_by_edge(collection)}
    ends = [
        (
            trained & set(sequence(tree, edge)),
            len(tree.prefix(tree.parent[edge])) + len(tree.generated(edge)[0]),
        )
        for edge in tree.edges()
    ]
    covers = [
        (len(some), sum(length for _, length in some))
        for count in range(min(len(ends), 6) + 1)
        for some in itertools.combinations(ends, count)
        if trained <= set().union(*(covered for covered, _ in some))
    ]
    merged = export_merged(collection)
    if not covers:  # more than six are needed; too many sets to try
        assert len(merged) > 6
        return
    assert len(merged) == min(count for count, _ in covers)
    assert sum(len(record.tokens) for record in merged) == min(tokens for _, tokens in covers)


def bits(record):
    """All that a record holds, floats by their bits."""
    spans = [attrs.evolve(span, advantage=span.advantage.hex()) for span in record.spans]
    return record.tokens.tobytes(), record.logprobs.tobytes(), spans, record.metadata


@given(collections())
@settings(max_examples=200)
def test_merged_records_split_into_what_is_exported_per_edge_bit_for_bit(collection):
    single, merged = edge_by_edge(collection), export_merged(collection)
    assert [bits(r) for r in export_actor(collection)] == [bits(r) for r in single]
    plain = [ActorRecord.from_dict(record.to_dict()) for record in merged]
    assert [bits(r) for r in split_merged(plain)] == [bits(r) for r in single]
    for record in split_merged(merged):
        assert split_merged([record]) == [record]
    event(f"longest path: {max((len(record.spans) for record in merged), default=0)} spans")


@given(collections())
@settings(max_examples=100)
def test_prefixes_are_the_concatenation_of_what_each_node_owns(collection):
    tree = collection.tree
    for node in range(len(tree)):
        expected = []
        for step in tree.path(node):
            said = [*expected, *tree.generated(step)[0].tolist()]
            expected = [*([] if tree.fresh[step] else said), *tree.rendered(step).tolist()]
        assert tree.prefix(node).tolist() == expected
        assert tree.prefix_length(node) == len(expected)
