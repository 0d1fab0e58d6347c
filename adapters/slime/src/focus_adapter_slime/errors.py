"""What can go wrong here and nowhere else."""

from __future__ import annotations

from focus_core.errors import FocusError

__all__ = ["AbortedError"]


class AbortedError(FocusError, RuntimeError):
    """Slime called the rollout off, or the router broke a generation off."""
