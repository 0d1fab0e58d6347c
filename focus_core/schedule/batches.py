"""Where a schedule's batches come from: the protocol, and trees collected when needed."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from focus_core.collect import Collection, summarize
from focus_core.env.workspace import Workspace
from focus_core.errors import CollectionError
from focus_core.lanes import Lane, export_merged, split_merged
from focus_core.policy import COLLECTING, Policy
from focus_core.records import ActorRecord, Problem
from focus_core.schedule.aside import Aside
from focus_core.schedule.order import Order
from focus_core.schedule.progress import Limits
from focus_core.task import CollectorFor
from focus_core.trainer import Trainer
from focus_core.utils.concurrency import all_of, beside, doing, in_thread

__all__ = [
    "BatchSource",
    "CollectedBatch",
    "LiveCollection",
    "TreeRecords",
    "converted",
    "let_go",
    "merges",
]

_log = logging.getLogger("focus")

_PATIENCE = 5.0
"""Seconds that a lane's export or a conversion may still take once the run is stopped."""


@attrs.frozen
class TreeRecords:
    """One tree's records of one batch.

    Attributes:
        merged: Actor records, one per path: what a recording keeps.
        actor: What the trainer converts: those, or one per edge.
        items: What it made of them.
    """

    merged: Sequence[ActorRecord]
    actor: Sequence[ActorRecord]
    items: Sequence[Any]


@attrs.frozen(kw_only=True)
class CollectedBatch:
    """A batch before its update; made in a worker thread, as it goes through every record.

    Attributes:
        index: Of the batch, from 0.
        behavior_step: Updates completed when the policy that sampled it was published.
        trees: Its trees, in the order of their problems.
        others: Records of the other lanes, by lane name.
        metrics: The collection's numbers, ``sampled_tokens`` among them.
        actor: The actor records of all trees.
        items: The items of all trees.
        has_signal: Whether any generated token has a non-zero advantage.
    """

    index: int
    behavior_step: int
    trees: Sequence[TreeRecords]
    others: Mapping[str, Sequence[Any]]
    metrics: Mapping[str, Any]
    actor: Sequence[ActorRecord] = attrs.field(init=False)
    items: Sequence[Any] = attrs.field(init=False)
    has_signal: bool = attrs.field(init=False)

    @actor.default
    def _of_all_trees(self) -> list[ActorRecord]:
        return [record for tree in self.trees for record in tree.actor]

    @items.default
    def _items_of_all_trees(self) -> list[Any]:
        return [item for tree in self.trees for item in tree.items]

    @has_signal.default
    def _any_signal(self) -> bool:
        return any(record.has_signal for record in self.actor)


class BatchSource(Protocol):
    """What a schedule trains on."""

    @property
    def samples(self) -> bool:
        """Whether ``collect`` samples, so that a policy must be published for it."""
        ...

    async def collect(
        self, index: int, policy: Policy | None, behavior_step: int
    ) -> CollectedBatch:
        """The batch with that index; ``policy`` has ``behavior_step`` updates in it.

        Raises:
            Exception: Whatever failed first; the run ends with it.
        """
        ...


def let_go(objects: list[Any]) -> None:
    """Empty a list, one object at a time; for a worker thread.

    Freeing what a batch consists of takes tens of milliseconds, and the interpreter would do it
    without a pause for other threads.
    """
    while objects:
        objects.pop()


def merges(trainer: Trainer, asked: bool | None = None) -> bool:
    """Whether a trainer is given one record per path instead of per edge; by default if it can."""
    able: frozenset[str] = getattr(trainer, "capabilities", frozenset())
    return "merges-spans" in able if asked is None else asked


def converted(merged: Sequence[ActorRecord], trainer: Trainer, *, merge: bool) -> TreeRecords:
    """A tree's records in the form that the trainer takes, and its items."""
    actor = merged if merge else split_merged(merged)
    items: Any = trainer.convert(actor)
    if inspect.iscoroutine(items):
        items.close()
        raise TypeError(f"{type(trainer).__name__}.convert is async; make it a plain function")
    return TreeRecords(merged, actor, items)


@attrs.frozen(kw_only=True)
class LiveCollection:
    """Collects each batch's trees with the policy it is given; arguments as in ``run_schedule``."""

    trainer: Trainer
    problems: Sequence[Problem]
    collector_for: CollectorFor
    problems_per_step: int
    order: Order
    lanes: Mapping[str, Lane]
    workspace_for: Callable[[Problem], Workspace] | None
    min_abs_advantage: float | None
    allow_partial: bool
    merge: bool
    limits: Limits
    seed: int | None
    aside: Aside | None = None
    end: int = 0
    samples = True

    async def collect(
        self, index: int, policy: Policy | None, behavior_step: int
    ) -> CollectedBatch:
        """Collect a batch's trees side by side; each is exported and converted as it lands.

        Raises:
            CollectionError: A tree failed, or too large a share of the batch's continuations.
        """
        assert policy is not None  # the schedule publishes one for a source that samples
        if self.aside is not None:
            await self.aside.measure(self._due(index), policy, self.collector_for)
        landed = await all_of(
            self._place(index, place, policy, behavior_step)
            for place in range(self.problems_per_step)
        )
        return await in_thread(self._together, index, behavior_step, landed)

    def _together(
        self,
        index: int,
        behavior_step: int,
        landed: list[tuple[Collection, TreeRecords, dict[str, Sequence[Any]]]],
    ) -> CollectedBatch:
        """The batch of its trees, which are let go; in a worker thread."""
        collections = [collection for collection, *_ in landed]
        trees = [tree for _, tree, _ in landed]
        metrics = summarize(collections, [record for tree in trees for record in tree.actor])
        seen = (index + 1) * self.problems_per_step
        metrics["epoch"] = seen / len(self.problems)
        if self.aside is not None:
            metrics["sampled_tokens"] += self.aside.tokens
            if self.aside.fresh:
                metrics["set_aside"] = list(self.aside.fresh)
            self.aside.tokens, self.aside.fresh = 0, []
        self._check_failures(index, collections, metrics)
        rewarded = any(np.any(collection.tree.reward) for collection in collections)
        if not rewarded and any(record.has_signal for tree in trees for record in tree.actor):
            _log.warning(
                "batch %d: no rollout got any reward, so a critic that expects some makes every "
                "reply less likely; train on easier problems, or see whether the grader reads what "
                "the policy writes (focus collect, focus view)",
                index,
            )
        others = {
            name: [record for *_, lanes in landed for record in lanes[name]] for name in self.lanes
        }
        landed.clear()
        let_go(collections)
        return CollectedBatch(
            index=index, behavior_step=behavior_step, trees=trees, others=others, metrics=metrics
        )

    def _at(self, position: int) -> Problem:
        return self.problems[self.order(position, len(self.problems))]

    def _due(self, index: int) -> Iterator[Problem]:
        """Each problem once that comes from a batch to the end of the run."""
        seen: set[int] = set()
        for position in range(index * self.problems_per_step, self.end * self.problems_per_step):
            which = self.order(position, len(self.problems))
            if which not in seen:
                seen.add(which)
                yield self.problems[which]
            if len(seen) == len(self.problems):
                return

    def _candidates(self, index: int, place: int) -> Iterator[Problem]:
        """The problem of a place, then those that may take it: the next batches', from there on.

        A function of the place alone, so that a resumed run finds the same ones.
        """
        yield self._at(index * self.problems_per_step + place)
        next_one = (index + 1) * self.problems_per_step + place
        for position in range(next_one, next_one + 2 * len(self.problems)):
            yield self._at(position)

    async def _place(
        self, index: int, place: int, policy: Policy, behavior_step: int
    ) -> tuple[Collection, TreeRecords, dict[str, Sequence[Any]]]:
        """The tree at a place of a batch."""

        async def collect(problem: Problem, attempt: int) -> tuple[Problem, Collection]:
            return problem, await self._collected(index, place, policy, problem, attempt)

        if self.aside is None:
            found = await collect(self._at(index * self.problems_per_step + place), 0)
        else:
            found = await self.aside.collected(self._candidates(index, place), collect)
        problem, collection = found
        with doing(f"collecting problem {problem.id!r} for batch {index}"):
            stamp = {"batch": index, "problem": problem.id, "behavior_step": behavior_step}
            return await beside(self._finish, collection, stamp, grace=_PATIENCE)

    async def _collected(
        self, index: int, place: int, policy: Policy, problem: Problem, attempt: int
    ) -> Collection:
        """One problem's tree; where problems are set aside, one that failed raises.

        A further attempt has a seed of its own: the first one's reply may be what failed.
        """
        COLLECTING.set(index)  # this tree's own task: nobody else sees it
        key = (self.seed, index, place, *([attempt] if attempt else []))
        with doing(f"collecting problem {problem.id!r} for batch {index}"):
            async with self.collector_for(policy, problem) as collector:
                collection = await collector.collect(
                    problem,
                    group_index=place,
                    key=None if self.seed is None else key,  # type: ignore[arg-type]
                    workspace=self.workspace_for(problem) if self.workspace_for else None,
                    fail_fast=not self.allow_partial,
                )
            useful = self.allow_partial and collection.counts["continuations"]
            if self.aside is not None and collection.failures and not useful:
                self.aside.tokens += collection.counts["tokens"]
                collection.prepare()  # says what failed
            return collection

    def _finish(
        self, collection: Collection, stamp: dict[str, Any]
    ) -> tuple[Collection, TreeRecords, dict[str, Sequence[Any]]]:
        """Values, credit, export and conversion of one tree; in a worker thread."""
        collection.prepare(
            min_abs_advantage=self.min_abs_advantage, allow_partial=self.allow_partial
        )
        merged = export_merged(collection)
        others = {name: lane.export(collection) for name, lane in self.lanes.items()}
        for records in (merged, *others.values()):
            for record in records:
                record.metadata["training"] = dict(stamp)
        return collection, converted(merged, self.trainer, merge=self.merge), others

    def _check_failures(
        self, index: int, collections: Sequence[Collection], metrics: Mapping[str, Any]
    ) -> None:
        failures = [failure for collection in collections for failure in collection.failures]
        rates = {
            "continuations": (
                metrics["failed_continuations"],
                metrics["failed_continuations"] + metrics["continuations"],
            ),
            "predictions": (metrics["failed_predictions"], metrics["predictions"]),
        }
        for what, (failed, tried) in rates.items():
            if failed > self.limits.failure_rate * tried:
                first = next(f for f in failures if (f.stage == "prediction") == (what[0] == "p"))
                raise CollectionError(
                    f"batch {index}: {failed} of {tried} {what} failed, more than the limit of "
                    f"{self.limits.failure_rate:.0%}; first: {first}",
                    failures,
                ) from first.error
