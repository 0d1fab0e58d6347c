"""A recorded run: a directory that holds every batch its trainer was handed.

::

    recording.json      schema, id, the run's configuration, versions
    batch-000000.npz    one file per batch, written whole right before its update

A run that ends in the middle of an update leaves that batch as the last one: it was handed over,
and may not have been trained. A replay trains every batch; ``--steps`` trains fewer.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import TracebackType

import attrs
import numpy as np

from focus_core.errors import DataError, UsageError
from focus_core.run.batch_file import RecordedBatch, read_batch, write_batch
from focus_core.run.config import RunConfig
from focus_core.schedule.batches import CollectedBatch
from focus_core.utils.files import torn, write_atomically
from focus_core.utils.lock import hold

__all__ = ["Recorder", "Recording"]

SCHEMA = 1
MANIFEST = "recording.json"


@attrs.frozen
class Recording:
    """What was recorded, to read.

    Attributes:
        path: The directory.
        id: Unique to the run that recorded it.
        config: What that run was asked for.
        versions: Of what ran it, by name.
    """

    path: Path
    id: str
    config: RunConfig
    versions: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def open(cls, path: Path) -> Recording:
        """Read the manifest.

        Raises:
            DataError: There is no recording, or of another schema, or one this version cannot use.
        """
        file = path / MANIFEST
        remedy = "give a directory that focus train --record wrote"
        try:
            manifest = json.loads(file.read_bytes())
            if manifest["schema"] != SCHEMA:
                raise DataError(
                    f"is {manifest['schema']!r}; this version reads {SCHEMA}",
                    path=file,
                    field="schema",
                    remedy="use the version that recorded it",
                )
            config = RunConfig(**manifest["config"])
            return cls(path, str(manifest["id"]), config, dict(manifest["versions"]))
        except (FileNotFoundError, NotADirectoryError):
            raise DataError("no such file", path=file, remedy=remedy) from None
        except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"not a recording: {error}", path=file, remedy=remedy) from error

    def file(self, batch: int) -> Path:
        """Where a batch is."""
        return self.path / f"batch-{batch:06d}.npz"

    def __len__(self) -> int:
        """Number of batches.

        Raises:
            DataError: One before the last is missing.
        """
        names = {path.name for path in self.path.glob("batch-*.npz")}
        for batch in range(len(names)):
            if self.file(batch).name not in names:
                raise DataError(
                    "this batch is missing, others are there",
                    path=self.file(batch),
                    remedy="restore the file, or record the run again",
                )
        return len(names)

    def read(self, batch: int) -> RecordedBatch:
        """One batch; errors as in ``read_batch``."""
        return read_batch(self.file(batch), batch=batch, recording=self.id)


@attrs.define(eq=False)
class Recorder:
    """A recording to add to, which no other process can until ``with`` has closed it.

    Attributes:
        recording: What is there so far.
        dropped: Names of the files that a resumed run makes again.
    """

    recording: Recording
    _lock: int = attrs.field(repr=False)
    dropped: list[str] = attrs.field(factory=list)

    @classmethod
    def create(cls, path: Path, config: RunConfig, versions: Mapping[str, str]) -> Recorder:
        """Begin a recording.

        Raises:
            UsageError: The directory holds one, or cannot be written.
        """
        lock = _locked(path)
        try:
            if any(path.glob("batch-*.npz")):
                raise UsageError(
                    f"--record {path} holds another run's recording; name another directory"
                )
            versions = {
                "focus-core": version("focus-core"),
                "python": platform.python_version(),
                "numpy": np.__version__,
                **versions,
            }
            config = attrs.evolve(config, record=None)
            recording = Recording(path, config.run_id, config, versions)
            manifest = {
                "schema": SCHEMA,
                "id": recording.id,
                "config": attrs.asdict(config),
                "versions": versions,
            }
            try:
                write_atomically(path / MANIFEST, json.dumps(manifest, indent=2) + "\n")
            except OSError as error:
                raise UsageError(f"--record {path} cannot be written: {error.strerror}") from error
        except BaseException:
            os.close(lock)
            raise
        return cls(recording, lock)

    @classmethod
    def resume(cls, path: Path, recording_id: str | None, batch: int) -> Recorder:
        """Go on with a run's recording, from a batch on; what it had from there on is dropped.

        Raises:
            UsageError: It is another run's.
            DataError: It cannot be read, or lacks a batch before that one.
        """
        recording = Recording.open(path)
        lock = _locked(path)
        try:
            if recording.id != recording_id:
                raise UsageError(f"--record {path} holds another run's recording")
            if len(recording) < batch:
                raise DataError(
                    f"{len(recording)} batches are recorded, and the checkpoint is at {batch}",
                    path=path,
                    remedy="restore the files, or start another run",
                )
            late = [recording.file(index) for index in range(batch, len(recording))]
            late += torn(path, "*")
            for file in reversed(late):  # so that an interruption leaves no gap
                file.unlink()
        except BaseException:
            os.close(lock)
            raise
        return cls(recording, lock, [file.name for file in late])

    def __call__(self, batch: CollectedBatch, learner_step: int) -> None:
        """Write one batch; errors as in ``write_batch``."""
        path = self.recording.file(batch.index)
        write_batch(path, batch, learner_step=learner_step, recording=self.recording.id)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._lock)


def _locked(path: Path) -> int:
    """Hold a directory, made if need be, until its descriptor is closed or the process ends."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        return hold(path)
    except BlockingIOError as error:
        raise UsageError(f"--record {path}: another run is recording into it") from error
    except OSError as error:
        raise UsageError(f"--record {path} cannot be written: {error.strerror}") from error
