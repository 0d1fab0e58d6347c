"""What a trainer with a loop of its own is given, and calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import attrs

from focus_core.collect import Collector
from focus_core.env.workspace import Workspace
from focus_core.lanes import export_actor, export_critic
from focus_core.records import Problem

__all__ = ["LaunchPlan", "OwnLoop", "collect_records"]


@attrs.frozen(kw_only=True)
class LaunchPlan:
    """What ``focus train`` was asked for, looked up and checked, for a trainer's own loop.

    Attributes:
        config: Every option by name, as in ``RunStarted.config``; ``steps`` are counted.
        directory: Where to keep files; it exists, and is empty.
        problems: Those to train on, in order.
        problems_per_step: Trees per update.
        eval_problems: Those held out; empty unless the run evaluates.
    """

    config: Mapping[str, Any]
    directory: Path
    problems: Sequence[Problem]
    problems_per_step: int
    eval_problems: Sequence[Problem] = ()


@runtime_checkable
class OwnLoop(Protocol):
    """A trainer that runs its own loop, and asks for collections itself; capability ``own-loop``.

    ``focus train`` looks up the task, the problems and every option, and leaves the rest to it:
    there are no run hooks, no reports and no checkpoints of FOCUS.
    """

    def launch(self, plan: LaunchPlan) -> int:
        """Train, and return the exit code. Called in the main thread; no event loop runs.

        Raises:
            UsageError: An option that this loop has no way to follow.
        """
        ...


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
