"""The recipe protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.tree.returns import Values
from focus_core.tree.tree import Tree

__all__ = ["Credit", "Recipe"]


@attrs.frozen(eq=False)
class Credit:
    """A recipe's verdict on a tree.

    Attributes:
        advantages: Of the edge to each node, float64, shape (nodes,); NaN where an edge is not
            trained.
        counts: What was left out and why, for the report.
        values: Of each state, as the advantages go by them, shape (nodes,); ``None`` if they go by
            none.
    """

    advantages: NDArray[np.float64]
    counts: Mapping[str, int] = attrs.field(factory=dict)
    values: NDArray[np.float64] | None = None


@runtime_checkable
class Recipe(Protocol):
    """From a tree and its values to an advantage for each edge.

    Optional attribute: ``needs_rollouts``, whether a search that branches is a mistake.
    """

    @property
    def needs_critic(self) -> bool:
        """Whether a collector without a critic is a mistake."""
        ...

    def credit(self, tree: Tree, values: Values, *, gamma: float) -> Credit:
        """Advantages of all edges; mutates neither tree nor values."""
        ...
