"""What an update reports: Tinker's numbers, and ours from the log probabilities it returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_adapter_tinker.datums import generated
from focus_adapter_tinker.losses import PPO_CLIP
from focus_core.errors import TrainerError
from focus_core.records import ActorRecord

__all__ = ["disagreement", "learner_logprobs", "report"]


def learner_logprobs(
    records: Sequence[ActorRecord], outputs: Sequence[Mapping[str, Any]], *, needed: bool
) -> NDArray[np.float64] | None:
    """The learner's log probability of each generated token, records one after another.

    Args:
        records: What was trained on.
        outputs: Tinker's, in the same order.
        needed: Whether a loss of this kind returns them.

    Returns:
        Shape (N,), or ``None`` if the loss returns none.

    Raises:
        TrainerError: The answer does not fit the records.
    """
    if len(outputs) != len(records):
        raise TrainerError(f"Tinker answered {len(records)} datums with {len(outputs)} outputs")
    with_them = ["logprobs" in output for output in outputs]
    if not any(with_them) and not needed:
        return None
    if not all(with_them):
        raise TrainerError(
            f"Tinker returned no log probabilities for datum {with_them.index(False)}"
        )
    found = [np.zeros(0)]
    for index, (record, output) in enumerate(zip(records, outputs, strict=True)):
        values = np.asarray(output["logprobs"].to_numpy(), np.float64).reshape(-1)
        mask = generated(record)
        if values.shape != mask.shape:
            raise TrainerError(
                f"Tinker returned {len(values)} log probabilities for the {len(mask)} targets of "
                f"datum {index}"
            )
        found.append(values[mask])
    return np.concatenate(found)


def report(
    records: Sequence[ActorRecord],
    learner: NDArray[np.float64] | None,
    said: Mapping[str, Any],
    config: Mapping[str, float] | None,
) -> dict[str, float]:
    """Numbers by name: Tinker's finite ones under its names, then ours.

    ``loss`` is the sum; ``ratio_mean``, ``clip_fraction``, ``logprob_gap`` (mean absolute
    difference of learner and behaviour, in nats) and ``kl`` (k3 estimate) are per generated token.

    Raises:
        TrainerError: The loss is not a finite number.
    """
    metrics = {name: float(value) for name, value in said.items() if _finite(value)}
    if "loss:sum" in said:
        if "loss:sum" not in metrics:
            raise TrainerError(f"the loss is {said['loss:sum']!r}")
        metrics["loss"] = metrics["loss:sum"]
    metrics["trained_tokens"] = float(sum(record.trained_tokens for record in records))
    if learner is None or not len(learner):
        return metrics
    if not np.isfinite(learner).all():
        raise TrainerError("a log probability of the learner is not finite")
    gap = learner - _behaviour(records)
    with np.errstate(over="ignore"):
        ratio = np.exp(gap)
    low, high = ({**PPO_CLIP, **(config or {})}[name] for name in PPO_CLIP)
    ours = {
        "ratio_mean": ratio.mean(),
        "ratio_max_deviation": np.abs(ratio - 1.0).max(),
        "clip_fraction": np.mean((ratio < low) | (ratio > high)),
        "logprob_gap": np.abs(gap).mean(),
        "logprob_gap_max": np.abs(gap).max(),
        "kl": (ratio - 1.0 - gap).mean(),
    }
    return metrics | {name: float(value) for name, value in ours.items() if _finite(value)}


def disagreement(
    records: Sequence[ActorRecord], learner: NDArray[np.float64] | None, tolerance: float
) -> str | None:
    """What is wrong if the weights that sampled these records give other log probabilities."""
    if learner is None or not len(learner):
        return None
    gap = np.abs(learner - _behaviour(records))
    if gap.mean() <= tolerance:
        return None
    return (
        f"sampler and learner disagree on the same weights: over {len(gap)} tokens the mean "
        f"|learner - behaviour| is {gap.mean():.3g} nats and the largest {gap.max():.3g} "
        f"(tolerance of the mean {tolerance:g}). Usual causes: tokens of another model or "
        "tokenizer, or log probabilities that are not the sampler's; trainer.logprob_tolerance "
        "sets the tolerance"
    )


def _behaviour(records: Sequence[ActorRecord]) -> NDArray[np.float64]:
    return np.concatenate(
        [record.logprobs[1:][generated(record)].astype(np.float64) for record in records]
    )


def _finite(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)
