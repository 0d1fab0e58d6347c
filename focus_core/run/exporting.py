"""Saved actor records as any trainer's items: read, converted, and made lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from focus_core.errors import DataError, FocusError, PluginError, RecordError
from focus_core.lanes import split_merged
from focus_core.records import ActorRecord
from focus_core.run.directory import RunDirectory
from focus_core.run.recording import MANIFEST, Recording
from focus_core.utils.plain_json import exact

__all__ = ["SavedRecord", "item_lines", "saved_records"]


@attrs.frozen
class SavedRecord:
    """An actor record and where it was read.

    Attributes:
        place: File and number of the record, for messages.
        record: It.
    """

    place: str
    record: ActorRecord


def saved_records(directory: Path, *, merge: bool = False) -> Iterator[SavedRecord]:
    """The actor records of a recording, a run that was recorded, or what ``focus collect`` wrote.

    Args:
        directory: Of any of these.
        merge: One record per path, where they were saved so; by default one per edge.

    Raises:
        DataError: There are none, or a file cannot be read; names the file and line or record.
    """
    if (directory / "actor.jsonl").is_file():
        return _collected(directory / "actor.jsonl", merge)
    if (directory / MANIFEST).is_file():
        return _recorded(Recording.open(directory), merge)
    if (directory / "config.json").is_file():
        record = RunDirectory(directory).config()["record"]
        if record is None:
            raise DataError(
                "the run was not recorded", path=directory, remedy="record one with train --record"
            )
        return _recorded(Recording.open(Path(record)), merge)
    raise DataError(
        "holds no records",
        path=directory,
        remedy="give what focus train --record, or focus collect --output, wrote",
    )


def _recorded(recording: Recording, merge: bool) -> Iterator[SavedRecord]:
    for batch in range(len(recording)):
        trees = recording.read(batch).trees
        records = (r for tree in trees for r in (tree if merge else split_merged(tree)))
        for number, record in enumerate(records):
            yield SavedRecord(f"{recording.file(batch)}: record {number}", record)


def _collected(path: Path, merge: bool) -> Iterator[SavedRecord]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    record = ActorRecord.from_dict(json.loads(line))
                except (ValueError, AttributeError, RecursionError) as error:
                    raise DataError(
                        f"not an actor record: {error}",
                        path=path,
                        line=number,
                        remedy="restore the file, or collect again",
                    ) from error
                for one in [record] if merge else split_merged([record]):
                    yield SavedRecord(f"{path}:{number}", one)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path) from error


def item_lines(
    records: Iterator[SavedRecord], target: str, convert: Callable[[ActorRecord], Any]
) -> Iterator[str]:
    """Each record's item as one line of JSON.

    Raises:
        RecordError: The converter refuses a record; names it.
        PluginError: The converter failed, or its item has no JSON form.
    """
    for saved in records:
        try:
            item = convert(saved.record)
        except FocusError as error:
            raise RecordError(f"{saved.place}: {error}") from error
        except Exception as error:
            raise PluginError(
                f"{saved.place}: converter {target!r} failed: {type(error).__name__}: {error}"
            ) from error
        try:
            yield json.dumps(exact(item), allow_nan=False) + "\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise PluginError(
                f"{saved.place}: the item of converter {target!r} has no JSON form: {error}"
            ) from error
