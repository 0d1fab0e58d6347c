"""A record as the learner reads it, and what is refused before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from focus_core.errors import RecordError
from focus_core.records import ActorRecord
from focus_core.records.shifted import Shifted, shifted

__all__ = ["Item", "check_items", "to_item"]


Item = Shifted
"""One sequence to train on."""


def to_item(record: ActorRecord | Mapping[str, Any]) -> Item:
    """Shift a record, native or plain, by one position.

    Raises:
        RecordError: As ``focus_core.shifted``.
    """
    return shifted(record)


def check_items(
    items: Sequence[Any],
    *,
    vocabulary: int,
    context_length: int | None,
    absent: Sequence[int] = (),
) -> None:
    """Refuse a batch that would train on garbage, before anything is computed.

    Args:
        items: What ``convert`` returned.
        vocabulary: Number of token ids the model has.
        absent: Ids that the model never samples.
        context_length: Most inputs the model takes, if it has a limit.

    Raises:
        RecordError: Something else than an item, arrays of different lengths, a number that is
            not finite, a token the model does not have, or too many of them; names the item.
    """
    for index, item in enumerate(items):
        if not isinstance(item, Item):
            raise RecordError(
                f"item {index} of the batch is a {type(item).__name__}; "
                "the local trainer takes what its convert() returns"
            )
        problem = _problem(item, vocabulary, context_length)
        if not problem and len(absent):
            trained = item.target_tokens[item.mask]
            if (lacking := np.isin(trained, absent)).any():
                problem = (
                    f"token {trained[lacking][0]} was generated, which the model's tokenizer does "
                    "not have; was it collected with another model?"
                )
        if problem:
            raise RecordError(f"item {index} of the batch: {problem}")


def _problem(item: Item, vocabulary: int, context_length: int | None) -> str | None:
    columns = attrs.asdict(item, recurse=False)
    shapes = {name: np.shape(column) for name, column in columns.items()}
    if len(set(shapes.values())) != 1 or len(shapes["mask"]) != 1:
        return f"its arrays must be flat and of one length, got {shapes}"
    size = len(item.mask)
    if context_length is not None and size > context_length:
        return f"{size} inputs, but the model's context is {context_length}"
    for name in ("logprobs", "advantages"):
        bad = np.flatnonzero(~np.isfinite(columns[name]))
        if len(bad):
            return f"{name}[{bad[0]}] is {columns[name][bad[0]]}; it must be finite"
    for name in ("input_tokens", "target_tokens"):
        bad = np.flatnonzero((columns[name] < 0) | (columns[name] >= vocabulary))
        if len(bad):
            return (
                f"{name}[{bad[0]}] is {columns[name][bad[0]]}, but the model has {vocabulary} "
                "tokens; was it collected with another model?"
            )
    return None
