"""Something that failed while a tree was collected."""

from __future__ import annotations

import attrs

__all__ = ["Failure"]


@attrs.frozen
class Failure:
    """Something that failed in a collection, with its cause attached.

    Attributes:
        stage: ``"generation"``, ``"environment"``, ``"deadline"`` or ``"prediction"``.
        state: The state acted from, or whose prediction failed.
        launch: The continuation, -1 for the root's own reset and prediction.
        error: The exception as it was raised.
    """

    stage: str
    state: int
    launch: int
    error: Exception

    def __str__(self) -> str:
        """One line."""
        return f"{self.stage} at state {self.state}: {type(self.error).__name__}: {self.error}"
