"""The agent: a policy acting in an environment, one transition at a time."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
from collections.abc import Mapping, Sequence
from types import CoroutineType
from typing import Any, NamedTuple

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.agent.context import Context, Segments
from focus_core.agent.folding import Folding
from focus_core.env.env import Env, Reply, Transition, add_system, reset
from focus_core.env.execution import Execution
from focus_core.env.workspace import Workspace
from focus_core.errors import FoldError, GenerationError, UsageError
from focus_core.policy import (
    Generation,
    Policy,
    SamplingParams,
    StopReason,
    check_generation,
    check_tokens,
)
from focus_core.records import Problem
from focus_core.tree.prefix import Prefix
from focus_core.tree.tree import ASKED, FOLDED

__all__ = ["Agent", "NextPrompt", "Spoken", "call_plain"]

_REPLIES = 64
"""In a rollout, unless an agent says how many transitions."""

_BREATH = 32768
"""Tokens to check without a pause: about a millisecond's work."""


def call_plain(plugin: Any, method: str, *args: Any) -> Any:
    """Call a method of an environment or policy that must not be async: nobody would await it.

    Raises:
        TypeError: It is.
    """
    answer = getattr(plugin, method)(*args)
    if inspect.iscoroutine(answer):
        answer.close()
        raise TypeError(f"{type(plugin).__name__}.{method} is async; make it a plain function")
    return answer


def _awaitable(answer: Any, plugin: Any, method: str) -> Any:
    """What an environment's or policy's method returned, to be awaited.

    Raises:
        TypeError: It is not async.
    """
    if type(answer) is CoroutineType or inspect.isawaitable(answer):
        return answer
    name = f"{type(plugin).__name__}.{method}"
    raise TypeError(f"{name} is not async; write 'async def {method}'")


def _chat(env: Any, method: str, messages: Any) -> tuple[Any, ...]:
    """An environment's messages; a single one or a text would be taken apart."""
    if isinstance(messages, str | bytes | Mapping):
        raise TypeError(
            f"{type(env).__name__}.{method} gave the messages {messages!r}; they are a list of "
            "dicts with 'role' and 'content'"
        )
    return tuple(messages)


def _check_metrics(env: Any, metrics: Mapping[str, Any]) -> None:
    """Refuse what would make the batch's mean no number."""
    for name, value in metrics.items():
        try:
            fits = not isinstance(value, str | bytes) and math.isfinite(value)
        except (TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            raise ValueError(
                f"{type(env).__name__}.step returned the metric {name!r} as {value!r}; it must be "
                "a finite number, or left out"
            )


@attrs.frozen
class NextPrompt:
    """What the policy sees from a state on.

    Attributes:
        messages: The chat; ``None`` while the turn goes on, token for token.
        tokens: What the next request sends.
        fold: ``ASKED`` if the next transition is a summary, ``FOLDED`` just after one, else 0.
        penalty: To subtract from the reward of the edge that led here.
    """

    messages: tuple[Any, ...] | None
    tokens: Sequence[int]
    fold: int = 0
    penalty: float = 0.0


class Spoken(NamedTuple):
    """A checked generation, whose columns are its own: int32 and float32, shape (T,)."""

    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    stop_reason: StopReason


@attrs.define(eq=False)
class Agent:
    """A policy in an environment.

    Args:
        policy: What speaks; it stays with its owner.
        env: What answers; a fresh instance per problem.
        system_prompt: Text of a first system message; it comes before what the environment's own
            says. ``None`` or empty: none.
        context: How a turn is cut into transitions, and whether a long chat is folded.
        sampling: How to sample; ``max_tokens`` bounds each transition as the context does.
        execution: Where the environment's blocking work runs; by default a thread pool that the
            collector opens and closes.
        max_transitions: A rollout of so many is cut, without an outcome. ``None``: of
            ``transition_limit``, which ends no reply that its ``max_tokens`` allows.
    """

    policy: Policy
    env: Env
    system_prompt: str | None = attrs.field(default=None, kw_only=True)
    context: Context = attrs.field(factory=Segments, kw_only=True)
    sampling: SamplingParams = attrs.field(factory=SamplingParams, kw_only=True)
    execution: Execution | None = attrs.field(default=None, kw_only=True)
    max_transitions: int | None = attrs.field(
        default=None,
        kw_only=True,
        validator=attrs.validators.optional(attrs.validators.ge(1)),
    )
    _request_tokens: int = attrs.field(default=0, init=False)
    _last_params: tuple[Any, SamplingParams] = attrs.field(
        default=(None, SamplingParams()), init=False
    )

    @property
    def forkable(self) -> bool:
        """Whether the environment's states can be branched."""
        return (
            getattr(self.env, "forkable", True)
            and hasattr(self.env, "snapshot")
            and hasattr(self.env, "restore")
        )

    @property
    def transition_limit(self) -> int:
        """Transitions at which a rollout is cut, so that an endless one ends.

        ``max_transitions``, or by default as many as 64 whole replies take: ``64 * ceil(M / T)``,
        at least ``M``, where a reply has at most ``M`` tokens (the environment's ``max_tokens``,
        or without it the sampling's) and a transition ``T``.
        """
        if self.max_transitions is not None:
            return self.max_transitions
        reply = getattr(self.env, "max_tokens", None)
        if not isinstance(reply, int) or reply < 1:
            reply = self.sampling.max_tokens
        pieces = math.ceil(reply / self.context.transition_tokens(self.sampling))
        return max(_REPLIES * pieces, reply)

    def new_env(self, execution: Execution, workspace: Workspace | None) -> Any:
        """This continuation's own copy of the environment, not yet reset or restored."""
        env = copy.copy(self.env)
        if hasattr(env, "execution"):
            env.execution = execution
        if hasattr(env, "workspace"):
            own = env.workspace if workspace is None else workspace
            if isinstance(own, Workspace):
                env.workspace = own.fork()
        return env

    async def first_messages(self, env: Env, problem: Problem) -> tuple[Any, ...]:
        """Reset ``env`` and put the system prompt before its messages.

        Raises:
            UsageError: There is a system prompt, and the messages carry their own tokens.
        """
        messages = _chat(env, "reset", await reset(env, problem))
        if not self.system_prompt:
            return messages
        if _exact(messages) is not None:
            raise UsageError(
                f"{type(env).__name__} gives its prompt as tokens, which a system prompt cannot "
                "come before; leave system_prompt out"
            )
        return add_system(messages, self.system_prompt)

    def render(self, messages: Sequence[Any]) -> Sequence[int]:
        """Tokens of a chat: those its last message carries, else what the policy prepares.

        Raises:
            GenerationError: They are no token ids.
        """
        exact = _exact(messages)
        if exact is None:
            return self._rendered(messages)
        check_tokens(exact, "the environment's last message gave")
        return exact

    @property
    def folding(self) -> Folding | None:
        """The context, if it folds."""
        return self.context if isinstance(self.context, Folding) else None

    def first_prompt(self, messages: Sequence[Any]) -> Sequence[int]:
        """The tokens of the root.

        Raises:
            FoldError: The context would have to fold what cannot be folded.
        """
        tokens = self.render(messages)
        if self.folding is not None and self.folding.summarize is None:
            asked = self._rendered(self.folding.asked(messages))
            # One more for the end of a turn that is folded unfinished.
            self._request_tokens = max(0, len(asked) - len(tokens)) + 1
        self._check_length(tokens, "the first prompt")
        return tokens

    def _rendered(self, messages: Sequence[Any]) -> Sequence[int]:
        """The prompt of a chat.

        Raises:
            GenerationError: The policy's rendering is no sequence of token ids.
        """
        prompt: Any = call_plain(self.policy, "prepare", messages)
        tokens: Sequence[int] | None = getattr(prompt, "tokens", None)
        if tokens is None:
            raise GenerationError(
                f"{type(self.policy).__name__}.prepare gave {type(prompt).__name__}, not a "
                "PreparedPrompt with tokens"
            )
        check_tokens(tokens, f"{type(self.policy).__name__}.prepare gave")
        return tokens

    def _too_long(self, length: int) -> bool:
        """Whether a prompt must be folded for its length."""
        limit = getattr(self.policy, "context_length", None)
        return self.folding is not None and self.folding.too_long(
            length, self.sampling, limit, self._request_tokens
        )

    def _check_length(self, tokens: Sequence[int], what: str) -> None:
        if self._too_long(len(tokens)):
            raise FoldError(
                f"{what} has {len(tokens)} tokens, which fires Folding's trigger at once; raise "
                "max_tokens or the policy's context length, or lower keep, summary_tokens or the "
                "transition's length"
            )

    def room(self, length: int, *, fold: bool = False) -> int:
        """Most tokens the next transition may have after a prefix of ``length``; 0 if none."""
        if fold and self.folding is not None:
            room = self.folding.summary_room(self.sampling)
        else:
            room = self.context.transition_tokens(self.sampling)
        limit = getattr(self.policy, "context_length", None)
        return room if limit is None else max(0, min(room, limit - length))

    async def say(
        self, prefix: Sequence[int], seed: int | None, *, fold: bool = False, env: Any = None
    ) -> Spoken:
        """One of ``say_together``."""
        (spoken,) = await self.say_together(prefix, seed, fold=fold, env=env)
        return spoken

    async def say_together(
        self,
        prefix: Sequence[int],
        seed: int | None,
        n: int = 1,
        *,
        fold: bool = False,
        env: Any = None,
    ) -> list[Spoken]:
        """Sample the tokens of a transition, or with ``fold`` a summary, ``n`` times.

        Args:
            prefix: What to continue; a ``Prefix`` goes to the policy as it is.
            seed: Of this request.
            n: How many continuations.
            fold: Whether a summary is asked for.
            env: Whose ``room`` and ``stop`` bound the transition, where it has them.

        Raises:
            GenerationError: The prefix fills the policy's context, or the answer cannot be
                trained on.
        """
        policy = self.policy
        room = self.room(len(prefix), fold=fold)
        if not room:
            raise GenerationError(
                f"{len(prefix)} tokens leave no room in the policy's context of "
                f"{getattr(policy, 'context_length', None)}; shorten the prompt"
            )
        stop: tuple[int | str, ...] = ()
        if env is not None and not fold:
            own = getattr(env, "room", None)
            room = room if own is None else max(1, min(room, own))
            stop = tuple(getattr(env, "stop", ()))
        params = self._params(room, stop)
        if seed is not None:
            params = attrs.evolve(params, seed=seed)
        # A copy: what the policy does to its argument must not reach the record.
        given = prefix if isinstance(prefix, Prefix) else list(prefix)
        # Most policies need not take n, so it is not named for one.
        asked: Any = policy.generate(given, params, n) if n > 1 else policy.generate(given, params)
        answer = await _awaitable(asked, policy, "generate")
        if not isinstance(answer, list | tuple):
            raise GenerationError(
                f"{type(policy).__name__}.generate returned {type(answer).__name__}, not a list of "
                "Generations"
            )
        if len(answer) != n:
            raise GenerationError(f"the policy returned {len(answer)} generations for n={n}")
        spoken, checked = [], 0
        for generation in answer:
            spoken.append(self._spoken(generation, room))
            checked += len(spoken[-1].tokens)
            if checked > _BREATH:  # of many long samples: others have their turn
                checked = 0
                await asyncio.sleep(0)
        return spoken

    def _spoken(self, generation: Any, room: int) -> Spoken:
        """One generation, checked."""
        if not isinstance(generation, Generation) or generation.tokens is None:
            for field in ("tokens", "logprobs", "stop_reason"):
                missing = not hasattr(generation, field)
                if missing or (field == "tokens" and generation.tokens is None):
                    raise GenerationError(
                        f"{type(self.policy).__name__}.generate returned "
                        f"{type(generation).__name__} without {field}, not a Generation"
                    )
        columns = check_generation(generation, max_tokens=room)
        return Spoken(*columns, generation.stop_reason)

    def _params(self, room: int, stop: tuple[int | str, ...]) -> SamplingParams:
        """Parameters of a request without a seed; one after another asks for the same."""
        asked = (self.sampling, room, stop)
        if self._last_params[0] != asked:
            stops: Any = (*self.sampling.stop, *stop)
            params = attrs.evolve(self.sampling, max_tokens=room, seed=None, stop=stops)
            texts = [each for each in params.stop if isinstance(each, str)]
            if texts and not getattr(self.policy, "takes_stop_strings", False):
                raise UsageError(
                    f"{type(self.policy).__name__} takes no stop strings, such as {texts[0]!r}: "
                    "it would have to say which sampled token completed one; give token ids"
                )
            self._last_params = (asked, params)
        return self._last_params[1]

    async def act(self, env: Env, spoken: Spoken | Generation) -> Transition:
        """Let the environment answer what the policy said.

        Raises:
            ValueError: The environment's transition contradicts itself.
        """
        said = spoken.tokens
        tokens = tuple(said.tolist() if isinstance(said, np.ndarray) else said)
        reply = Reply(tokens, self.policy.decode, spoken.stop_reason)
        transition: Transition = await _awaitable(env.step(reply), env, "step")
        if not isinstance(transition, Transition):
            raise TypeError(
                f"{type(env).__name__}.step returned {type(transition).__name__}, "
                "not a focus_core.Transition"
            )
        reward: Any = transition.reward
        if isinstance(reward, bool) or not isinstance(reward, float | int):
            if isinstance(reward, str | bytes | None):
                raise TypeError(
                    f"{type(env).__name__}.step returned reward {reward!r}; it must be a number"
                )
            reward = float(reward)
            transition = attrs.evolve(transition, reward=reward)
        if not math.isfinite(reward):
            raise ValueError(
                f"{type(env).__name__}.step returned reward {reward!r}; raise an error if a reply "
                "cannot be graded"
            )
        if transition.done and transition.truncated:
            raise ValueError(f"{type(env).__name__}.step returned both done and truncated")
        if transition.messages:
            _chat(env, "step", transition.messages)
        if transition.metrics:
            _check_metrics(env, transition.metrics)
        return transition

    async def follow(
        self,
        transition: Transition,
        *,
        first: Sequence[Any],
        messages: Sequence[Any],
        turn: Sequence[int],
        prefix: Sequence[int],
        turns: int,
        last: bool,
        execution: Execution,
    ) -> NextPrompt:
        """What the policy sees after an environment's answer that ends nothing.

        Args:
            transition: What the environment said.
            first: The messages the rollout began with.
            messages: The chat the turn answers.
            turn: Tokens sampled in the turn.
            prefix: The whole sequence so far, the turn included.
            turns: Turns that had ended before, since the start or the last fold.
            last: Whether the rollout is cut here, so that nothing goes on from a fold.
            execution: Where a user's function summarizes.

        Raises:
            FoldError: The fold that is due fails.
        """
        view = NextPrompt(None, prefix)
        if transition.messages:
            view = NextPrompt(*self.next_prompt(messages, turn, transition))
        folding = self.folding
        if folding is None or last:
            return view
        most = folding.max_turns if view.messages is not None else None
        if not self._too_long(len(view.tokens)) and (most is None or turns + 1 < most):
            return view
        chat = view.messages or (*messages, self._assistant(turn))
        if folding.summarize is not None:
            summary = await folding.summary(chat, execution)
            return self._folded(folding, first, chat, summary)
        chat = folding.asked(chat)
        return NextPrompt(chat, self._rendered(chat), ASKED)

    def fold(
        self, first: Sequence[Any], messages: Sequence[Any], summary: Sequence[int]
    ) -> NextPrompt:
        """What the policy sees after its summary, whose tokens these are.

        Raises:
            FoldError: The summary is empty, or the fold did not help.
        """
        assert self.folding is not None  # its own ASKED led here
        text = self._assistant(summary)["content"]
        return self._folded(self.folding, first, messages, text)

    def _folded(
        self, folding: Folding, first: Sequence[Any], chat: Sequence[Any], summary: str
    ) -> NextPrompt:
        chat = folding.folded(first, chat, summary)
        tokens = self._rendered(chat)
        self._check_length(tokens, "the prompt after a fold")
        return NextPrompt(chat, tokens, FOLDED, folding.penalty)

    def next_prompt(
        self, messages: Sequence[Any], turn: Sequence[int], transition: Transition
    ) -> tuple[tuple[Any, ...], Sequence[int]]:
        """The chat after an environment's answer, and its rendering.

        Args:
            messages: The chat the turn answered.
            turn: Tokens sampled in the turn.
            transition: What the environment said.

        The turn's tokens are never re-encoded into a record: the caller compares the rendering
        with what was sampled, and starts a new sequence where it does not continue it.
        """
        chat = (*messages, self._assistant(turn), *transition.messages)
        return chat, self.render(chat)

    def _assistant(self, turn: Sequence[int]) -> dict[str, str]:
        """A turn as a message: its text without the end token, which the template adds."""
        ends = getattr(self.policy, "end_tokens", self.sampling.stop)
        said = list(turn)
        if said and said[-1] in ends:
            said.pop()
        return {"role": "assistant", "content": self.policy.decode(said)}


def _exact(messages: Sequence[Any]) -> Sequence[int] | None:
    """The prompt that the last message carries as tokens, if it does."""
    last = messages[-1] if messages else None
    return last.get("tokens") if isinstance(last, Mapping) else None
