"""What crosses the line between FOCUS and a trainer: problems, records, batches, reports."""

from focus_core.records.actor import ActorRecord, Span, as_actor, as_plain
from focus_core.records.batch import Batch, StepReport
from focus_core.records.critic import CriticRecord
from focus_core.records.plain import SCHEMA
from focus_core.records.problem import Problem
from focus_core.records.shifted import Shifted, shifted

__all__ = [
    "SCHEMA",
    "ActorRecord",
    "Batch",
    "CriticRecord",
    "Problem",
    "Shifted",
    "Span",
    "StepReport",
    "as_actor",
    "as_plain",
    "shifted",
]
