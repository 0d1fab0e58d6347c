"""Where the policy was least sure of what it said."""

from __future__ import annotations

import math

import attrs
import numpy as np

from focus_core.search.base import Frontier
from focus_core.search.calibration import Calibration
from focus_core.search.frontier import RankedFrontier
from focus_core.tree.tree import ROOT, Tree

__all__ = ["TokenEntropy", "mean_surprisal"]


@attrs.frozen
class TokenEntropy:
    """Launches from the state whose last generated tokens were the most surprising.

    The score is the mean of ``-log p`` over the last ``window`` generated tokens before the
    state, in nats: an estimate of the policy's entropy there, from what was sampled and at the
    temperature it was sampled with. The tokens may reach back over several edges and turns; tool
    and prompt tokens are left out. The root, which no token leads to, comes first and then ranks
    last. Needs no critic, and looks at no outcome.

    Args:
        budget: Transitions.
        window: Generated tokens in the mean; fewer where the path has fewer.
        branches: Direct branches at which a state is done, the child of the chain it lies on
            included; see ``BestFirst``.
        max_concurrency: Most continuations in flight in the tree, one at most from a state; at 1
            a tree is reproducible.
        max_failures: Failed continuations that end the collection.
    """

    budget: int = attrs.field(default=48, validator=attrs.validators.ge(1))
    window: int = attrs.field(default=16, validator=attrs.validators.ge(1))
    branches: int = attrs.field(default=2, validator=attrs.validators.ge(2))
    max_concurrency: int = attrs.field(default=4, validator=attrs.validators.ge(1))
    max_failures: int = attrs.field(default=3, validator=attrs.validators.ge(1))

    def start(self, tree: Tree, *, kappa: float, calibration: Calibration) -> Frontier:
        """Begin on a tree that holds only its root."""
        return RankedFrontier(
            tree, self.budget, self.branches, lambda state: mean_surprisal(tree, state, self.window)
        )


def mean_surprisal(tree: Tree, state: int, window: int) -> float:
    """Mean ``-log p`` of the last ``window`` tokens generated before a state, in nats.

    Returns:
        The mean, over fewer tokens where there are fewer; ``-inf`` where there is none.
    """
    total, left = 0.0, window
    while left and state != ROOT:
        last = tree.generated(state)[1][-left:]
        total -= float(last.sum(dtype=np.float64))
        left -= len(last)
        state = tree.parent[state]
    return total / (window - left) if left < window else -math.inf
