"""What a run shows while it goes on: live on a terminal, plain lines elsewhere, JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from focus_core.hookspecs import hookimpl
from focus_core.plugins.events import (
    BatchCollected,
    PolicyEvaluated,
    RunFinished,
    RunStarted,
    StepFinished,
)
from focus_core.utils.plain_json import to_json

__all__ = ["JsonLines", "PlainDisplay", "TerminalDisplay", "display"]


class JsonLines:
    """Each step report as one JSON line of exactly five fields."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    @hookimpl
    def focus_step_finished(self, event: StepFinished) -> None:
        """Print and flush, so that a reader sees it at once."""
        print(
            json.dumps(to_json(asdict(event.report)), allow_nan=False), file=self._out, flush=True
        )


class PlainDisplay:
    """One line for everything that happens."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._steps = 0
        self._first: Mapping[str, Any] | None = None
        self._last: Mapping[str, Any] | None = None

    def say(self, line: str) -> None:
        """Print one line."""
        print(line, file=self._out, flush=True)

    @hookimpl
    def focus_run_started(self, event: RunStarted) -> None:
        """What is about to run."""
        self._steps = event.steps
        config = event.config
        self.say(f"training task {config['task']} with {config['trainer']}: {event.steps} updates")

    @hookimpl
    def focus_batch_collected(self, event: BatchCollected) -> None:
        """Nothing: the step's line tells."""

    @hookimpl
    def focus_policy_evaluated(self, event: PolicyEvaluated) -> None:
        """Held-out accuracy, with its interval."""
        self._first = self._first or event.metrics
        self._last = event.metrics
        what = _measure(event.metrics)
        self.say(f"held-out {what} after {event.learner_step} updates: {_scores(event.metrics)}")

    @hookimpl
    def focus_step_finished(self, event: StepFinished) -> None:
        """One step's numbers."""
        self.say(step_line(event))

    @hookimpl
    def focus_run_finished(self, event: RunFinished) -> None:
        """How it ended; the last line compares held-out accuracy."""
        if event.status != "success":
            self.say(f"{event.status} after {len(event.reports)} updates")
        elif self._first is not None and self._last is not None:
            self.say(comparison(self._first, self._last))


class TerminalDisplay(PlainDisplay):
    """A progress bar, with the same lines above it."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(file=out),
        )
        self._bar = self._progress.add_task("collecting", total=None)

    def say(self, line: str) -> None:
        """Print above the bar."""
        self._progress.console.print(Text(line), soft_wrap=True)

    @hookimpl
    def focus_run_started(self, event: RunStarted) -> None:
        """Start the bar."""
        super().focus_run_started(event)
        self._progress.update(self._bar, total=event.steps)
        self._progress.start()

    @hookimpl
    def focus_batch_collected(self, event: BatchCollected) -> None:
        """What the bar's label says."""
        value = event.metrics.get("return_mean", math.nan)
        self._progress.update(self._bar, description=f"batch {event.batch}: return {value:.2f}")

    @hookimpl
    def focus_step_finished(self, event: StepFinished) -> None:
        """Advance the bar."""
        super().focus_step_finished(event)
        self._progress.advance(self._bar)

    @hookimpl
    def focus_run_finished(self, event: RunFinished) -> None:
        """Stop the bar before the last line."""
        self._progress.stop()
        super().focus_run_finished(event)


def display(out: TextIO) -> PlainDisplay:
    """The display for a stream."""
    return TerminalDisplay(out) if out.isatty() else PlainDisplay(out)


def step_line(event: StepFinished) -> str:
    """A step as one readable line."""
    report, metrics = event.report, event.report.metrics
    parts = [f"step {report.batch}", f"lag {report.policy_lag}"]
    for name, label, form in (
        ("return_mean", "return", ".3f"),
        ("signal_share", "with signal", ".0%"),
        ("loss", "loss", ".4g"),
        ("ratio_mean", "ratio", ".4f"),
        ("clip_fraction", "clipped", ".1%"),
        ("sampled_tokens", "tokens", ",d"),
    ):
        if isinstance(metrics.get(name), int | float):
            parts.append(f"{label} {metrics[name]:{form}}")
    if "set_aside" in metrics:
        parts.append(f"set aside: {', '.join(map(str, metrics['set_aside']))}")
    if "skipped" in metrics:
        parts.append(f"skipped: {metrics['skipped']}")
    return "  ".join([*parts, f"{event.seconds:.1f} s"])


def _measure(metrics: Mapping[str, Any]) -> str:
    """What the numbers of an evaluation are."""
    return "accuracy" if metrics.get("eval/outcomes", True) else "mean return"


def _form(metrics: Mapping[str, Any]) -> str:
    return ".1%" if metrics.get("eval/outcomes", True) else ".4g"


def _scores(metrics: Mapping[str, Any]) -> str:
    scores, form = [], _form(metrics)
    for name in ("sampled", "greedy"):
        if f"eval/{name}" in metrics:
            low, high = metrics[f"eval/{name}_low"], metrics[f"eval/{name}_high"]
            scores.append(
                f"{name} {metrics[f'eval/{name}']:{form}} ({low:{form}} to {high:{form}})"
            )
    return ", ".join(scores) or "no rollout finished"


def comparison(first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """The numbers before and after, on one line."""
    both = {"eval/outcomes": all(one.get("eval/outcomes", True) for one in (first, last))}
    form = _form(both)
    changes = [
        f"{name} {first[key]:{form}} -> {last[key]:{form}}"
        for name in ("sampled", "greedy")
        if (key := f"eval/{name}") in first and key in last
    ]
    said = ", ".join(changes) or "no rollout finished"
    return f"held-out {_measure(both)}, before -> after: {said}"
