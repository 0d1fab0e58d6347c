"""What a continuation's environment opened is closed when the continuation ends."""

import asyncio
from typing import ClassVar

import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    Independent,
    Problem,
    ReplyEnv,
    Segments,
    Selective,
    Transition,
)
from focus_core.testing import CountdownEnv, EnvContract, RandomPolicy, check
from focus_core.testing.base import Outcome


class Leasing(CountdownEnv):
    """Opens something in reset or in its first step, and counts what is open in all copies."""

    def __init__(self, steps=3, **faults):
        super().__init__(steps)
        self.faults = faults
        self.opened, self.open = [], set()
        self.held = None

    def _lease(self):
        self.held = len(self.opened)
        self.opened.append(self.held)
        self.open.add(self.held)

    def reset(self, problem):
        self._lease()
        return super().reset(problem)

    async def step(self, reply):
        if self.held is None:
            self._lease()
        if "step" in self.faults:
            await self.faults["step"]()
        return await super().step(reply)

    def restore(self, state):
        self.held = None
        super().restore(state)

    async def release(self):
        await asyncio.sleep(0)
        self.open.discard(self.held)
        if "release" in self.faults:
            raise self.faults["release"]


class Unforkable(Leasing):
    forkable = False


def collector(env, **options):
    options = {"search": Selective(budget=12, warmup=8), "critic": Critic.constant(0.5), **options}
    return Collector(Agent(RandomPolicy(), env, context=Segments(2)), **options)


async def fail():
    raise ValueError("the browser crashed")


async def hang():
    await asyncio.sleep(60)


@pytest.mark.parametrize("kind", [Leasing, Unforkable])
def test_every_continuation_opens_one_and_closes_it(collect, kind):
    env = kind()
    collection = collect(collector(env, search=Independent(4)))
    assert collection.counts["continuations"] == 4
    assert len(env.opened) == 4, "something was opened for the prompt alone"
    assert not env.open


def test_branches_release_their_copies(collect):
    env = Leasing()
    collection = collect(collector(env))
    assert collection.counts["continuations"] > 1
    assert not env.open
    assert len(env.opened) == collection.counts["continuations"]


@pytest.mark.parametrize(("fault", "options"), [(fail, {}), (hang, {"deadline": 0.05})])
def test_those_that_fail_or_are_late_release_theirs(collect, fault, options):
    env = Leasing(step=fault)
    collection = collect(collector(env, search=Independent(3, max_failures=9), **options))
    assert len(collection.failures) == 3
    assert not env.open


def test_a_cancelled_collection_releases_all():
    env = Leasing(step=hang)

    async def main():
        async with collector(env, search=Independent(3)) as entered:
            task = asyncio.create_task(entered.collect(Problem("5", id="p")))
            while len(env.opened) < 3:
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()  # twice: the release goes on to its end
            await asyncio.gather(task, return_exceptions=True)
            assert not env.open

    asyncio.run(main())


def test_a_prompt_that_cannot_be_made_releases_its_environment(collect):
    class Broken(Leasing):
        def reset(self, problem):
            super().reset(problem)
            raise ValueError("no such page")

    env = Broken()
    collection = collect(collector(env))
    assert env.opened == [0]
    assert not env.open
    assert "no such page" in str(collection.failures[0])


def test_a_release_that_fails_is_a_failure_and_beside_another_a_note(collect):
    lost = RuntimeError("the server kept it")
    collection = collect(collector(Leasing(release=lost), search=Independent(1)))
    assert [failure.error for failure in collection.failures] == [lost]
    collection = collect(collector(Leasing(release=lost, step=fail), search=Independent(1)))
    (failure,) = collection.failures
    assert "browser crashed" in str(failure.error)
    assert "the server kept it" in failure.error.__notes__[0]


def test_a_release_that_is_not_async_is_named(collect):
    class Plain(CountdownEnv):
        def release(self):
            pass

    collection = collect(collector(Plain(3), search=Independent(1)))
    assert "Plain.release is not async; write 'async def release'" in str(collection.failures[0])


# The contract -----------------------------------------------------------------------------------


class Files(CountdownEnv):
    """Opens a file in each rollout."""

    made: ClassVar = []

    def reset(self, problem):
        self.file = open(__file__)  # noqa: SIM115  # released, or not
        self.made.append(self.file)
        return super().reset(problem)


class Closing(Files):
    async def release(self):
        self.file.close()


class Elsewhere(Leasing):
    async def release(self):
        pass


def ran(env, **overridden):
    kind = type("Of", (EnvContract,), {"subject": lambda self: env, **overridden})
    kind.problem = Problem("5 6", id="p")
    (found,) = [o for o in check(kind()) if o.contract == "ended_rollouts_hold_nothing"]
    return found


def test_the_contract_counts_what_rollouts_leave_open():
    assert ran(CountdownEnv(3)).status == ran(Closing(3)).status == "ok"
    found: Outcome = ran(Files(3))
    for file in Files.made:
        file.close()
    assert found.status == "failed"
    assert "12 rollouts of Files ended and left 12 more resources open; give it a release()" in (
        found.detail
    )
    env = Elsewhere()
    found = ran(env, open_now=lambda self: len(env.open))
    assert "release() must close what a copy opened" in found.detail
    env = Leasing()
    assert ran(env, open_now=lambda self: len(env.open)).status == "ok"


# Blocking work ----------------------------------------------------------------------------------


class Blocking(ReplyEnv):
    """Grades as the page says, without declaring anything."""

    async def grade(self, text):
        return await self.execution.run(len, text) / 10

    async def conclude(self, rollouts):
        return [await self.execution.run(float, 2) for _ in rollouts]


def test_grading_that_blocks_works_in_a_collector_and_alone(collect):
    policy = RandomPolicy()
    service = []

    class Spying(Blocking):
        async def grade(self, text):
            service.append(self.execution)
            return await super().grade(text)

    env = Spying(policy.decode, 4)
    collection = collect(Collector(Agent(policy, env), critic=Critic.constant(0.5)))
    assert not collection.failures
    assert all(value >= 2 for value in collection.returns)
    assert ReplyEnv.execution not in service, "the collector's is the one that is closed with it"
    for _ in range(2):  # one event loop after another
        assert asyncio.run(Blocking(policy.decode, 4).grade("four")) == 0.4


def test_transitions_need_nothing(collect):
    """An environment of one's own, without the attribute, is left as it is."""

    class Own:
        def reset(self, problem):
            return ({"role": "user", "content": problem.prompt},)

        async def step(self, reply):
            assert not hasattr(self, "execution")
            return Transition(1.0, done=True)

    collection = collect(collector(Own(), search=Independent(1)))
    assert collection.returns == [1.0]
