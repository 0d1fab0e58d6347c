"""What a critic is fitted to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from focus_core.errors import RecordError
from focus_core.records.plain import SCHEMA, check_header, metadata_of, number

__all__ = ["CriticRecord"]


@attrs.frozen
class CriticRecord:
    """A state and the value its branches say it has.

    Attributes:
        context: The text the critic was asked about.
        target: Mean direct-branch backup of the state, unshrunk.
        metadata: As on actor records, with ``branches``: the number of branches in the mean,
            by which a fit weights the state.
    """

    context: Any
    target: float
    metadata: Mapping[str, Any] = attrs.field(factory=dict)

    lane = "critic"

    def __attrs_post_init__(self) -> None:
        """Refuse a target that would poison a fit."""
        if not math.isfinite(self.target):
            raise RecordError(f"the critic target is {self.target!r}; it must be finite")

    def to_dict(self) -> dict[str, Any]:
        """The plain form."""
        return {
            "schema": SCHEMA,
            "lane": self.lane,
            "context": self.context,
            "target": self.target,
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> CriticRecord:
        """Read and validate the plain form.

        Raises:
            RecordError: A key is missing or the target is not a finite number.
        """
        check_header(plain, "critic")
        if "context" not in plain:
            raise RecordError("the critic record has no 'context'")
        return cls(plain["context"], number("target", plain.get("target")), metadata_of(plain))
