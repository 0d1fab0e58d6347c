"""The group baseline (GRPO): a rollout's return against its siblings'."""

from __future__ import annotations

import math
from typing import ClassVar

import attrs
import numpy as np

from focus_core.errors import UsageError
from focus_core.recipes.base import Credit
from focus_core.tree.returns import Values, rollout_returns
from focus_core.tree.tree import ROOT, Tree

__all__ = ["GroupCentered"]

_ROUNDING = 1e-9
"""Returns nearer to each other than this, relative to the largest, differ by rounding only."""


@attrs.frozen
class GroupCentered:
    """``A = return - mean(returns of the root's rollouts)``, on every edge of the rollout.

    A group whose returns are all equal, but for the rounding of their sums, teaches nothing: its
    edges are dropped and it is counted as ``degenerate_groups``. A truncated rollout has no return;
    it leaves the group and is counted. Needs unbranched rollouts, such as ``Independent(n)``
    collects.

    Source of the centring and scaling: Shao et al. 2024, DeepSeekMath, section 4.1 (GRPO).

    Args:
        scale: Also divide by the group's standard deviation (population) plus ``epsilon``.
        epsilon: Keeps that division finite.
    """

    scale: bool = False
    epsilon: float = 1e-6

    needs_critic: ClassVar[bool] = False
    needs_rollouts: ClassVar[bool] = True

    def credit(self, tree: Tree, values: Values, *, gamma: float) -> Credit:
        """See ``Recipe``.

        Raises:
            UsageError: The tree branches below its root.
        """
        branched = [n for n, below in enumerate(tree.children()) if n != ROOT and len(below) > 1]
        if branched:
            raise UsageError(
                f"GroupCentered compares whole rollouts, but state {branched[0]} has several "
                "branches; collect with Independent(n)"
            )
        advantages = np.full(len(tree), math.nan)
        returns = rollout_returns(tree, gamma=gamma)
        rollouts = sum(tree.parent[node] == ROOT for node in tree.edges())
        counts = {}
        if rollouts > len(returns):
            counts["truncated_rollouts"] = rollouts - len(returns)
        outcomes = np.fromiter(returns.values(), np.float64, len(returns))
        if len(outcomes) < 2 or np.ptp(outcomes) <= _ROUNDING * np.abs(outcomes).max():
            return Credit(advantages, {**counts, "degenerate_groups": 1})
        centred = outcomes - outcomes.mean()
        if self.scale:
            centred /= outcomes.std() + self.epsilon
        for leaf, advantage in zip(returns, centred, strict=True):
            advantages[tree.path(leaf)[1:]] = advantage
        return Credit(advantages, counts)
