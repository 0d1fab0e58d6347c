"""What learns: the trainer protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, runtime_checkable

from focus_core.policy import Policy
from focus_core.records import ActorRecord, Batch

__all__ = ["RunStatus", "Trainer"]

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
