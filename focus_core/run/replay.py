"""Training from a recording: its batches in place of collecting, and which options that leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from focus_core.errors import DataError, RecordError, UsageError
from focus_core.policy import Policy
from focus_core.records import CriticRecord
from focus_core.run.recording import Recording
from focus_core.schedule.batches import BatchSource, CollectedBatch, converted
from focus_core.trainer import Trainer
from focus_core.utils.concurrency import doing, in_thread

__all__ = ["PlainRecord", "Replay", "check_replayed", "check_steps", "replayed"]

_COLLECTING = (
    "task",
    "problems",
    "strict",
    "skip_bad_rows",
    "async_depth",
    "problems_per_step",
    "order",
    "epochs",
    "search",
    "recipe",
    "deadline",
    "allow_partial",
    "failure_rate",
    "tries",
    "max_tokens",
    "min_abs_advantage",
    "record",
)
"""Options of collecting: what they would change is recorded already."""


def check_replayed(asked: Mapping[str, Any]) -> None:
    """Refuse options that a replay could only ignore.

    Raises:
        UsageError: There is one.
    """
    given = [f"--{name.replace('_', '-')}" for name in _COLLECTING if name in asked]
    given += [
        f"--set {section}.{name}"
        for section in ("task", "search", "recipe")
        for name in asked["settings"].get(section, ())
    ]
    if given:
        raise UsageError(
            f"{given[0]} says how to collect, and a replay trains on what was collected; "
            "leave it out"
        )


def replayed(recording: Recording, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a replay: the recorded run's, but for what is asked for.

    The recorded run's trainer, and with the same trainer its options, are the defaults, so that
    a replay without other options trains the same weights. Where it wrote, how often it evaluated
    and saved, and when it stopped are its own.

    Raises:
        UsageError: An option of collecting, or more batches than are recorded.
    """
    check_replayed(asked)
    was = recording.config
    trainer = asked.get("trainer", was.trainer)
    settings = {section: dict(options) for section, options in was.settings.items()}
    merge = was.merge
    if trainer != was.trainer:
        settings["trainer"], merge = {}, None
    settings["trainer"] = {**settings.get("trainer", {}), **asked["settings"].get("trainer", {})}
    kept = (
        *("task", "problems", "strict", "skip_bad_rows", "problems_per_step"),
        *("search", "recipe", "seed", "deadline"),
    )
    recorded = len(recording)
    if not recorded:
        raise UsageError(f"--replay {recording.path}: no batch is recorded there")
    config = {
        **{name: getattr(was, name) for name in kept},
        "trainer": trainer,
        "merge": merge,
        "steps": recorded,
        **asked,
        "settings": settings,
    }
    check_steps(recording, config["steps"], 0)
    return config


def check_steps(recording: Recording, steps: int, first: int) -> None:
    """Refuse to train more batches than are recorded from ``first`` on.

    Raises:
        UsageError: There are fewer.
    """
    left = len(recording) - first
    if steps > left:
        raise UsageError(
            f"--steps {steps}: {recording.path} holds {left} batches"
            f"{f' from batch {first} on' if first else ''}"
        )


@attrs.frozen
class PlainRecord:
    """A recorded record of a lane that is not the core's, in plain form."""

    plain: Mapping[str, Any]

    @property
    def metadata(self) -> dict[str, Any]:
        """As on other records."""
        metadata: dict[str, Any] = self.plain["metadata"]
        return metadata

    def to_dict(self) -> Mapping[str, Any]:
        """The plain form."""
        return self.plain


@attrs.frozen
class Replay(BatchSource):
    """Gives a recording's batches in place of collecting them.

    Attributes:
        recording: What was recorded.
        trainer: Converts the records.
        merge: Whether it is given one record per path instead of per edge.
    """

    recording: Recording
    trainer: Trainer
    merge: bool
    samples = False

    async def collect(
        self, index: int, policy: Policy | None, behavior_step: int
    ) -> CollectedBatch:
        """Read a batch and convert its trees."""
        with doing(f"replaying batch {index}"):
            return await in_thread(self._read, index)

    def _read(self, index: int) -> CollectedBatch:
        recorded = self.recording.read(index)
        trees = [converted(tree, self.trainer, merge=self.merge) for tree in recorded.trees]
        makers: Mapping[str, Any] = {CriticRecord.lane: CriticRecord.from_dict}
        try:
            others = {
                name: [makers.get(name, PlainRecord)(plain) for plain in records]
                for name, records in recorded.others.items()
            }
        except RecordError as error:
            raise DataError(
                str(error), path=self.recording.file(index), remedy="record the run again"
            ) from error
        return CollectedBatch(
            index=index,
            behavior_step=recorded.behavior_step,
            trees=trees,
            others=others,
            metrics={**recorded.metrics, "actor_records": sum(len(tree.actor) for tree in trees)},
        )
