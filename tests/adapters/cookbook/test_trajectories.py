"""Records as the cookbook's data: the same loss and the same weight of every token, in float64."""

import asyncio
import math
from collections import Counter

import numpy as np
import pytest
import torch
from focus_adapter_cookbook import to_datum, trajectory_group, trajectory_groups
from focus_adapter_local import to_item
from focus_adapter_local.losses import LOSSES, LossConfig, token_loss
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.train import _remove_mask

from focus_core import (
    ActorRecord,
    Agent,
    Collection,
    Collector,
    Critic,
    GroupCentered,
    Independent,
    Problem,
    RecordError,
    Segments,
    Span,
    Transition,
    Tree,
)
from focus_core.export import export_actor, export_merged
from focus_core.testing import CountdownEnv, RandomPolicy

QUIET = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
COLLECTOR = Collector(Agent(RandomPolicy(), CountdownEnv()), critic=Critic.constant(0.5))


@st.composite
def collections(draw, group=0):
    """Trees no environment would make: empty and one-token edges, contexts that do not extend."""
    tree = Tree(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    advantages = [math.nan]
    for node in range(1, draw(st.integers(1, 10)) + 1):
        parent = draw(st.integers(max(0, node - 4), node - 1))
        tokens = draw(st.lists(st.integers(1, 3), max_size=3))
        fresh = draw(st.integers(0, 4)) == 4
        tree.add(
            parent,
            tokens,
            [-0.125 * (node + place) - 0.01 for place in range(len(tokens))],
            rendered=draw(st.lists(st.integers(8, 9), min_size=int(fresh), max_size=2)),
            fresh=fresh,
        )
        if not tree.alive[parent] or draw(st.integers(0, 9)) == 9:
            tree.remove([node])
        worth = st.one_of(st.sampled_from([0.5, 0.0, math.nan]), st.floats(-2, 2))
        advantages.append(draw(worth))
    collection = Collection(tree, Problem("?"), [], "", Counter(), {}, group, COLLECTOR)
    collection.advantages = np.asarray(advantages)
    return collection


def learner(inputs, target):
    """A log probability that depends on every token before the target."""
    mixed = sum((place + 1) * token for place, token in enumerate(inputs, 1)) + 31 * target
    return -0.01 - (mixed % 97) / 50


def rows(inputs, columns):
    """(tokens before the target, target, behaviour, advantage) of each trained target."""
    for place, (target, behaviour, advantage, mask) in enumerate(zip(*columns, strict=True)):
        if mask:
            yield tuple(inputs[: place + 1]), int(target), float(behaviour), float(advantage)


def of_datum(datum):
    names = ("target_tokens", "logprobs", "advantages", "mask")
    columns = [datum.loss_fn_inputs[name].to_torch().tolist() for name in names]
    untrained = [a for a, mask in zip(columns[2], columns[3], strict=True) if not mask]
    assert not any(untrained), "a conditioning token has a weight"
    return rows(datum.model_input.to_ints(), columns)


def of_item(item):
    columns = (item.target_tokens, item.logprobs, item.advantages, item.mask)
    return rows(item.input_tokens.tolist(), columns)


def loss(found, name):
    """Summed policy-gradient loss, in float64."""
    if not found:
        return 0.0
    p = torch.tensor([learner(prefix, target) for prefix, target, *_ in found], dtype=torch.float64)
    q, a = (torch.tensor([row[at] for row in found], dtype=torch.float64) for at in (2, 3))
    return float(token_loss(p, q, a, LossConfig(name=name)).sum())


def same(found, expected):
    """The same tokens after the same tokens, with the same numbers to 1e-6."""
    found, expected = sorted(found), sorted(expected)
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    for at in (2, 3):
        mine, theirs = ([row[at] for row in some] for some in (found, expected))
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)
    for name in LOSSES:
        assert loss(found, name) == pytest.approx(loss(expected, name), rel=1e-6, abs=1e-6)


@QUIET
@given(st.lists(collections(), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_three_ways_to_the_same_update(trees, merged, plain):
    records = []
    for index, collection in enumerate(trees):
        collection.group_index = index
        records += (export_merged if merged else export_actor)(collection)
    given_records = [record.to_dict() for record in records] if plain else records
    ours = [row for record in given_records for row in of_datum(to_datum(record))]
    local = [row for record in given_records for row in of_item(to_item(record))]
    groups, advantages = trajectory_groups(given_records)
    data, where = assemble_training_data(groups, advantages)
    theirs = [row for datum in data for row in of_datum(datum)]
    same(ours, local)
    same(theirs, local)
    assert len(groups) == len({record.metadata["group_index"] for record in records})
    assert len(where) == len(data)
    for group, worth in zip(groups, advantages, strict=True):
        assert group.get_total_rewards() == worth.tolist()


@QUIET
@given(collections())
def test_a_datum_of_ours_is_the_cookbooks_own(collection):
    """Where a record has one advantage, as each edge's has: keys, types, numbers."""
    records = export_actor(collection)
    data, _ = assemble_training_data(*trajectory_groups(records))
    assert len(data) == len(records)
    for ours, theirs in zip(map(to_datum, records), data, strict=True):
        assert ours.model_input.to_ints() == theirs.model_input.to_ints()
        assert list(ours.loss_fn_inputs) == list(theirs.loss_fn_inputs)
        for name, tensor in ours.loss_fn_inputs.items():
            other = theirs.loss_fn_inputs[name]
            assert (tensor.dtype, tensor.shape) == (other.dtype, other.shape)
            torch.testing.assert_close(tensor.to_torch(), other.to_torch())
        assert "mask" not in _remove_mask(ours).loss_fn_inputs


def test_a_merged_record_is_a_trajectory_for_each_advantage():
    spans = [Span(2, 4, 0.3, 1, 0), Span(4, 5, -0.2, 2, 1), Span(6, 8, 0.3, 3, 2)]
    logprobs = [0, 0, -0.1, -0.2, -0.3, 0, -0.4, -0.5]
    record = ActorRecord(range(1, 9), logprobs, spans, {"group_index": 5})
    ((group,), (worth,)) = trajectory_groups([record])
    assert worth.tolist() == [0.3, -0.2]
    first, second = group.trajectories_G
    assert [t.ob.to_ints() for t in first.transitions] == [[1, 2], [1, 2, 3, 4, 5, 6]]
    assert [t.ac.tokens for t in first.transitions] == [[3, 4], [7, 8]]
    assert [t.ob.to_ints() for t in second.transitions] == [[1, 2, 3, 4]]
    data, _ = assemble_training_data([group], [worth])
    assert len(data) == 2, "actions that continue one another are one datum"
    same([r for d in data for r in of_datum(d)], list(of_item(to_item(record))))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (ActorRecord([1, 2], [-0.1, -0.1], [Span(0, 2, 1.0)]), "token 0 is a generated one"),
        (ActorRecord([1], [0.0], []), "it needs 2"),
        ({"schema": 1, "lane": "critic"}, "lane is 'critic'"),
    ],
)
def test_what_predicts_nothing_is_refused(record, said):
    with pytest.raises(RecordError, match=said):
        to_datum(record)
    with pytest.raises(RecordError, match=said):
        trajectory_groups([record])


# Whole rollouts ---------------------------------------------------------------------------------


class Shortening(RandomPolicy):
    """Its template leaves out what was said before, so that no prompt extends the last one."""

    def prepare(self, messages):
        return super().prepare([m for m in messages if m["role"] != "assistant"])


class TalkingOn(CountdownEnv):
    """Answers each turn, and ends after some transitions."""

    async def step(self, reply):
        self.said = (*self.said, *reply.tokens)
        self.left -= 1
        if self.left > 0:
            told = reply.stop_reason == "stop"
            return Transition(0.25, messages=({"role": "user", "content": "5"},) if told else ())
        even = sum(token % 2 == 0 for token in self.said)
        return Transition(even / 8, done=True)


@pytest.mark.parametrize("policy", [RandomPolicy, Shortening])
@pytest.mark.parametrize("merged", [False, True])
def test_grpo_here_is_grpo_there(policy, merged):
    """Centred returns on our records, and the cookbook's on the same rollouts."""

    async def collect(seed):
        collector = Collector(
            Agent(policy(end=0.4), TalkingOn(4), context=Segments(3)),
            search=Independent(8),  # their mean is exact in float32, which the cookbook uses
            recipe=GroupCentered(),
        )
        async with collector:
            collection = await collector.collect(Problem("1 2", id=seed), key=(seed,))
        return collection.prepare()

    fresh = 0
    for seed in range(5):
        collection = asyncio.run(collect(seed))
        group = trajectory_group(collection)
        assert group.get_total_rewards() == pytest.approx(collection.returns)
        data, _ = assemble_training_data([group], compute_advantages([group]))
        records = (export_merged if merged else export_actor)(collection)
        ours = [row for record in records for row in of_datum(to_datum(record))]
        same(ours, [row for datum in data for row in of_datum(datum)])
        assert ours
        fresh += sum(collection.tree.fresh[1:])
    assert bool(fresh) is (policy is Shortening)
