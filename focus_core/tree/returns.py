"""Values of a collected tree: one pass, deepest first, nothing mutated."""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.tree.tree import TERMINAL, Tree

__all__ = ["Values", "backup", "observed_returns", "rollout_returns"]


@attrs.frozen(eq=False)
class Values:
    """What the branches say about each state; arrays over nodes, shape (nodes,).

    Attributes:
        refined: The refined value V~ of every state, NaN where it has no prediction.
        target: Mean direct-branch backup, the critic's target; NaN where not expanded or without
            a prediction.
        branches: Direct branches in that mean.
        kappa: Strength of the prediction in ``refined``, in branches.
    """

    refined: NDArray[np.float64]
    target: NDArray[np.float64]
    branches: NDArray[np.int64]
    kappa: float


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
    return Values(refined, target, branches, kappa)


def observed_returns(tree: Tree, *, gamma: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Suffix returns observed at each state: how many, and their mean.

    A completed continuation is observed at the state it was launched from and at every state of
    the chain it made but the last (its birth observation), by its own discounted return from
    there on. A truncated one is not observed. Read from ``launch``: the edge to a child carries
    the return of the continuation that made the child.

    Returns:
        Counts and means (NaN where nothing was observed), shape (nodes,).
    """
    size = len(tree)
    suffix = np.full(size, math.nan)  # the return from a state on within the launch that made it
    count = np.zeros(size, np.int64)
    total = np.zeros(size)
    for node in range(size - 1, 0, -1):
        if not tree.alive[node]:
            continue
        rest = 0.0 if tree.kind[node] == TERMINAL else suffix[node]
        if math.isnan(rest):
            continue
        value = tree.reward[node] + gamma ** tree.duration[node] * rest
        parent = tree.parent[node]
        count[parent] += 1
        total[parent] += value
        if tree.launch[parent] == tree.launch[node]:
            suffix[parent] = value
    mean = np.full(size, math.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return count, mean


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
