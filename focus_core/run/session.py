"""One run: the schedule between a task and a trainer, or a recording and a trainer."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Sequence
from typing import Any, Literal, cast

import attrs

from focus_core.lanes import CRITIC
from focus_core.plugins.events import RunFinished, RunStarted
from focus_core.plugins.observers import Observers
from focus_core.policy import Policy
from focus_core.records import StepReport
from focus_core.run.directory import RunDirectory
from focus_core.run.evaluate import evaluate
from focus_core.run.prepare import Prepared
from focus_core.run.recording import Recorder
from focus_core.run.replay import Replay
from focus_core.run.reports import Keeper
from focus_core.schedule import run_batches, run_schedule
from focus_core.schedule.batches import merges
from focus_core.schedule.progress import Progress
from focus_core.task import defaults_of
from focus_core.trainer import RunStatus

__all__ = ["train"]


async def train(
    prepared: Prepared,
    directory: RunDirectory,
    *,
    start: Progress,
    observers: Sequence[object] = (),
    required: Sequence[object] = (),
    recorder: Recorder | None = None,
) -> list[StepReport]:
    """Run it: collecting, or replaying what was recorded; reports go to the run's directory.

    Args:
        prepared: What runs.
        directory: Where it writes.
        start: Where it begins.
        observers: Told what happens; one that fails is logged.
        required: Told too; one that fails stops the run.
        recorder: Keeps every batch.

    Raises:
        PluginError: An observer is none.
        Exception: Whatever failed first; the trainer is closed with the status either way.
    """
    config, trainer = prepared.config, prepared.trainer
    told = Observers(observers, required=[Keeper(directory), *required])
    reports: list[StepReport] = []
    status: RunStatus = "errored"

    def on_step(report: StepReport) -> None:
        reports.append(report)

    async def measure(policy: Policy) -> dict[str, float]:
        return await _measure(policy, prepared)

    lanes = {lane.name: (lane, directory.lane_sink(lane.name)) for lane in prepared.lanes}
    shared: dict[str, Any] = {
        "steps": config.steps,
        "on_step": on_step,
        "start": start,
        "evaluate": measure if config.eval_every else None,
        "eval_every": config.eval_every,
        "on_saved": functools.partial(directory.saved, keep=config.keep_checkpoints),
        "save_every": config.save_every,
        "observers": told,
    }
    told.notify(
        "focus_run_started",
        RunStarted(config=attrs.asdict(config), steps=config.steps, directory=str(directory.path)),
    )
    try:
        async with trainer:
            try:
                if prepared.replay is not None:
                    await run_batches(
                        trainer,
                        Replay(prepared.replay, trainer, merges(trainer, config.merge)),
                        sinks={
                            CRITIC.name: directory.critic_sink(),
                            **{name: sink for name, (_, sink) in lanes.items()},
                        },
                        **shared,
                    )
                else:
                    assert prepared.task is not None  # only a replay may do without
                    await run_schedule(
                        trainer,
                        prepared.problems,
                        prepared.collector_for,
                        async_depth=cast("Literal[0, 1]", config.async_depth),
                        problems_per_step=config.problems_per_step
                        or defaults_of(prepared.task).problems_per_step,
                        order=prepared.order,
                        critic_sink=directory.critic_sink(),
                        lanes=lanes,
                        on_batch=recorder,
                        min_abs_advantage=config.min_abs_advantage,
                        allow_partial=config.allow_partial,
                        merge=config.merge,
                        limits=prepared.limits,
                        seed=config.seed,
                        **shared,
                    )
                status = "success"
            except (asyncio.CancelledError, KeyboardInterrupt):
                status = "interrupted"  # the trainer is closed with it
                raise
            finally:
                failed = sys.exception()
                try:
                    await trainer.close(status)
                except Exception as error:
                    status = "errored"
                    if failed is None:
                        raise
                    why = str(error) or type(error).__name__
                    failed.add_note(f"afterwards the trainer did not close: {why}")
    except (asyncio.CancelledError, KeyboardInterrupt):
        status = "interrupted"  # while it was opened, too
        raise
    finally:
        told.notify("focus_run_finished", RunFinished(status=status, reports=reports))
    return reports


async def _measure(policy: Policy, prepared: Prepared) -> dict[str, float]:
    """Sampled and greedy accuracy on the held-out problems."""
    metrics: dict[str, float] = {}
    for name, temperature in (("sampled", None), ("greedy", 0.0)):
        found = await evaluate(
            policy,
            prepared.eval_problems,
            prepared.collector_for,
            temperature=temperature,
            seed=prepared.config.seed,
        )
        if found.returns:
            low, high = found.interval
            metrics[f"eval/{name}"] = found.accuracy
            metrics["eval/outcomes"] = metrics.get("eval/outcomes", True) and found.outcomes
            metrics[f"eval/{name}_low"], metrics[f"eval/{name}_high"] = low, high
        metrics[f"eval/{name}_unfinished"] = found.unfinished
        metrics[f"eval/{name}_failed"] = len(found.failures)
    return metrics
