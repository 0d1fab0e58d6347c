"""The search protocol: a recipe for spending, and its state on one tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from focus_core.search.calibration import Calibration
from focus_core.tree.tree import Tree

__all__ = ["Explained", "Frontier", "Search"]


class Frontier(Protocol):
    """A search at work on one tree. Called by the collector, never concurrently."""

    def next(self) -> int | None:
        """The state to launch from now, counted as launched; ``None``: nothing at present.

        Asked again after each landing; ``None`` with nothing in flight ends the collection.
        """
        ...

    def generated(self) -> None:
        """One more transition was generated, by whichever continuation."""
        ...

    def landed(self, source: int, chain: Sequence[int], returns: Sequence[float] | None) -> None:
        """A continuation landed.

        Args:
            source: The state it was launched from.
            chain: The states it made, in order.
            returns: Discounted suffix return from ``source`` and from each state of ``chain`` (so
                one longer than it); ``None`` if the continuation was truncated.
        """
        ...

    def failed(self, source: int) -> None:
        """A continuation failed; its states are gone from the tree."""
        ...

    @property
    def stopped(self) -> str:
        """Why ``next`` has nothing more: which budget is used, or that no state is eligible."""
        ...


@runtime_checkable
class Explained(Protocol):
    """What a frontier may have besides: why it chooses, kept for whoever looks at the tree."""

    @property
    def phase(self) -> str:
        """What the search is doing, in a word or two, such as ``"warm-up"``."""
        ...

    def worth(self, state: int) -> float | None:
        """The number that speaks for a launch from a state now; ``None`` if it is not offered.

        What a later phase goes by is given before that phase too, or its start goes unseen: asked
        right after each launch, landing and failure, for the states it concerns.
        """
        ...


@runtime_checkable
class Search(Protocol):
    """How to spend a tree's budget.

    Optional attribute: ``branches``, False if every continuation leaves the root.
    """

    @property
    def max_concurrency(self) -> int:
        """Most continuations in flight in one tree."""
        ...

    @property
    def max_failures(self) -> int:
        """Failed continuations that end the collection."""
        ...

    def start(self, tree: Tree, *, kappa: float, calibration: Calibration) -> Frontier:
        """Begin on a tree that holds only its root."""
        ...
