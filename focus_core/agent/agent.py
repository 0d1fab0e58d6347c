"""The agent: a policy acting in an environment, one transition at a time."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import attrs

from focus_core.agent.context import Context, Segments
from focus_core.agent.env import Env, Reply, Transition
from focus_core.agent.execution import Execution
from focus_core.agent.workspace import Workspace
from focus_core.errors import GenerationError
from focus_core.policy import Generation, Policy, SamplingParams, check_generation
from focus_core.records import Problem

__all__ = ["Agent"]


@attrs.define(eq=False)
class Agent:
    """A policy in an environment.

    Args:
        policy: What speaks; it stays with its owner.
        env: What answers; a fresh instance per problem.
        system_prompt: Text of a first system message.
        context: How a turn is cut into transitions.
        sampling: How to sample; ``max_tokens`` bounds each transition as the context does.
        execution: Where the environment's blocking work runs; by default a thread pool that the
            collector opens and closes.
        max_transitions: A rollout longer than this is cut at a non-terminal state.
    """

    policy: Policy
    env: Env
    system_prompt: str | None = attrs.field(default=None, kw_only=True)
    context: Context = attrs.field(factory=Segments, kw_only=True)
    sampling: SamplingParams = attrs.field(factory=SamplingParams, kw_only=True)
    execution: Execution | None = attrs.field(default=None, kw_only=True)
    max_transitions: int = attrs.field(default=64, kw_only=True, validator=attrs.validators.ge(1))

    @property
    def forkable(self) -> bool:
        """Whether the environment's states can be branched."""
        return (
            getattr(self.env, "forkable", True)
            and hasattr(self.env, "snapshot")
            and hasattr(self.env, "restore")
        )

    def new_env(self, execution: Execution, workspace: Workspace | None) -> Any:
        """This continuation's own copy of the environment, not yet reset or restored."""
        env = copy.copy(self.env)
        if hasattr(env, "execution"):
            env.execution = execution
        if workspace is not None and hasattr(env, "workspace"):
            env.workspace = workspace.fork()
        return env

    def first_messages(self, env: Env, problem: Problem) -> tuple[Any, ...]:
        """Reset ``env`` and put the system prompt before its messages."""
        messages = tuple(env.reset(problem))
        if self.system_prompt is None:
            return messages
        return ({"role": "system", "content": self.system_prompt}, *messages)

    def room(self, length: int) -> int:
        """Most tokens the next transition may have after a prefix of ``length``; 0 if none."""
        room = self.context.transition_tokens(self.sampling)
        limit = getattr(self.policy, "context_length", None)
        return room if limit is None else max(0, min(room, limit - length))

    async def say(self, prefix: Sequence[int], seed: int | None) -> Generation:
        """Sample one transition's tokens.

        Raises:
            GenerationError: The prefix fills the policy's context, or the answer cannot be
                trained on.
        """
        room = self.room(len(prefix))
        if not room:
            raise GenerationError(
                f"{len(prefix)} tokens leave no room in the policy's context of "
                f"{getattr(self.policy, 'context_length', None)}; shorten the prompt"
            )
        params = attrs.evolve(self.sampling, max_tokens=room, seed=seed)
        generations = await self.policy.generate(prefix, params)
        if len(generations) != 1:
            raise GenerationError(f"the policy returned {len(generations)} generations for n=1")
        check_generation(generations[0], max_tokens=room)
        return generations[0]

    async def act(self, env: Env, generation: Generation) -> Transition:
        """Let the environment answer one generation.

        Raises:
            ValueError: The environment's transition contradicts itself.
        """
        tokens = tuple(generation.tokens)
        reply = Reply(tokens, self.policy.decode(tokens), generation.stop_reason)
        transition = await env.step(reply)
        if not isinstance(transition, Transition):
            raise TypeError(
                f"{type(env).__name__}.step returned {type(transition).__name__}, "
                "not a focus_core.Transition"
            )
        reward = transition.reward
        if isinstance(reward, bool) or not isinstance(reward, float | int):
            reward = float(reward)
            transition = attrs.evolve(transition, reward=reward)
        if not math.isfinite(reward):
            raise ValueError(
                f"{type(env).__name__}.step returned reward {reward!r}; raise an error if a reply "
                "cannot be graded"
            )
        if transition.done and transition.truncated:
            raise ValueError(f"{type(env).__name__}.step returned both done and truncated")
        return transition

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
        ends = getattr(self.policy, "end_tokens", self.sampling.stop)
        said = list(turn)
        if said and said[-1] in ends:
            said.pop()
        reply = {"role": "assistant", "content": self.policy.decode(said)}
        chat = (*messages, reply, *transition.messages)
        return chat, self.policy.prepare(chat).tokens
