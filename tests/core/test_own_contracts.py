"""The core's lanes keep the contract of lanes, and the kit's doubles those of the real thing."""

import asyncio
import itertools
import time
from unittest import SkipTest

import pytest

from focus_core import Problem, UnknownNameError, UsageError
from focus_core.lanes import ACTOR, CRITIC
from focus_core.testing import (
    Contract,
    CountdownEnv,
    EnvContract,
    LaneContract,
    PolicyContract,
    RandomPolicy,
    TextPolicy,
    check,
    contract,
    require,
)


class TestActorLane(LaneContract):
    def subject(self):
        return ACTOR


class TestCriticLane(LaneContract):
    def subject(self):
        return CRITIC


class TestRandomPolicy(PolicyContract):
    def subject(self):
        return RandomPolicy()


class TestTextPolicy(PolicyContract):
    def subject(self):
        return TextPolicy()


class TestCountdownEnv(EnvContract):
    problem = Problem("5 6", id="p")

    def subject(self):
        return CountdownEnv(3)


class ThreadedEnv(CountdownEnv):
    """Works in the service that it is given."""

    execution = None

    async def step(self, reply):
        await self.execution.run(time.sleep, 0.01)
        return await super().step(reply)


class TestThreadedEnv(EnvContract):
    problem = Problem("5 6", id="p")

    def subject(self):
        return ThreadedEnv(3)


def test_the_kit_leaves_no_thread_behind(own_threads):
    TestThreadedEnv().test_step_does_not_hold_the_loop()
    assert not own_threads()


# How contracts themselves behave


class Shape(Contract):
    """A few contracts with every outcome."""

    capabilities_given = frozenset()

    def subject(self):
        return object()

    def capabilities(self):
        return self.capabilities_given

    @contract()
    def test_holds(self):
        """It holds."""

    @contract()
    async def test_awaited(self):
        """It is awaited."""
        await asyncio.sleep(0)

    @contract()
    def test_breaks(self):
        """It does not
        hold.

        More is said here.
        """
        require(False, "mend this")

    @contract()
    def test_raises(self):
        """It raises."""
        raise KeyError("a bug")

    @contract(needs="wings")
    def test_flies(self):
        """It flies."""
        require(False, "it fell")

    @contract()
    async def test_ends(self):
        """It ends."""
        await asyncio.sleep(60)


def outcomes(contracts):
    contracts.time_limit = 0.05
    return {each.contract: (each.status, each.detail) for each in check(contracts)}


def test_every_outcome_is_told():
    found = outcomes(Shape())
    assert list(found) == ["holds", "awaited", "breaks", "raises", "flies", "ends"]
    assert found["holds"] == found["awaited"] == ("ok", "")
    assert found["breaks"] == ("failed", "mend this")
    status, detail = found["raises"]
    assert status == "failed"
    assert detail.startswith("it raised KeyError: 'a bug' [test_own_contracts.py:")
    assert found["flies"] == ("not applicable", "only for the capability 'wings'")
    assert found["ends"] == ("failed", "it was not over after 0.05 s")
    sentences = [each.sentence for each in itertools.islice(check(Shape()), 3)]
    assert sentences == ["It holds.", "It is awaited.", "It does not hold."]


def test_a_capability_chooses_a_contract():
    class Flying(Shape):
        capabilities_given = frozenset({"wings"})

    assert outcomes(Flying())["flies"] == ("failed", "it fell")


def test_an_excuse_is_told_with_its_reason_and_skips_in_pytest():
    class Excused(Shape):
        excused = {"breaks": "known, and tracked"}  # noqa: RUF012  # typed as ClassVar in Contract

    assert outcomes(Excused())["breaks"] == ("excused", "known, and tracked")
    with pytest.raises(SkipTest, match="excused: known, and tracked"):
        Excused().test_breaks()


@pytest.mark.parametrize("reason", ["", "  "])
def test_an_excuse_without_a_reason_is_refused(reason):
    with pytest.raises(UsageError, match="the excuse for breaks needs a reason"):
        type("Excused", (Shape,), {"excused": {"breaks": reason}})


def test_an_excuse_for_nothing_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean breaks"):
        type("Excused", (Shape,), {"excused": {"breakes": "a reason"}})


def test_a_subject_is_asked_for():
    class Nothing(LaneContract):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing needs a method subject\(\)"):
        Nothing().test_is_a_lane()
