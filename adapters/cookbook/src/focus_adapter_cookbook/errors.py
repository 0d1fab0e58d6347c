"""Errors of what the cookbook's environments do."""

from __future__ import annotations

from focus_core.errors import FocusError

__all__ = ["DivergenceError", "PromptOverflowError"]


class DivergenceError(FocusError, RuntimeError):
    """An environment, given the recorded actions again, answered otherwise than before.

    Attributes:
        step: The action whose answer differs, from 1; 0 is the initial observation.
    """

    def __init__(self, message: str, step: int) -> None:
        self.message = message
        self.step = step
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the step through pickling."""
        return type(self), (self.message, self.step)


class PromptOverflowError(FocusError, ValueError):
    """An environment says that its first prompt is too long: there is nothing to sample."""
