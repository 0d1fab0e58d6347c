"""Does a policy learn from trees? Against GRPO, and against a control that must not.

On the task ``arithmetic`` with the model ``tiny``, three ways of using the same number of sampled
tokens:

- ``trees``: ``Selective`` search and ``DirectBranchTd`` advantages, as the task comes;
- ``group``: eight unbranched rollouts a problem and ``GroupCentered`` advantages (GRPO);
- ``shuffled``: ``trees``, with each tree's advantages dealt out anew among its segments.

``trees`` and ``group`` each get the best of three learning rates, chosen with one seed on the split
``tune``; ``shuffled`` gets that of ``trees``. What is reported is measured on ``heldout``, before
and after, sampled at temperature 1 and greedily, for every seed.

Usage: python benchmarks/learning.py [--model M] [--tokens N] [--seeds N] [--problems N] [--out DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from focus_adapter_local import LocalTrainer
from focus_task_arithmetic import ArithmeticTask

from focus_core import (
    Collector,
    DirectBranchTd,
    GroupCentered,
    Independent,
    Limits,
    Policy,
    PolicyEvaluated,
    Problem,
    hookimpl,
    run_schedule,
)
from focus_core.observers import Observers
from focus_core.recipes import Credit
from focus_core.run.evaluate import evaluate
from focus_core.tree import Tree, Values

METHODS = ("trees", "group", "shuffled")
RATES = (1e-3, 2e-3, 4e-3)
GROUP = 8
LEVELS = (4, 5, 6)


@attrs.frozen
class Shuffled(DirectBranchTd):
    """The same advantages, given to the wrong segments of the same tree."""

    seed: int = 0

    def credit(self, tree: Tree, values: Values, *, gamma: float) -> Credit:
        """Deal the tree's finite advantages out anew."""
        credit = super().credit(tree, values, gamma=gamma)
        advantages = credit.advantages.copy()
        edges = np.flatnonzero(np.isfinite(advantages))
        order = np.random.default_rng((self.seed, len(tree), tree.token_count)).permutation(edges)
        advantages[edges] = credit.advantages[order]
        return attrs.evolve(credit, advantages=advantages)


def collector_for(method: str, task: ArithmeticTask) -> Callable[[Policy, Problem], Collector]:
    """The task's collector, as the method changes it."""
    changes: dict[str, Any] = {
        "trees": {},
        "group": {"search": Independent(GROUP), "recipe": GroupCentered(), "critic": None},
        "shuffled": {"recipe": Shuffled()},
    }[method]
    return lambda policy, problem: attrs.evolve(task.collector_for(policy, problem), **changes)


@attrs.define
class Curve:
    """Accuracies by updates made, as the run's evaluations arrive."""

    points: list[tuple[int, float, float]] = attrs.field(factory=list)

    @hookimpl
    def focus_policy_evaluated(self, event: PolicyEvaluated) -> None:
        """Keep one evaluation."""
        metrics = event.metrics
        self.points.append((event.learner_step, metrics["sampled"], metrics["greedy"]))


@attrs.frozen
class Outcome:
    """One run: accuracy before and after, and what it took."""

    method: str
    rate: float
    seed: int
    before: tuple[float, float]
    after: tuple[float, float]
    tokens: int
    updates: int
    seconds: float

    @property
    def gain(self) -> tuple[float, float]:
        """Points won, sampled and greedy."""
        return tuple(100 * (b - a) for a, b in zip(self.before, self.after, strict=True))  # type: ignore[return-value]

    def __str__(self) -> str:
        (sampled, greedy), (sampled_after, greedy_after) = self.before, self.after
        return (
            f"{self.method:9s} rate {self.rate:.0e} seed {self.seed}: sampled {sampled:.1%} -> "
            f"{sampled_after:.1%}, greedy {greedy:.1%} -> {greedy_after:.1%}  "
            f"({self.updates} updates, {self.tokens:,} tokens, {self.seconds:.0f} s)"
        )


async def train(
    method: str, rate: float, seed: int, measured: Sequence[Problem], options: argparse.Namespace
) -> Outcome:
    """Train until the tokens are used; measure before and after."""
    task = ArithmeticTask(levels=LEVELS, seed=seed)
    problems = task.problems("train")
    chosen = collector_for(method, task)

    async def measure(policy: Policy) -> dict[str, float]:
        found = [
            await evaluate(policy, measured, task.collector_for, temperature=t, seed=1)
            for t in (1.0, 0.0)
        ]
        return {"sampled": found[0].accuracy, "greedy": found[1].accuracy}

    curve, began = Curve(), time.monotonic()
    trainer = LocalTrainer(
        model=options.model,
        learning_rate=rate,
        seed=seed,
        threads=1,
        warmup_steps=5,
        beta2=0.99,
    )
    async with trainer:
        reports = await run_schedule(
            trainer,
            problems,
            chosen,
            steps=10_000,
            problems_per_step=task.defaults.problems_per_step,
            limits=Limits(max_tokens=options.tokens),
            seed=seed,
            evaluate=measure,
            observers=Observers([curve]),
        )
    (_, *before), (_, *after) = curve.points[0], curve.points[-1]
    return Outcome(
        method,
        rate,
        seed,
        (before[0], before[1]),
        (after[0], after[1]),
        sum(report.metrics["sampled_tokens"] for report in reports),
        len(reports),
        time.monotonic() - began,
    )


def tuned(method: str, options: argparse.Namespace) -> float:
    """The learning rate with the best sampled accuracy on the tuning split, of three tried."""
    problems = ArithmeticTask(levels=LEVELS).problems("tune")[: options.problems]
    tried = []
    for rate in RATES:
        outcome = asyncio.run(train(method, rate, 100, problems, options))
        print(f"  tuning   {outcome}", flush=True)
        tried.append((outcome.after[0], rate))
    return max(tried)[1]


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Before and after, a line a seed."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
    colours = dict(zip(METHODS, ("tab:blue", "tab:orange", "tab:grey"), strict=True))
    for panel, place, name in zip(panels, (0, 1), ("sampled", "greedy"), strict=True):
        for outcome in outcomes:
            ends = [100 * outcome.before[place], 100 * outcome.after[place]]
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
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--tokens", type=int, default=60_000, help="sampled tokens of each run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--problems", type=int, default=200, help="evaluated, sampled and greedy")
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rates = {method: tuned(method, options) for method in ("trees", "group")}
    rates["shuffled"] = rates["trees"]
    problems = ArithmeticTask(levels=LEVELS).problems("heldout")[: options.problems]
    outcomes = []
    for method in METHODS:
        for seed in range(options.seeds):
            outcomes.append(asyncio.run(train(method, rates[method], seed, problems, options)))
            print(outcomes[-1], flush=True)
    print("\nmean over seeds, points won on held-out problems")
    gains = {}
    for method in METHODS:
        own = [outcome for outcome in outcomes if outcome.method == method]
        gains[method] = [statistics.mean(o.gain[place] for o in own) for place in (0, 1)]
        tokens = statistics.mean(o.tokens for o in own)
        print(
            f"  {method:9s} rate {rates[method]:.0e}  sampled {gains[method][0]:+.1f}  "
            f"greedy {gains[method][1]:+.1f}  ({tokens:,.0f} tokens)"
        )
    print(f"ratio of sampled gains, trees / group: {gains['trees'][0] / gains['group'][0]:.2f}")
    for claim, holds in (
        ("trees win at least 15 points sampled", gains["trees"][0] >= 15),
        ("trees lose no more than 3 points greedy", gains["trees"][1] >= -3),
        ("the shuffled control does not rise", gains["shuffled"][0] <= 0),
    ):
        print(f"{claim}: {'yes' if holds else 'NO'}")
    rows = [attrs.asdict(outcome) for outcome in outcomes]
    (options.out / "outcomes.json").write_text(json.dumps(rows, indent=2) + "\n")
    plot(outcomes, options.out / "learning.png")
    print(f"wrote {options.out}/outcomes.json and learning.png")


if __name__ == "__main__":
    main()
