"""From a prepared tree to records: exact tokens, spans, targets, and where they are from."""

from collections import Counter

import numpy as np
import pytest

from focus_core import (
    Agent,
    Collection,
    Collector,
    Critic,
    Problem,
    Selective,
    Transition,
    Tree,
    UsageError,
)
from focus_core.lanes import export_actor, export_critic, export_merged
from focus_core.testing import CountdownEnv, RandomPolicy
from focus_core.tree.tree import ROOT, TERMINAL, TRUNCATED


def prepared(tree, **options):
    """A collection of a tree made by hand."""
    collector = Collector(Agent(RandomPolicy(), CountdownEnv()), critic=Critic.constant(0.5))
    collection = Collection(tree, Problem("?", id="p"), [], "", Counter(), {}, 3, collector)
    return collection.prepare(**options)


@pytest.mark.parametrize("read", [export_actor, export_critic, lambda c: c.state_values])
def test_what_is_not_prepared_yet_says_so(collect, read):
    collection = collect(
        Collector(Agent(RandomPolicy(), CountdownEnv()), critic=Critic.constant(0.5))
    )
    with pytest.raises(UsageError, match=r"has no \w+ until .* call collection\.prepare\(\) first"):
        read(collection)
    assert not hasattr(collection, "values")
    assert "advantages=" in repr(collection), "a debugger may look at it"
    assert read(collection.prepare()) is not None


@pytest.fixture
def tree():
    """
    root 1 2 -- a [3 4] -- b [5 0] then answer 6 -- c [7] outcome 1
                        \\- d [8] outcome 0
             \\- e [] outcome 0 (nothing was said)
    """
    tree = Tree([1, 2], prediction=0.5)
    a = tree.add(ROOT, [3, 4], [-0.25, -0.5], prediction=0.5)
    b = tree.add(a, [5, 0], [-0.75, -1.0], rendered=[6], prediction=0.5)
    tree.add(b, [7], [-1.25], reward=1.0, kind=TERMINAL)
    tree.add(a, [8], [-1.5], kind=TERMINAL)
    tree.add(ROOT, [], [], kind=TERMINAL)
    return tree


# V~(b) = 0.75; V~(a) = (0.5 + 0.75 + 0)/3 = 5/12; V~(root) = (0.5 + 5/12)/3 = 11/36
A, B, C, D = 5 / 12 - 11 / 36, 0.75 - 5 / 12, 0.25, -5 / 12


def test_one_record_per_edge_that_said_something(tree):
    records = export_actor(prepared(tree))
    assert [record.metadata["edge"] for record in records] == [1, 2, 3, 4]
    assert [record.tokens.tolist() for record in records] == [
        [1, 2, 3, 4],
        [1, 2, 3, 4, 5, 0],
        [1, 2, 3, 4, 5, 0, 6, 7],
        [1, 2, 3, 4, 8],
    ]
    assert [record.loss_mask.tolist() for record in records] == [
        [0, 0, 1, 1],
        [0, 0, 0, 0, 1, 1],
        [0, 0, 0, 0, 0, 0, 0, 1],
        [0, 0, 0, 0, 1],
    ]
    assert [record.logprobs.tolist() for record in records] == [
        [0, 0, -0.25, -0.5],
        [0, 0, 0, 0, -0.75, -1.0],
        [0, 0, 0, 0, 0, 0, 0, -1.25],
        [0, 0, 0, 0, -1.5],
    ]
    assert [record.reward for record in records] == pytest.approx([A, B, C, D], abs=1e-12)
    assert records[2].metadata == {"group_index": 3, "edge": 3, "parent": 2, "problem": "p"}


def test_merging_shares_the_prefix_and_trains_each_edge_once(tree):
    deep, short = export_merged(prepared(tree))
    assert deep.tokens.tolist() == [1, 2, 3, 4, 5, 0, 6, 7]
    assert deep.loss_mask.tolist() == [0, 0, 1, 1, 1, 1, 0, 1]
    assert deep.logprobs.tolist() == [0, 0, -0.25, -0.5, -0.75, -1.0, 0, -1.25]
    assert [(s.start, s.stop, s.edge) for s in deep.spans] == [(2, 4, 1), (4, 6, 2), (7, 8, 3)]
    assert [s.advantage for s in deep.spans] == pytest.approx([A, B, C], abs=1e-12)
    assert deep.reward is None
    assert deep.metadata == {"group_index": 3, "edge": 3, "parent": 2, "problem": "p"}
    assert short.tokens.tolist() == [1, 2, 3, 4, 8]
    assert short.loss_mask.tolist() == [0, 0, 0, 0, 1]
    assert short.logprobs.tolist() == [0, 0, 0, 0, -1.5], "the shared segment is conditioning here"
    assert short.reward == pytest.approx(D)


def test_a_rerendered_chat_starts_a_sequence_of_its_own():
    tree = Tree([1], prediction=0.5)
    a = tree.add(ROOT, [2], [-0.5], rendered=[9, 8], fresh=True, prediction=0.5)
    b = tree.add(a, [3], [-0.25], prediction=0.5)
    tree.add(b, [4], [-0.125], reward=1.0, kind=TERMINAL)
    first, second = export_merged(prepared(tree))
    assert first.tokens.tolist() == [1, 2]
    assert [span.edge for span in first.spans] == [1]
    assert second.tokens.tolist() == [9, 8, 3, 4]
    assert [span.edge for span in second.spans] == [2, 3]
    assert second.logprobs.tolist() == [0, 0, -0.25, -0.125]
    assert [r.tokens.tolist() for r in export_actor(prepared(tree))] == [
        [1, 2],
        [9, 8, 3],
        [9, 8, 3, 4],
    ]


def test_identical_siblings_stay_separate():
    tree = Tree([1], prediction=0.5)
    for reward in (1.0, 0.0):
        tree.add(ROOT, [2, 2], [-0.5, -0.5], reward=reward, kind=TERMINAL)
    merged = export_merged(prepared(tree))
    assert [record.tokens.tolist() for record in merged] == [[1, 2, 2], [1, 2, 2]]
    assert [record.reward for record in merged] == [0.5, -0.5]


def test_small_advantages_are_dropped_from_the_actor_and_not_from_the_critic(tree):
    everything, dropped = prepared(tree), prepared(tree, min_abs_advantage=0.3)
    kept = [record.metadata["edge"] for record in export_actor(dropped)]
    assert kept == [2, 4], f"|A| is {abs(A)}, {abs(B)}, {abs(C)}, {abs(D)}"
    assert export_critic(dropped) == export_critic(everything)
    assert dropped.values.refined.tolist() == everything.values.refined.tolist()
    merged = export_merged(dropped)
    assert [[span.edge for span in record.spans] for record in merged] == [[2], [4]]
    assert merged[0].tokens.tolist() == [1, 2, 3, 4, 5, 0]
    assert merged[0].logprobs.tolist() == [0, 0, 0, 0, -0.75, -1.0]


def test_an_advantage_at_the_threshold_stays():
    tree = Tree([1], prediction=0.5)
    for reward in (1.0, 0.0):
        tree.add(ROOT, [2], [-0.5], reward=reward, kind=TERMINAL)
    assert len(export_actor(prepared(tree, min_abs_advantage=0.5))) == 2
    assert len(export_actor(prepared(tree, min_abs_advantage=0.5000001))) == 0


def test_zero_advantages_are_exported_unless_a_threshold_is_given():
    """The KL or entropy of a zero-advantage token may still matter to a loss."""
    tree = Tree([1], prediction=1.0)
    tree.add(ROOT, [2], [-0.5], reward=1.0, kind=TERMINAL)
    (record,) = export_actor(prepared(tree))
    assert record.reward == 0.0
    assert not record.has_signal
    assert export_actor(prepared(tree, min_abs_advantage=1e-9)) == []


def test_critic_records_are_unshrunk_and_say_how_many_branches(tree):
    records = export_critic(prepared(tree))
    assert [record.metadata for record in records] == [
        {"group_index": 3, "edge": None, "parent": None, "problem": "p", "branches": 2},
        {"group_index": 3, "edge": 1, "parent": 0, "problem": "p", "branches": 2},
        {"group_index": 3, "edge": 2, "parent": 1, "problem": "p", "branches": 1},
    ]
    # root: (5/12 + 0)/2; a: (0.75 + 0)/2; b: 1 (not the 0.75 it is worth)
    assert [r.target for r in records] == pytest.approx([5 / 24, 0.375, 1.0], abs=1e-12)
    assert [r.context for r in records] == ["1 2", "1 2 3 4", "1 2 3 4 5 0 6"]


def test_terminal_truncated_and_unexpanded_states_have_no_critic_record():
    tree = Tree([1], prediction=0.5)
    tree.add(ROOT, [2], [-0.5], kind=TERMINAL)
    tree.add(ROOT, [3], [-0.5], kind=TRUNCATED, prediction=0.2)
    tree.add(ROOT, [4], [-0.5], prediction=0.2)
    (record,) = export_critic(prepared(tree))
    assert record.metadata["branches"] == 3
    assert record.target == pytest.approx(0.4 / 3)


def test_truncated_edges_are_trained_on_their_prediction():
    tree = Tree([1], prediction=0.5)
    tree.add(ROOT, [3], [-0.5], kind=TRUNCATED, prediction=0.9)
    (record,) = export_actor(prepared(tree))
    assert record.reward == pytest.approx(0.9 - 0.7)


def test_removed_edges_and_states_are_not_exported(tree):
    tree.remove([3])
    collection = prepared(tree)
    assert [r.metadata["edge"] for r in export_actor(collection)] == [1, 2, 4]
    assert [r.metadata["edge"] for r in export_critic(collection)] == [None, 1]


def test_an_empty_tree_exports_nothing():
    collection = prepared(Tree([1], prediction=0.5))
    assert export_actor(collection) == export_merged(collection) == export_critic(collection) == []


class Lenient(CountdownEnv):
    """Takes silence for an answer."""

    async def step(self, reply):
        return Transition(1.0, done=True)


def test_a_reply_with_nothing_said_is_no_record_but_still_a_branch(collect, scripted):
    collector = Collector(
        Agent(scripted([], [2, 0]), Lenient(1)),
        critic=Critic.constant(0.5),
        search=Selective(budget=0, warmup=2, max_concurrency=1),
    )
    collection = collect(collector).prepare()
    assert [r.tokens.tolist() for r in export_actor(collection)] == [[5, 3, 2, 0]]
    assert [r.tokens.tolist() for r in export_merged(collection)] == [[5, 3, 2, 0]]
    (critic,) = export_critic(collection)
    assert critic.metadata["branches"] == 2


def test_a_long_chain_merges_into_one_sequence():
    tree = Tree([1], prediction=0.0)
    node = ROOT
    for _ in range(300):
        node = tree.add(node, [2, 3], [-0.5, -0.5], prediction=0.0)
    tree.add(node, [4], [-0.5], reward=1.0, kind=TERMINAL)
    (record,) = export_merged(prepared(tree))
    assert len(record.spans) == 301
    assert record.trained_tokens == 601
    assert np.count_nonzero(record.loss_mask) == 601
