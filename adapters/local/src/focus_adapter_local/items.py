"""A record as the learner reads it: inputs, and everything about their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.errors import RecordError
from focus_core.records import ActorRecord, as_actor

__all__ = ["Item", "check_items", "to_item"]


@attrs.frozen(eq=False)
class Item:
    """One sequence to train on, in the layout of a Tinker datum.

    Every array has shape (T - 1,) for a record of T tokens; position ``t`` of the last four
    speaks of the target, token ``t + 1`` of the record.

    Attributes:
        input_tokens: int32; ``tokens[:-1]``.
        target_tokens: int32; ``tokens[1:]``.
        logprobs: float32; behaviour log probability of each generated target, in nats; else 0.
        advantages: float64; advantage of each generated target; else 0.
        mask: bool; which targets were generated.
    """

    input_tokens: NDArray[np.int32]
    target_tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    advantages: NDArray[np.float64]
    mask: NDArray[np.bool_]

    @property
    def trained_tokens(self) -> int:
        """Number of generated targets."""
        return int(np.count_nonzero(self.mask))


def to_item(record: ActorRecord | Mapping[str, Any]) -> Item:
    """Shift a record, native or plain, by one position.

    Raises:
        RecordError: The record breaks its contract, or its first token is a generated one,
            which no input predicts.
    """
    record = as_actor(record)
    mask = record.loss_mask.astype(bool)
    if len(mask) < 2:
        raise RecordError(f"a record of {len(mask)} tokens has nothing to predict; it needs 2")
    if mask[0]:
        raise RecordError("token 0 is a generated one, but no token comes before it to predict it")
    return Item(
        input_tokens=record.tokens[:-1],
        target_tokens=record.tokens[1:],
        logprobs=record.logprobs[1:],
        advantages=record.advantages[1:],
        mask=mask[1:],
    )


def check_items(items: Sequence[Any], *, vocabulary: int, context_length: int | None) -> None:
    """Refuse a batch that would train on garbage, before anything is computed.

    Args:
        items: What ``convert`` returned.
        vocabulary: Number of token ids the model has.
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
