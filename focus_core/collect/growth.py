"""Growing one tree: continuations in flight, their landings and their failures."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np

from focus_core.collect.continuation import Continuation, Continuations
from focus_core.collect.failures import Failures
from focus_core.collect.predictions import Predictions
from focus_core.collect.shared_requests import open_together
from focus_core.errors import DeadlineError, PluginError
from focus_core.search import Calibration, Decisions, Frontier, Search
from focus_core.tree.tree import OPEN, ROOT, TERMINAL, Tree

__all__ = ["Growth"]

_WAITED = {
    "generation": "the policy",
    "environment": "the environment",
    "prediction": "the critic",
}


class Growth:
    """The collection of one tree while it runs; ``run`` once, then read the attributes.

    Args:
        search: Where to spend.
        continuations: Acts out what the search launches; has the tree.
        predictions: Asks for the critic's values.
        failures: Takes what fails.
        counts: Of the collection; continuations are counted up.
        gamma: Discount per transition.
        kappa: Strength of the critic's prediction, in branches.
        calibration: The belief model of the search.
        deadline: Seconds a continuation may take, predictions included.
        fail_fast: Stop at the first failure, and wait for nothing.

    Attributes:
        decisions: Which states the search chose, and why.
    """

    def __init__(
        self,
        search: Search,
        continuations: Continuations,
        predictions: Predictions,
        failures: Failures,
        counts: Counter[str],
        *,
        gamma: float,
        kappa: float,
        calibration: Calibration,
        deadline: float | None,
        fail_fast: bool,
    ) -> None:
        self._search = search
        self._continuations = continuations
        self._predictions = predictions
        self._failures = failures
        self._counts = counts
        self._gamma = gamma
        self._kappa = kappa
        self._calibration = calibration
        self._deadline = deadline
        self._fail_fast = fail_fast
        self._frontier: Frontier
        self.decisions = Decisions()

    @property
    def stopped(self) -> str:
        """Why nothing more is launched; empty while something may be."""
        return self._failures.stopped

    @property
    def tree(self) -> Tree:
        """The tree so far."""
        return self._continuations.tree

    async def run(self) -> None:
        """Grow the tree until its search stops or too much failed."""
        running: set[asyncio.Task[None]] = set()
        try:
            try:
                async with asyncio.timeout(self._deadline) as limit:
                    await self._continuations.plant()
            except (Exception, SystemExit) as error:  # the user's environment, policy or critic
                late = isinstance(error, TimeoutError) and limit.expired()
                if late:
                    error = self._late("the first prompt", "the environment", error)
                self._failures.add("deadline" if late else "environment", ROOT, -1, error)
                self._failures.stop("the root could not be made")
                return
            search = self._search
            self._frontier = search.start(
                self.tree, kappa=self._kappa, calibration=self._calibration
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
                    self.decisions.launched(source, self._counts["transitions"])
                    begun.append(Continuation(launches, source, source))
                    launches += 1
                if self._continuations.samples_together:
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
            try:
                await self._continuations.close()
            except Exception as error:
                self._failures.add("environment", ROOT, -1, error)
            self._forget()

    async def _root_value(self) -> None:
        """Wait for the root's prediction, unless all is over."""
        if not (self.stopped and self._fail_fast):
            await self._predictions.wait_root()

    def _forget(self) -> None:
        """Drop the search's and the environments' states: they served branching only."""
        self.decisions.follow(None)
        self._continuations.chunks.clear()
        self.tree.snapshot = [None] * len(self.tree)
        self.tree.workspace = [None] * len(self.tree)

    # One continuation ---------------------------------------------------------------------

    async def _continue(self, branch: Continuation) -> None:
        """Run one launch to its end; a failure removes it whole and is recorded."""
        try:
            async with asyncio.timeout(self._deadline) as limit:
                await self._continuations.act_out(branch, self._frontier.generated)
                pending = {task for task in branch.predictions if not task.done()}
                branch.stage = "prediction"
                if pending:
                    await asyncio.wait(pending)
            await self._root_value()
        except (Exception, SystemExit) as error:
            await self._drop(branch)
            if isinstance(error, TimeoutError) and limit.expired():
                late = self._late("the continuation", _WAITED[branch.stage], error)
                self._failures.add("deadline", branch.at, branch.launch, late)
            else:
                self._failures.add(branch.stage, branch.at, branch.launch, error)
            self._failed_from(branch.source)
        except asyncio.CancelledError as error:
            await self._drop(branch)
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled us: a policy or environment let a cancellation of its own escape.
            self._failures.add(
                branch.stage,
                branch.at,
                branch.launch,
                RuntimeError(f"cancelled itself: {error!r}"),
            )
            self._failed_from(branch.source)
        else:
            self._land(branch)

    def _late(self, what: str, waited: str, error: BaseException) -> DeadlineError:
        """The error of something that took too long, with what it noted on its way out."""
        notes = "".join(f"; {note}" for note in getattr(error.__cause__, "__notes__", ()))
        late = DeadlineError(
            f"{what} took longer than {self._deadline} s; it was waiting for {waited}{notes}"
        )
        late.__cause__ = error
        return late

    def _failed_from(self, source: int) -> None:
        self._frontier.failed(source)
        self.decisions.failed(source, self._counts["transitions"])

    async def _drop(self, branch: Continuation) -> None:
        self.tree.remove(branch.chain)
        await _cancelled(branch.predictions)

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
                f"{type(self._search).__name__} launched from {source!r}, which is no "
                "unfinished state that can be branched"
            )

    def _land(self, branch: Continuation) -> None:
        """Hand a finished continuation's returns to the search."""
        tree, gamma = self.tree, self._gamma
        self._counts["continuations"] += 1
        returns: list[float] | None = None
        if tree.kind[branch.at] == TERMINAL:
            value = 0.0
            returns = [value]
            for node in reversed(branch.chain):
                value = tree.reward[node] + gamma * value
                returns.append(value)
            returns.reverse()
        else:
            self._counts["truncated"] += 1
        self._frontier.landed(branch.source, branch.chain, returns)
        self.decisions.landed(branch.source, branch.chain, returns, self._counts["transitions"])


async def _cancelled(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel what still runs and wait until it is over."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)
