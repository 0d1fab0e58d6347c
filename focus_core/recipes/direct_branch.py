"""The default recipe: temporal difference over refined values."""

from __future__ import annotations

import math
from typing import ClassVar

import attrs
import numpy as np

from focus_core.recipes.base import Credit
from focus_core.tree.returns import Values
from focus_core.tree.tree import Tree

__all__ = ["DirectBranchTd"]


@attrs.frozen
class DirectBranchTd:
    """``A(edge) = R + gamma**d * V~(child) - V~(parent)``.

    An edge next to a state without a prediction has no advantage and is not trained. Source: the
    project's algorithm notes, "Credit".
    """

    needs_critic: ClassVar[bool] = True

    def credit(self, tree: Tree, values: Values, *, gamma: float) -> Credit:
        """See ``Recipe``."""
        advantages = np.full(len(tree), math.nan)
        refined = values.refined
        lost = 0
        for node in tree.edges():
            advantage = (
                tree.reward[node]
                + gamma ** tree.duration[node] * refined[node]
                - refined[tree.parent[node]]
            )
            advantages[node] = advantage
            lost += math.isnan(advantage)
        return Credit(advantages, {"edges_without_value": lost} if lost else {})
