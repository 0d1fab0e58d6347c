"""Problems that a run goes on without, because they failed whenever they were tried."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import attrs

from focus_core.env.execution import ThreadExecution
from focus_core.errors import (
    CollectionError,
    DataError,
    FocusError,
    FoldError,
    PluginError,
    TrainerError,
    UsageError,
)
from focus_core.policy import Policy
from focus_core.records import Problem
from focus_core.task import CollectorFor

__all__ = ["Aside", "SetAside", "of_a_problem", "too_long"]

T = TypeVar("T")

_STRAIGHT = 3
"""So many problems that fail one after another are not what is wrong."""

_log = logging.getLogger("focus")


@attrs.frozen
class SetAside:
    """A problem that a run goes on without.

    Attributes:
        problem: Its ``id`` as text, or without one its prompt.
        tries: How often it failed; 0 if its prompt was measured and is too long.
        why: The last failure.
    """

    problem: str
    tries: int
    why: str


def _name(problem: Problem) -> str:
    return str(problem.prompt if problem.id is None else problem.id)


@attrs.define(eq=False)
class Aside:
    """The problems that are set aside, and how one gets there.

    Args:
        tries: A problem that fails so often at its place of a batch is set aside.
        known: Those of before a resume.
        on_new: Told of each one.

    Attributes:
        fresh: Names of those that no report has named yet.
        tokens: Sampled in vain, and in no report yet.
    """

    tries: int = attrs.field(default=3, validator=attrs.validators.ge(1))
    known: Iterable[SetAside] = ()
    on_new: Callable[[SetAside], None] | None = None
    fresh: list[str] = attrs.field(factory=list, init=False)
    tokens: int = attrs.field(default=0, init=False)
    measured: bool = attrs.field(default=False, init=False)
    _all: dict[str, SetAside] = attrs.field(init=False)

    @_all.default
    def _of_before(self) -> dict[str, SetAside]:
        return {each.problem: each for each in self.known}

    def __contains__(self, problem: Problem) -> bool:
        """Whether the run goes on without it."""
        return _name(problem) in self._all

    def add(self, problem: Problem, tries: int, error: Exception) -> None:
        """Go on without a problem."""
        each = SetAside(_name(problem), tries, f"{type(error).__name__}: {error}")
        self._all[each.problem] = each
        self.fresh.append(each.problem)
        cause = error.__cause__ or error
        _log.warning(
            "problem %r is set aside%s: %s",
            each.problem,
            f" after {tries} tries" if tries else "",
            each.why,
            exc_info=None if isinstance(cause, FocusError | OSError) else cause,  # a bug's place
        )
        if self.on_new is not None:
            self.on_new(each)

    async def collected(
        self, candidates: Iterable[Problem], collect: Callable[[Problem, int], Awaitable[T]]
    ) -> T:
        """What the first candidate gives that does not fail every time it is tried.

        Those before it are set aside, but not if too many fail one after another: whatever is
        wrong then is no single problem.

        Args:
            candidates: A place's own problem, and those that may take its place, in order.
            collect: Collects a problem; the second argument counts the tries, from 0.

        Raises:
            UsageError: All problems are set aside.
            Exception: What the first candidate raised, if none works.
        """
        failed: dict[str, tuple[Problem, Exception]] = {}
        for problem in candidates:
            if problem in self or _name(problem) in failed:
                continue
            try:
                found = await self._tried(problem, collect)
            except Exception as error:
                if not of_a_problem(error):
                    raise
                failed[_name(problem)] = problem, error
                if len(failed) == _STRAIGHT:
                    break
            else:
                for bad, last in failed.values():
                    self.add(bad, self.tries, last)
                return found
        if not failed:
            first = next(iter(self._all.values()))
            raise UsageError(
                f"all {len(self._all)} problems are set aside; the first, {first.problem!r}: "
                f"{first.why}"
            )
        (_, worst), *others = failed.values()
        if others:
            names = ", ".join(repr(name) for name in tuple(failed)[1:])
            worst.add_note(f"so did {names} in its place: this is no single problem's fault")
        raise worst from worst.__cause__

    async def _tried(self, problem: Problem, collect: Callable[[Problem, int], Awaitable[T]]) -> T:
        for attempt in range(self.tries - 1):
            try:
                return await collect(problem, attempt)
            except Exception as error:
                if not of_a_problem(error):
                    raise
        return await collect(problem, self.tries - 1)

    async def measure(
        self, problems: Iterable[Problem], policy: Policy, collector_for: CollectorFor
    ) -> None:
        """Set aside, once, what the policy's context has no room for."""
        if self.measured:
            return
        self.measured = True
        if getattr(policy, "context_length", None) is None:
            return
        for problem in problems:
            if problem not in self:
                error = await too_long(problem, policy, collector_for)
                if error is not None:
                    self.add(problem, 0, error)
            await asyncio.sleep(0)  # others have their turn


async def too_long(
    problem: Problem, policy: Policy, collector_for: CollectorFor
) -> Exception | None:
    """What is wrong with a prompt that leaves no room, as far as it can be told for nothing.

    An environment that has to connect first, or holds what must be released, is met in its turn.
    """
    try:
        agent = collector_for(policy, problem).agent
        if inspect.iscoroutinefunction(agent.env.reset) or hasattr(agent.env, "release"):
            return None
        env = agent.new_env(agent.execution or ThreadExecution(), None)
        length = len(agent.first_prompt(await agent.first_messages(env, problem)))
        if agent.room(length):
            return None
    except FoldError as error:
        return error
    except Exception:  # told when it is tried
        return None
    limit = getattr(policy, "context_length", None)
    return CollectionError(
        f"its prompt of {length} tokens leaves no room in the policy's context of {limit}"
    )


def of_a_problem(error: Any) -> bool:
    """Whether an error may be one problem's fault, and not the run's."""
    failures = getattr(error, "failures", ())
    inner = failures[0].error if failures else error
    if isinstance(inner, DataError):
        return True
    return not isinstance(inner, UsageError | PluginError | TrainerError)
