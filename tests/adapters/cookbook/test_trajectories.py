"""Records as the cookbook's data; tests.adapters.tinker.test_parity holds them against others."""

import asyncio

import numpy as np
import pytest
import torch
from focus_adapter_cookbook import to_datum, trajectory_group, trajectory_groups
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.train import _remove_mask

from focus_core import (
    ActorRecord,
    Agent,
    Collector,
    GroupCentered,
    Independent,
    Problem,
    Segments,
    Span,
    Transition,
)
from focus_core.lanes import export_actor, export_merged
from focus_core.testing import CountdownEnv, RandomPolicy
from tests.adapters.parity_kit import collections, rows

QUIET = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def of_datum(datum):
    names = ("target_tokens", "logprobs", "advantages", "mask")
    return rows(datum.model_input.to_ints(), *(datum.loss_fn_inputs[n].to_numpy() for n in names))


def same(found, expected):
    """The same tokens after the same tokens, with the same numbers to 1e-6."""
    found, expected = sorted(found), sorted(expected)
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    np.testing.assert_allclose(
        [row[2:] for row in found], [row[2:] for row in expected], rtol=1e-6, atol=1e-6
    )


@QUIET
@given(st.lists(collections(), min_size=1, max_size=3), st.booleans())
def test_trees_are_groups_and_advantages_their_rewards(trees, merged):
    records = []
    for index, collection in enumerate(trees):
        collection.group_index = index
        records += (export_merged if merged else export_actor)(collection)
    groups, advantages = trajectory_groups(records)
    assert len(groups) == len({record.metadata["group_index"] for record in records})
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
    same([row for datum in data for row in of_datum(datum)], list(of_datum(to_datum(record))))


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
