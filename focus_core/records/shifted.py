"""A record as every learner of next tokens reads it: inputs, and what is said of their targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.errors import RecordError
from focus_core.records.actor import ActorRecord, as_actor

__all__ = ["Shifted", "shifted"]

_TOO_LARGE = 2.0**128 - 2.0**103
"""The least number that rounds to infinity in 32 bits."""


@attrs.frozen(eq=False)
class Shifted:
    """One sequence to train on: inputs, and four columns that speak of their targets.

    Every array has shape (T - 1,) for a record of T tokens; position ``t`` of the last four
    speaks of the target, token ``t + 1`` of the record. The first three are views of the record's
    arrays: copy what you change.

    Attributes:
        input_tokens: int32; ``tokens[:-1]``.
        target_tokens: int32; ``tokens[1:]``.
        logprobs: float32; behaviour log probability of each generated target, in nats; else 0.
        advantages: float32; advantage of each generated target; else 0.
        mask: bool; which targets were generated.
    """

    input_tokens: NDArray[np.int32]
    target_tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    advantages: NDArray[np.float32]
    mask: NDArray[np.bool_]

    @property
    def trained_tokens(self) -> int:
        """Number of generated targets."""
        return int(np.count_nonzero(self.mask))


def shifted(record: ActorRecord | Mapping[str, Any]) -> Shifted:
    """Shift a record, native or plain, by one position.

    Its work grows with the record's spans and the size of two arrays; no token is looked at alone.

    Raises:
        RecordError: The record breaks its contract, has fewer than two tokens, begins with a
            generated one, which no input predicts, or has an advantage beyond 32 bits.
    """
    record = as_actor(record)
    targets = record.tokens[1:]
    if not len(targets):
        raise RecordError(
            f"a record of {len(record.tokens)} tokens has nothing to predict; it needs 2"
        )
    if record.spans and record.spans[0].start == 0:
        raise RecordError("token 0 is a generated one, but no token comes before it to predict it")
    advantages = np.zeros(len(targets), np.float32)
    mask = np.zeros(len(targets), np.bool_)
    for span in record.spans:
        if abs(span.advantage) >= _TOO_LARGE:
            raise RecordError(
                f"the advantage of span {span.start}:{span.stop} is {span.advantage:g}, too large "
                "for a 32-bit number; scale the rewards down"
            )
        advantages[span.start - 1 : span.stop - 1] = span.advantage
        mask[span.start - 1 : span.stop - 1] = True
    return Shifted(record.tokens[:-1], targets, record.logprobs[1:], advantages, mask)
