"""Values of a collected tree: one pass, deepest first, nothing mutated."""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.tree.tree import TERMINAL, Tree

__all__ = ["Values", "backup", "rollout_returns"]


@attrs.frozen(eq=False)
class Values:
    """What the branches say about each state; arrays over nodes, shape (nodes,).

    Attributes:
        refined: The refined value V~ of every state, NaN where it has no prediction.
        target: Mean direct-branch backup, the critic's target; NaN where not expanded or without
            a prediction.
        branches: Direct branches in that mean.
    """

    refined: NDArray[np.float64]
    target: NDArray[np.float64]
    branches: NDArray[np.int64]


def backup(tree: Tree, *, gamma: float, kappa: float) -> Values:
    """Back values up through direct branches.

    A terminal state is worth 0 (its reward is on the edge); an unexpanded or truncated one its
    prediction ``v``. Otherwise, over its direct branches, ``q = R + gamma**d * V~(child)``,
    ``target = mean(q)`` and ``V~ = (kappa * v + sum(q)) / (kappa + N)``: each branch counts once,
    however many descendants it has. A state without a prediction has no value, and its branch is
    left out of its parent's mean. Source: the project's algorithm notes, "Values".

    Args:
        tree: A collected tree; removed nodes are ignored.
        gamma: Discount per transition.
        kappa: Strength of the prediction, in branches.
    """
    size = len(tree)
    refined = np.full(size, math.nan)
    target = np.full(size, math.nan)
    branches = np.zeros(size, np.int64)
    total = [0.0] * size
    count = [0] * size
    for node in range(size - 1, -1, -1):
        if not tree.alive[node]:
            continue
        if tree.kind[node] == TERMINAL:
            value = 0.0
        else:
            value = tree.prediction[node]
            n = count[node]
            if n and not math.isnan(value):
                target[node] = total[node] / n
                branches[node] = n
                value = (kappa * value + total[node]) / (kappa + n)
        refined[node] = value
        parent = tree.parent[node]
        if parent >= 0 and not math.isnan(value):
            total[parent] += tree.reward[node] + gamma ** tree.duration[node] * value
            count[parent] += 1
    return Values(refined, target, branches)


def rollout_returns(tree: Tree, *, gamma: float) -> dict[int, float]:
    """Discounted return from the root of each finished rollout, by its terminal node."""
    returns = {}
    for node in tree.edges():
        if tree.kind[node] != TERMINAL:
            continue
        value = 0.0
        for step in reversed(tree.path(node)[1:]):
            value = tree.reward[step] + gamma ** tree.duration[step] * value
        returns[node] = value
    return returns
