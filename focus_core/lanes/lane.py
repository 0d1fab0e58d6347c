"""Lanes: the training roles of what a tree exports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.records import Problem
from focus_core.tree.returns import Values
from focus_core.tree.tree import Tree

__all__ = ["CreditedTree", "Lane"]


class CreditedTree(Protocol):
    """What a lane exports from: a prepared ``Collection``, as far as lanes read it."""

    @property
    def tree(self) -> Tree:
        """What was collected."""
        ...

    @property
    def problem(self) -> Problem:
        """For which problem."""
        ...

    @property
    def group_index(self) -> int:
        """Of the tree in its batch."""
        ...

    @property
    def values(self) -> Values:
        """Refined values, targets and branch counts."""
        ...

    @property
    def advantages(self) -> NDArray[np.float64]:
        """Of each edge, shape (nodes,), NaN where not trained."""
        ...

    @property
    def min_abs_advantage(self) -> float | None:
        """Edges below it are not exported."""
        ...

    def context(self, node: int) -> Any:
        """The text the critic was asked about a state, or would have been."""
        ...


@attrs.frozen
class Lane:
    """One training role.

    Attributes:
        name: Its key in batches and files.
        record_type: Class of its records; each has ``metadata`` and ``to_dict()``.
        export: From a prepared collection to its records.
        consumer: ``"update"`` hands them to the trainer, ``"sink"`` to a sink once the update
            succeeded.
    """

    name: str
    record_type: type[Any]
    export: Callable[[Any], Sequence[Any]]
    """Takes a ``CreditedTree``; a lane of one's own may annotate the ``Collection`` it reads."""
    consumer: Literal["update", "sink"]
