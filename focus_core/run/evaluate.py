"""Measuring a policy: unbranched rollouts, accuracy with a confidence interval."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import attrs

from focus_core.agent.folding import Folding
from focus_core.collect import Collector
from focus_core.errors import CollectionError, DataError, GradingError
from focus_core.failure import Failure
from focus_core.policy import Policy
from focus_core.recipes import GroupCentered
from focus_core.records import Problem
from focus_core.search import Independent
from focus_core.task import CollectorFor
from focus_core.tree.tree import ROOT
from focus_core.utils.concurrency import all_of

__all__ = ["Evaluation", "evaluate", "unbranched"]


@attrs.frozen
class Evaluation:
    """What a policy scored.

    Attributes:
        returns: One per finished rollout.
        unfinished: Rollouts cut without an outcome. Where returns are outcomes, they are not
            solved; other returns have a mean without them.
        failures: Rollouts that failed; they are in no mean.
        tokens: Sampled tokens.
        confidence: Level of the interval.
        problems: Of each problem its finished returns and the number of its unfinished rollouts;
            without, every rollout counts as a problem of its own.
    """

    returns: Sequence[float]
    unfinished: int
    failures: Sequence[Failure]
    tokens: int
    confidence: float = 0.95
    problems: Sequence[tuple[Sequence[float], int]] = attrs.field(default=(), kw_only=True)

    @property
    def outcomes(self) -> bool:
        """Whether every return is 0 or 1, so that their mean is an accuracy."""
        return all(value in (0.0, 1.0) for value in self.returns)

    @property
    def scores(self) -> Sequence[Sequence[float]]:
        """What counts, by problem: returns, and a 0 for each rollout that came to no outcome."""
        problems = self.problems or [
            *(([value], 0) for value in self.returns),
            *(((), 1) for _ in range(self.unfinished)),
        ]
        unsolved = [0.0] if self.outcomes and self.returns else []
        scored = [[*returns, *unsolved * cut] for returns, cut in problems]
        return [scores for scores in scored if scores]

    @property
    def rollouts(self) -> int:
        """How many count."""
        return sum(map(len, self.scores))

    @property
    def accuracy(self) -> float:
        """Mean of what counts; NaN without a finished rollout."""
        n = self.rollouts
        return sum(map(sum, self.scores)) / n if n else math.nan

    @property
    def clustered(self) -> bool:
        """Whether a problem has several rollouts, which are not independent of each other."""
        return any(len(scores) > 1 for scores in self.scores)

    @property
    def method(self) -> str:
        """The interval's name."""
        return f"{'Wilson' if self.outcomes else 'normal'}{', by problem' * self.clustered}"

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the mean, over problems drawn like these.

        Wilson's for outcomes (Wilson 1927), the normal one for other returns. Rollouts of one
        problem are correlated, so with several the variance is that of a ratio of problems' sums
        (Cochran 1977, section 9.2): with ``K`` problems of ``m_k`` rollouts and sums ``s_k``, mean
        ``p`` and ``N`` rollouts, ``K / (K - 1) * sum((s_k - p m_k)^2) / N^2``. Wilson's takes the
        number of independent rollouts of that variance, ``p (1 - p) / variance`` (Korn and
        Graubard 1998), at most ``N``; without a variance it takes ``K``. Few problems (below 20)
        make it too narrow.
        """
        mean, groups = self.accuracy, self.scores
        if not groups:
            return math.nan, math.nan
        z = NormalDist().inv_cdf(0.5 + self.confidence / 2)
        count, total = len(groups), self.rollouts
        squares = sum((sum(scores) - mean * len(scores)) ** 2 for scores in groups)
        if not self.outcomes:
            if count == 1:
                return -math.inf, math.inf
            half = z * math.sqrt(count / (count - 1) * squares) / total
            return mean - half, mean + half
        n = float(total)
        if self.clustered:
            spread = count / (count - 1) * squares / total**2 if count > 1 else 0.0
            n = min(n, mean * (1 - mean) / spread) if spread > 0 else float(count)
        centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
        return max(0.0, centre - half), min(1.0, centre + half)

    def __str__(self) -> str:
        low, high = self.interval
        form = ".1%" if self.outcomes else ".4g"
        method = f", {self.method}" if self.clustered else ""
        text = f"{self.accuracy:{form}} ({low:{form}} to {high:{form}}, n={self.rollouts}{method})"
        if self.unfinished:
            counted = "counted as not solved" if self.outcomes and self.returns else "in no mean"
            text += f", {self.unfinished} unfinished, {counted}"
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
            try:
                collector = unbranched(collector_for(policy, problem), rollouts, temperature)
                async with collector:
                    key = None if seed is None else (seed, place)
                    found = await collector.collect(problem, group_index=place, key=key)
            except (CollectionError, DataError, GradingError) as error:
                found = None
                failed = [Failure("environment", ROOT, -1, error)]
        done += 1
        if on_problem is not None:
            on_problem(done)
        if found is None:
            return [], 0, failed, 0
        return found.returns, found.counts["truncated"], found.failures, found.counts["tokens"]

    results = await all_of(one(i, problem) for i, problem in enumerate(problems))
    return Evaluation(
        [value for returns, *_ in results for value in returns],
        sum(cut for _, cut, *_ in results),
        [failure for *_, failures, _ in results for failure in failures],
        sum(tokens for *_, tokens in results),
        problems=[(returns, cut) for returns, cut, *_ in results],
    )
