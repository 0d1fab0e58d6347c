"""Where a run stands, what ends it, and which batch may be trained."""

from __future__ import annotations

import attrs

from focus_core.errors import StaleBatchError
from focus_core.records import Batch

__all__ = ["Limits", "Progress", "check_batch"]


@attrs.frozen(kw_only=True)
class Limits:
    """What ends a run, so that one error does not end a week and a week does not hide errors.

    A deadline per continuation is the collector's (``deadline``), failures per tree the search's
    (``max_failures``).

    Attributes:
        failure_rate: With ``allow_partial``, the largest share of a batch's continuations that
            may fail, and of its predictions.
        max_tokens: Sampled tokens after which no further batch is collected; what is collected is
            still trained.
    """

    failure_rate: float = attrs.field(
        default=0.2, validator=[attrs.validators.ge(0.0), attrs.validators.le(1.0)]
    )
    max_tokens: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(1))
    )


def _whole(_: Progress, attribute: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or value < 0:
        raise ValueError(f"{attribute.name} is {value!r:.80}; it must be an integer from 0")


@attrs.frozen(kw_only=True)
class Progress:
    """How far a run is: where it starts, and what a checkpoint continues from.

    Attributes:
        batch: Index of the next batch.
        learner_step: Updates completed.
        sampled_tokens: Tokens sampled so far.
    """

    batch: int = attrs.field(default=0, validator=_whole)
    learner_step: int = attrs.field(default=0, validator=_whole)
    sampled_tokens: int = attrs.field(default=0, validator=_whole)


def check_batch(batch: Batch, *, expected: int, async_depth: int) -> None:
    """Refuse a batch that is out of order or too old.

    Raises:
        StaleBatchError: The index is not ``expected``, or the lag not in 0..``async_depth``.
    """
    if batch.index != expected:
        raise StaleBatchError(f"batch {batch.index} arrived where {expected} was expected")
    if not 0 <= batch.policy_lag <= async_depth:
        raise StaleBatchError(
            f"batch {batch.index} was sampled at step {batch.behavior_step}, but the learner is at "
            f"step {batch.learner_step}: a lag of {batch.policy_lag}, allowed 0 to {async_depth}"
        )
