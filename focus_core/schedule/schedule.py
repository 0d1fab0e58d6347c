"""Training steps in a row: what a caller gives, checked and handed to the loop."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from focus_core.env.workspace import Workspace
from focus_core.lanes import CRITIC, Lane
from focus_core.lanes.sinks import CriticSink
from focus_core.plugins.observers import Observers
from focus_core.policy import Policy
from focus_core.records import Problem, StepReport
from focus_core.schedule.aside import Aside
from focus_core.schedule.batches import BatchSource, CollectedBatch, LiveCollection, merges
from focus_core.schedule.loop import Loop
from focus_core.schedule.order import Order, Sequential
from focus_core.schedule.progress import Limits, Progress
from focus_core.task import CollectorFor
from focus_core.trainer import Trainer

__all__ = ["run_batches", "run_schedule"]


async def run_schedule(
    trainer: Trainer,
    problems: Sequence[Problem],
    collector_for: CollectorFor,
    *,
    steps: int,
    async_depth: Literal[0, 1] = 1,
    problems_per_step: int = 1,
    order: Order | None = None,
    critic_sink: CriticSink | None = None,
    lanes: Mapping[str, tuple[Lane, CriticSink]] | None = None,
    on_step: Callable[[StepReport], None] | None = None,
    on_batch: Callable[[CollectedBatch, int], None] | None = None,
    workspace_for: Callable[[Problem], Workspace] | None = None,
    min_abs_advantage: float | None = None,
    allow_partial: bool = False,
    merge: bool | None = None,
    limits: Limits | None = None,
    aside: Aside | None = None,
    seed: int | None = None,
    start: Progress | None = None,
    evaluate: Callable[[Policy], Awaitable[Mapping[str, Any]]] | None = None,
    eval_every: int | None = None,
    on_saved: Callable[[str, Progress], None] | None = None,
    save_every: int | None = None,
    observers: Observers | None = None,
) -> list[StepReport]:
    """Train ``steps`` batches; the trainer must be entered and stays open.

    Args:
        trainer: What learns.
        problems: Indexed as batches need them, never copied.
        collector_for: Builds the collector of one problem under the current policy.
        steps: Batches to train, skipped ones included.
        async_depth: 1 overlaps the next collection with the current update; 0 does not.
        problems_per_step: Trees per batch.
        order: Which problem comes when; by default as they come, over and over.
        critic_sink: Takes each batch's critic records (plain form) after its update, in a thread.
        lanes: Further lanes by name, each with its sink.
        on_step: Called with each report, after the batch's records were delivered. If it raises,
            the run stops; the step was counted and is not repeated.
        on_batch: Called in a thread with each batch, skipped ones included, and the learner step
            right before its update. If it raises, the run stops and nothing was trained.
        workspace_for: Gives each problem the files its environment starts with.
        min_abs_advantage: Leave out actor edges whose advantage is nearer to zero.
        allow_partial: Keep trees with failures, within ``limits``.
        merge: One record per path instead of per edge; by default if the trainer can.
        limits: What ends the run.
        aside: How problems that fail are tried again and set aside, those whose prompts are too
            long before anything is sampled; without it the first failed tree ends the run.
        seed: Makes trees reproducible at ``max_concurrency=1``, where the policy can.
        start: Where a resumed run continues.
        evaluate: Measures a policy: the first one, the last one, and after every ``eval_every``
            batches; its numbers join the report of the step.
        eval_every: See ``evaluate``.
        on_saved: Called, in a thread, with each checkpoint's reference and the progress it holds.
        save_every: Save after every so many batches; with ``on_saved``, always after the last,
            and when the run ends early between two steps.
        observers: Told what happens.

    Returns:
        One report per batch trained or skipped; ``epoch`` in it counts passes over the problems.

    Raises:
        ValueError: No problems, or a number below 1.
        CollectionError: A tree failed, or too large a share of a batch's continuations.
        StaleBatchError: A batch is out of order or too old; raised before any gradient.
        Exception: Whatever failed first in a trainer, task or sink. Outstanding collection is
            cancelled and awaited first.
    """
    if not problems:
        raise ValueError("there are no problems to train on")
    if problems_per_step < 1:
        raise ValueError(f"problems_per_step is {problems_per_step}; it must be at least 1")
    if min_abs_advantage is not None and not 0.0 <= min_abs_advantage < math.inf:
        raise ValueError(f"min_abs_advantage is {min_abs_advantage}; it must be 0 or more")
    sinks = dict(lanes or {})
    if critic_sink is not None:
        sinks[CRITIC.name] = (CRITIC, critic_sink)
    limits = limits or Limits()
    source = LiveCollection(
        trainer=trainer,
        problems=problems,
        collector_for=collector_for,
        problems_per_step=problems_per_step,
        order=order or Sequential(),
        lanes={name: lane for name, (lane, _) in sinks.items()},
        workspace_for=workspace_for,
        min_abs_advantage=min_abs_advantage,
        allow_partial=allow_partial,
        merge=merges(trainer, merge),
        limits=limits,
        seed=seed,
        aside=aside,
        end=(start or Progress()).batch + steps,
    )
    return await run_batches(
        trainer,
        source,
        steps=steps,
        async_depth=async_depth,
        sinks={name: sink for name, (_, sink) in sinks.items()},
        on_step=on_step,
        on_batch=on_batch,
        max_tokens=limits.max_tokens,
        start=start,
        evaluate=evaluate,
        eval_every=eval_every,
        on_saved=on_saved,
        save_every=save_every,
        observers=observers,
    )


async def run_batches(
    trainer: Trainer,
    source: BatchSource,
    *,
    steps: int,
    async_depth: Literal[0, 1] = 1,
    sinks: Mapping[str, CriticSink] | None = None,
    on_step: Callable[[StepReport], None] | None = None,
    on_batch: Callable[[CollectedBatch, int], None] | None = None,
    max_tokens: int | None = None,
    start: Progress | None = None,
    evaluate: Callable[[Policy], Awaitable[Mapping[str, Any]]] | None = None,
    eval_every: int | None = None,
    on_saved: Callable[[str, Progress], None] | None = None,
    save_every: int | None = None,
    observers: Observers | None = None,
) -> list[StepReport]:
    """Train ``steps`` batches of any source; ``run_schedule`` is this with live collection.

    ``source`` gives the batches in order, ``sinks`` take the other lanes' records by lane name, and
    after ``max_tokens`` sampled tokens no further batch is asked for. The other arguments, and the
    errors, are those of ``run_schedule``.
    """
    for name, number in (("steps", steps), ("eval_every", eval_every), ("save_every", save_every)):
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}; it must be at least 1")
    if async_depth not in (0, 1):
        raise ValueError(f"async_depth is {async_depth}; it must be 0 or 1")
    loop = Loop(
        trainer=trainer,
        source=source,
        async_depth=async_depth,
        sinks=sinks or {},
        on_step=on_step,
        on_batch=on_batch,
        max_tokens=max_tokens,
        evaluate=evaluate,
        eval_every=eval_every,
        on_saved=on_saved,
        save_every=save_every,
        observers=observers or Observers(),
        progress=start or Progress(),
    )
    return await loop.run(steps)
