"""Temporal difference over predictions refined by whole returns."""

from __future__ import annotations

from typing import ClassVar

import attrs
import numpy as np

from focus_core.recipes.base import Credit
from focus_core.recipes.direct_branch import temporal_differences
from focus_core.tree.returns import Values, observed_returns
from focus_core.tree.tree import TERMINAL, Tree

__all__ = ["RefinedTd"]


@attrs.frozen
class RefinedTd:
    """``A(edge) = R + gamma**d * V~(child) - V~(parent)``, ``V~ = (kappa v + n mean)/(kappa + n)``.

    ``n`` and ``mean`` are of the suffix returns of completed continuations through the state:
    those launched from it, and the one whose chain it was born in. Where ``DirectBranchTd`` backs
    up its children's shrunken values, this takes what was sampled: less of the critic's error,
    more variance. A terminal state is worth 0; one through which nothing completed (truncated,
    for example) its prediction. A state without a prediction has no value and its edges are not
    trained, but returns through it are outcomes and count at the states above it.

    Critic targets stay those of the direct branches. Source: the project's algorithm notes,
    "Credit".
    """

    needs_critic: ClassVar[bool] = True

    def credit(self, tree: Tree, values: Values, *, gamma: float) -> Credit:
        """See ``Recipe``."""
        n, mean = observed_returns(tree, gamma=gamma)
        prediction, kappa = np.asarray(tree.prediction), values.kappa
        worth = np.where(n > 0, (kappa * prediction + n * mean) / (kappa + n), prediction)
        worth[np.asarray(tree.kind) == TERMINAL] = 0.0
        return temporal_differences(tree, worth, gamma=gamma)
