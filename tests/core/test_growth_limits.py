"""Deadlines, limits and cancellation of a collection: nothing is left running."""

import asyncio
import math

import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    DeadlineError,
    GradingError,
    Independent,
    Problem,
    Segments,
    Selective,
)
from focus_core.lanes import export_actor, export_critic
from focus_core.testing import CountdownEnv
from focus_core.tree.tree import ROOT, TERMINAL
from tests.core.growth_kit import NEVER, Environment, alive, grow, make

# Deadlines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["generation", "step"])
def test_a_continuation_that_hangs_ends_at_its_deadline(where):
    collection = grow(make(**{where: {5: NEVER}}, deadline=0.3))
    (failure,) = collection.failures
    assert isinstance(failure.error, DeadlineError)
    assert isinstance(failure.error, TimeoutError)
    assert failure.stage == "deadline"
    assert failure.launch == 1
    assert "0.3 s" in str(failure.error)
    assert isinstance(failure.error.__cause__, TimeoutError)
    assert set(alive(collection)) == {0, 2}


def test_the_deadline_includes_predictions():
    collection = grow(make(prediction={2: NEVER}, deadline=0.3))
    (failure,) = collection.failures
    assert failure.stage == "deadline"
    assert set(alive(collection)) == {1, 2}


def test_a_root_prediction_that_hangs_ends_with_its_own_deadline():
    """It belongs to no continuation: they wait for it and land without it."""
    collection = grow(make(prediction={1: NEVER}, deadline=0.3))
    (failure,) = collection.failures
    assert failure.stage == "prediction"
    assert isinstance(failure.error, DeadlineError)
    assert collection.counts["continuations"] == 3
    assert math.isnan(collection.tree.prediction[ROOT])


def test_fail_fast_does_not_wait_for_the_root_prediction():
    collection = grow(make(prediction={1: NEVER}, generation={1: OSError("gone")}), fail_fast=True)
    assert [failure.stage for failure in collection.failures] == ["generation"]


def test_an_environments_own_timeout_is_not_the_deadline():
    collection = grow(make(step={2: TimeoutError("sandbox")}, deadline=10.0))
    (failure,) = collection.failures
    assert failure.stage == "environment"
    assert type(failure.error) is TimeoutError


# Limits -----------------------------------------------------------------------------------------


def test_max_failures_ends_the_collection():
    faults = {call: RuntimeError(str(call)) for call in range(1, 99)}
    collection = grow(make(generation=faults, search=Selective(max_concurrency=1)))
    assert [str(f.error) for f in collection.failures] == ["1", "2", "3"]
    assert collection.stopped == "stopped after 3 failures"
    again = make(generation=faults, search=Selective(max_concurrency=1, max_failures=1))
    assert len(grow(again).failures) == 1


def test_what_runs_when_too_much_failed_still_lands():
    faults = {call: RuntimeError("x") for call in (1, 2, 3)}
    collection = grow(
        make(generation=faults, search=Selective(budget=50, warmup=50, max_concurrency=5))
    )
    assert len(collection.failures) == 3
    assert collection.stopped == "stopped after 3 failures"
    assert collection.counts["continuations"] == len(collection.returns)


def test_predictions_count_as_failures():
    faults = {call: RuntimeError("x") for call in range(1, 99)}
    collection = grow(make(prediction=faults, search=Independent(9, max_concurrency=1)))
    assert collection.stopped == "stopped after 3 failures"
    assert collection.counts["continuations"] == 1


def test_fail_fast_stops_at_the_first_and_cancels_the_rest():
    collector = make(generation={1: NEVER, 2: NEVER, 3: OSError("x")}, search=Independent(3))
    collection = grow(collector, fail_fast=True)
    assert len(collection.failures) == 1
    assert collection.stopped == "stopped after 1 failures"
    assert alive(collection) == []
    assert collection.counts["continuations"] == 0


def test_a_failure_is_no_reward_of_zero():
    """GroupCentered over three rollouts, one of which the grader could not grade."""
    collection = grow(make(step={9: GradingError("down")}))
    assert len(collection.returns) == 2
    collection.prepare(allow_partial=True)
    assert collection.values.branches[ROOT] == 2


# Cancellation -----------------------------------------------------------------------------------


class Slow(Environment):
    """Takes its time to be cancelled, as a sandbox does."""

    ended = None

    async def step(self, reply):
        try:
            await asyncio.sleep(NEVER)
        finally:
            await asyncio.sleep(0.02)
            self.ended.append(reply)


@pytest.mark.parametrize("hang", ["generation", "step", "prediction", "root", "slow"])
def test_cancelling_the_collection_leaves_no_task(hang):
    everything = dict.fromkeys(range(2, 99), NEVER)
    faults = {"root": {"prediction": {1: NEVER}}, "slow": {}}.get(hang, {hang: everything})
    collector = make(**faults, search=Selective(max_concurrency=4))
    ended = []
    if hang == "slow":
        collector.agent.env = Slow(3)
        collector.agent.env.ended = ended

    async def run():
        before = asyncio.all_tasks()
        async with collector:
            task = asyncio.create_task(collector.collect(Problem("5")))
            await asyncio.sleep(0.03)
            assert len(asyncio.all_tasks()) > len(before) + 1, "it runs"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.all_tasks() == before
        if hang == "slow":
            assert len(ended) == 2, "both were awaited to their end"

    asyncio.run(asyncio.wait_for(run(), 5))


def test_a_critic_that_is_slow_to_be_cancelled_is_awaited():
    ended, asked = [], asyncio.Event()

    async def fn(text):
        try:
            if len(text.split()) > 3:
                asked.set()
                await asyncio.sleep(NEVER)
        finally:
            await asyncio.sleep(0.02)
            ended.append(text)
        return 0.5

    calls = iter([None, OSError("gone")])

    async def fault():
        error = next(calls)
        if error is not None:
            await asked.wait()
            raise error

    collector = make(search=Independent(1))
    collector.agent.policy.fault = fault
    collector.critic = Critic.from_fn(fn)
    collection = grow(collector)
    assert len(collection.failures) == 1
    assert len(ended) == 2, "the root's, and the one under way"


def test_a_search_that_breaks_is_no_failed_rollout():
    """The core's or a plug-in's mistake is raised, and what ran is cancelled and awaited."""

    class Broken:
        max_concurrency, max_failures = 3, 3
        stopped = ""

        def start(self, tree, *, kappa, calibration):
            return self

        def next(self):
            return ROOT

        def generated(self):
            pass

        def landed(self, source, chain, returns):
            raise ZeroDivisionError("search")

        def failed(self, source):
            pass

    async def run():
        before = asyncio.all_tasks()
        collector = make(search=Broken(), generation={1: NEVER})
        async with collector:
            with pytest.raises(ZeroDivisionError):
                await collector.collect(Problem("5"))
            assert asyncio.all_tasks() == before

    asyncio.run(asyncio.wait_for(run(), 5))


def test_partial_values_by_hand(scripted):
    """
    Three rollouts of one and two steps, kappa = 1, v = 0.5; the second fails at its second step,
    the third's only state has no prediction:

    root -- 1 (0.5) -- outcome 1 (tokens 2 0, all even)
         |- removed
         \\- 4 (none) -- outcome 1/2 (tokens 1 0)
    """
    policy = scripted([2], [0], [2], OSError("gone"), [1], [0])

    async def fn(text):
        return None if text.endswith(" 1") else 0.5

    collector = Collector(
        Agent(policy, CountdownEnv(3), context=Segments(1)),
        critic=Critic.from_fn(fn),
        search=Independent(3, max_concurrency=1, max_failures=9),
    )
    collection = grow(collector).prepare(allow_partial=True)
    assert [failure.stage for failure in collection.failures] == ["generation", "prediction"]
    tree, values = collection.tree, collection.values
    assert list(tree.alive) == [1, 1, 1, 0, 1, 1]
    assert [tree.kind[n] == TERMINAL for n in (2, 5)] == [True, True]
    # V~(1) = (0.5 + 1)/2 = 0.75; root: one branch, q = 0.75; V~ = (0.5 + 0.75)/2 = 0.625
    assert values.refined[[0, 1]].tolist() == pytest.approx([0.625, 0.75], abs=1e-12)
    assert [record.metadata["edge"] for record in export_actor(collection)] == [1, 2]
    assert [record.reward for record in export_actor(collection)] == pytest.approx(
        [0.125, 0.25], abs=1e-12
    )
    assert [(r.target, r.metadata["branches"]) for r in export_critic(collection)] == [
        (0.75, 1),
        (1.0, 1),
    ]
    assert collection.counts["failed_continuations"] == 1
    assert collection.counts["failed_predictions"] == 1
    assert collection.counts["edges_without_value"] == 2
    assert collection.counts["transitions"] == 5
