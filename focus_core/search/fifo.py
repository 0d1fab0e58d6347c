"""Breadth first: two direct branches for every state, in the order they landed."""

from __future__ import annotations

import attrs

from focus_core.search.calibration import Calibration
from focus_core.search.frontier import TreeFrontier
from focus_core.tree.tree import Tree

__all__ = ["Fifo"]


@attrs.frozen
class Fifo:
    """The warm-up of ``Selective`` alone: needs no critic, and looks at no outcome.

    Every state gets two direct branches, the child of the chain it lies on and launches in flight
    included, oldest state first. What is spent where depends on no return, so a plain mean over
    states has no bias of allocation.

    Args:
        budget: Transitions.
        max_concurrency: Most continuations in flight in the tree; at 1 a tree is reproducible.
        max_failures: Failed continuations that end the collection.
    """

    budget: int = attrs.field(default=48, validator=attrs.validators.ge(1))
    max_concurrency: int = attrs.field(default=4, validator=attrs.validators.ge(1))
    max_failures: int = attrs.field(default=3, validator=attrs.validators.ge(1))

    def start(self, tree: Tree, *, kappa: float, calibration: Calibration) -> _FifoFrontier:
        """Begin on a tree that holds only its root."""
        return _FifoFrontier(tree, self.budget)


class _FifoFrontier(TreeFrontier):
    def __init__(self, tree: Tree, budget: int) -> None:
        super().__init__(tree)
        self._budget = budget

    def _choose(self) -> int | None:
        if self._used(self._budget):
            return None
        state = self._fifo()
        if state is None and not self._in_flight:
            self.stopped = "every state has two branches"
        return state
