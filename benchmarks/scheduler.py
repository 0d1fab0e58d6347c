"""What FOCUS costs beside sampling: time per transition with a policy that answers at once.

    python benchmarks/scheduler.py

The peer is the cookbook's ``do_single_rollout``, on an environment that builds its observation
anew each step, as its environments do. Both say the same 256 tokens a transition (``Segments``'s
default) and see the same prompt. FOCUS also checks every token and log probability, keeps them in
a tree, asks a (constant) critic at every state and runs a search.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from _measure import Row, ratio, show

from focus_core import (
    Agent,
    Collection,
    Collector,
    Critic,
    Generation,
    Independent,
    PreparedPrompt,
    Problem,
    Reply,
    SamplingParams,
    Segments,
    Selective,
    Transition,
)

SEGMENT, PROMPT = 256, 64
TOKENS = list(range(100, 100 + SEGMENT))
LOGPROBS = [-0.5] * SEGMENT


class Lists:
    """Says the same segment again and again, as lists, and is given lists."""

    version = 0
    said = Generation(TOKENS, LOGPROBS, "length")

    def prepare(self, messages: Sequence[Any]) -> PreparedPrompt:
        """A prompt of one length."""
        return PreparedPrompt(range(PROMPT))

    def decode(self, tokens: Sequence[int]) -> str:
        """No text: no tokenizer is measured."""
        return ""

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> list[Generation]:
        """At once."""
        return [self.said] * n


class Arrays(Lists):
    """As a policy that shares prefixes and keeps what it samples in arrays does."""

    takes_prefix = True
    said = Generation(np.array(TOKENS, np.int32), np.array(LOGPROBS, np.float32), "length")


class Countdown:
    """Ends after so many transitions."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.taken = 0

    def reset(self, problem: Problem) -> Sequence[Any]:
        """One message."""
        self.taken = 0
        return ({"role": "user", "content": "count"},)

    async def step(self, reply: Reply) -> Transition:
        """Count."""
        self.taken += 1
        return Transition(0.5, done=True) if self.taken >= self.depth else Transition()

    def snapshot(self) -> int:
        """The count."""
        return self.taken

    def restore(self, state: int) -> None:
        """The count."""
        self.taken = state


async def grown(policy: Any, depth: int, search: Any, critic: Critic | None = None) -> Collection:
    """One tree."""
    agent = Agent(policy, Countdown(depth), context=Segments(SEGMENT), max_transitions=depth)
    critic = critic or Critic.constant(0.5)
    async with Collector(agent, critic=critic, search=search) as collector:
        return await collector.collect(Problem("count", id="p"))


def microseconds(policy: Any, depth: int, search: Any, trees: int = 1) -> float:
    """Per transition of so many trees, one after another."""

    async def collect() -> int:
        return sum(
            [(await grown(policy, depth, search)).counts["transitions"] for _ in range(trees)]
        )

    start = time.perf_counter()
    transitions = asyncio.run(collect())
    return (time.perf_counter() - start) / transitions * 1e6


def cookbook(depth: int, rollouts: int) -> float:
    """The peer's microseconds per transition."""
    from tinker import ModelInput
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.rollouts import do_single_rollout
    from tinker_cookbook.rl.types import Env, StepResult

    async def complete(observation: Any, stop: Any, **_: Any) -> TokensWithLogprobs:
        return TokensWithLogprobs(tokens=TOKENS, maybe_logprobs=LOGPROBS)

    class Counting(Env):
        def __init__(self) -> None:
            self.tokens, self.taken = list(range(PROMPT)), 0

        async def initial_observation(self) -> Any:
            return ModelInput.from_ints(self.tokens), []

        async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
            self.taken += 1
            self.tokens = self.tokens + list(action)
            return StepResult(
                reward=0.0,
                episode_done=self.taken >= depth,
                next_observation=ModelInput.from_ints(self.tokens),
                next_stop_condition=[],
                metrics={},
            )

    async def roll() -> None:
        for _ in range(rollouts):
            await do_single_rollout(complete, Counting())

    start = time.perf_counter()
    asyncio.run(roll())
    return (time.perf_counter() - start) / (rollouts * depth) * 1e6


def asyncio_task() -> float:
    """For orientation: microseconds to make a task and await it."""

    async def nothing() -> None:
        pass

    async def many() -> None:
        for _ in range(2000):
            await asyncio.create_task(nothing())

    start = time.perf_counter()
    asyncio.run(many())
    return (time.perf_counter() - start) / 2000 * 1e6


def rows() -> Iterator[Row]:
    """The rows of the table."""
    yield Row("asyncio: create a task and await it, us", asyncio_task())
    for depth, most in ((8, ""), (32, "<= 0.25"), (128, "<= 0.08")):
        rollouts = max(2, 256 // depth)
        search = Independent(rollouts, max_concurrency=1)
        for name, policy in (("arrays", Arrays()), ("lists", Lists())):
            ours, peer, part = ratio(
                lambda policy=policy, search=search, depth=depth: microseconds(
                    policy, depth, search
                ),
                lambda depth=depth, rollouts=rollouts: cookbook(depth, rollouts),
                9,
            )
            yield Row(
                f"scheduler / cookbook rollout, depth {depth}, {name}",
                part,
                most if name == "arrays" else "",
                f"{ours:.1f} / {peer:.1f} us a transition",
            )
    # Deeper rollouts in the large trees, so that their continuations are about as long (5
    # transitions): a short one shares its launch among fewer.
    small = Selective(budget=32, warmup=16, max_concurrency=1)
    for size, depth, most in ((10_000, 18, "<= 1.3"), (100_000, 23, "")):
        large = Selective(budget=size * 2 // 3, warmup=size // 3, max_concurrency=1)
        ours, peer, part = ratio(
            lambda large=large, depth=depth: microseconds(Arrays(), depth, large),
            lambda: microseconds(Arrays(), 8, small, trees=20),
            7 if size < 100_000 else 2,
        )
        yield Row(
            f"tree of {size:,} transitions / of 48",
            part,
            most,
            f"{ours:.1f} / {peer:.1f} us a transition",
        )


if __name__ == "__main__":
    show(rows(), "Scheduler: microseconds a transition with a policy that answers at once")
