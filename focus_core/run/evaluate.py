"""Measuring a policy: unbranched rollouts, accuracy with a confidence interval."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import attrs

from focus_core.agent.folding import Folding
from focus_core.collect import Collector
from focus_core.failure import Failure
from focus_core.policy import Policy
from focus_core.recipes import GroupCentered
from focus_core.records import Problem
from focus_core.search import Independent
from focus_core.task import CollectorFor
from focus_core.utils.concurrency import all_of

__all__ = ["Evaluation", "evaluate", "unbranched"]


@attrs.frozen
class Evaluation:
    """What a policy scored.

    Attributes:
        returns: One per finished rollout.
        unfinished: Rollouts cut without an outcome; they are in no mean.
        failures: Rollouts that failed; they are in no mean.
        tokens: Sampled tokens.
        confidence: Level of the interval.
    """

    returns: Sequence[float]
    unfinished: int
    failures: Sequence[Failure]
    tokens: int
    confidence: float = 0.95

    @property
    def accuracy(self) -> float:
        """Mean return; NaN without a finished rollout."""
        return sum(self.returns) / len(self.returns) if self.returns else math.nan

    @property
    def outcomes(self) -> bool:
        """Whether every return is 0 or 1, so that their mean is an accuracy."""
        return all(value in (0.0, 1.0) for value in self.returns)

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the mean.

        Wilson's for outcomes of 0 and 1 (Wilson 1927), the normal one for other returns. Rollouts
        of one problem are correlated; with several per problem the interval is too narrow.
        """
        n, mean = len(self.returns), self.accuracy
        z = NormalDist().inv_cdf(0.5 + self.confidence / 2)
        if n == 0:
            return math.nan, math.nan
        if self.outcomes:
            centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
            half = z / (1 + z * z / n) * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
            return max(0.0, centre - half), min(1.0, centre + half)
        if n == 1:
            return -math.inf, math.inf
        variance = sum((value - mean) ** 2 for value in self.returns) / (n - 1)
        half = z * math.sqrt(variance / n)
        return mean - half, mean + half

    def __str__(self) -> str:
        low, high = self.interval
        form = ".1%" if self.outcomes else ".4g"
        text = f"{self.accuracy:{form}} ({low:{form}} to {high:{form}}, n={len(self.returns)})"
        if self.unfinished:
            text += f", {self.unfinished} unfinished"
        if self.failures:
            text += f", {len(self.failures)} failed (first: {self.failures[0]})"
        return text


def unbranched(collector: Collector, rollouts: int, temperature: float | None) -> Collector:
    """The same agent, collecting independent rollouts without a critic."""
    agent = collector.agent
    if isinstance(agent.context, Folding):  # what is measured is the task's own reward
        agent = attrs.evolve(agent, context=attrs.evolve(agent.context, penalty=0.0))
    if temperature is not None:
        agent = attrs.evolve(agent, sampling=attrs.evolve(agent.sampling, temperature=temperature))
    return attrs.evolve(
        collector,
        agent=agent,
        critic=None,
        recipe=GroupCentered(),
        search=Independent(rollouts, max_failures=rollouts),
    )


async def evaluate(
    policy: Policy,
    problems: Sequence[Problem],
    collector_for: CollectorFor,
    *,
    rollouts: int = 1,
    temperature: float | None = None,
    seed: int | None = None,
    concurrency: int = 64,
    on_problem: Callable[[int], None] | None = None,
) -> Evaluation:
    """Roll out every problem.

    Args:
        policy: What to measure.
        problems: On what.
        collector_for: Gives the agent; its search and critic are not used.
        rollouts: Per problem.
        temperature: Instead of the agent's own; 0 is greedy.
        seed: Makes it reproducible, where the policy can.
        concurrency: Most problems at a time.
        on_problem: Called after each problem with the number done.
    """
    gate = asyncio.Semaphore(concurrency)
    done = 0

    async def one(place: int, problem: Problem) -> tuple[list[float], int, list[Failure], int]:
        nonlocal done
        async with gate:
            collector = unbranched(collector_for(policy, problem), rollouts, temperature)
            async with collector:
                key = None if seed is None else (seed, place)
                found = await collector.collect(problem, group_index=place, key=key)
        done += 1
        if on_problem is not None:
            on_problem(done)
        return found.returns, found.counts["truncated"], found.failures, found.counts["tokens"]

    results = await all_of(one(i, problem) for i, problem in enumerate(problems))
    return Evaluation(
        [value for returns, *_ in results for value in returns],
        sum(cut for _, cut, *_ in results),
        [failure for *_, failures, _ in results for failure in failures],
        sum(tokens for *_, tokens in results),
    )
