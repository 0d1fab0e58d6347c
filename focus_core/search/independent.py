"""Rollouts from the root, without branching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from focus_core.search.calibration import Calibration
from focus_core.tree.tree import ROOT, Tree

__all__ = ["Independent"]


def _whole(instance: object, attribute: object, value: float) -> None:
    if value % 1:
        raise ValueError(f"'n' must be a whole number: {value!r}")


@attrs.frozen
class Independent:
    """``n`` rollouts from the root: group baselines, evaluation.

    Args:
        n: Rollouts.
        max_concurrency: Most at a time; all of them by default.
        max_failures: Failed rollouts that end the collection.
    """

    n: int = attrs.field(default=8, validator=[attrs.validators.ge(1), _whole])
    max_concurrency: int = attrs.field(kw_only=True, validator=attrs.validators.ge(1))
    max_failures: int = attrs.field(default=3, kw_only=True, validator=attrs.validators.ge(1))

    branches: ClassVar[bool] = False

    @max_concurrency.default
    def _all_at_once(self) -> int:
        return self.n

    def start(self, tree: Tree, *, kappa: float, calibration: Calibration) -> _Rollouts:
        """Begin on a tree that holds only its root."""
        return _Rollouts(self.n)


@attrs.define
class _Rollouts:
    left: int
    stopped: str = "all rollouts are in"

    def next(self) -> int | None:
        if not self.left:
            return None
        self.left -= 1
        return ROOT

    def generated(self) -> None:
        """Rollouts are counted, not transitions."""

    def landed(self, source: int, chain: Sequence[int], returns: Sequence[float] | None) -> None:
        """Nothing to learn."""

    def failed(self, source: int) -> None:
        """Not repeated."""
