"""The contract of environments: what branching, reproducibility and a live event loop ask."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import math
import os
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from focus_core.agent.agent import Agent
from focus_core.env.env import Reply, Transition, release, reset
from focus_core.env.execution import ThreadExecution
from focus_core.policy import Policy, SamplingParams
from focus_core.records import Problem
from focus_core.testing._looking import form, longest_hold, require_methods
from focus_core.testing.base import Contract, NotApplicable, contract, require
from focus_core.testing.fakes import TextPolicy

__all__ = ["EnvContract"]


class EnvContract(Contract):
    """What every environment keeps.

    Inherit it in a pytest module::

        class TestMyEnv(EnvContract):
            problem = Problem("2 + 2 = ?", "4", id="p")

            def subject(self):
                return MyEnv()

    What is said to it is random text, which reaches no further than random text does. Override
    ``replies()`` with what a policy might mean, or a branch of ``step`` that only a certain reply
    reaches is never looked at. ``policy()`` decodes; ``env()`` gives an environment and a problem.

    Attributes:
        problem: What the environment is reset to.
        longest_hold: Seconds for which one step may keep the event loop.
    """

    problem: Problem = Problem("1 2", "3", id="p")
    longest_hold: float = 0.5

    _execution: ThreadExecution
    _copies: list[Any]

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        """An execution service for the environment's blocking work, closed afterwards."""
        self._execution = ThreadExecution()
        try:
            yield
        finally:
            asyncio.run(self._execution.aclose())

    async def _limited(self, work: Coroutine[Any, Any, None]) -> None:
        """A contract, and the release of what it acted in."""
        self._copies = []
        try:
            await super()._limited(work)
        finally:
            for env in self._copies:
                await release(env)

    def policies(self) -> Sequence[Policy]:
        """Who acts in the environment: two that say random text, one at length, one tersely."""
        return TextPolicy(), TextPolicy(end=0.5)

    def policy(self) -> Policy:
        """Whose ``decode`` the environment may hold: the first of ``policies``."""
        return self.policies()[0]

    def env(self) -> tuple[Any, Problem]:
        """A fresh environment and a problem for it."""
        return self.subject(), self.problem

    def open_now(self) -> int | None:
        """How many resources are open; ``None``: nobody can tell.

        By default the files, pipes and sockets of this process. Override it where an environment
        opens something else (containers, browsers, sessions), or elsewhere.
        """
        for folder in ("/proc/self/fd", "/dev/fd"):
            with contextlib.suppress(OSError):
                return len(os.listdir(folder))
        return None

    async def replies(self) -> Sequence[Reply]:
        """What is said to the environment, in order: three replies or more. It need not be async.

        These are random text, cut and finished by turns. What only a meaningful reply reaches (a
        tool's name, a hint asked for) they do not: override this with a script that does.
        """
        policy = self.policy()
        prompt = policy.prepare([{"role": "user", "content": "1 2"}]).tokens
        replies = []
        for seed, stop in enumerate(("length", "length", "stop", "length", "stop", "stop")):
            params = SamplingParams(max_tokens=3, seed=seed)
            (generation,) = await policy.generate(prompt, params)
            tokens = tuple(generation.tokens)
            replies.append(Reply(tokens, policy.decode(tokens), stop))  # type: ignore[arg-type]
        return replies

    async def _script(self) -> Sequence[Reply]:
        """The replies, checked: this is the place where contracts are told what to say."""
        made: Any = self.replies()
        found = tuple(await made if inspect.isawaitable(made) else made)
        require(
            len(found) >= 3 and all(isinstance(reply, Reply) for reply in found),
            f"{type(self).__name__}.replies() gave {found!r:.120}; give three or more "
            "focus_core.Reply(tokens, text, 'stop' or 'length')",
        )
        return found

    # Contracts

    @contract()
    def test_env_has_the_methods(self) -> None:
        """An environment has reset and step, and snapshot and restore together or not at all."""
        env, _ = self.env()
        require_methods(env, "Env", ("reset", "step"), awaited={"step"}, either={"reset"})
        name = type(env).__name__
        require(
            hasattr(env, "snapshot") == hasattr(env, "restore"),
            f"{name} has one of snapshot() and restore(); a state needs both to be branched",
        )

    @contract()
    async def test_reset_gives_messages(self) -> None:
        """Reset gives the chat's first messages, the same ones each time."""
        env, problem = self.env()
        name = type(env).__name__
        first = _messages(name, "reset", await reset(self._copy(), problem))
        require(first, f"{name}.reset gave no message; the policy needs a prompt")
        again = self._copy()
        await reset(again, problem)
        for messages in (await reset(again, problem), await reset(self._copy(), problem)):
            require(
                form(tuple(messages)) == form(first),
                f"{name}.reset gave other messages the second time; make it depend on the problem "
                "alone",
            )

    @contract()
    async def test_step_gives_transitions(self) -> None:
        """A step is awaited and gives a Transition: finite reward, not both done and cut."""
        env, problem = self.env()
        name = type(env).__name__
        env = self._copy()
        await reset(env, problem)
        for reply in await self._script():
            work = env.step(reply)
            require(
                hasattr(work, "__await__"), f"{name}.step is not awaitable; write 'async def step'"
            )
            transition = await work
            require(
                isinstance(transition, Transition),
                f"{name}.step returned a {type(transition).__name__}; return a "
                "focus_core.Transition",
            )
            reward = transition.reward
            require(
                isinstance(reward, int | float) and math.isfinite(reward),
                f"{name}.step gave the reward {reward!r}; it must be a finite number: raise "
                "GradingError if a reply cannot be graded",
            )
            require(
                not (transition.done and transition.truncated),
                f"{name}.step said both done and truncated; done closes a rollout with its "
                "outcome, truncated cuts it without one",
            )
            for key, value in transition.metrics.items():
                require(
                    isinstance(value, int | float) and math.isfinite(value),
                    f"{name}.step gave the metric {key}={value!r}; metrics are finite numbers",
                )
            _messages(name, "step", transition.messages)
            if transition.done or transition.truncated:
                return

    @contract()
    async def test_reset_starts_over(self) -> None:
        """After a reset the same replies bring the same transitions, whatever came before."""
        env = self._copy()
        name = type(env).__name__
        replies = await self._script()
        first = await self._history(env, replies)
        require(
            await self._history(env, replies) == first,
            f"{name} answered the same replies otherwise after a second reset; reset() must put "
            "back everything a rollout changes, and step() must not draw freely",
        )

    @contract()
    async def test_copies_are_apart(self) -> None:
        """Continuations on copies of one environment see only their own history."""
        env, problem = self.env()
        name = type(env).__name__
        replies = await self._script()
        alone = [await self._history(self._copy(), said) for said in (replies, replies[::-1])]
        one, other = self._two()
        await reset(one, problem)
        await reset(other, problem)
        found: list[list[Any]] = [[], []]
        for pair in zip(replies, replies[::-1], strict=True):
            for side, (copied, reply) in enumerate(zip((one, other), pair, strict=True)):
                if not found[side] or not _over(found[side][-1]):
                    found[side].append(await _observed(copied, reply))
        require(
            found == alone,
            f"two copies of {name} disturb each other; reset() and step() must rebind attributes "
            "(self.said = [*self.said, x]), not change what another copy holds (self.said.append)",
        )

    @contract()
    async def test_snapshots_stay_as_they_were(self) -> None:
        """A snapshot is not changed by what the environment does after it was taken."""
        env, replies = await self._begun()
        state = env.snapshot()
        before = form(state)
        await env.step(replies[1])
        require(
            form(state) == before,
            f"{type(env).__name__}.snapshot gave a state that step() changed afterwards; return "
            "immutable values, or copies",
        )

    @contract()
    async def test_restore_goes_on(self) -> None:
        """A restored state goes on as the original would have."""
        _, replies = await self._begun()
        name = type(self.env()[0]).__name__
        for place in range(len(replies)):
            original, twin, branch = self._copy(), self._copy(), self._copy()
            await self._history(twin, replies[:place])
            before = await self._history(original, replies[:place])
            if before and _over(before[-1]):
                break
            branch.restore(twin.snapshot())  # of one that does not go on
            straight = await self._history(original, replies[place:], start=False)
            restored = await self._history(branch, replies[place:], start=False)
            require(
                restored == straight,
                f"{name}, restored after {place} replies, went on otherwise than the original; "
                "snapshot() must hold all that step() reads, and restore() must put all of it back",
            )

    @contract()
    async def test_branches_are_apart(self) -> None:
        """Branches of one state see only their own history, stepped in turns or later."""
        expected = []
        for place in (1, 2, 1):
            env, replies = await self._begun()
            branch = self._copy()
            branch.restore(env.snapshot())
            expected.append(await _observed(branch, replies[place]))
        env, replies = await self._begun()
        name = type(env).__name__
        state = env.snapshot()
        one, other = self._two()
        one.restore(state)
        other.restore(state)
        found = [await _observed(one, replies[1]), await _observed(other, replies[2])]
        late = self._copy()
        late.restore(state)
        require(
            [*found, await _observed(late, replies[1])] == expected,
            f"branches of one state of {name} disturb each other; restore() must not hand the "
            "snapshot's own lists or dicts to an environment that changes them",
        )

    @contract()
    async def test_step_does_not_hold_the_loop(self) -> None:
        """A step leaves the event loop to others: blocking work goes to a thread or a process."""
        replies = await self._script()
        held = await longest_hold(lambda: self._history(self._copy(), replies))
        require(
            held < self.longest_hold,
            f"{type(self.env()[0]).__name__}.step kept the event loop for {held:.2f} s; await "
            "self.execution.run(function, ...) for blocking work",
        )

    @contract()
    async def test_ended_rollouts_hold_nothing(self) -> None:
        """What a rollout opened is closed when it ends, however far it came."""
        name = type(self.env()[0]).__name__
        replies = await self._script()
        env, ended = self.env()[0], []
        await self._rollout(env, replies)  # what all share is open from now on
        before = self.open_now()
        for place in range(2 * len(replies)):
            ended.append(await self._rollout(env, replies[: place % (len(replies) + 1)]))
        after = self.open_now()
        if before is None or after is None:
            raise NotApplicable("what is open cannot be counted here; override open_now()")
        way = "release() must close" if hasattr(env, "release") else "give it a release() to close"
        require(
            after - before < len(ended) / 2,  # a few may be somebody else's
            f"{len(ended)} rollouts of {name} ended and left {after - before} more resources open; "
            f"{way} what a copy opened",
        )

    # What they share

    async def _rollout(self, env: Any, replies: Sequence[Reply]) -> Any:
        """A copy of an environment that was begun, acted in and released."""
        made = Agent(self.policy(), env).new_env(self._execution, None)
        try:
            await self._history(made, replies)
        finally:
            await release(made)
        return made

    def _copy(self) -> Any:
        """A continuation's copy of a fresh environment, as the collector makes it."""
        return self._of(self.env()[0])

    def _two(self) -> tuple[Any, Any]:
        """Two continuations' copies of one fresh environment."""
        env, _ = self.env()
        return self._of(env), self._of(env)

    def _of(self, env: Any) -> Any:
        made = Agent(self.policy(), env).new_env(self._execution, None)
        require(type(made) is type(copy.copy(env)), "an environment must be copyable")
        self._copies.append(made)
        return made

    async def _history(
        self, env: Any, replies: Sequence[Reply], *, start: bool = True
    ) -> list[Any]:
        if start:
            await reset(env, self.env()[1])
        found: list[Any] = []
        for reply in replies:
            found.append(await _observed(env, reply))
            if _over(found[-1]):
                break
        return found

    async def _begun(self) -> tuple[Any, Sequence[Reply]]:
        """An environment after one reply, if its states can be branched."""
        env, problem = self.env()
        if not Agent(self.policy(), env).forkable:
            raise NotApplicable("the environment's states cannot be branched")
        env = self._of(env)
        await reset(env, problem)
        replies = await self._script()
        transition = await env.step(replies[0])
        if transition.done or transition.truncated:
            await reset(env, problem)  # one reply ends it: branch at the root
        return env, replies


async def _observed(env: Any, reply: Reply) -> tuple[Any, Any]:
    """A transition, and the state after it, by content."""
    transition = await env.step(reply)
    over = transition.done or transition.truncated
    state = env.snapshot() if hasattr(env, "snapshot") and not over else None
    return form(transition), form(state)


def _over(observed: tuple[Any, Any]) -> bool:
    fields = dict(observed[0][1])
    return "True" in (fields["done"], fields["truncated"])


def _messages(name: str, method: str, messages: Any) -> tuple[Any, ...]:
    """Check messages' form."""
    try:
        found = tuple(messages)
    except TypeError:
        found = (None,)
    for message in found:
        require(
            isinstance(message, dict) and {"role", "content"} <= set(message),
            f"{name}.{method} gave the message {message!r}; a message is a dict with 'role' and "
            "'content'",
        )
    return found
