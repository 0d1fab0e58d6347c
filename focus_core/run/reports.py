"""A run's own observer: every report and evaluation, kept in the run's directory."""

from __future__ import annotations

import attrs

from focus_core.hookspecs import hookimpl
from focus_core.plugins.events import PolicyEvaluated, StepFinished
from focus_core.run.directory import RunDirectory

__all__ = ["Keeper"]


@attrs.frozen(eq=False)
class Keeper:
    """Writes reports and evaluations into the run's directory."""

    directory: RunDirectory

    @hookimpl
    def focus_step_finished(self, event: StepFinished) -> None:
        """One line a step."""
        self.directory.report(event.report)

    @hookimpl
    def focus_policy_evaluated(self, event: PolicyEvaluated) -> None:
        """One line an evaluation."""
        self.directory.evaluation(event.learner_step, event.metrics)
