"""Growing one tree: continuations in flight, their landings and their failures."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from focus_core.agent.agent import Agent, NextPrompt, Spoken, plainly
from focus_core.agent.env import Transition
from focus_core.agent.execution import Execution
from focus_core.agent.workspace import Workspace
from focus_core.errors import DeadlineError, PluginError, UsageError
from focus_core.opening import Opening, open_together
from focus_core.predictions import Predictions
from focus_core.records import Problem
from focus_core.search import Decisions, Frontier
from focus_core.tree.prefix import Prefix
from focus_core.tree.tree import ASKED, FOLDED, OPEN, ROOT, TERMINAL, TRUNCATED, Tree

if TYPE_CHECKING:
    from focus_core.collect import Collector

__all__ = ["Failure", "Growth"]


NOTHING = np.empty(0, np.int32)

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
    length: int = 0
    tokens: list[int] | None = None
    opening: Opening | None = None
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
        self._execution = execution
        self._problem = problem
        own = self._agent.sampling.seed
        self._key = (own,) if key is None and own is not None else key
        self._workspace = workspace
        self._forkable = self._agent.forkable
        self._takes_prefix = bool(getattr(self._agent.policy, "takes_prefix", False))
        self._samples_together = _samples_together(self._agent.policy)
        self._chunks: dict[Any, Any] = {}
        self._max_failures = 1 if fail_fast else collector.search.max_failures
        self._fail_fast = fail_fast
        self._frontier: Frontier
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
        self._predictions = Predictions(
            collector, execution, self.counts, functools.partial(self._fail, "prediction")
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
                begun: list[_Continuation] = []
                while len(running) + len(begun) < search.max_concurrency and not self.stopped:
                    source = self._frontier.next()
                    if source is None:
                        break
                    self._check_source(source)
                    self.decisions.launched(source, self.counts["transitions"])
                    begun.append(_Continuation(launches, source, source))
                    launches += 1
                if self._samples_together:
                    open_together(begun)
                running.update(asyncio.create_task(self._continue(each)) for each in begun)
                if not running or (self.stopped and self._fail_fast):
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            await self._root_value()
            self.stopped = self.stopped or self._frontier.stopped
        finally:
            if self._predictions.root is not None:
                running.add(self._predictions.root)
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
        self._predictions.ask_root(self.tree)

    async def _root_value(self) -> None:
        """Wait for the root's prediction, unless all is over."""
        if not (self.stopped and self._fail_fast):
            await self._predictions.wait_root()

    def _forget(self) -> None:
        """Drop the search's and the environments' states: they served branching only."""
        self.decisions.follow(None)
        self._chunks.clear()
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
        now.length = tree.prefix_length(now.source)
        now.tokens = None if self._takes_prefix else tree.prefix(now.source).tolist()
        while True:
            now.stage = "generation"
            asked = tree.fold[now.at] == ASKED
            spoken = await self._say(now, asked, env)
            self.counts["transitions"] += 1
            self.counts["tokens"] += len(spoken.tokens)
            self._frontier.generated()
            view: NextPrompt | None
            if asked:
                transition = Transition()
                summary = spoken.tokens.tolist()
                view = agent.fold(tree.messages[ROOT], tree.messages[now.at], summary)
            else:
                now.stage = "environment"
                transition = await agent.act(env, spoken)
                for name, value in transition.metrics.items():
                    self.environment[name].append(float(value))
                view = None
                if not transition.done and (transition.messages or agent.folding):
                    view = await self._view(now, spoken, transition)
            if view is not None and view.fold == FOLDED:
                self.counts["folds"] += 1
                if hasattr(env, "folded"):
                    plainly(env, "folded")
            self._add(now, env, spoken, transition, view)
            if tree.kind[now.at] != OPEN:
                return

    async def _say(self, now: _Continuation, asked: bool, env: Any) -> Spoken:
        """What the policy says next; the first time perhaps one of several samples."""
        prefix: Sequence[int] | None = now.tokens
        if prefix is None:
            prefix = Prefix(self.tree, now.at, now.length, self._chunks)
        say = functools.partial(self._agent.say_together, fold=asked, env=env)
        opening, now.opening = now.opening, None
        if opening is None:
            (spoken,) = await say(prefix, self._seed(now.launch, len(now.chain)))
            return spoken
        seeded = self._samples_together == "seeded"
        seed = self._seed(opening.launches[0], 0) if seeded else None
        return await opening.take(now.launch, functools.partial(say, prefix, seed))

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
        self, now: _Continuation, spoken: Spoken, transition: Transition
    ) -> NextPrompt | None:
        """What the policy sees after a transition; ``None``: the same sequence goes on."""
        tree, agent, parent = self.tree, self._agent, now.at
        said = spoken.tokens.tolist()
        prefix = [*tree.prefix(parent).tolist(), *said]
        view = await agent.follow(
            transition,
            first=tree.messages[ROOT],
            messages=tree.messages[parent],
            turn=[*tree.open_turn(parent), *said],
            prefix=prefix,
            turns=tree.turns(parent),
            last=transition.truncated or tree.depth[parent] + 1 >= agent.max_transitions,
            execution=self._execution,
        )
        return None if view.tokens is prefix else view

    def _add(
        self,
        now: _Continuation,
        env: Any,
        spoken: Spoken,
        transition: Transition,
        view: NextPrompt | None,
    ) -> None:
        """Add the state a transition led to.

        Args:
            now: The continuation.
            env: Its environment, after the transition.
            spoken: What the policy said.
            transition: What the environment answered.
            view: What the policy sees next, if not the same sequence.
        """
        tree, agent, parent = self.tree, self._agent, now.at
        fresh, rendered = False, NOTHING
        length = now.length + len(spoken.tokens)
        if view is not None:
            prompt = np.asarray(view.tokens, np.int32)
            prefix = np.concatenate((tree.prefix(parent), spoken.tokens))
            fresh = not np.array_equal(prompt[:length], prefix)
            rendered, length = prompt if fresh else prompt[length:], len(prompt)
        fold = 0 if view is None else view.fold
        if transition.done:
            kind = TERMINAL
        else:
            room = agent.room(length, fold=fold == ASKED)
            over = tree.depth[parent] + 1 >= agent.max_transitions or not room
            kind = TRUNCATED if transition.truncated or over else OPEN
        node = tree.add(
            parent,
            spoken.tokens,
            spoken.logprobs,
            rendered=rendered,
            messages=None if view is None else view.messages,
            fresh=fresh,
            reward=transition.reward - (0.0 if view is None else view.penalty),
            kind=kind,
            launch=now.launch,
        )
        tree.fold[node] = fold
        now.chain.append(node)
        now.at, now.length = node, length
        if now.tokens is not None and view is not None:
            now.tokens = prompt.tolist()
        elif now.tokens is not None:
            now.tokens += spoken.tokens.tolist()
        if kind == OPEN and self._forkable:
            tree.snapshot[node] = plainly(env, "snapshot")
            tree.workspace[node] = _files(env)
            tree.forkable[node] = 1
        if kind != TERMINAL:
            prediction = self._predictions.ask(tree, node, now.launch)
            if prediction is not None:
                now.predictions.append(prediction)

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

    def _seed(self, launch: int, transition: int) -> int | None:
        """A seed keyed by tree, launch and transition, from 0 to 2**63 - 1."""
        if self._key is None:
            return None
        text = ",".join(map(str, (*self._key, launch, transition)))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1


def _samples_together(policy: Any) -> str | None:
    """A policy's declaration; anything else would silently lose its seeds.

    Raises:
        UsageError: It is none of the three.
    """
    declared: str | None = getattr(policy, "samples_together", None)
    if declared not in (None, "seeded", "unseeded"):
        raise UsageError(
            f"{type(policy).__name__}.samples_together is {declared!r}; it is 'seeded' if samples "
            "of one seed differ, 'unseeded' if they may not, or None for a request each"
        )
    return declared


def _files(env: Any) -> Workspace | None:
    """A fork of the environment's files, if it keeps any here."""
    workspace = getattr(env, "workspace", None)
    return workspace.fork() if isinstance(workspace, Workspace) else None


async def _cancelled(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel what still runs and wait until it is over."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)
