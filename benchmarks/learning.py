#!/usr/bin/env python3
"""Does a policy learn from trees? Against GRPO, and against a control that must not.

On the task ``arithmetic`` with the model ``tiny``, three ways of using the same number of sampled
tokens:

- ``trees``: ``Selective`` search and ``DirectBranchTd`` advantages, as the task comes;
- ``group``: eight unbranched rollouts a problem and ``GroupCentered`` advantages (GRPO);
- ``control``: ``trees``, with each batch's advantages dealt out anew among its segments.

``trees`` and ``group`` each get the best of three learning rates, chosen with a seed of its own on
the split ``tune``; ``control`` and the variants get that of ``trees`` or ``group``. What is
reported is measured on ``heldout``, before and after, sampled at temperature 1 and greedily, for
every seed.

With ``--variants`` also what may explain a difference between trees and GRPO: trees with as many
updates as GRPO makes of the same tokens, GRPO with as few as trees make, trees under other constant
critics, and under a constant that follows the mean return of the batch before.

Usage::

    python benchmarks/learning.py [--quick] [--variants] [--tokens N] [--seeds N] [--problems N]
                                  [--out DIR]

Writes ``results.txt``, ``outcomes.json`` and, where matplotlib is installed, ``learning.png``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from focus_adapter_local import LocalTrainer
from focus_task_arithmetic import ArithmeticTask

from focus_core import (
    Batch,
    Collector,
    Critic,
    GroupCentered,
    Independent,
    Limits,
    Policy,
    Problem,
    run_schedule,
)
from focus_core.run.evaluate import evaluate

METHODS = ("trees", "group", "control")
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "trees-13": {"problems_per_step": 13},
    "trees-mean": {"follow": True},
    "trees-v.1": {"critic": 0.1},
    "trees-v.5": {"critic": 0.5},
    "group-19": {"problems_per_step": 19},
}
RATES = (1e-3, 2e-3, 4e-3)
GROUP = 8
TUNING_SEED = 100


class Shuffled(LocalTrainer):
    """Learns from the same tokens and the same advantages, each given to some other segment."""

    async def update(self, batch: Batch) -> Mapping[str, float]:
        """Deal the batch's advantages out anew, then train."""
        advantages = [span.advantage for record in batch.actor for span in record.spans]
        dealt = iter(np.random.default_rng((self.seed, batch.index)).permutation(advantages))
        records = [
            attrs.evolve(
                record,
                spans=[attrs.evolve(span, advantage=float(next(dealt))) for span in record.spans],
            )
            for record in batch.actor
        ]
        return await super().update(attrs.evolve(batch, items=self.convert(records)))


@attrs.frozen
class Outcome:
    """One run: accuracy before and after, and what it took.

    Attributes:
        sampled: Share of right replies at temperature 1, before and after.
        greedy: The same of the likeliest reply.
    """

    method: str
    rate: float
    seed: int
    sampled: tuple[float, float]
    greedy: tuple[float, float]
    tokens: int
    updates: int
    seconds: float

    def __str__(self) -> str:
        scores = ", ".join(
            f"{name} {before:.1%} -> {after:.1%}"
            for name, (before, after) in (("sampled", self.sampled), ("greedy", self.greedy))
        )
        return (
            f"{self.method:9s} rate {self.rate:.0e} seed {self.seed}: {scores}  "
            f"({self.updates} updates, {self.tokens:,} tokens, {self.seconds:.0f} s)"
        )


async def accuracy(
    policy: Policy, problems: Sequence[Problem], task: ArithmeticTask, temperature: float
) -> float:
    """Share of right replies, one a problem; the same random numbers each time."""
    found = await evaluate(
        policy, problems, task.collector_for, temperature=temperature, seed=1, concurrency=512
    )
    if found.failures:
        raise found.failures[0].error
    return found.accuracy


def collector_for(method: str, task: ArithmeticTask) -> Callable[[Policy, Problem], Collector]:
    """The task's collector, as the method changes it."""
    changes: dict[str, Any] = {}
    if parent(method) == "group":
        changes = {"search": Independent(GROUP), "recipe": GroupCentered(), "critic": None}
    return lambda policy, problem: attrs.evolve(task.collector_for(policy, problem), **changes)


def parent(method: str) -> str:
    """The method a variant changes."""
    return "trees" if method == "control" else method.split("-")[0]


async def train(
    method: str, rate: float, seed: int, measured: Sequence[Problem], tokens: int
) -> Outcome:
    """Train until the tokens are sampled; measure before and after."""
    changes = dict(VARIANTS.get(method, {}))
    task = ArithmeticTask(seed=seed)
    problems_per_step = changes.pop("problems_per_step", task.defaults.problems_per_step)
    follow = changes.pop("follow", False)
    task = attrs.evolve(task, **changes)
    points: list[tuple[float, float]] = []

    async def measure(policy: Policy) -> dict[str, float]:
        point = [await accuracy(policy, measured, task, temperature) for temperature in (1.0, 0.0)]
        points.append((point[0], point[1]))
        return {}

    usual = collector_for(method, task)
    returns: list[float] = []

    def collect(policy: Policy, problem: Problem) -> Collector:
        collector = usual(policy, problem)
        if follow and returns:
            collector = attrs.evolve(collector, critic=Critic.constant(returns[-1]))
        return collector

    began = time.monotonic()
    trainer = (Shuffled if method == "control" else LocalTrainer)(
        model="tiny", learning_rate=rate, seed=seed, threads=1, warmup_steps=5, beta2=0.99
    )
    async with trainer:
        reports = await run_schedule(
            trainer,
            task.problems("train"),
            collect,
            steps=tokens,  # more than it takes: the tokens end it
            problems_per_step=problems_per_step,
            limits=Limits(max_tokens=tokens),
            seed=seed,
            evaluate=measure,
            on_step=lambda report: returns.append(report.metrics["return_mean"]),
        )
    before, after = points[0], points[-1]
    return Outcome(
        method,
        rate,
        seed,
        (before[0], after[0]),
        (before[1], after[1]),
        sum(report.metrics["sampled_tokens"] for report in reports),
        len(reports),
        time.monotonic() - began,
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """Every run, the means over seeds, and what they say."""
    lines = [str(outcome) for outcome in outcomes]
    lines += ["", "mean over seeds, held-out problems"]
    gains: dict[str, tuple[float, float]] = {}
    for method in dict.fromkeys(outcome.method for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.method == method]
        means = [
            [statistics.fmean(getattr(outcome, name)[end] for outcome in own) for end in (0, 1)]
            for name in ("sampled", "greedy")
        ]
        sampled, greedy = (100 * (after - before) for before, after in means)
        gains[method] = sampled, greedy
        lines.append(
            f"{method:9s} rate {own[0].rate:.0e}  "
            f"sampled {means[0][0]:.1%} -> {means[0][1]:.1%} ({sampled:+.1f})  "
            f"greedy {means[1][0]:.1%} -> {means[1][1]:.1%} ({greedy:+.1f})  "
            f"{statistics.fmean(outcome.tokens for outcome in own):,.0f} tokens, "
            f"{statistics.fmean(outcome.updates for outcome in own):.1f} updates"
        )
    if gains["group"][0] > 0:
        ratio = gains["trees"][0] / gains["group"][0]
        lines.append(f"sampled points won, trees / group: {ratio:.2f}")
    for claim, holds in (
        ("trees win at least 15 points sampled", gains["trees"][0] >= 15),
        ("trees lose no more than 3 points greedy", gains["trees"][1] >= -3),
        ("the control does not rise", gains["control"][0] <= 0),
    ):
        lines.append(f"{claim}: {'yes' if holds else 'NO'}")
    return "\n".join(lines)


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Before and after, a line a seed."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
    colours = dict(zip(METHODS, ("tab:blue", "tab:orange", "tab:grey"), strict=True))
    for panel, name in zip(panels, ("sampled", "greedy"), strict=True):
        for outcome in (one for one in outcomes if one.method in METHODS):
            ends = [100 * share for share in getattr(outcome, name)]
            panel.plot(["before", "after"], ends, "o-", color=colours[outcome.method])
        panel.set_title(f"{name}, held out")
        panel.grid(axis="y", alpha=0.3)
    panels[0].set_ylabel("accuracy, %")
    panels[1].legend(
        [plt.Line2D([], [], color=colours[method], marker="o") for method in METHODS], METHODS
    )
    figure.savefig(path, dpi=120)


def main() -> None:
    """Tune, train, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, little of everything")
    parser.add_argument("--variants", action="store_true", help="also look for causes")
    parser.add_argument("--tokens", type=int, help="sampled tokens of each run [100000]")
    parser.add_argument("--seeds", type=int, help="[3]")
    parser.add_argument("--problems", type=int, help="to measure on [400]")
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    options = parser.parse_args()
    usual = (30_000, 1, 100) if options.quick else (100_000, 3, 400)
    asked = (options.tokens, options.seeds, options.problems)
    tokens, seeds, count = (b if a is None else a for a, b in zip(asked, usual, strict=True))
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()

    rates: dict[str, float] = {}
    tune = ArithmeticTask().problems("tune")[:count]
    for method in ("trees", "group"):
        tried = []
        for rate in RATES:
            tried.append(asyncio.run(train(method, rate, TUNING_SEED, tune, tokens)))
            print(f"tuning {tried[-1]}", flush=True)
        rates[method] = max(tried, key=lambda outcome: outcome.sampled[1]).rate

    heldout = ArithmeticTask().problems("heldout")[:count]
    outcomes = []
    for seed in range(seeds):
        for method in (*METHODS, *(VARIANTS if options.variants else ())):
            rate = rates[parent(method)]
            outcomes.append(asyncio.run(train(method, rate, seed, heldout, tokens)))
            print(outcomes[-1], flush=True)
    text = table(outcomes)
    print(f"\n{text}\n{(time.monotonic() - began) / 60:.0f} minutes")
    (options.out / "results.txt").write_text(text + "\n")
    rows = [attrs.asdict(outcome) for outcome in outcomes]
    (options.out / "outcomes.json").write_text(json.dumps(rows, indent=2) + "\n")
    with contextlib.suppress(ImportError):
        plot(outcomes, options.out / "learning.png")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
