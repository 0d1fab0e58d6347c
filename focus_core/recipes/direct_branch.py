"""The default recipe: temporal difference over refined values."""

from __future__ import annotations

import math
from typing import ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.recipes.base import Credit
from focus_core.tree.returns import Values
from focus_core.tree.tree import Tree

__all__ = ["DirectBranchTd", "temporal_differences"]


@attrs.frozen
class DirectBranchTd:
    """``A(edge) = R + gamma**d * V~(child) - V~(parent)``, V~ backed up through direct branches.

    An edge next to a state without a prediction has no advantage and is not trained. Source: the
    project's algorithm notes, "Credit".
    """

    needs_critic: ClassVar[bool] = True

    def credit(self, tree: Tree, values: Values, *, gamma: float) -> Credit:
        """See ``Recipe``."""
        return temporal_differences(tree, values.refined, gamma=gamma)


def temporal_differences(tree: Tree, values: NDArray[np.float64], *, gamma: float) -> Credit:
    """``R + gamma**d * values(child) - values(parent)`` of every edge.

    Args:
        tree: A collected tree; removed nodes are ignored.
        values: Of each state, shape (nodes,), NaN where it has none: its edges have no advantage
            then and are counted as ``edges_without_value``.
        gamma: Discount per transition.
    """
    advantages = np.full(len(tree), math.nan)
    lost = 0
    for node in tree.edges():
        advantage = (
            tree.reward[node]
            + gamma ** tree.duration[node] * values[node]
            - values[tree.parent[node]]
        )
        advantages[node] = advantage
        lost += math.isnan(advantage)
    return Credit(advantages, {"edges_without_value": lost} if lost else {}, values)
