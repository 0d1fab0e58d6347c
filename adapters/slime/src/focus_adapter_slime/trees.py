"""One tree for one sample: collected under a deadline, called off when Slime aborts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import attrs
import numpy as np

from focus_adapter_slime.errors import AbortedError
from focus_core.collect import Collection, Collector
from focus_core.errors import DeadlineError, UsageError
from focus_core.records import ActorRecord, Problem, Span
from focus_core.tree.rollout import Rollout

__all__ = [
    "Streak",
    "called_off",
    "check_sampling",
    "collect_tree",
    "number_of",
    "problem_of",
    "whole_rollout",
]

T = TypeVar("T")
_LOG = logging.getLogger("focus_adapter_slime")
_LOOK = 0.2
"""Seconds between looks at whether Slime aborts."""
_LEFT: set[asyncio.Future[Any]] = set()
"""What did not end when it was called off: a thread of the user's that cannot be stopped."""


def problem_of(sample: Any) -> Problem:
    """A sample as a problem: prompt, label and metadata as Slime read them.

    Its id is the metadata's ``id`` where there is one, else the sample's index.

    Raises:
        UsageError: The sample has images or the like, no prompt, or metadata that are no object.
    """
    if sample.prompt is None:
        raise UsageError(
            f"sample {sample.index} has no prompt; --input-key must name a key of the prompt data"
        )
    metadata = getattr(sample, "metadata", None) or {}
    if not isinstance(metadata, Mapping):
        raise UsageError(
            f"sample {sample.index} has metadata {metadata!r:.80}; what --metadata-key names must "
            "be an object"
        )
    inputs = getattr(sample, "multimodal_inputs", None) or {}
    if any(value is not None for value in inputs.values()):
        raise UsageError(
            f"sample {sample.index} has multimodal inputs ({', '.join(inputs)}); tasks see text "
            "only"
        )
    name = metadata.get("id", getattr(sample, "index", None))
    return Problem(sample.prompt, sample.label, name, MappingProxyType(dict(metadata)))


def number_of(sample: Any) -> int:
    """The tree's number in its batch: Slime numbers samples through."""
    for name in ("index", "group_index"):
        value = getattr(sample, name, None)
        if value is not None:
            return int(value)
    return 0


def check_sampling(collector: Collector, args: Any) -> None:
    """Refuse an agent whose log probabilities Slime would not reproduce.

    Raises:
        UsageError: It does not sample at Slime's temperature, or not from all tokens.
    """
    own, trained = collector.agent.sampling, getattr(args, "rollout_temperature", 1.0)
    if own.temperature != trained:
        raise UsageError(
            f"the agent samples at temperature {own.temperature:g}, and Slime trains at "
            f"--rollout-temperature {trained}; make them equal"
        )
    if own.top_p != 1.0 or own.top_k != 0:
        raise UsageError(
            f"the agent samples with top_p={own.top_p:g} and top_k={own.top_k}, and the servers' "
            "log probabilities are of all tokens; leave them at 1 and 0"
        )


async def collect_tree(
    collector: Collector,
    problem: Problem,
    *,
    group_index: int,
    key: tuple[int, ...] | None = None,
    workspace: Any = None,
    fail_fast: bool = True,
) -> Collection:
    """Enter a fresh collector and grow its tree."""
    async with collector:
        return await collector.collect(
            problem, group_index=group_index, key=key, workspace=workspace, fail_fast=fail_fast
        )


def whole_rollout(collection: Collection, leaf: int) -> ActorRecord:
    """A rollout's last sequence, with its return on every generated token."""
    tree = collection.tree
    reward = Rollout(tree, leaf).reward
    first, *path = [*tree.sequence(tree.parent[leaf]), leaf]
    tokens = [tree.rendered(first)]
    logprobs, spans = [np.zeros(len(tokens[0]), np.float32)], []
    at = len(tokens[0])
    for node in path:
        sampled, own = tree.generated(node)
        rendered = tree.rendered(node)[: None if node != leaf else 0]
        tokens += [sampled, rendered]
        logprobs += [own, np.zeros(len(rendered), np.float32)]
        if len(sampled):
            spans.append(Span(at, at + len(sampled), reward, node, tree.parent[node]))
        at += len(sampled) + len(rendered)
    metadata = {"group_index": collection.group_index, "problem": collection.problem.id}
    return ActorRecord(np.concatenate(tokens), np.concatenate(logprobs), tuple(spans), metadata)


async def called_off(
    work: Coroutine[Any, Any, T], *, deadline: float, grace: float, aborting: Callable[[], bool]
) -> T:
    """Await something, no longer than a deadline and not after Slime began to abort.

    What is called off is cancelled and given some time to end; it is left behind only if it does
    not, as a thread that hangs in a grader cannot be stopped.

    Args:
        work: What to await.
        deadline: Seconds it may take.
        grace: Seconds it may take to end once it is called off.
        aborting: Whether the rollout is being called off.

    Raises:
        DeadlineError: It took longer.
        AbortedError: The rollout was called off.
    """
    task = asyncio.ensure_future(work)
    ends = time.monotonic() + deadline
    try:
        while not task.done():
            if aborting():
                raise AbortedError("Slime called this rollout off while the tree was collected")
            left = ends - time.monotonic()
            if left <= 0:
                raise DeadlineError(
                    f"the tree took longer than {deadline:g} s; raise focus_deadline, or collect "
                    "smaller trees"
                )
            await asyncio.wait([task], timeout=min(left, _LOOK))
    finally:
        if not task.done():
            await _end(task, grace)
    return task.result()


async def _end(task: asyncio.Future[Any], grace: float) -> None:
    """Cancel and wait, but not for ever."""
    task.cancel()
    try:
        await asyncio.wait([task], timeout=grace)
    finally:
        if task.done():
            if not task.cancelled():
                task.exception()  # retrieved: why it was called off is what the caller hears
        else:
            _LEFT.add(task)
            task.add_done_callback(_over)
            _LOG.warning(
                "a tree did not end %g s after it was called off: something in it cannot be "
                "stopped, such as a grader that hangs in a thread; run it in a ProcessExecution",
                grace,
            )


def _over(task: asyncio.Future[Any]) -> None:
    _LEFT.discard(task)
    if not task.cancelled():
        task.exception()


@attrs.define
class Streak:
    """Counts failures in a row, so that a run that trains nothing stops."""

    most: int
    now: int = 0

    def failed(self, error: Exception) -> None:
        """One more.

        Raises:
            RuntimeError: Too many.
        """
        self.now += 1
        if self.now >= self.most:
            raise RuntimeError(
                f"{self.now} trees in a row failed, the last one with {type(error).__name__}: "
                f"{error}"
            ) from error

    def succeeded(self) -> None:
        """Begin again."""
        self.now = 0
