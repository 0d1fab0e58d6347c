"""Collecting one problem: the parts are made and joined here, and know nothing of each other."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import attrs
import numpy as np

from focus_core.agent.agent import Agent
from focus_core.collect.collection import Collection
from focus_core.collect.continuation import Continuations
from focus_core.collect.failures import Failures
from focus_core.collect.growth import Growth
from focus_core.collect.predictions import Predictions
from focus_core.critic.critic import Critic
from focus_core.env.execution import Execution, ThreadExecution
from focus_core.env.workspace import Workspace
from focus_core.errors import CollectionError, UsageError
from focus_core.recipes import DirectBranchTd, Recipe
from focus_core.records import Problem
from focus_core.search import BetaBernoulli, Calibration, Search, Selective
from focus_core.tree.rollout import Rollout
from focus_core.tree.tree import TERMINAL, Tree

__all__ = ["Collector"]

_COUNTED = (
    *("transitions", "tokens", "continuations", "failed_continuations"),
    *("predictions", "failed_predictions", "truncated"),
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
        counts = Counter(dict.fromkeys(_COUNTED, 0))
        metrics: defaultdict[str, list[float]] = defaultdict(list)
        failures = Failures(1 if fail_fast else self.search.max_failures, counts)
        predictions = Predictions(
            self.critic, self.render_context, self._execution, counts, failures, self.deadline
        )
        continuations = Continuations(
            self.agent,
            self._execution,
            problem,
            key,
            workspace,
            counts=counts,
            metrics=metrics,
            predictions=predictions,
        )
        growth = Growth(
            self.search,
            continuations,
            predictions,
            failures,
            counts,
            gamma=self.gamma,
            kappa=self.kappa,
            calibration=self.calibration,
            deadline=self.deadline,
            fail_fast=fail_fast,
        )
        await growth.run()
        if hasattr(self.agent.env, "conclude") and not (fail_fast and failures.found):
            await _conclude(self.agent.env, continuations.tree, problem, self._execution)
        return Collection(
            continuations.tree,
            problem,
            failures.found,
            failures.stopped,
            counts,
            metrics,
            group_index,
            self,
            decisions=growth.decisions,
        )


async def _conclude(env: Any, tree: Tree, problem: Problem, execution: Execution) -> None:
    """Add to finished rollouts what their environment finds by comparing them.

    Raises:
        CollectionError: It could not say, or said something else than one finite number each.
    """
    leaves = [node for node in tree.edges() if tree.kind[node] == TERMINAL]
    if not leaves:
        return
    name = f"problem {problem.id!r}: {type(env).__name__}.conclude"
    own = getattr(env, "execution", None)
    try:
        if hasattr(env, "execution"):
            env.execution = execution
        more = [float(value) for value in await env.conclude([Rollout(tree, n) for n in leaves])]
    except Exception as error:
        raise CollectionError(f"{name}: {type(error).__name__}: {error}") from error
    finally:
        if hasattr(env, "execution"):
            env.execution = own
    if len(more) != len(leaves) or not np.isfinite(more).all():
        raise CollectionError(f"{name} gave {more} for {len(leaves)} rollouts; one number each")
    for node, value in zip(leaves, more, strict=True):
        tree.reward[node] += value
