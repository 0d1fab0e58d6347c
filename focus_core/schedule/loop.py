"""The one-step-asynchronous loop: collect the next batch while the learner updates on this one.

For three updates at depth 1 the batches are sampled at behaviour steps 0, 0, 1 and trained at lags
0, 1, 1; at depth 0 each batch is collected after the preceding update, at lag 0. The loop knows the
``Trainer`` protocol and the run hooks, and no trainer.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import attrs

from focus_core.lanes.sinks import CriticSink
from focus_core.plugins.events import (
    BatchCollected,
    PolicyEvaluated,
    PolicyPublished,
    RecordsDelivered,
    StepFinished,
    UpdateStarted,
)
from focus_core.plugins.observers import Observers
from focus_core.policy import Policy
from focus_core.records import Batch, StepReport
from focus_core.schedule.batches import BatchSource, CollectedBatch, let_go
from focus_core.schedule.progress import Progress, check_batch
from focus_core.trainer import Trainer
from focus_core.utils.concurrency import awaited, beside, doing, in_thread

__all__ = ["Loop"]

_PATIENCE = 10.0
"""Seconds that a sink may still take once the run is stopped; its step is made again."""


@attrs.define(eq=False, kw_only=True)
class Loop:
    """One run; see ``run_batches`` for what its parts are. ``run`` once."""

    trainer: Trainer
    source: BatchSource
    async_depth: int
    sinks: Mapping[str, CriticSink]
    on_step: Callable[[StepReport], None] | None
    on_batch: Callable[[CollectedBatch, int], None] | None
    max_tokens: int | None
    evaluate: Callable[[Policy], Awaitable[Mapping[str, Any]]] | None
    eval_every: int | None
    on_saved: Callable[[str, Progress], None] | None
    save_every: int | None
    observers: Observers
    progress: Progress
    end: int = attrs.field(default=0, init=False)
    reports: list[StepReport] = attrs.field(factory=list, init=False)
    pending: asyncio.Task[CollectedBatch] | None = attrs.field(default=None, init=False)
    collected: CollectedBatch | None = attrs.field(default=None, init=False)
    sampling: Policy | None = attrs.field(default=None, init=False)
    newest: Policy | None = attrs.field(default=None, init=False)
    newest_step: int = attrs.field(default=0, init=False)
    saved: tuple[int, str] | None = attrs.field(default=None, init=False)
    between_steps: bool = attrs.field(default=True, init=False)
    open_policies: list[Policy] = attrs.field(factory=list, init=False)

    async def run(self, steps: int) -> list[StepReport]:
        """Every batch trains once, in order; no collection is launched that is not trained."""
        self.end = self.progress.batch + steps
        self.newest_step = self.progress.learner_step
        if self._spent():
            return self.reports
        try:
            if self.source.samples or self.evaluate is not None:
                await self._publish()
            self._launch()
            if self.evaluate is not None:
                await self._evaluate()
            while self.pending is not None:
                await self._landed()
                last = self.progress.batch + 1 >= self.end or self._spent()
                if self.async_depth and not last:
                    self._launch(self.progress.batch + 1)
                await self._step(last=last)
                await in_thread(self._let_go)
                if not self.async_depth and not last:
                    self._launch()
            return self.reports
        except Exception as error:
            first = self._failed_collection()
            if first is None or first is error:
                raise
            first.add_note(f"afterwards: {type(error).__name__}: {error}")
            raise first from first.__cause__
        finally:
            await self._wind_down()

    def _spent(self) -> bool:
        return self.max_tokens is not None and self.progress.sampled_tokens >= self.max_tokens

    def _method(self, name: str) -> str:
        return f"{type(self.trainer).__name__}.{name}"

    # Policies ---------------------------------------------------------------------------------

    async def _publish(self) -> None:
        """Take a snapshot of the learner for the collections to come."""
        old = self.newest
        with doing(f"publishing the policy of step {self.progress.learner_step}"):
            self.newest = policy = await awaited(
                self.trainer.publish_policy(), self._method("publish_policy")
            )
        self.newest_step = self.progress.learner_step
        self.open_policies.append(policy)
        if old is not None and (self.pending is None or old is not self.sampling):
            await self._close_policy(old)
        self.observers.notify(
            "focus_policy_published",
            PolicyPublished(behavior_step=self.newest_step, version=policy.version),
        )

    async def _close_policy(self, policy: Policy) -> None:
        if policy in self.open_policies:
            self.open_policies.remove(policy)
            close = getattr(policy, "aclose", None)
            if close is not None:
                await close()

    # Collection -------------------------------------------------------------------------------

    def _failed_collection(self) -> BaseException | None:
        """The error of the outstanding collection, if it has failed by now."""
        task = self.pending
        return task.exception() if task and task.done() and not task.cancelled() else None

    def _launch(self, index: int | None = None) -> None:
        """Start collecting a batch, with the newest policy if the source samples."""
        index = self.progress.batch if index is None else index
        self.sampling = self.newest if self.source.samples else None
        self.pending = asyncio.create_task(
            self._collect(index, self.sampling, self.newest_step), name=f"focus-collect-{index}"
        )

    async def _landed(self) -> None:
        """Wait for the outstanding collection: the batch to train next."""
        assert self.pending is not None  # the loop checked
        task, collected = self.pending, await self.pending
        assert task.done()
        self.pending = None
        if self.sampling is not None and self.sampling is not self.newest:
            await self._close_policy(self.sampling)
        tokens = self.progress.sampled_tokens + collected.metrics["sampled_tokens"]
        self.progress = attrs.evolve(self.progress, sampled_tokens=tokens)
        self.collected = collected

    async def _collect(
        self, index: int, policy: Policy | None, behavior_step: int
    ) -> CollectedBatch:
        """One batch of the source."""
        began = time.perf_counter()
        collected = await self.source.collect(index, policy, behavior_step)
        self.observers.notify(
            "focus_batch_collected",
            BatchCollected(
                batch=index,
                behavior_step=collected.behavior_step,
                metrics=collected.metrics,
                seconds=time.perf_counter() - began,
            ),
        )
        return collected

    def _let_go(self) -> None:
        """Free the batch that was trained; in a worker thread."""
        batch, self.collected = self.collected, None
        assert batch is not None  # it was trained
        parts = [*batch.actor, *batch.items]
        parts += [record for records in batch.others.values() for record in records]
        parts += [record for tree in batch.trees for record in tree.merged]
        del batch
        let_go(parts)

    # Updates ----------------------------------------------------------------------------------

    async def _step(self, *, last: bool) -> None:
        """Train the batch, deliver its records, publish, evaluate, save and report."""
        collected = self.collected
        assert collected is not None  # it landed
        began = time.perf_counter()
        before = self.progress
        batch = Batch(
            index=collected.index,
            behavior_step=collected.behavior_step,
            learner_step=before.learner_step,
            actor=collected.actor,
            items=collected.items,
            others=collected.others,
            metrics=collected.metrics,
            replayed=not self.source.samples,
        )
        check_batch(batch, expected=before.batch, async_depth=self.async_depth)
        self.between_steps = False
        if self.on_batch is not None:
            with doing(f"recording batch {batch.index}"):
                await in_thread(self.on_batch, collected, before.learner_step)
        trains = collected.has_signal
        if trains:
            metrics = {**collected.metrics, **await self._update(batch)}
        else:
            metrics = {**collected.metrics, "skipped": "no generated token has an advantage"}
        self.progress = attrs.evolve(
            before, batch=before.batch + 1, learner_step=before.learner_step + trains
        )
        await self._deliver(batch)
        saved = await self._look_back(metrics, last=last)
        report = StepReport(
            batch.index, batch.behavior_step, batch.learner_step, batch.policy_lag, metrics
        )
        self.reports.append(report)
        self.observers.notify(
            "focus_step_finished",
            StepFinished(report=report, seconds=time.perf_counter() - began),
        )
        self.between_steps = True
        if saved is not None and self.on_saved is not None:  # after the report: none is skipped
            await in_thread(self.on_saved, saved, self.progress)
        if self.on_step is not None:
            self.on_step(report)

    async def _update(self, batch: Batch) -> Mapping[str, Any]:
        """Update while the next collection runs."""
        self.observers.notify("focus_update_started", UpdateStarted(batch=batch))
        with doing(f"updating on batch {batch.index}"):
            metrics: Mapping[str, Any] = await awaited(
                self.trainer.update(batch), self._method("update")
            )
            return metrics

    async def _look_back(self, metrics: dict[str, Any], *, last: bool) -> str | None:
        """What follows an update: a snapshot if one is needed, an evaluation, a checkpoint.

        Returns:
            The checkpoint's reference, if there is one of this moment.
        """
        if self._failed_collection() is not None:
            return None  # the run ends with that error as soon as this step is reported
        done = self.progress.batch
        wants_eval = self.evaluate is not None and (
            last or (self.eval_every is not None and done % self.eval_every == 0)
        )
        remains = self.source.samples and not last and done + self.async_depth < self.end
        if (remains or wants_eval) and self.newest_step != self.progress.learner_step:
            await self._publish()
        if wants_eval:
            metrics.update(await self._evaluate())
        wants_save = self.save_every is not None and done % self.save_every == 0
        if self.on_saved is None or not (last or wants_save):
            return None
        step = self.progress.learner_step
        if self.saved is None or self.saved[0] != step:  # else only batches were skipped
            with doing(f"saving the state of step {step}"):
                self.saved = (
                    step,
                    await awaited(
                        self.trainer.save_state(f"step-{step:06d}"), self._method("save_state")
                    ),
                )
        return self.saved[1]

    async def _save_unsaved(self) -> None:
        """A checkpoint of a run that ends early, unless in the middle of a step."""
        step = self.progress.learner_step
        new = bool(self.reports) and (self.saved is None or self.saved[0] != step)
        if self.on_saved is not None and self.between_steps and new:
            reference = await awaited(
                self.trainer.save_state(f"step-{step:06d}"), self._method("save_state")
            )
            await in_thread(self.on_saved, reference, self.progress)

    async def _evaluate(self) -> Mapping[str, Any]:
        """Measure the newest policy."""
        assert self.evaluate is not None  # the callers checked
        assert self.newest is not None  # published before
        with doing(f"evaluating the policy of step {self.newest_step}"):
            metrics = await self.evaluate(self.newest)
        self.observers.notify(
            "focus_policy_evaluated",
            PolicyEvaluated(learner_step=self.newest_step, metrics=metrics),
        )
        return metrics

    async def _deliver(self, batch: Batch) -> None:
        """Hand the other lanes' records to their sinks, in a thread."""
        for name, sink in self.sinks.items():
            records = batch.others.get(name, ())
            if not records:
                continue
            with doing(f"delivering the {name} records of batch {batch.index}"):
                await beside(_hand_over, records, batch.learner_step, sink, grace=_PATIENCE)
            self.observers.notify(
                "focus_records_delivered",
                RecordsDelivered(batch=batch.index, lane=name, count=len(records)),
            )

    async def _wind_down(self) -> None:
        """Cancel and await outstanding collection, save what is unsaved, close the policies."""
        running = sys.exception()
        later: list[Exception] = []
        if self.pending is not None:
            self.pending.cancel()
            (outcome,) = await asyncio.gather(self.pending, return_exceptions=True)
            if isinstance(outcome, Exception) and outcome is not running:
                later.append(outcome)
            self.pending = None
        if running is not None:
            try:
                await self._save_unsaved()
            except Exception as error:
                later.append(error)
        for policy in tuple(self.open_policies):
            try:
                await self._close_policy(policy)
            except Exception as error:
                later.append(error)
        for failure in later:
            if running is None:
                raise failure
            running.add_note(f"afterwards: {type(failure).__name__}: {failure}")


def _hand_over(records: Sequence[Any], learner_step: int, sink: CriticSink) -> None:
    """Stamp a lane's records and give their plain forms to its sink."""
    for record in records:
        record.metadata["training"]["learner_step"] = learner_step
    sink([record.to_dict() for record in records])
