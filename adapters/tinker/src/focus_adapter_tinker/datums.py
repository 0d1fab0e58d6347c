"""A record as Tinker reads it: inputs, targets, and what the loss needs of each target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_adapter_tinker.chunks import text_chunk
from focus_adapter_tinker.losses import SUMS, check_loss
from focus_core.errors import RecordError
from focus_core.records import ActorRecord, as_actor
from focus_core.records.shifted import shifted

__all__ = ["check_datums", "generated", "to_datum"]


def to_datum(record: ActorRecord | Mapping[str, Any], *, loss_fn: str = "ppo") -> Any:
    """Turn one actor record, native or plain, into a Tinker ``Datum``.

    The model input is ``tokens[:-1]``; everything else is read one position later, so that each
    array has shape (T - 1,) for a record of T tokens: ``target_tokens`` (int64), the behaviour
    ``logprobs`` (float32, nats) and ``advantages`` (float32). Conditioning tokens have 0 in both.

    Args:
        record: One edge, or a path of several for a loss that is a sum over tokens.
        loss_fn: What will read it: ``cross_entropy`` gets the advantages as ``weights`` and no
            log probabilities, ``gspo`` also gets the ``sequence_ratio_mask``.

    Raises:
        RecordError: As ``focus_core.shifted``; or the record holds several edges for a loss that is
            no sum over tokens.
        UsageError: FOCUS cannot train with this loss.
    """
    from tinker import types

    check_loss(loss_fn, None)
    record = as_actor(record)
    if loss_fn not in SUMS and record.merged:
        raise RecordError(
            f"a record of several edges cannot train with {loss_fn!r}, which is no sum over "
            "tokens; train one record per edge (focus train --per-edge)"
        )
    made = shifted(record)
    columns: dict[str, NDArray[Any]] = {"target_tokens": made.target_tokens.astype(np.int64)}
    if loss_fn == "cross_entropy":
        columns["weights"] = made.advantages
    else:
        columns |= {"logprobs": made.logprobs, "advantages": made.advantages}
    if loss_fn == "gspo":
        columns["sequence_ratio_mask"] = made.mask.astype(np.float32)
    return types.Datum(
        model_input=types.ModelInput(chunks=[text_chunk(made.input_tokens)]),
        loss_fn_inputs={
            name: types.TensorData.from_numpy(column) for name, column in columns.items()
        },
    )


def generated(record: ActorRecord) -> NDArray[np.bool_]:
    """Which of a datum's targets were generated, shape (T - 1,)."""
    return shifted(record).mask


def check_datums(datums: Any) -> None:
    """Refuse what ``to_datum`` did not make, before it is sent.

    Raises:
        RecordError: Something else is among them.
    """
    from tinker import types

    for index, datum in enumerate(datums):
        if not isinstance(datum, types.Datum):
            raise RecordError(
                f"item {index} of the batch is a {type(datum).__name__}; Tinker trains on datums, "
                "which convert() makes"
            )
