"""Temporal difference over predictions refined by whole returns."""

from __future__ import annotations

from typing import ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.recipes.base import Credit
from focus_core.recipes.direct_branch import temporal_differences
from focus_core.tree.returns import Values, observed_returns
from focus_core.tree.tree import TERMINAL, Tree

__all__ = ["RefinedTd", "refined_by_returns"]


@attrs.frozen
class RefinedTd:
    """``A(edge) = R + gamma**d * V~(child) - V~(parent)``, ``V~ = (kappa v + n mean)/(kappa + n)``.

    ``n`` and ``mean`` are of the suffix returns of completed continuations through the state:
    those launched from it, and the one whose chain it was born in. Where ``DirectBranchTd`` backs
    up its children's shrunken values, this takes what was sampled: its values carry less of the
    critic's error and are noisier. Its advantages keep of that error what two states with unlike
    ``n`` do not share (``benchmarks/mdp_bias.py`` measures both).

    A terminal state is worth 0; one through which nothing completed (truncated, for example) its
    prediction. A state without a prediction has no value and its edges are not trained, but
    returns through it are outcomes and count at the states above it.

    Critic targets stay those of the direct branches. Source: the project's algorithm notes,
    "Credit".
    """

    needs_critic: ClassVar[bool] = True

    def credit(self, tree: Tree, values: Values, *, gamma: float) -> Credit:
        """See ``Recipe``."""
        refined = refined_by_returns(tree, gamma=gamma, kappa=values.kappa)
        return temporal_differences(tree, refined, gamma=gamma)


def refined_by_returns(tree: Tree, *, gamma: float, kappa: float) -> NDArray[np.float64]:
    """``(kappa v + n mean) / (kappa + n)`` of every state, shape (nodes,); see ``RefinedTd``."""
    n, mean = observed_returns(tree, gamma=gamma)
    prediction = np.array(tree.prediction)
    values = np.where(n > 0, (kappa * prediction + n * mean) / (kappa + n), prediction)
    values[np.asarray(tree.kind) == TERMINAL] = 0.0
    return values
