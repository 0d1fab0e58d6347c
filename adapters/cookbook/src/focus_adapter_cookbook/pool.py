"""The fresh environments of one problem: made by the group, begun, given out, cleaned up."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

import attrs
from tinker_cookbook.rl.types import EnvGroupBuilder, InitialObservationOverflow

from focus_adapter_cookbook.chat import stop_tokens
from focus_adapter_cookbook.errors import PromptOverflowError
from focus_adapter_cookbook.limits import exhausted
from focus_core.errors import UsageError
from focus_core.utils.concurrency import finish

__all__ = ["Begun", "Pool", "observed"]


def observed(observation: Any) -> tuple[int, ...]:
    """Tokens of an observation.

    Raises:
        UsageError: It holds something else, such as an image.
    """
    try:
        return tuple(observation.to_ints())
    except ValueError as error:
        kinds = sorted({type(chunk).__name__ for chunk in observation.chunks})
        raise UsageError(
            f"an observation of {', '.join(kinds)} is not tokens alone, and FOCUS trains on tokens"
        ) from error


@attrs.frozen(eq=False)
class Begun:
    """A cookbook environment before its first action.

    Attributes:
        env: It.
        observation: Its first prompt.
        stop: Tokens that end the first turn.
        limits: Budgets it asks for (``RolloutLimits``), or ``None``.
    """

    env: Any
    observation: tuple[int, ...]
    stop: tuple[int, ...]
    limits: Any


@attrs.define(eq=False)
class Pool:
    """Fresh environments of one ``EnvGroupBuilder``.

    ``make_envs`` gives whole groups: their members are used up before another group is made. Each
    group has a copy of the builder of its own, as some builders remember only the newest group's
    resources; all are cleaned up together, when the tree is done.

    Args:
        builder: Makes them.
        tokenizer: For stop conditions that are texts.
    """

    builder: EnvGroupBuilder
    tokenizer: Any = None
    _groups: list[EnvGroupBuilder] = attrs.field(factory=list, init=False)
    _fresh: list[Any] = attrs.field(factory=list, init=False)
    _begun: list[Begun] = attrs.field(factory=list, init=False)
    _making: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)

    async def begin(self) -> Begun:
        """An environment with its first observation.

        Raises:
            PromptOverflowError: Its first prompt is too long, by its own account or its limits.
            UsageError: The builder makes none, or an observation or stop is not tokens.
        """
        if self._begun:
            return self._begun.pop()
        env = await self._take()
        first = await env.initial_observation()
        if isinstance(first, InitialObservationOverflow):
            said = "; ".join(map(str, first.logs.values())) or "it gives no reason"
            raise PromptOverflowError(
                f"{type(env).__name__}: the first prompt is too long ({said}); raise the "
                "environment's token limit, or leave the problem out"
            )
        observation = observed(first[0])
        limits = getattr(env, "rollout_limits", None)
        reason = exhausted(limits, turns=0, observed=len(observation), sampled=0)
        if reason is not None:
            raise PromptOverflowError(
                f"{type(env).__name__}: a first prompt of {len(observation)} tokens leaves nothing "
                f"of its own limits ({reason}); raise them, or leave the problem out"
            )
        if limits is not None and limits.max_tool_calls is not None:
            setter = getattr(env, "set_max_tool_calls", None)
            if setter is None:
                raise UsageError(
                    f"{type(env).__name__} asks for max_tool_calls={limits.max_tool_calls} but has "
                    "no set_max_tool_calls; leave the limit out"
                )
            setter(limits.max_tool_calls)
        return Begun(env, observation, stop_tokens(first[1], self.tokenizer), limits)

    def give_back(self, begun: Begun) -> None:
        """Return an environment that has not acted."""
        self._begun.append(begun)

    async def _take(self) -> Any:
        async with self._making:
            if not self._fresh:
                builder = copy.copy(self.builder)
                self._groups.append(builder)
                self._fresh = list(await builder.make_envs())
                if not self._fresh:
                    raise UsageError(f"{type(builder).__name__}.make_envs made no environment")
            return self._fresh.pop(0)

    async def rewards(self, trajectories: Sequence[Any], envs: Sequence[Any]) -> list[float]:
        """The group's rewards, one for each trajectory."""
        if not hasattr(self.builder, "compute_group_rewards"):
            return [0.0] * len(trajectories)
        builder = self._groups[0] if self._groups else self.builder
        found = await builder.compute_group_rewards(list(trajectories), list(envs))
        return [float(reward) for reward, _ in found]

    async def aclose(self) -> None:
        """Clean up every group, cancelled or not; then raise the cancellation or first failure."""
        groups, self._groups, self._fresh, self._begun = self._groups, [], [], []
        failures: list[BaseException] = []
        for builder in groups:
            if hasattr(builder, "cleanup"):
                try:
                    await finish(builder.cleanup())
                except (Exception, asyncio.CancelledError) as error:  # others hold resources, too
                    failures.append(error)
        for failure in sorted(failures, key=lambda each: isinstance(each, Exception)):
            raise failure
