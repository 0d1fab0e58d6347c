"""Growing one tree: continuations in flight, their landings and their failures."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from focus_core.agent.agent import Agent, NextPrompt, plainly
from focus_core.agent.env import Transition
from focus_core.agent.execution import Execution
from focus_core.agent.workspace import Workspace
from focus_core.errors import CriticError, DeadlineError, PluginError
from focus_core.policy import Generation
from focus_core.records import Problem
from focus_core.search import Decisions, Frontier
from focus_core.tree.tree import ASKED, FOLDED, OPEN, ROOT, TERMINAL, TRUNCATED, Tree

if TYPE_CHECKING:
    from focus_core.collect import Collector

__all__ = ["Failure", "Growth"]


_WAITED = {
    "generation": "the policy",
    "environment": "the environment",
    "prediction": "the critic",
}


@attrs.frozen
class Failure:
    """Something that failed in a collection, with its cause attached.

    Attributes:
        stage: ``"generation"``, ``"environment"``, ``"deadline"`` or ``"prediction"``.
        state: The state acted from, or whose prediction failed.
        launch: The continuation, -1 for the root's own reset and prediction.
        error: The exception as it was raised.
    """

    stage: str
    state: int
    launch: int
    error: Exception

    def __str__(self) -> str:
        """One line."""
        return f"{self.stage} at state {self.state}: {type(self.error).__name__}: {self.error}"


@attrs.define(eq=False)
class _Continuation:
    """One launch: the states it has made so far, and what it is doing."""

    launch: int
    source: int
    at: int
    stage: str = "environment"
    chain: list[int] = attrs.field(factory=list)
    predictions: list[asyncio.Task[None]] = attrs.field(factory=list)


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
        self._agent: Agent = collector.agent
        self._critic = collector.critic
        self._execution = execution
        self._problem = problem
        own = self._agent.sampling.seed
        self._key = (own,) if key is None and own is not None else key
        self._workspace = workspace
        self._max_failures = 1 if fail_fast else collector.search.max_failures
        self._fail_fast = fail_fast
        self._frontier: Frontier
        self._root_prediction: asyncio.Task[None] | None = None
        self._root_asked = 0.0
        self._root_late = False
        self.environment: defaultdict[str, list[float]] = defaultdict(list)
        self.tree = Tree()
        self.decisions = Decisions()
        self.failures: list[Failure] = []
        self.counts: Counter[str] = Counter(
            transitions=0,
            tokens=0,
            continuations=0,
            failed_continuations=0,
            predictions=0,
            failed_predictions=0,
            truncated=0,
        )
        self.stopped = ""

    async def run(self) -> None:
        """Grow the tree until its search stops or too much failed."""
        running: set[asyncio.Task[None]] = set()
        try:
            try:
                await self._plant()
            except (Exception, SystemExit) as error:  # the user's environment, policy or critic
                self._fail("environment", ROOT, -1, error)
                self.stopped = self.stopped or "the root could not be made"
                return
            search = self._collector.search
            self._frontier = search.start(
                self.tree, kappa=self._collector.kappa, calibration=self._collector.calibration
            )
            self.decisions.follow(self._frontier)
            launches = 0
            while True:
                while len(running) < search.max_concurrency and not self.stopped:
                    source = self._frontier.next()
                    if source is None:
                        break
                    self._check_source(source)
                    self.decisions.launched(source, self.counts["transitions"])
                    continuation = _Continuation(launches, source, source)
                    running.add(asyncio.create_task(self._continue(continuation)))
                    launches += 1
                if not running or (self.stopped and self._fail_fast):
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            await self._root_value()
            self.stopped = self.stopped or self._frontier.stopped
        finally:
            if self._root_prediction is not None:
                running.add(self._root_prediction)
            await _cancelled(running)
            self._forget()

    async def _plant(self) -> None:
        """Make the root: reset the environment, render its prompt, ask for its value."""
        agent = self._agent
        env = agent.new_env(self._execution, self._workspace)
        messages = await agent.first_messages(env, self._problem)
        self.tree = Tree(
            agent.first_prompt(messages),
            messages=messages,
            snapshot=plainly(env, "snapshot") if agent.forkable else None,
            forkable=agent.forkable,
        )
        self.tree.workspace[ROOT] = _files(env)
        self._root_prediction = self._predict(ROOT, -1)
        self._root_asked = time.monotonic()

    async def _root_value(self) -> None:
        """Wait for the root's prediction, whose deadline is its own, from its request on."""
        task, deadline = self._root_prediction, self._collector.deadline
        if task is None or task.done() or (self.stopped and self._fail_fast):
            return
        left = None if deadline is None else self._root_asked + deadline - time.monotonic()
        if left is None or left > 0:
            await asyncio.wait({task}, timeout=left)
        if not task.done() and not self._root_late:
            self._root_late = True
            task.cancel()
            late = DeadlineError(f"the root's prediction took longer than {deadline} s")
            self._fail("prediction", ROOT, -1, late)

    def _forget(self) -> None:
        """Drop the search's and the environments' states: they served branching only."""
        self.decisions.follow(None)
        self.tree.snapshot = [None] * len(self.tree)
        self.tree.workspace = [None] * len(self.tree)

    def _fail(self, stage: str, state: int, launch: int, raised: BaseException) -> None:
        error = raised
        if not isinstance(error, Exception):  # a library's sys.exit() must not end the program
            error = RuntimeError(f"the code raised {raised!r}")
            error.__cause__ = raised
        self.failures.append(Failure(stage, state, launch, error))
        counter = "failed_predictions" if stage == "prediction" else "failed_continuations"
        self.counts[counter] += 1
        if len(self.failures) >= self._max_failures or self._fail_fast:
            self.stopped = f"stopped after {len(self.failures)} failures"

    # One continuation ---------------------------------------------------------------------

    async def _continue(self, now: _Continuation) -> None:
        """Run one launch to its end; a failure removes it whole and is recorded."""
        deadline = self._collector.deadline
        try:
            async with asyncio.timeout(deadline) as limit:
                await self._act_out(now)
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
                self._fail("deadline", now.at, now.launch, late)
            else:
                self._fail(now.stage, now.at, now.launch, error)
            self._failed_from(now.source)
        except asyncio.CancelledError as error:
            await self._drop(now)
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled us: a policy or environment let a cancellation of its own escape.
            self._fail(now.stage, now.at, now.launch, RuntimeError(f"cancelled itself: {error!r}"))
            self._failed_from(now.source)
        else:
            self._land(now)

    def _failed_from(self, source: int) -> None:
        self._frontier.failed(source)
        self.decisions.failed(source, self.counts["transitions"])

    async def _drop(self, now: _Continuation) -> None:
        self.tree.remove(now.chain)
        await _cancelled(now.predictions)

    async def _act_out(self, now: _Continuation) -> None:
        """Act from the source until the rollout is done or cut."""
        tree, agent = self.tree, self._agent
        env = await self._restored(now.source)
        prefix: list[int] = tree.prefix(now.source).tolist()
        while True:
            now.stage = "generation"
            asked = tree.fold[now.at] == ASKED
            seed = self._seed(now.launch, len(now.chain))
            generation = await agent.say(prefix, seed, fold=asked, env=env)
            self.counts["transitions"] += 1
            self.counts["tokens"] += len(generation.tokens)
            self._frontier.generated()
            prefix = [*prefix, *generation.tokens]
            if asked:
                transition = Transition()
                view = agent.fold(tree.messages[ROOT], tree.messages[now.at], generation)
            else:
                now.stage = "environment"
                transition = await agent.act(env, generation)
                for name, value in transition.metrics.items():
                    self.environment[name].append(float(value))
                view = await self._view(now.at, prefix, generation, transition)
            if view.fold == FOLDED:
                self.counts["folds"] += 1
                if hasattr(env, "folded"):
                    plainly(env, "folded")
            self._add(now, env, prefix, generation, transition, view)
            prefix = list(view.tokens)
            if tree.kind[now.at] != OPEN:
                return

    async def _restored(self, source: int) -> Any:
        """The environment as it was at a state, this continuation's own."""
        tree, agent = self.tree, self._agent
        if agent.forkable:
            env = agent.new_env(self._execution, tree.workspace[source])
            plainly(env, "restore", tree.snapshot[source])
            return env
        env = agent.new_env(self._execution, self._workspace)
        if await agent.first_messages(env, self._problem) != tree.messages[ROOT]:
            raise ValueError(
                f"{type(env).__name__}.reset gave other messages the second time; make it "
                "deterministic, or give the environment snapshot() and restore()"
            )
        return env

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

    async def _view(
        self, parent: int, prefix: list[int], generation: Generation, transition: Transition
    ) -> NextPrompt:
        """What the policy sees after a transition from ``parent``."""
        tree, agent = self.tree, self._agent
        if transition.done or not (transition.messages or agent.folding):
            return NextPrompt(None, prefix)
        return await agent.follow(
            transition,
            first=tree.messages[ROOT],
            messages=tree.messages[parent],
            turn=[*self._open_turn(parent), *generation.tokens],
            prefix=prefix,
            turns=self._turns(parent),
            last=transition.truncated or tree.depth[parent] + 1 >= agent.max_transitions,
            execution=self._execution,
        )

    def _add(
        self,
        now: _Continuation,
        env: Any,
        prefix: list[int],
        generation: Generation,
        transition: Transition,
        view: NextPrompt,
    ) -> None:
        """Add the state a transition led to.

        Args:
            now: The continuation.
            env: Its environment, after the transition.
            prefix: The sequence the policy continued, and what it said.
            generation: What it said.
            transition: What the environment answered.
            view: What the policy sees next.
        """
        tree, agent, parent = self.tree, self._agent, now.at
        fresh = view.tokens is not prefix and list(view.tokens[: len(prefix)]) != prefix
        if transition.done:
            kind = TERMINAL
        else:
            room = agent.room(len(view.tokens), fold=view.fold == ASKED)
            over = tree.depth[parent] + 1 >= agent.max_transitions or not room
            kind = TRUNCATED if transition.truncated or over else OPEN
        node = tree.add(
            parent,
            generation.tokens,
            generation.logprobs,
            rendered=view.tokens if fresh else view.tokens[len(prefix) :],
            messages=view.messages,
            fresh=fresh,
            reward=transition.reward - view.penalty,
            kind=kind,
            launch=now.launch,
        )
        tree.fold[node] = view.fold
        now.chain.append(node)
        now.at = node
        if kind == OPEN and agent.forkable:
            tree.snapshot[node] = plainly(env, "snapshot")
            tree.workspace[node] = _files(env)
            tree.forkable[node] = 1
        if kind != TERMINAL:
            prediction = self._predict(node, now.launch)
            if prediction is not None:
                now.predictions.append(prediction)

    def _turns(self, node: int) -> int:
        """Turns that ended before a state, since the start or the last fold."""
        count = 0
        while node != ROOT and self.tree.fold[node] != FOLDED:
            count += self.tree.ends_turn(node)
            node = self.tree.parent[node]
        return count

    def _open_turn(self, node: int) -> list[int]:
        """Tokens sampled so far in the turn that goes on at ``node``."""
        segments = []
        while node != ROOT and not self.tree.ends_turn(node):
            segments.append(self.tree.generated(node)[0].tolist())
            node = self.tree.parent[node]
        return [token for segment in reversed(segments) for token in segment]

    def _land(self, now: _Continuation) -> None:
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

    # Seeds and predictions ----------------------------------------------------------------

    def _seed(self, launch: int, transition: int) -> int | None:
        """A seed keyed by tree, launch and transition, from 0 to 2**63 - 1."""
        if self._key is None:
            return None
        text = ",".join(map(str, (*self._key, launch, transition)))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def _predict(self, node: int, launch: int) -> asyncio.Task[None] | None:
        """Ask for a state's value while generation goes on."""
        critic = self._critic
        if critic is None:
            return None
        self.counts["predictions"] += 1
        if critic.fn is None:
            self.tree.prediction[node] = critic.value  # type: ignore[assignment]  # a constant
            return None
        return asyncio.create_task(self._ask(node, launch))

    async def _ask(self, node: int, launch: int) -> None:
        critic, tree = self._critic, self.tree
        assert critic is not None  # _predict checked
        try:
            tree.context[node] = text = self._collector.render_context(tree, node)
            tree.prediction[node] = await critic.predict(text, self._execution)
        except (Exception, SystemExit) as error:  # the user's critic
            self._fail("prediction", node, launch, error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            lost = CriticError("the critic raised CancelledError, and nobody cancelled it")
            lost.__cause__ = error
            self._fail("prediction", node, launch, lost)


def _files(env: Any) -> Workspace | None:
    """A fork of the environment's files, if it keeps any here."""
    workspace = getattr(env, "workspace", None)
    return workspace.fork() if isinstance(workspace, Workspace) else None


async def _cancelled(tasks: Sequence[asyncio.Task[None]] | set[asyncio.Task[None]]) -> None:
    """Cancel what still runs and wait until it is over."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)
