"""One problem's tree and what it says: values, credit, returns, and a batch's numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.agent.agent import Agent
from focus_core.errors import CollectionError, PluginError, UsageError
from focus_core.failure import Failure
from focus_core.recipes import Credit, Recipe
from focus_core.records import ActorRecord, Problem
from focus_core.search import Calibration, Decisions, Search
from focus_core.tree.contexts import context_of, kept
from focus_core.tree.returns import Values, backup
from focus_core.tree.rollout import Rollout
from focus_core.tree.tree import TERMINAL, Tree

__all__ = ["Collection", "Rules", "summarize"]


class Rules(Protocol):
    """What a ``Collector`` collects by, as far as its collection reads it."""

    agent: Agent
    search: Search
    recipe: Recipe
    gamma: float
    kappa: float
    calibration: Calibration

    def render_context(self, tree: Tree, node: int) -> Any:
        """The critic's context of a state."""
        ...


class _NotPreparedError(UsageError, AttributeError):
    """Values or credit were asked for that have not been computed."""


@attrs.define(eq=False)
class Collection:
    """One problem's tree and what it says. Values and credit are computed once, when prepared.

    Attributes:
        tree: What was collected.
        problem: For which problem.
        failures: What failed on the way.
        stopped: Why the search stopped.
        counts: ``transitions``, ``tokens``, ``continuations``, ``failed_continuations``,
            ``predictions``, ``failed_predictions``, ``truncated``, ``folds`` and what the recipe
            left out.
        environment: The environment's metrics by name: a value of each transition that gave one.
        group_index: Of the tree in its batch.
        collector: What collected it, and by which rules.
        decisions: Which states the search chose, and why.
        values: Refined values, targets and branch counts, once prepared.
        advantages: Of each edge, shape (nodes,), NaN where not trained, once prepared.
        state_values: Of each state, shape (nodes,), as the recipe credits by them, once prepared.
        min_abs_advantage: Edges below it are not exported.
    """

    tree: Tree
    problem: Problem
    failures: list[Failure]
    stopped: str
    counts: Counter[str]
    environment: Mapping[str, Sequence[float]]
    group_index: int
    collector: Rules
    decisions: Decisions = attrs.field(factory=Decisions, kw_only=True)
    values: Values = attrs.field(init=False)
    advantages: NDArray[np.float64] = attrs.field(init=False)
    state_values: NDArray[np.float64] = attrs.field(init=False)
    min_abs_advantage: float | None = attrs.field(default=None, init=False)

    if not TYPE_CHECKING:  # a checker would take every name for one of these

        def __getattr__(self, name: str) -> Any:
            """Say of what ``prepare`` computes that it has not."""
            if name in ("values", "advantages", "state_values"):
                raise _NotPreparedError(
                    f"a collection has no {name} until they are computed; call "
                    "collection.prepare() first"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def prepare(
        self, *, min_abs_advantage: float | None = None, allow_partial: bool = False
    ) -> Collection:
        """Compute values and credit.

        Args:
            min_abs_advantage: Leave out actor edges whose advantage is nearer to zero.
            allow_partial: Keep a collection with failures; ``counts`` says what was left out.

        Raises:
            CollectionError: There are failures and ``allow_partial`` is False; the first one is
                the cause.
            PluginError: The recipe returned what is no credit of this tree.
            ValueError: ``min_abs_advantage`` is negative or no number.
        """
        if min_abs_advantage is not None and not 0.0 <= min_abs_advantage < math.inf:
            raise ValueError(f"min_abs_advantage is {min_abs_advantage}; it must be 0 or more")
        if self.failures and not allow_partial:
            first = self.failures[0]
            raise CollectionError(
                f"problem {self.problem.id!r}: {len(self.failures)} failed; {first}",
                self.failures,
            ) from first.error
        collector = self.collector
        self.min_abs_advantage = min_abs_advantage
        self.values = backup(self.tree, gamma=collector.gamma, kappa=collector.kappa)
        credit = collector.recipe.credit(self.tree, self.values, gamma=collector.gamma)
        size = len(self.tree)
        self.advantages = _credited(collector.recipe, credit, "advantages", size)
        self.state_values = (
            self.values.refined
            if credit.values is None
            else _credited(collector.recipe, credit, "values", size)
        )
        _check_counts(collector.recipe, credit.counts)
        dict.update(self.counts, credit.counts)  # set, not added: preparing again says the same
        return self

    def context(self, node: int) -> Any:
        """The text the critic was asked about a state, or would have been."""
        tree = self.tree
        if tree.context[node] is not None:
            return context_of(tree, node)
        text = self.collector.render_context(tree, node)
        tree.context[node] = kept(tree, node, text)
        return text

    @property
    def returns(self) -> list[float]:
        """Undiscounted return of each finished rollout, oldest first."""
        tree = self.tree
        total = tree.reward.tolist()
        for node in range(1, len(tree)):  # a parent comes before its children
            total[node] += total[tree.parent[node]]
        return [total[node] for node in tree.edges() if tree.kind[node] == TERMINAL]

    def rollouts(self) -> list[Rollout]:
        """Every finished rollout, oldest first."""
        tree = self.tree
        return [Rollout(tree, n) for n in tree.edges() if tree.kind[n] == TERMINAL]


def _credited(recipe: Recipe, credit: Any, name: str, nodes: int) -> NDArray[np.float64]:
    """A column of a recipe's ``Credit``, if it is what that says.

    Raises:
        PluginError: It is not.
    """
    said = f"{type(recipe).__name__}.credit returned"
    if not isinstance(credit, Credit):
        raise PluginError(f"{said} {type(credit).__name__}, not a Credit")
    try:
        column = np.asarray(getattr(credit, name), np.float64)
    except (TypeError, ValueError) as error:
        raise PluginError(f"{said} {name} that are no array: {error}") from error
    if column.shape != (nodes,):
        raise PluginError(
            f"{said} {name} of shape {column.shape} for {nodes} nodes; it is one for each node, "
            "NaN where there is none"
        )
    if np.isinf(column).any():
        node = int(np.flatnonzero(np.isinf(column))[0])
        raise PluginError(
            f"{said} {column[node]} in {name} for node {node}; each is finite, or NaN where there "
            "is none"
        )
    return column


_TAKEN = frozenset(
    (
        *("transitions", "tokens", "sampled_tokens", "trained_tokens", "folds", "truncated"),
        *("continuations", "failed_continuations", "predictions", "failed_predictions"),
        *("trees", "actor_records", "return_mean", "signal_share", "set_aside"),
    )
)
"""Numbers of a collection or a batch that a recipe must not write over."""


def _check_counts(recipe: Recipe, counts: Mapping[str, Any]) -> None:
    for name, count in counts.items():
        if name in _TAKEN or not isinstance(count, int | np.integer):
            why = "is the collection's own" if name in _TAKEN else "must be an integer"
            raise PluginError(
                f"{type(recipe).__name__}.credit returned the count {name!r} as {count!r}; it {why}"
            )


def _differs(collection: Collection) -> bool:
    """Whether the returns of a problem's rollouts differ, by more than the rounding of sums."""
    returns = collection.returns
    return bool(returns) and max(returns) - min(returns) > 1e-9 * max(map(abs, returns))


def summarize(collections: Sequence[Collection], actor: Sequence[ActorRecord]) -> dict[str, Any]:
    """A batch's numbers: counts summed, returns and the environment's metrics averaged.

    ``signal_share`` is the share of trees whose finished rollouts have different returns: the
    others say nothing of which reply is better.
    """
    counts: Counter[str] = Counter()
    environment: dict[str, list[float]] = {}
    for collection in collections:
        counts.update(collection.counts)
        for name, values in collection.environment.items():
            environment.setdefault(name, []).extend(values)
    returns = [value for collection in collections for value in collection.returns]
    summary: dict[str, Any] = {
        "trees": len(collections),
        "sampled_tokens": counts.pop("tokens"),
        **counts,
        "actor_records": len(actor),
        "trained_tokens": sum(record.trained_tokens for record in actor),
    }
    if returns:
        summary["return_mean"] = sum(returns) / len(returns)
    summary["signal_share"] = sum(map(_differs, collections)) / len(collections)
    summary.update(
        {f"env/{name}": sum(values) / len(values) for name, values in environment.items()}
    )
    return summary
