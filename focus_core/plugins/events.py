"""What observers are told: one frozen object for each thing that happens in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from focus_core.records import Batch, StepReport

if TYPE_CHECKING:
    from focus_core.trainer import RunStatus

__all__ = [
    "BatchCollected",
    "PolicyEvaluated",
    "PolicyPublished",
    "RecordsDelivered",
    "RunFinished",
    "RunStarted",
    "StepFinished",
    "UpdateStarted",
]


@attrs.frozen(kw_only=True)
class RunStarted:
    """A run begins: its configuration (no secrets), and how many batches it will train.

    ``directory`` is where the run keeps its files, for an observer that writes some.
    """

    config: Mapping[str, Any]
    steps: int
    directory: str | None = None


@attrs.frozen(kw_only=True)
class PolicyPublished:
    """A snapshot is ready to sample; ``behavior_step`` updates are in it."""

    behavior_step: int
    version: int | str


@attrs.frozen(kw_only=True)
class PolicyEvaluated:
    """A policy was measured on held-out problems."""

    learner_step: int
    metrics: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class BatchCollected:
    """A batch's trees are collected, or read again: its numbers, and the seconds that took."""

    batch: int
    behavior_step: int
    metrics: Mapping[str, Any]
    seconds: float


@attrs.frozen(kw_only=True)
class UpdateStarted:
    """The trainer was handed a batch."""

    batch: Batch


@attrs.frozen(kw_only=True)
class StepFinished:
    """An update succeeded, or a batch was skipped."""

    report: StepReport
    seconds: float


@attrs.frozen(kw_only=True)
class RecordsDelivered:
    """A lane's records of one batch were written to its sink."""

    batch: int
    lane: str
    count: int


@attrs.frozen(kw_only=True)
class RunFinished:
    """The run is over, however it ended."""

    status: RunStatus
    reports: Sequence[StepReport]
