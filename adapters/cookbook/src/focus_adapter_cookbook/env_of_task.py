"""One rollout of a FOCUS agent in its environment, as a cookbook environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tinker
from tinker_cookbook.rl.rollout_limits import RolloutLimits
from tinker_cookbook.rl.types import STOP_METRIC_PREFIX, ActionExtra, Env, StepResult, StopReason

from focus_core.agent.agent import Agent, NextPrompt
from focus_core.env.env import Transition, release
from focus_core.env.execution import Execution
from focus_core.errors import GenerationError, UsageError
from focus_core.policy import Generation
from focus_core.records import Problem
from focus_core.tree.tree import ASKED, FOLDED

__all__ = ["FocusEnv"]


class FocusEnv(Env):  # type: ignore[misc]  # untyped where the SDK is not installed
    """A FOCUS agent's environment, of single use.

    An action is one transition: at most as many tokens as the agent's context allows, which
    ``rollout_limits`` tells the cookbook's runner; so has a folding context's summary. A turn that
    goes on is continued token for token, so its transitions are one datum.

    Args:
        agent: Whose environment, context and system prompt it is; its policy renders and decodes.
        problem: What to solve.
        execution: Where the environment's blocking work runs.

    Raises:
        UsageError: The environment bounds its turns or compares rollouts, as no cookbook
            environment can.
    """

    def __init__(self, agent: Agent, problem: Problem, execution: Execution) -> None:
        if any(hasattr(agent.env, name) for name in ("conclude", "room")):
            raise UsageError(
                f"{type(agent.env).__name__} bounds its turns or compares its rollouts, which a "
                "cookbook environment cannot; an environment of the cookbook's own needs no task"
            )
        self.agent = agent
        self.problem = problem
        self.execution = execution
        self.rollout_limits = RolloutLimits(
            max_turn_tokens=agent.context.transition_tokens(agent.sampling)
        )
        self._env: Any = None
        self._first: tuple[Any, ...] = ()
        self._messages: tuple[Any, ...] = ()
        self._prompt: list[int] = []
        self._turn: list[int] = []
        self._turns = self._taken = self._fold = 0

    async def initial_observation(self) -> tuple[tinker.ModelInput, list[int]]:
        """The problem's first messages, rendered.

        Raises:
            GenerationError: They leave no room in the policy's context.
        """
        self._env = self.agent.new_env(self.execution, None)
        self._first = self._messages = await self.agent.first_messages(self._env, self.problem)
        self._prompt = [int(token) for token in self.agent.first_prompt(self._messages)]
        if not self.agent.room(len(self._prompt)):
            raise GenerationError(
                f"problem {self.problem.id!r}: a prompt of {len(self._prompt)} tokens leaves no "
                "room in the policy's context"
            )
        return tinker.ModelInput.from_ints(self._prompt), self._stop()

    async def aclose(self) -> None:
        """Release what the rollout opened, if it has not ended by itself."""
        env, self._env = self._env, None
        if env is not None:
            await release(env)

    async def step(self, action: list[int], *, extra: ActionExtra | None = None) -> StepResult:
        """One transition."""
        stop = self._stop()
        ended = bool(action) and action[-1] in stop
        why = (extra or {}).get("stop_reason", "stop" if ended else "length")
        generation = Generation(action, (), why)
        self._taken += 1
        whole = [*self._prompt, *action]
        if self._fold == ASKED:
            transition = Transition()
            view = self.agent.fold(self._first, self._messages, action)
        else:
            transition = await self.agent.act(self._env, generation)
            view = await self._view(transition, whole)
        if view.fold == FOLDED and hasattr(self._env, "folded"):
            self._env.folded()
        self._turn = [*self._turn, *action]
        if view.messages is not None:
            self._messages, self._turn = tuple(view.messages), []
            self._turns = 0 if view.fold == FOLDED else self._turns + 1
        self._fold = view.fold
        self._prompt = [int(token) for token in view.tokens]
        metrics = {name: float(value) for name, value in transition.metrics.items()}
        reason = None if transition.done else self._cut(transition)
        if reason is not None:
            metrics[f"{STOP_METRIC_PREFIX}{reason}"] = 1.0
        if transition.done or reason is not None:
            await self.aclose()
        return StepResult(
            reward=float(transition.reward) - view.penalty,
            episode_done=transition.done or reason is not None,
            next_observation=tinker.ModelInput.from_ints(self._prompt),
            next_stop_condition=self._stop(),
            metrics=metrics,
        )

    async def _view(self, transition: Transition, whole: Sequence[int]) -> NextPrompt:
        """What the policy sees after an answer; ``whole`` is the sequence it has made."""
        agent = self.agent
        if transition.done or not (transition.messages or agent.folding):
            return NextPrompt(None, whole)
        return await agent.follow(
            transition,
            first=self._first,
            messages=self._messages,
            turn=[*self._turn, *whole[len(self._prompt) :]],
            prefix=whole,
            turns=self._turns,
            last=transition.truncated or self._taken >= agent.transition_limit,
            execution=self.execution,
        )

    def _cut(self, transition: Transition) -> StopReason | None:
        """Why a rollout is over that its environment has not ended."""
        if transition.truncated or self._taken >= self.agent.transition_limit:
            return StopReason.MAX_TURNS
        if not self.agent.room(len(self._prompt), fold=self._fold == ASKED):
            return StopReason.CONTEXT_OVERFLOW
        return None

    def _stop(self) -> list[int]:
        ends = getattr(self.agent.policy, "end_tokens", ())
        own = getattr(self._env, "stop", ())
        return sorted({*ends, *self.agent.sampling.stop, *own})
