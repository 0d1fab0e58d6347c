"""What learns: the trainer protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, runtime_checkable

import attrs

from focus_core.policy import Policy
from focus_core.records import ActorRecord, Batch, Problem

__all__ = ["LaunchPlan", "OwnLoop", "RunStatus", "Trainer"]

RunStatus = Literal["success", "errored", "interrupted"]


@runtime_checkable
class Trainer(Protocol):
    """What learns. An async context manager: entering loads the model, leaving frees it.

    The scheduler calls ``update`` and ``publish_policy`` one at a time and never concurrently,
    while policies published earlier keep sampling. ``convert`` runs in a worker thread while
    collection goes on. A cancelled ``update`` has either happened whole or not at all by the
    time the cancellation leaves it, as far as the trainer can know.

    Optional attribute: ``capabilities``, a set of flags. ``"merges-spans"``: its losses are sums
    over tokens, so it is given one record per path instead of one per edge. Optional method:
    ``summary() -> str | None``, what ``focus train`` prints at the end of a run.
    """

    async def __aenter__(self) -> Trainer:
        """Load the model, or connect."""
        ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Free everything; calls ``close`` if the run has not."""
        ...

    async def publish_policy(self) -> Policy:
        """A frozen snapshot of the current weights, to sample from."""
        ...

    def convert(self, records: Sequence[ActorRecord]) -> Sequence[Any]:
        """The trainer's own items of one tree's records (native form); pure, thread-safe.

        Raises:
            RecordError: A record this trainer's loss cannot train on.
        """
        ...

    async def update(self, batch: Batch) -> Mapping[str, float]:
        """One optimizer step on ``batch.items``; returns when the new weights are in place.

        The metrics carry what the trainer can give of ``loss``, ``ratio_mean``,
        ``clip_fraction`` and ``logprob_gap`` (mean absolute difference between the learner's and
        the behaviour log probabilities, in nats).

        Raises:
            OffPolicyError: ``batch.on_policy``, and the ratio is not 1 within the trainer's
                tolerance.
            TrainerError: The update failed.
        """
        ...

    async def save_state(self, name: str) -> str:
        """Save weights and optimizer; returns the reference that resumes from it."""
        ...

    async def close(self, status: RunStatus) -> None:
        """End the session, saying how it ended. Safe to call twice."""
        ...


@attrs.frozen(kw_only=True)
class LaunchPlan:
    """What ``focus train`` was asked for, looked up and checked, for a trainer's own loop.

    Attributes:
        config: Every option by name, as in ``RunStarted.config``; ``steps`` are counted.
        directory: Where to keep files; it exists, and is empty.
        problems: Those to train on, in order.
        problems_per_step: Trees per update.
        eval_problems: Those held out; empty unless the run evaluates.
    """

    config: Mapping[str, Any]
    directory: Path
    problems: Sequence[Problem]
    problems_per_step: int
    eval_problems: Sequence[Problem] = ()


@runtime_checkable
class OwnLoop(Protocol):
    """A trainer that runs its own loop, and asks for collections itself; capability ``own-loop``.

    ``focus train`` looks up the task, the problems and every option, and leaves the rest to it:
    there are no run hooks, no reports and no checkpoints of FOCUS.
    """

    def launch(self, plan: LaunchPlan) -> int:
        """Train, and return the exit code. Called in the main thread; no event loop runs.

        Raises:
            UsageError: An option that this loop has no way to follow.
        """
        ...
