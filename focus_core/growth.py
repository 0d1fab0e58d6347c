"""Growing one tree: continuations in flight, their landings and their failures."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_core.acting import Acting, Continuation
from focus_core.agent.execution import Execution
from focus_core.agent.workspace import Workspace
from focus_core.errors import DeadlineError, PluginError
from focus_core.failures import Failure, Failures
from focus_core.opening import open_together
from focus_core.predictions import Predictions
from focus_core.records import Problem
from focus_core.search import Decisions, Frontier
from focus_core.tree.tree import OPEN, ROOT, TERMINAL, Tree

if TYPE_CHECKING:
    from focus_core.collect import Collector

__all__ = ["Growth"]

_WAITED = {
    "generation": "the policy",
    "environment": "the environment",
    "prediction": "the critic",
}


class Growth:
    """The collection of one tree while it runs; ``run`` once, then read the attributes."""

    def __init__(
        self,
        collector: Collector,
        execution: Execution,
        problem: Problem,
        key: Sequence[int] | None,
        workspace: Workspace | None,
        fail_fast: bool,
    ) -> None:
        self._collector = collector
        self._fail_fast = fail_fast
        self._frontier: Frontier
        self.environment: defaultdict[str, list[float]] = defaultdict(list)
        self.decisions = Decisions()
        self.counts: Counter[str] = Counter(
            transitions=0,
            tokens=0,
            continuations=0,
            failed_continuations=0,
            predictions=0,
            failed_predictions=0,
            truncated=0,
        )
        most = 1 if fail_fast else collector.search.max_failures
        self._failures = Failures(most, self.counts)
        self._predictions = Predictions(collector, execution, self.counts, self._failures)
        self._acting = Acting(
            collector.agent,
            execution,
            problem,
            key,
            workspace,
            counts=self.counts,
            metrics=self.environment,
            predictions=self._predictions,
        )

    @property
    def failures(self) -> list[Failure]:
        """What failed so far."""
        return self._failures.found

    @property
    def stopped(self) -> str:
        """Why nothing more is launched; empty while something may be."""
        return self._failures.stopped

    @property
    def tree(self) -> Tree:
        """The tree so far."""
        return self._acting.tree

    async def run(self) -> None:
        """Grow the tree until its search stops or too much failed."""
        running: set[asyncio.Task[None]] = set()
        try:
            try:
                await self._acting.plant()
            except (Exception, SystemExit) as error:  # the user's environment, policy or critic
                self._failures.add("environment", ROOT, -1, error)
                self._failures.stop("the root could not be made")
                return
            search = self._collector.search
            self._frontier = search.start(
                self.tree, kappa=self._collector.kappa, calibration=self._collector.calibration
            )
            self.decisions.follow(self._frontier)
            launches = 0
            while True:
                begun: list[Continuation] = []
                while len(running) + len(begun) < search.max_concurrency and not self.stopped:
                    source = self._frontier.next()
                    if source is None:
                        break
                    self._check_source(source)
                    self.decisions.launched(source, self.counts["transitions"])
                    begun.append(Continuation(launches, source, source))
                    launches += 1
                if self._acting.samples_together:
                    open_together(begun)
                running.update(asyncio.create_task(self._continue(each)) for each in begun)
                if not running or (self.stopped and self._fail_fast):
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            await self._root_value()
            self._failures.stop(self._frontier.stopped)
        finally:
            if self._predictions.root is not None:
                running.add(self._predictions.root)
            await _cancelled(running)
            self._forget()

    async def _root_value(self) -> None:
        """Wait for the root's prediction, unless all is over."""
        if not (self.stopped and self._fail_fast):
            await self._predictions.wait_root()

    def _forget(self) -> None:
        """Drop the search's and the environments' states: they served branching only."""
        self.decisions.follow(None)
        self._acting.chunks.clear()
        self.tree.snapshot = [None] * len(self.tree)
        self.tree.workspace = [None] * len(self.tree)

    # One continuation ---------------------------------------------------------------------

    async def _continue(self, now: Continuation) -> None:
        """Run one launch to its end; a failure removes it whole and is recorded."""
        deadline = self._collector.deadline
        try:
            async with asyncio.timeout(deadline) as limit:
                await self._acting.act_out(now, self._frontier.generated)
                pending = {task for task in now.predictions if not task.done()}
                now.stage = "prediction"
                if pending:
                    await asyncio.wait(pending)
            await self._root_value()
        except (Exception, SystemExit) as error:
            await self._drop(now)
            if isinstance(error, TimeoutError) and limit.expired():
                late = DeadlineError(
                    f"the continuation took longer than {deadline} s; it was waiting for "
                    f"{_WAITED[now.stage]}"
                )
                late.__cause__ = error
                self._failures.add("deadline", now.at, now.launch, late)
            else:
                self._failures.add(now.stage, now.at, now.launch, error)
            self._failed_from(now.source)
        except asyncio.CancelledError as error:
            await self._drop(now)
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled us: a policy or environment let a cancellation of its own escape.
            self._failures.add(
                now.stage, now.at, now.launch, RuntimeError(f"cancelled itself: {error!r}")
            )
            self._failed_from(now.source)
        else:
            self._land(now)

    def _failed_from(self, source: int) -> None:
        self._frontier.failed(source)
        self.decisions.failed(source, self.counts["transitions"])

    async def _drop(self, now: Continuation) -> None:
        self.tree.remove(now.chain)
        await _cancelled(now.predictions)

    def _check_source(self, source: int) -> None:
        """Refuse a state that nothing can go on from: a search's mistake ends the collection."""
        tree = self.tree
        if not (
            isinstance(source, int | np.integer)
            and 0 <= source < len(tree)
            and tree.alive[source]
            and tree.kind[source] == OPEN
            and (tree.forkable[source] or source == ROOT)
        ):
            raise PluginError(
                f"{type(self._collector.search).__name__} launched from {source!r}, which is no "
                "unfinished state that can be branched"
            )

    def _land(self, now: Continuation) -> None:
        """Hand a finished continuation's returns to the search."""
        tree, gamma = self.tree, self._collector.gamma
        self.counts["continuations"] += 1
        returns: list[float] | None = None
        if tree.kind[now.at] == TERMINAL:
            value = 0.0
            returns = [value]
            for node in reversed(now.chain):
                value = tree.reward[node] + gamma * value
                returns.append(value)
            returns.reverse()
        else:
            self.counts["truncated"] += 1
        self._frontier.landed(now.source, now.chain, returns)
        self.decisions.landed(now.source, now.chain, returns, self.counts["transitions"])


async def _cancelled(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel what still runs and wait until it is over."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)
