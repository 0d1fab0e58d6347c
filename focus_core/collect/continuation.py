"""One continuation of a tree: what is said and answered, and the states that this makes."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from focus_core.agent.agent import Agent, NextPrompt, Spoken, call_plain
from focus_core.collect.predictions import Predictions
from focus_core.collect.shared_requests import Opening
from focus_core.env.env import Transition, release
from focus_core.env.execution import Execution, bounded
from focus_core.env.workspace import Workspace
from focus_core.errors import UsageError
from focus_core.records import Problem
from focus_core.tree.prefix import Prefix
from focus_core.tree.tree import ASKED, FOLDED, OPEN, ROOT, TERMINAL, TRUNCATED, Tree
from focus_core.utils.concurrency import doing, finish

__all__ = ["Continuation", "Continuations"]

_NOTHING = np.empty(0, np.int32)

_RELEASE = 30.0
"""Seconds that an environment's ``release`` may take."""


@attrs.define(eq=False)
class Continuation:
    """One launch: the states it has made so far, and what it is doing.

    Attributes:
        launch: Its number.
        source: The state it leaves.
        at: The state it has come to.
        stage: What it waits for: ``"generation"``, ``"environment"`` or ``"prediction"``.
        length: Tokens of the sequence at ``at``.
        tokens: The sequence, for a policy that takes no ``Prefix``.
        opening: The request that it shares for its first tokens, if it does.
        chain: The states it made.
        predictions: Tasks that ask for their values.
    """

    launch: int
    source: int
    at: int
    stage: str = "environment"
    length: int = 0
    tokens: list[int] | None = None
    opening: Opening | None = None
    chain: list[int] = attrs.field(factory=list)
    predictions: list[asyncio.Task[None]] = attrs.field(factory=list)


class Continuations:
    """What the continuations of one tree act with.

    Args:
        agent: The policy in its environment.
        execution: Where the environment's blocking work runs.
        problem: What the tree is of.
        key: Seeds of the tree; ``None``: that of the agent's sampling, if it has one.
        workspace: Files the environment starts with.
        counts: Transitions, tokens and folds are counted up.
        metrics: Takes the environment's numbers.
        predictions: Asks for the value of each new state.

    Attributes:
        tree: Grows.
        chunks: What a policy makes of the parts of the tree's prefixes.
        samples_together: As the policy declares it.
    """

    def __init__(
        self,
        agent: Agent,
        execution: Execution,
        problem: Problem,
        key: Sequence[int] | None,
        workspace: Workspace | None,
        *,
        counts: Counter[str],
        metrics: defaultdict[str, list[float]],
        predictions: Predictions,
    ) -> None:
        self._agent = agent
        self._execution = execution
        self._problem = problem
        own = agent.sampling.seed
        self._key = (own,) if key is None and own is not None else key
        self._workspace = workspace
        self._counts = counts
        self._metrics = metrics
        self._predictions = predictions
        self._forkable = agent.forkable
        self._most = agent.transition_limit
        self._takes_prefix = bool(getattr(agent.policy, "takes_prefix", False))
        self.samples_together = _samples_together(agent.policy)
        self.chunks: dict[Any, Any] = {}
        self.tree = Tree()
        self._begun: Any = None

    async def plant(self) -> None:
        """Make the root: reset the environment, render its prompt, ask for its value.

        The first continuation goes on in an environment that holds something, or cannot be
        restored.
        """
        agent = self._agent
        self._begun = env = agent.new_env(self._execution, self._workspace)
        messages = await agent.first_messages(env, self._problem)
        self.tree = Tree(
            agent.first_prompt(messages),
            messages=messages,
            snapshot=call_plain(env, "snapshot") if agent.forkable else None,
            forkable=agent.forkable,
        )
        self.tree.workspace[ROOT] = _files(env)
        self._predictions.ask_root(self.tree)

    async def close(self) -> None:
        """Release the environment that gave the prompt, if no continuation went on in it."""
        env, self._begun = self._begun, None
        if env is not None:
            await _released(env)

    async def act_out(self, branch: Continuation, generated: Callable[[], None]) -> None:
        """Act from the source until the rollout is done or cut, in an environment of its own.

        Args:
            branch: The branch.
            generated: Called for every transition that the policy has sampled.
        """
        env, begun = self._own_env(branch.source)
        try:
            if not begun:
                await self._restore(env, branch.source)
            await self._act_in(env, branch, generated)
        finally:
            await _released(env)

    async def _act_in(self, env: Any, branch: Continuation, generated: Callable[[], None]) -> None:
        tree, agent = self.tree, self._agent
        branch.length = tree.prefix_length(branch.source)
        branch.tokens = None if self._takes_prefix else tree.prefix(branch.source).tolist()
        while True:
            branch.stage = "generation"
            asked = tree.fold[branch.at] == ASKED
            spoken = await self._say(branch, asked, env)
            self._counts["transitions"] += 1
            self._counts["tokens"] += len(spoken.tokens)
            generated()
            view: NextPrompt | None
            if asked:
                transition = Transition()
                summary = spoken.tokens.tolist()
                view = agent.fold(tree.messages[ROOT], tree.messages[branch.at], summary)
            else:
                branch.stage = "environment"
                transition = await agent.act(env, spoken)
                for name, value in transition.metrics.items():
                    self._metrics[name].append(float(value))
                view = None
                if not transition.done and (transition.messages or agent.folding):
                    view = await self._view(branch, spoken, transition)
            if view is not None and view.fold == FOLDED:
                self._counts["folds"] += 1
                if hasattr(env, "folded"):
                    call_plain(env, "folded")
            self._add(branch, env, spoken, transition, view)
            if tree.kind[branch.at] != OPEN:
                return

    async def _say(self, branch: Continuation, asked: bool, env: Any) -> Spoken:
        """What the policy says next; the first time perhaps one of several samples."""
        prefix: Sequence[int] | None = branch.tokens
        if prefix is None:
            prefix = Prefix(self.tree, branch.at, branch.length, self.chunks)
        say, opening = self._agent.say_together, branch.opening
        if opening is None:
            seed = self._seed(branch.launch, len(branch.chain))
            (spoken,) = await say(prefix, seed, fold=asked, env=env)
            return spoken
        branch.opening = None
        seed = self._seed(opening.launches[0], 0) if self.samples_together == "seeded" else None
        ask = functools.partial(say, prefix, seed, fold=asked, env=env)
        return await opening.take(branch.launch, ask)

    def _own_env(self, source: int) -> tuple[Any, bool]:
        """A continuation's own environment, and whether it is at the source already."""
        env = self._begun
        if source == ROOT and env is not None and not (self._forkable and _plain(env)):
            self._begun = None
            return env, True
        files = self.tree.workspace[source] if self._forkable else self._workspace
        return self._agent.new_env(self._execution, files), False

    async def _restore(self, env: Any, source: int) -> None:
        """Bring a new environment to a state."""
        tree, agent = self.tree, self._agent
        if self._forkable:
            call_plain(env, "restore", tree.snapshot[source])
        elif await agent.first_messages(env, self._problem) != tree.messages[ROOT]:
            raise ValueError(
                f"{type(env).__name__}.reset gave other messages the second time; make it "
                "deterministic, or give the environment snapshot() and restore()"
            )

    async def _view(
        self, branch: Continuation, spoken: Spoken, transition: Transition
    ) -> NextPrompt | None:
        """What the policy sees after a transition; ``None``: the same sequence goes on."""
        tree, agent, parent = self.tree, self._agent, branch.at
        said = spoken.tokens.tolist()
        prefix = [*tree.prefix(parent).tolist(), *said]
        view = await agent.follow(
            transition,
            first=tree.messages[ROOT],
            messages=tree.messages[parent],
            turn=[*tree.open_turn(parent), *said],
            prefix=prefix,
            turns=tree.turns(parent),
            last=transition.truncated or tree.depth[parent] + 1 >= self._most,
            execution=self._execution,
        )
        return None if view.tokens is prefix else view

    def _add(
        self,
        branch: Continuation,
        env: Any,
        spoken: Spoken,
        transition: Transition,
        view: NextPrompt | None,
    ) -> None:
        """Add the state a transition led to.

        Args:
            branch: The branch.
            env: Its environment, after the transition.
            spoken: What the policy said.
            transition: What the environment answered.
            view: What the policy sees next, if not the same sequence.
        """
        tree, agent, parent = self.tree, self._agent, branch.at
        fresh, rendered = False, _NOTHING
        length = branch.length + len(spoken.tokens)
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
            over = tree.depth[parent] + 1 >= self._most or not room
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
            launch=branch.launch,
        )
        tree.fold[node] = fold
        branch.chain.append(node)
        branch.at, branch.length = node, length
        if branch.tokens is not None and view is not None:
            branch.tokens = prompt.tolist()
        elif branch.tokens is not None:
            branch.tokens += spoken.tokens.tolist()
        if kind == OPEN and self._forkable:
            tree.snapshot[node] = call_plain(env, "snapshot")
            tree.workspace[node] = _files(env)
            tree.forkable[node] = 1
        if kind != TERMINAL:
            prediction = self._predictions.ask(tree, node, branch.launch)
            if prediction is not None:
                branch.predictions.append(prediction)

    def _seed(self, launch: int, transition: int) -> int | None:
        """A seed keyed by tree, launch and transition, from 0 to 2**63 - 1."""
        if self._key is None:
            return None
        text = ",".join(map(str, (*self._key, launch, transition)))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1


def _plain(env: Any) -> bool:
    """Whether an environment holds nothing that has to be released."""
    return not hasattr(env, "release")


async def _released(env: Any) -> None:
    """Release a copy, to the end even if cancelled; beside an error its own is a note."""
    if _plain(env):
        return
    running = sys.exception()
    try:
        with doing(f"releasing a {type(env).__name__}"):
            await finish(bounded(release(env), _RELEASE))
    except Exception as error:
        if running is None:
            raise
        running.add_note(f"afterwards {type(env).__name__}.release failed: {error!r}")


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
