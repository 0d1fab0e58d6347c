"""The critic's values of one tree's states, asked for while generation goes on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from focus_core.collect.failures import Failures
from focus_core.critic.critic import Critic
from focus_core.env.execution import Execution
from focus_core.errors import CriticError, DeadlineError
from focus_core.tree.contexts import kept
from focus_core.tree.tree import ROOT, Tree
from focus_core.utils.concurrency import beside

__all__ = ["Predictions"]


class Predictions:
    """Asks for them, and writes them into the tree.

    Args:
        critic: Who is asked; ``None``: nobody.
        render: From a tree and a state to the critic's context; called in a worker thread.
        execution: Runs a critic that is a plain function.
        counts: Its ``predictions`` are counted up.
        failures: Takes those that fail.
        deadline: Seconds that the root's prediction may take.

    Attributes:
        root: The task that asks for the root's, if any.
    """

    def __init__(
        self,
        critic: Critic | None,
        render: Callable[[Tree, int], Any],
        execution: Execution,
        counts: Counter[str],
        failures: Failures,
        deadline: float | None,
    ) -> None:
        self._critic = critic
        self._render = render
        self._deadline = deadline
        self._execution = execution
        self._counts = counts
        self._failures = failures
        self._rendering = asyncio.Lock()
        self._root_asked = 0.0
        self._root_late = False
        self.root: asyncio.Task[None] | None = None

    def ask_root(self, tree: Tree) -> None:
        """Ask for the root's value, whose deadline is its own, from here on."""
        self.root = self.ask(tree, ROOT, -1)
        self._root_asked = time.monotonic()

    async def wait_root(self) -> None:
        """Wait for the root's value, or until it is late."""
        task, deadline = self.root, self._deadline
        if task is None or task.done():
            return
        left = None if deadline is None else self._root_asked + deadline - time.monotonic()
        if left is None or left > 0:
            await asyncio.wait({task}, timeout=left)
        if not task.done() and not self._root_late:
            self._root_late = True
            task.cancel()
            late = DeadlineError(f"the root's prediction took longer than {deadline} s")
            self._failures.add("prediction", ROOT, -1, late)

    def ask(self, tree: Tree, node: int, launch: int) -> asyncio.Task[None] | None:
        """Ask for a state's value; returns the task that does, which the caller awaits.

        ``None``: nobody is asked, or the answer is known.
        """
        critic = self._critic
        if critic is None:
            return None
        self._counts["predictions"] += 1
        if critic.fn is None:
            tree.prediction[node] = critic.value  # type: ignore[assignment]  # a constant
            return None
        return asyncio.create_task(self._asked(tree, node, launch))

    def _context(self, tree: Tree, node: int) -> tuple[Any, Any]:
        """A state's context, and the form in which the tree keeps it; in a worker thread.

        Decoding a long sequence would hold the loop for as long as sampling a few tokens takes.
        """
        text = self._render(tree, node)
        return text, kept(tree, node, text)

    async def _asked(self, tree: Tree, node: int, launch: int) -> None:
        critic = self._critic
        assert critic is not None  # ask checked
        try:
            async with self._rendering:  # in order: a text is kept as what it adds to one before
                text, tree.context[node] = await beside(self._context, tree, node)
            tree.prediction[node] = await critic.predict(text, self._execution)
        except (Exception, SystemExit) as error:  # the user's critic
            self._failures.add("prediction", node, launch, error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            lost = CriticError("the critic raised CancelledError, and nobody cancelled it")
            lost.__cause__ = error
            self._failures.add("prediction", node, launch, lost)
