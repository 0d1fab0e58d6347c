"""A run's directory: configuration, reports, records, checkpoints, and where to resume.

::

    config.json         what the run was asked for
    metrics.jsonl       one step report a line
    evaluations.jsonl   one evaluation a line
    critic-targets/     critic records, one file per batch
    lanes/NAME/         records of the plug-ins' lanes, one file per batch
    checkpoints/        what the trainer saved
    set-aside.jsonl     one problem a line that the run goes on without
    state.json          the newest checkpoint, null before the first, and the progress it holds;
                        replaced atomically
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import attrs

from focus_core.errors import DataError, UsageError
from focus_core.lanes.sinks import JsonlDirectory
from focus_core.records import StepReport
from focus_core.run.checkpoints import drop_after, drop_old
from focus_core.run.config import RunConfig
from focus_core.schedule.aside import SetAside
from focus_core.schedule.progress import Progress
from focus_core.utils.files import append_lines, torn, write_atomically
from focus_core.utils.lock import hold
from focus_core.utils.plain_json import to_json

__all__ = ["RunDirectory", "to_json", "writable_directory"]

_MADE = ("metrics.jsonl", "evaluations.jsonl", "set-aside.jsonl")


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    """A line that this run wrote."""
    with contextlib.suppress(ValueError):
        value = json.loads(line)
        if isinstance(value, dict):
            return value
    raise DataError(
        "cannot be read", path=path, line=number, remedy="mend or remove it, then resume again"
    )


def _number(value: Mapping[str, Any], key: str) -> float:
    """A line's number; one that has none is older than any checkpoint."""
    found = value.get(key)
    return found if isinstance(found, int | float) else -math.inf


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
            UsageError: It holds a run that made a step already, or cannot be written.
        """
        directory = cls(path)
        try:
            if directory._has_begun():
                raise UsageError(
                    f"{path} holds a run already; use --resume {path}, or another name"
                )
            directory._write(
                "state.json",
                {"progress": attrs.asdict(Progress()), "reference": None, "inside": False},
            )
            directory._write("config.json", attrs.asdict(config))  # last: with it there is a run
        except OSError as error:
            raise UsageError(f"--run-dir {path} cannot be written: {error.strerror}") from error
        return directory

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run's directory.

        Raises:
            DataError: There is no run in it, or it is damaged.
        """
        directory = cls(path)
        directory.config()
        directory.state()
        return directory

    def config(self) -> dict[str, Any]:
        """What the run was asked for."""
        remedy = "give the directory of a run that focus train made"
        saved = self._read("config.json", remedy, "restore the file, or start another run")
        try:
            return attrs.asdict(RunConfig(**saved))
        except (TypeError, ValueError) as error:
            message = f"not a run's configuration: {error}"
            raise DataError(message, path=self.path / "config.json", remedy=remedy) from error

    def state(self) -> tuple[Progress, str | None]:
        """The newest checkpoint's progress and reference; ``None``: there is none yet."""
        state = self._read(
            "state.json",
            "restore the file, or start another run",
            "restore the file; it names one of the run's checkpoints",
        )
        try:
            progress, reference = Progress(**state["progress"]), state["reference"]
            if reference is None and progress == Progress():
                return progress, None
            if not isinstance(reference, str):
                raise ValueError(f"reference is {reference!r:.80}; it must be text")
            return progress, str(self.path / reference) if state.get("inside") else reference
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"not a run's state: {error}",
                path=self.path / "state.json",
                remedy="restore the file, or start the run again",
            ) from error

    def _has_begun(self) -> bool:
        """Whether a run made anything here, or may have: its state cannot be read."""
        if any((self.path / name).exists() for name in _MADE):
            return True
        try:
            return (self.path / "state.json").exists() and self.state()[1] is not None
        except DataError:
            return True

    def saved_batches(self) -> int:
        """Batches that the newest checkpoint holds; 0 without one."""
        return self.state()[0].batch if (self.path / "state.json").exists() else 0

    def reported_batches(self) -> int:
        """Batches that were trained on or skipped, saved or not."""
        path = self.path / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def configure(self, config: RunConfig) -> None:
        """Record what a resumed run is asked for from now on."""
        self._write("config.json", attrs.asdict(config))

    def saved(self, reference: str, progress: Progress, *, keep: int | None = None) -> None:
        """Record a checkpoint; from now on a resume starts there, wherever the run is moved.

        Args:
            reference: What the trainer calls it.
            progress: What it holds.
            keep: How many of those in ``checkpoints`` stay, with this one; ``None``: all.
        """
        path, here = Path(reference), self.path.resolve()
        inside = path.is_absolute() and path.is_relative_to(here)
        self._write(
            "state.json",
            {
                "progress": attrs.asdict(progress),
                "reference": str(path.relative_to(here)) if inside else reference,
                "inside": inside,
            },
        )
        drop_old(self.checkpoints, progress.learner_step, keep)

    def rewind(self) -> list[str]:
        """Drop what was made after the newest checkpoint: a resumed run makes it again.

        A last line that was cut short by a crash goes too, and so do files that were.

        Returns:
            Names of the files that changed or went.

        Raises:
            DataError: Another line cannot be read.
        """
        progress, reference = self.state()
        changed = drop_after(self.checkpoints, -1 if reference is None else progress.learner_step)
        for name, key, end in (
            ("metrics.jsonl", "batch", progress.batch),
            ("evaluations.jsonl", "learner_step", progress.learner_step),
        ):
            path = self.path / name
            if path.exists() and self._keep_below(path, key, end):
                changed.append(name)
        pattern = f"*-{self.config()['run_id']}-*.jsonl"
        cut = torn(self.path, "*.json") + torn(self.path, "*.jsonl")
        for folder in (self.critic_targets, *self.lanes.glob("*")):
            cut += torn(folder, pattern)
        for path in cut:
            path.unlink()
            changed.append(path.name)
        for path in sorted((*self.critic_targets.glob(pattern), *self.lanes.glob(f"*/{pattern}"))):
            with path.open(encoding="utf-8") as file:
                record = _parsed(path, 1, file.readline())
            if _number(record.get("metadata", {}).get("training", {}), "batch") >= progress.batch:
                path.unlink()
                changed.append(path.name)
        return changed

    @staticmethod
    def _keep_below(path: Path, key: str, end: int) -> bool:
        """Keep a file's lines whose number is below ``end``; whether any went."""
        text = path.read_text(encoding="utf-8", errors="replace")
        whole, _, torn = text.rpartition("\n")
        lines = whole.splitlines()
        kept = [
            line
            for number, line in enumerate(lines, start=1)
            if _number(_parsed(path, number, line), key) < end
        ]
        if len(kept) == len(lines) and not torn:
            return False
        write_atomically(path, "".join(line + "\n" for line in kept))
        return True

    def report(self, report: StepReport) -> None:
        """Append a step report."""
        self._append("metrics.jsonl", asdict(report))

    def evaluation(self, learner_step: int, metrics: Mapping[str, Any]) -> None:
        """Append an evaluation."""
        self._append("evaluations.jsonl", {"learner_step": learner_step, **metrics})

    def set_aside(self) -> list[SetAside]:
        """The problems that the run goes on without; a last line that was cut short is none.

        Raises:
            DataError: Another line cannot be read.
        """
        path = self.path / "set-aside.jsonl"
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8", errors="replace").rpartition("\n")[0].splitlines()
        found = [_parsed(path, number, line) for number, line in enumerate(lines, start=1)]
        return [
            SetAside(str(one.get("problem")), one.get("tries", 0), str(one.get("why", "")))
            for one in found
        ]

    def keep_aside(self, one: SetAside) -> None:
        """Record one more."""
        self._append("set-aside.jsonl", attrs.asdict(one))

    @property
    def checkpoints(self) -> Path:
        """Where a trainer saves that saves here."""
        return self.path / "checkpoints"

    @property
    def critic_targets(self) -> Path:
        """Where critic records go."""
        return Path(self.config()["critic_output"] or self.path / "critic-targets")

    def critic_sink(self) -> JsonlDirectory:
        """Takes critic records; its files carry the run's id."""
        return JsonlDirectory(self.critic_targets, label=self.config()["run_id"])

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing to this run meanwhile; the directory is made.

        What the files say is certain only under the lock: read and write them in it.

        Raises:
            UsageError: One does already, or it cannot be made.
        """
        try:
            new = not self.path.exists()
            if not new and not self.path.is_dir():
                raise UsageError(f"--run-dir {self.path} is a file; name a directory")
            self.path.mkdir(parents=True, exist_ok=True)
            handle = hold(self.path)
        except BlockingIOError:
            raise UsageError(
                f"{self.path} is being written by another process; wait for it, or use another "
                "--run-dir"
            ) from None
        except OSError as error:
            raise UsageError(
                f"--run-dir {self.path} cannot be written: {error.strerror}"
            ) from error
        try:
            yield
        finally:
            if new:
                with contextlib.suppress(OSError):  # not empty: something was made
                    self.path.rmdir()
            os.close(handle)

    @property
    def lanes(self) -> Path:
        """Where records of the plug-ins' lanes go, a directory each."""
        return self.path / "lanes"

    def lane_sink(self, name: str) -> JsonlDirectory:
        """Takes the records of a plug-in's lane; its files carry the run's id."""
        return JsonlDirectory(self.lanes / name, label=self.config()["run_id"])

    def _append(self, name: str, value: Mapping[str, Any]) -> None:
        append_lines(self.path / name, [to_json(value)])

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        write_atomically(self.path / name, json.dumps(value, indent=2) + "\n")

    def _read(self, name: str, missing: str, damaged: str) -> dict[str, Any]:
        path = self.path / name
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError("no such file", path=path, remedy=missing) from None
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            raise DataError(message, path=path, remedy=missing) from error
        except ValueError as error:
            raise DataError(f"is damaged: {error}", path=path, remedy=damaged) from error
        if not isinstance(value, dict):
            raise DataError("not a JSON object", path=path, remedy=damaged)
        return value


def writable_directory(path: Path, option: str) -> Path:
    """A directory for output, made now.

    Raises:
        UsageError: It cannot be.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; name another directory") from error
    if not os.access(path, os.W_OK):
        raise UsageError(f"{option} {path} cannot be written; name another directory")
    return path
