"""The observer: one row a step in the run's directory, and how the run ended."""

from __future__ import annotations

import csv
from pathlib import Path

from focus_core import RunFinished, RunStarted, StepFinished, hookimpl

COLUMNS = ("batch", "learner_step", "policy_lag", "return_mean", "loss", "seconds")


class CsvObserver:
    """Writes ``steps.csv``."""

    def __init__(self) -> None:
        self.path = Path("steps.csv")

    @hookimpl
    def focus_run_started(self, event: RunStarted) -> None:
        """Begin the table, or go on with a resumed run's."""
        if event.directory is not None:
            self.path = Path(event.directory) / "steps.csv"
        if not self.path.exists():
            self._write(COLUMNS)

    @hookimpl
    def focus_step_finished(self, event: StepFinished) -> None:
        """One row."""
        report = event.report
        numbers = [report.metrics.get(name, "") for name in ("return_mean", "loss")]
        step = (report.batch, report.learner_step, report.policy_lag)
        self._write((*step, *numbers, f"{event.seconds:.3f}"))

    @hookimpl
    def focus_run_finished(self, event: RunFinished) -> None:
        """The last row names the status."""
        self._write((event.status,))

    def _write(self, row: tuple[object, ...]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow(row)
