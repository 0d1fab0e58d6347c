"""The observer with every hook: what happened, in order."""

from __future__ import annotations

from pathlib import Path

from focus_core import (
    BatchCollected,
    PolicyEvaluated,
    PolicyPublished,
    RecordsDelivered,
    RunFinished,
    RunStarted,
    StepFinished,
    UpdateStarted,
    hookimpl,
)


class Trace:
    """Writes ``trace.txt`` in the run's directory."""

    def __init__(self) -> None:
        self.path = Path("trace.txt")

    @hookimpl
    def focus_run_started(self, event: RunStarted) -> None:
        """The start."""
        self.path = Path(event.directory or ".") / "trace.txt"
        self._say(f"started {event.steps}")

    @hookimpl
    def focus_policy_published(self, event: PolicyPublished) -> None:
        """A snapshot."""
        self._say(f"published {event.behavior_step} version {event.version}")

    @hookimpl
    def focus_policy_evaluated(self, event: PolicyEvaluated) -> None:
        """A measurement."""
        self._say(f"evaluated {event.learner_step}")

    @hookimpl
    def focus_batch_collected(self, event: BatchCollected) -> None:
        """A batch."""
        self._say(f"collected {event.batch} at {event.behavior_step}")

    @hookimpl
    def focus_update_started(self, event: UpdateStarted) -> None:
        """An update."""
        self._say(f"update {event.batch.index}")

    @hookimpl
    def focus_records_delivered(self, event: RecordsDelivered) -> None:
        """Records."""
        self._say(f"delivered {event.batch} {event.lane}")

    @hookimpl
    def focus_step_finished(self, event: StepFinished) -> None:
        """A step."""
        self._say(f"step {event.report.batch}")

    @hookimpl
    def focus_run_finished(self, event: RunFinished) -> None:
        """The end."""
        self._say(f"finished {event.status}")

    def _say(self, line: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(line + "\n")
