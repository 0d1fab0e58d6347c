"""Collecting one problem: a search launches continuations, a recipe credits their edges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.agent.agent import Agent
from focus_core.agent.execution import Execution, ThreadExecution
from focus_core.agent.rollout import Rollout
from focus_core.agent.workspace import Workspace
from focus_core.critic.critic import Critic
from focus_core.errors import CollectionError, PluginError, UsageError
from focus_core.export import export_actor, export_critic
from focus_core.failures import Failure
from focus_core.growth import Growth
from focus_core.recipes import Credit, DirectBranchTd, Recipe
from focus_core.records import ActorRecord, Problem
from focus_core.search import BetaBernoulli, Calibration, Decisions, Search, Selective
from focus_core.tree.contexts import context_of, kept
from focus_core.tree.returns import Values, backup
from focus_core.tree.tree import TERMINAL, Tree

__all__ = ["Collection", "Collector", "Failure", "collect_records", "summarize"]


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
        collector: What collected it.
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
    collector: Collector
    decisions: Decisions = attrs.field(factory=Decisions, kw_only=True)
    values: Values = attrs.field(init=False)
    advantages: NDArray[np.float64] = attrs.field(init=False)
    state_values: NDArray[np.float64] = attrs.field(init=False)
    min_abs_advantage: float | None = attrs.field(default=None, init=False)

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
        *("trees", "actor_records", "return_mean"),
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


@attrs.define(eq=False)
class Collector:
    """Collects one problem's tree.

    An async context manager, used once::

        async with Collector(agent, critic=Critic.constant(0.5)) as collector:
            collection = await collector.collect(problem)

    It closes the execution service it opened and its environment (``aclose``, where it has one),
    and neither policy nor critic.

    Args:
        agent: The policy in its environment.
        critic: Predicts unfinished states; a recipe that needs one refuses to do without.
        search: Where to spend.
        recipe: What an edge is worth.
        gamma: Discount per transition.
        kappa: Strength of the critic's prediction, in branches.
        calibration: The belief model of the search.
        deadline: Seconds a continuation may take, predictions included.

    Raises:
        UsageError: The recipe needs a critic and there is none.
    """

    agent: Agent
    critic: Critic | None = attrs.field(default=None, kw_only=True)
    search: Search = attrs.field(factory=Selective, kw_only=True)
    recipe: Recipe = attrs.field(factory=DirectBranchTd, kw_only=True)
    gamma: float = attrs.field(
        default=1.0,
        kw_only=True,
        validator=[attrs.validators.ge(0.0), attrs.validators.le(1.0)],
    )
    kappa: float = attrs.field(
        default=1.0,
        kw_only=True,
        validator=[attrs.validators.gt(0.0), attrs.validators.lt(math.inf)],
    )
    calibration: Calibration = attrs.field(factory=BetaBernoulli, kw_only=True)
    deadline: float | None = attrs.field(
        default=None, kw_only=True, validator=attrs.validators.optional(attrs.validators.gt(0.0))
    )
    _stage: str = attrs.field(default="new", init=False)
    _execution: Execution | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        """Refuse a recipe without the critic it needs."""
        if self.critic is not None and not hasattr(self.critic, "predict"):
            raise UsageError(
                f"critic is {self.critic!r}; wrap a function in Critic.from_fn, a number in "
                "Critic.constant"
            )
        if self.recipe.needs_critic and self.critic is None:
            raise UsageError(
                f"{type(self.recipe).__name__} needs a critic; pass critic=Critic.constant(0.5), "
                "or a recipe that does without, such as GroupCentered()"
            )

    async def __aenter__(self) -> Collector:
        """Open what the collection needs."""
        if self._stage != "new":
            raise RuntimeError("a Collector is used once; make another one")
        self._stage = "entered"
        self._execution = self.agent.execution or ThreadExecution()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close what was opened here, and the environment if it can be closed."""
        self._stage = "closed"
        execution, self._execution = self._execution, None
        try:
            if hasattr(self.agent.env, "aclose"):
                await self.agent.env.aclose()
        finally:
            if execution is not None and self.agent.execution is None:
                await execution.aclose()

    def render_context(self, tree: Tree, node: int) -> Any:
        """The critic's context of a state."""
        rollout = Rollout(tree, node)
        if self.critic is not None and self.critic.context is not None:
            return self.critic.context(rollout)
        return self.agent.policy.decode(rollout.tokens)

    async def collect(
        self,
        problem: Problem,
        *,
        group_index: int = 0,
        key: Sequence[int] | None = None,
        workspace: Workspace | None = None,
        fail_fast: bool = False,
    ) -> Collection:
        """Grow the tree of one problem.

        Args:
            problem: What to collect.
            group_index: Recorded in every record's metadata.
            key: Seeds of this tree, such as (seed, batch, problem). Sampling is then keyed by
                (key, launch, transition); without it the policy draws freely.
            workspace: Files the environment starts with.
            fail_fast: Stop at the first failure instead of ``search.max_failures``.

        Raises:
            RuntimeError: The collector was not entered, or has collected already.
        """
        if self._stage != "entered" or self._execution is None:
            raise RuntimeError(
                "a Collector collects once, inside 'async with collector'; make another one"
            )
        self._stage = "collected"
        growth = Growth(self, self._execution, problem, key, workspace, fail_fast)
        await growth.run()
        if hasattr(self.agent.env, "conclude") and not (fail_fast and growth.failures):
            await _conclude(self.agent.env, growth.tree, problem)
        return Collection(
            growth.tree,
            problem,
            growth.failures,
            growth.stopped,
            growth.counts,
            growth.environment,
            group_index,
            self,
            decisions=growth.decisions,
        )


async def _conclude(env: Any, tree: Tree, problem: Problem) -> None:
    """Add to finished rollouts what their environment finds by comparing them.

    Raises:
        CollectionError: It could not say, or said something else than one finite number each.
    """
    leaves = [node for node in tree.edges() if tree.kind[node] == TERMINAL]
    if not leaves:
        return
    name = f"problem {problem.id!r}: {type(env).__name__}.conclude"
    try:
        more = [float(value) for value in await env.conclude([Rollout(tree, n) for n in leaves])]
    except Exception as error:
        raise CollectionError(f"{name}: {type(error).__name__}: {error}") from error
    if len(more) != len(leaves) or not np.isfinite(more).all():
        raise CollectionError(f"{name} gave {more} for {len(leaves)} rollouts; one number each")
    for node, value in zip(leaves, more, strict=True):
        tree.reward[node] += value


async def collect_records(
    collector: Collector,
    problem: Problem,
    *,
    group_index: int,
    workspace_for: Callable[[Problem], Workspace] | None = None,
    min_abs_advantage: float | None = None,
    allow_partial: bool = False,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Collect one problem with one collector: the (actor, critic) records, in plain form.

    For a trainer that owns its loop. The collector is used up: it is entered here.

    Args:
        collector: A fresh collector for this problem.
        problem: What to collect.
        group_index: One integer per tree, unique in a batch.
        workspace_for: Gives each problem the files its environment starts with.
        min_abs_advantage: Leave out actor edges whose advantage is nearer to zero; critic
            targets stay.
        allow_partial: Keep a collection with failures.

    Returns:
        One actor record per trained edge, and one critic record per expanded state.

    Raises:
        CollectionError: A continuation or prediction failed and ``allow_partial`` is False.
    """
    async with collector:
        collection = await collector.collect(
            problem,
            group_index=group_index,
            workspace=workspace_for(problem) if workspace_for else None,
            fail_fast=not allow_partial,
        )
    collection.prepare(min_abs_advantage=min_abs_advantage, allow_partial=allow_partial)
    return (
        [record.to_dict() for record in export_actor(collection)],
        [record.to_dict() for record in export_critic(collection)],
    )


def summarize(collections: Sequence[Collection], actor: Sequence[ActorRecord]) -> dict[str, Any]:
    """A batch's numbers: counts summed, returns and the environment's metrics averaged."""
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
    summary.update(
        {f"env/{name}": sum(values) / len(values) for name, values in environment.items()}
    )
    return summary
