"""A run's directory: configuration, reports, records, checkpoints, and where to resume.

::

    config.json         what the run was asked for
    metrics.jsonl       one step report a line
    evaluations.jsonl   one evaluation a line
    critic-targets/     critic records, one file per batch
    lanes/NAME/         records of the plug-ins' lanes, one file per batch
    checkpoints/        what the trainer saved
    state.json          the newest checkpoint and the progress it holds; replaced atomically
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from focus_core.errors import DataError, UsageError
from focus_core.progress import Progress
from focus_core.records import StepReport
from focus_core.run.config import RunConfig
from focus_core.sinks import write_atomically

__all__ = ["RunDirectory", "to_json"]

_MADE = ("metrics.jsonl", "evaluations.jsonl", "state.json")


def to_json(value: Any) -> Any:
    """JSON types only: numpy becomes numbers and lists, and what is not finite ``null``."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _batch(value: Mapping[str, Any]) -> int:
    return int(value["batch"])


@attrs.frozen
class RunDirectory:
    """The files of one run.

    Args:
        path: The directory.
    """

    path: Path

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> RunDirectory:
        """Make a new run's directory.

        Raises:
            UsageError: It holds a run that made a step already, or is a file.
        """
        directory = cls(path)
        try:
            if path.exists() and not path.is_dir():
                raise UsageError(f"--run-dir {path} is a file; name a directory")
            if any((path / name).exists() for name in _MADE):
                raise UsageError(
                    f"{path} holds a run already; use --resume {path}, or another name"
                )
            directory._write("config.json", attrs.asdict(config))
        except OSError as error:
            raise UsageError(f"--run-dir {path} cannot be written: {error.strerror}") from error
        return directory

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run's directory.

        Raises:
            DataError: There is no run in it, or its last checkpoint is missing.
        """
        directory = cls(path)
        directory.config()
        directory.state()
        return directory

    def config(self) -> dict[str, Any]:
        """What the run was asked for."""
        remedy = "give the directory of a run that focus train made"
        saved = self._read("config.json", remedy)
        try:
            return attrs.asdict(RunConfig(**saved))
        except TypeError as error:
            message = f"not a run's configuration: {error}"
            raise DataError(message, path=self.path / "config.json", remedy=remedy) from error

    def state(self) -> tuple[Progress, str]:
        """The newest checkpoint's progress and reference."""
        state = self._read("state.json", "the run has no checkpoint; start another")
        try:
            return Progress(**state["progress"]), str(state["reference"])
        except (KeyError, TypeError) as error:
            raise DataError(
                f"not a run's state: {error}",
                path=self.path / "state.json",
                remedy="restore the file, or start the run again",
            ) from error

    def saved(self, reference: str, progress: Progress) -> None:
        """Record a checkpoint; from now on a resume starts there."""
        self._write("state.json", {"progress": attrs.asdict(progress), "reference": reference})

    def rewind(self) -> list[str]:
        """Drop what was made after the newest checkpoint: a resumed run makes it again.

        Returns:
            Names of the files that changed or went.
        """
        progress, _ = self.state()
        changed = []
        path = self.path / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [line for line in lines if _batch(json.loads(line)) < progress.batch]
        if len(kept) < len(lines):
            write_atomically(path, "".join(line + "\n" for line in kept))
            changed.append(path.name)
        records = [*self.critic_targets.glob("*.jsonl"), *self.lanes.glob("*/*.jsonl")]
        for path in sorted(records):
            with path.open(encoding="utf-8") as file:
                record = json.loads(file.readline())
            if _batch(record["metadata"]["training"]) >= progress.batch:
                path.unlink()
                changed.append(path.name)
        return changed

    def report(self, report: StepReport) -> None:
        """Append a step report."""
        self._append("metrics.jsonl", asdict(report))

    def evaluation(self, learner_step: int, metrics: Mapping[str, Any]) -> None:
        """Append an evaluation."""
        self._append("evaluations.jsonl", {"learner_step": learner_step, **metrics})

    @property
    def checkpoints(self) -> Path:
        """Where the trainer saves."""
        return self.path / "checkpoints"

    @property
    def critic_targets(self) -> Path:
        """Where critic records go unless told otherwise."""
        return self.path / "critic-targets"

    @property
    def lanes(self) -> Path:
        """Where records of the plug-ins' lanes go, a directory each."""
        return self.path / "lanes"

    def _append(self, name: str, value: Mapping[str, Any]) -> None:
        line = json.dumps(to_json(value), allow_nan=False) + "\n"
        handle = os.open(self.path / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        write_atomically(self.path / name, json.dumps(value, indent=2) + "\n")

    def _read(self, name: str, remedy: str) -> dict[str, Any]:
        path = self.path / name
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError("no such file", path=path, remedy=remedy) from None
        except (OSError, ValueError) as error:
            raise DataError(f"cannot be read: {error}", path=path, remedy=remedy) from error
        if not isinstance(value, dict):
            raise DataError("not a JSON object", path=path, remedy=remedy)
        return value
