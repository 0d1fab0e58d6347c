"""What the agent acts in: the environment contract, and the commonest environment."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import attrs

from focus_core.env.execution import Execution, ThreadExecution
from focus_core.errors import UsageError
from focus_core.policy import StopReason
from focus_core.records import Problem
from focus_core.utils.concurrency import awaited

__all__ = ["Env", "Reply", "ReplyEnv", "Said", "Transition", "add_system", "release", "reset"]


@attrs.frozen
class Reply:
    """What the policy said in one transition.

    Attributes:
        tokens: The sampled ids, exactly.
        text: Their decoding, made when it is first read. A character may be cut at either end of
            a segment: an environment that reads a whole turn decodes all its tokens at once.
        stop_reason: ``"stop"`` when the policy ended its turn, ``"length"`` when it was cut.
    """

    tokens: Sequence[int]
    _text: str | Callable[[Sequence[int]], str] = attrs.field(eq=False, repr=False)
    stop_reason: StopReason

    @property
    def text(self) -> str:
        """Their decoding."""
        if callable(self._text):
            object.__setattr__(self, "_text", self._text(self.tokens))
        return self._text  # type: ignore[return-value]  # a text by now

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copied and pickled with its text: what decodes is the policy, which stays here."""
        _ = self.text
        return super().__reduce_ex__(protocol)


@attrs.frozen
class Transition:
    """An environment's answer to one reply.

    Attributes:
        reward: Reward of this transition, finite.
        done: The rollout is over and this reward closes it.
        truncated: The rollout is cut here without an outcome: its last state is valued by the
            critic and gives no observation.
        messages: New messages for the policy. Without any, a transition that is not done
            continues the same assistant turn token for token.
        metrics: Finite numbers to report, averaged over the batch.
    """

    reward: float = 0.0
    done: bool = False
    truncated: bool = False
    messages: Sequence[Any] = ()
    metrics: Mapping[str, float] = attrs.field(factory=dict)


@runtime_checkable
class Env(Protocol):
    """What an agent acts in: one fresh instance per problem.

    Each continuation acts on its own ``copy.copy`` of the instance, which is then reset or
    restored; so ``reset`` and ``restore`` rebind attributes and never mutate what another copy
    may hold. An environment that also has ``snapshot() -> state`` and ``restore(state)`` makes
    every state a branching point, unless ``forkable`` is False. Without them it is collected
    unbranched. An attribute named ``execution`` is set to the agent's execution service on every
    copy. A method ``folded()`` is called when a context has been folded, and the policy begins a
    new turn whatever it was saying.

    Further optional attributes, read before each transition: ``stop``, token ids that end the
    policy's turn beside those of the sampling; ``room``, most tokens the next transition may have.
    ``reset`` may be a coroutine function.

    Further optional methods, all awaited. Of a copy: ``release()``, once and on every way out, when
    its continuation is done, cut, failed or cancelled, frees what it alone holds (what its
    ``reset`` opened, or a ``step`` of it). Of the instance the collector was given:
    ``conclude(rollouts)``, once the tree is grown, returns for each finished rollout what is added
    to its last reward (rewards that compare rollouts); ``aclose()``, when the collector is left,
    frees what the copies share.

    With ``release``, or without snapshots, no copy serves the prompt alone: the one whose
    ``reset`` gave it acts out the first continuation, without being restored.

    A last message with ``tokens`` carries the whole prompt, token for token: it is sent as it is,
    and no template renders the chat. ``content`` is then for people to read.
    """

    def reset(self, problem: Problem) -> Sequence[Any] | Awaitable[Sequence[Any]]:
        """Start the problem; return the first messages (dicts with ``role`` and ``content``)."""
        ...

    async def step(self, reply: Reply) -> Transition:
        """Act on a reply. Grading happens here, awaited, never blocking the event loop."""
        ...


async def reset(env: Any, problem: Problem) -> Any:
    """What an environment's ``reset`` gives, whether it is awaited or not."""
    messages = env.reset(problem)
    return await messages if inspect.isawaitable(messages) else messages


async def release(env: Any) -> None:
    """Let a copy free what it alone holds, where it can.

    Raises:
        TypeError: Its ``release`` is not async.
    """
    if hasattr(env, "release"):
        await awaited(env.release(), f"{type(env).__name__}.release")


def add_system(messages: Sequence[Any], text: str, *, last: bool = False) -> tuple[Any, ...]:
    """Messages with a text in their system message: before what it says, or after it.

    Chat templates take one system message; without one, a new message comes first.
    """
    first = messages[0] if messages else None
    said = first.get("content") if isinstance(first, Mapping) else None
    if isinstance(first, Mapping) and first.get("role") == "system" and isinstance(said, str):
        both = f"{said}\n\n{text}" if last else f"{text}\n\n{said}"
        return ({**first, "content": both}, *messages[1:])
    return ({"role": "system", "content": text}, *messages)


class ReplyEnv:
    """One question, one reply, graded once.

    The reply may arrive in segments; it ends at a stop token, or at ``max_tokens``, where the
    rollout is over as well and graded as it stands (an unfinished reply has earned what its
    grade says, usually nothing). Subclasses give ``grade``.

    Args:
        decode: The policy's ``decode``.
        max_tokens: Length limit of the reply, in tokens.

    Attributes:
        execution: Runs blocking work: ``await self.execution.run(function, *args)``. The agent's
            service while it is collected, and otherwise one that all environments share.
    """

    execution: Execution = ThreadExecution()

    def __init__(self, decode: Callable[[Sequence[int]], str], max_tokens: int) -> None:
        if not max_tokens >= 1:
            raise UsageError(f"max_tokens={max_tokens!r}: a reply has at least 1 token")
        self.decode = decode
        self.max_tokens = max_tokens
        self._said: Said | None = None

    async def grade(self, text: str) -> float:
        """Reward of the whole reply's text.

        Raises:
            GradingError: The reply could not be graded.
        """
        raise NotImplementedError

    def reset(self, problem: Problem) -> Sequence[Any]:
        """One user message with the problem's prompt, or its own messages if it has some."""
        self._said = None
        if isinstance(problem.prompt, str):
            return ({"role": "user", "content": problem.prompt},)
        return tuple(problem.prompt)

    async def step(self, reply: Reply) -> Transition:
        """Take one segment; grade when the reply is over."""
        self._said = said = Said(self._said, tuple(reply.tokens))
        cut = said.length >= self.max_tokens
        if reply.stop_reason == "length" and not cut:
            return Transition()
        reward = await self._graded(self.decode(said.tokens()))
        return Transition(reward, done=True, metrics={"finished": float(not cut)})

    async def _graded(self, text: str) -> float:
        verdict = self.grade(text)
        if not inspect.isawaitable(verdict):
            raise TypeError(f"{type(self).__name__}.grade is not async; write 'async def grade'")
        return await verdict

    def snapshot(self) -> Any:
        """The reply so far; states share what they have in common."""
        return self._said

    def restore(self, state: Any) -> None:
        """Continue from a reply so far."""
        self._said = state


class Said:
    """A reply so far, as a chain of segments, so that memory grows with tokens, not depth."""

    __slots__ = ("before", "length", "segment")

    def __init__(self, before: Said | None, segment: tuple[int, ...]) -> None:
        self.before = before
        self.segment = segment
        self.length: int = len(segment) + (before.length if before else 0)

    def tokens(self) -> list[int]:
        """All its tokens."""
        segments = []
        link: Said | None = self
        while link is not None:
            segments.append(link.segment)
            link = link.before
        return [token for segment in reversed(segments) for token in segment]
