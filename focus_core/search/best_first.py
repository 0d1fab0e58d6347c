"""Where the critic expects the most."""

from __future__ import annotations

import math

import attrs

from focus_core.search.base import Frontier
from focus_core.search.calibration import Calibration
from focus_core.search.frontier import RankedFrontier
from focus_core.tree.tree import Tree

__all__ = ["BestFirst"]


@attrs.frozen
class BestFirst:
    """Launches from the state with the highest critic prediction.

    The prediction alone, not its blend with observed returns: that is best-first search as the
    field knows it (Koh et al. 2024, Tree Search for Language Model Agents), and what is spent
    where then depends on no outcome of the state, which keeps means of its branches unbiased. A
    constant critic ranks nothing: ties go to the older state. States without a prediction are not
    offered; the root, which comes first, excepted.

    Args:
        budget: Transitions.
        branches: Direct branches at which a state is done, the child of the chain it lies on
            included. At 2 each state that is chosen gets one more continuation to compare with
            its own; a larger number stays longer at the best states.
        max_concurrency: Most continuations in flight in the tree, one at most from a state; at 1
            a tree is reproducible.
        max_failures: Failed continuations that end the collection.
    """

    budget: int = attrs.field(default=48, validator=attrs.validators.ge(1))
    branches: int = attrs.field(default=2, validator=attrs.validators.ge(2))
    max_concurrency: int = attrs.field(default=4, validator=attrs.validators.ge(1))
    max_failures: int = attrs.field(default=3, validator=attrs.validators.ge(1))

    def start(self, tree: Tree, *, kappa: float, calibration: Calibration) -> Frontier:
        """Begin on a tree that holds only its root."""

        def prediction(state: int) -> float | None:
            value = tree.prediction[state]
            return value if math.isfinite(value) else None

        return RankedFrontier(tree, self.budget, self.branches, prediction)
