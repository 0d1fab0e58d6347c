"""A cookbook environment as FOCUS's: its actions recorded, so that every state can be branched."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.rollout_runner import stop_reason_from_metrics
from tinker_cookbook.rl.types import STOP_METRIC_PREFIX, EnvGroupBuilder, Trajectory
from tinker_cookbook.rl.types import Transition as CookbookTransition

from focus_adapter_cookbook.chat import stop_tokens
from focus_adapter_cookbook.errors import DivergenceError
from focus_adapter_cookbook.limits import budget, exhausted
from focus_adapter_cookbook.pool import Begun, Pool, observed
from focus_core.env.env import Reply, Said, Transition
from focus_core.records import Problem
from focus_core.tree.rollout import Rollout

__all__ = ["CookbookEnv"]


@attrs.frozen(eq=False)
class _Step:
    """One action, and what the environment answered."""

    action: tuple[int, ...]
    stop_reason: str
    result: Any
    observation: tuple[int, ...]
    stop: tuple[int, ...]

    def difference(self, other: _Step) -> str | None:
        """How another answer to the same action differs; metrics and logs may."""
        for name in ("reward", "episode_done"):
            mine, theirs = getattr(self.result, name), getattr(other.result, name)
            if mine != theirs:
                return f"{name} {mine!r}, then {theirs!r}"
        if self.observation != other.observation:
            return "another observation"
        return "another stop condition" if self.stop != other.stop else None


@attrs.frozen(eq=False)
class _Place:
    """Where a rollout is; states share it, and nothing changes it.

    Attributes:
        first: The initial observation, its stop tokens and the environment's limits.
        steps: Actions so far.
        said: The unfinished turn.
    """

    first: tuple[tuple[int, ...], tuple[int, ...], Any]
    steps: tuple[_Step, ...] = ()
    said: Said | None = None

    @property
    def observation(self) -> tuple[int, ...]:
        """What the policy was given when the turn began."""
        return self.steps[-1].observation if self.steps else self.first[0]

    @property
    def sampled(self) -> int:
        """Tokens of all finished turns."""
        return sum(len(step.action) for step in self.steps)


@attrs.frozen(eq=False)
class _State:
    place: _Place
    live: Any = None


class CookbookEnv:
    """One problem: the environments that an ``EnvGroupBuilder`` makes.

    A turn is one action. It may come in segments; it ends at a stop token, or at the action's
    limit, and only then does the cookbook's environment see it. Prompts are the environment's own
    observations, token for token, so no template of the policy's is used.

    A continuation from a state gets a fresh environment, in which the recorded actions are
    replayed; answers that differ raise ``DivergenceError``. An environment whose class defines
    ``__copy__`` is copied instead, as is any with ``copy_env``.

    Rewards of the group are computed over all finished rollouts of the tree, once it is grown.

    Args:
        builder: Makes the environments; of its own copy, cleaned up when the collector is left.
        decode: The policy's ``decode``; what it gives is for people and critics to read.
        max_tokens: Length limit of an action, in tokens.
        branch: Whether states are branching points.
        copy_env: Copies an environment between two actions.
        tokenizer: For stop conditions that are texts.
    """

    def __init__(
        self,
        builder: EnvGroupBuilder,
        decode: Callable[[Sequence[int]], str],
        max_tokens: int,
        *,
        branch: bool = True,
        copy_env: Callable[[Any], Any] | None = None,
        tokenizer: Any = None,
    ) -> None:
        self.builder = builder
        self.decode = decode
        self.max_tokens = max_tokens
        self.forkable = branch
        self.copy_env = copy_env
        self._pool = Pool(builder, tokenizer)
        self._finished: defaultdict[Any, list[tuple[Any, _Place]]] = defaultdict(list)
        self._place = _Place(((), (), None))
        self._live: Any = None

    # What the agent reads

    @property
    def stop(self) -> tuple[int, ...]:
        """Tokens that end this turn, as the environment says."""
        place = self._place
        return place.steps[-1].stop if place.steps else place.first[1]

    @property
    def room(self) -> int:
        """Tokens left to this turn."""
        place = self._place
        most = budget(
            place.first[2],
            self.max_tokens,
            observed=len(place.observation),
            sampled=place.sampled,
        )
        return most - (place.said.length if place.said else 0)

    async def reset(self, problem: Problem) -> Sequence[Any]:
        """Begin; the one message carries the initial observation."""
        begun = await self._pool.begin()
        self._pool.give_back(begun)
        self._live, self._place = None, _Place((begun.observation, begun.stop, begun.limits))
        return (self._message(begun.observation, ()),)

    def snapshot(self) -> _State:
        """The recorded actions, and a copy of the environment if it can be copied."""
        return _State(self._place, self._copied(self._live))

    def restore(self, state: _State) -> None:
        """Continue from there; the actions are replayed when the next one is taken."""
        self._place, self._live = state.place, self._copied(state.live)

    async def step(self, reply: Reply) -> Transition:
        """Take one segment; at the end of a turn, act in the cookbook's environment.

        Raises:
            DivergenceError: The recorded actions could not be repeated.
        """
        said = Said(self._place.said, tuple(reply.tokens))
        self._place = attrs.evolve(self._place, said=said)
        if reply.stop_reason == "length" and self.room > 0:
            return Transition()
        place, action = self._place, tuple(said.tokens())
        if self._live is None:
            self._live = await self._replayed(place)
        step = await self._act(self._live, action, reply.stop_reason)
        self._place = place = _Place(place.first, (*place.steps, step))
        metrics = {str(name): float(value) for name, value in step.result.metrics.items()}
        done = bool(step.result.episode_done)
        if not done:
            reason = exhausted(
                place.first[2],
                turns=len(place.steps),
                observed=len(step.observation),
                sampled=place.sampled,
            )
            if reason is not None:
                done, metrics = True, {**metrics, f"{STOP_METRIC_PREFIX}{reason}": 1.0}
        if done:
            self._finished[_actions(place)].append((self._live, place))
            return Transition(step.result.reward, done=True, metrics=metrics)
        before = (*self._previous(), *action)
        return Transition(
            step.result.reward,
            messages=(self._message(step.observation, before),),
            metrics=metrics,
        )

    async def conclude(self, rollouts: Sequence[Rollout]) -> Sequence[float]:
        """The group's rewards of all finished rollouts."""
        trajectories, envs = [], []
        for rollout in rollouts:
            env, place = self._finished[tuple(tuple(t.tokens) for t in rollout.turns)].pop()
            envs.append(env)
            trajectories.append(_trajectory(rollout, place))
        return await self._pool.rewards(trajectories, envs)

    async def aclose(self) -> None:
        """Clean up what the builder made."""
        self._finished.clear()
        await self._pool.aclose()

    # Inside

    def _previous(self) -> tuple[int, ...]:
        """The prompt of the turn that has just ended."""
        steps = self._place.steps
        return steps[-2].observation if len(steps) > 1 else self._place.first[0]

    def _message(self, tokens: tuple[int, ...], before: tuple[int, ...]) -> Mapping[str, Any]:
        """An observation as a message: all its tokens, and what is new in it as text."""
        new = tokens[len(before) :] if tokens[: len(before)] == before else tokens
        return {"role": "user", "content": self.decode(new), "tokens": tokens}

    def _copied(self, env: Any) -> Any:
        if env is None:
            return None
        if self.copy_env is not None:
            return self.copy_env(env)
        return copy.copy(env) if hasattr(type(env), "__copy__") else None

    async def _replayed(self, place: _Place) -> Any:
        """A fresh environment at the place where the last turn ended."""
        begun: Begun = await self._pool.begin()
        name = type(begun.env).__name__
        remedy = (
            "it draws freely, or acts on something that remembers; give copy_env, or collect "
            "without branching (branch=false)"
        )
        if begun.observation != place.first[0] or begun.stop != place.first[1]:
            raise DivergenceError(
                f"a fresh {name} began with another observation than the first one; {remedy}", 0
            )
        for number, step in enumerate(place.steps, 1):
            again = await self._act(begun.env, step.action, step.stop_reason)
            difference = step.difference(again)
            if difference is not None:
                raise DivergenceError(
                    f"{name}, replaying action {number} of {len(place.steps)}, gave {difference}; "
                    f"{remedy}",
                    number,
                )
        return begun.env

    async def _act(self, env: Any, action: tuple[int, ...], stop_reason: str) -> _Step:
        result = await env.step(list(action), extra={"stop_reason": stop_reason})
        if result.episode_done:  # what follows the end is nobody's prompt, and may be anything
            return _Step(action, stop_reason, result, (), ())
        stop = stop_tokens(result.next_stop_condition, self._pool.tokenizer)
        return _Step(action, stop_reason, result, observed(result.next_observation), stop)


def _actions(place: _Place) -> tuple[tuple[int, ...], ...]:
    return tuple(step.action for step in place.steps)


def _trajectory(rollout: Rollout, place: _Place) -> Trajectory:
    """A finished rollout as the cookbook's own loop would have recorded it."""
    transitions = [
        CookbookTransition(
            ob=tinker.ModelInput.from_ints(turn.prefix),
            ac=TokensWithLogprobs(turn.tokens, turn.logprobs, step.stop_reason),
            reward=step.result.reward,
            episode_done=step is place.steps[-1],
            metrics=dict(step.result.metrics),
            logs=dict(step.result.logs),
        )
        for turn, step in zip(rollout.turns, place.steps, strict=True)
    ]
    last = place.steps[-1].result
    return Trajectory(transitions, last.next_observation, stop_reason_from_metrics(last.metrics))
