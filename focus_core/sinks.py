"""Where records that no trainer consumes go."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["CriticSink", "JsonlDirectory", "atomic_file", "write_atomically"]

CriticSink = Callable[[Sequence[dict[str, Any]]], None]
"""A callable on a sequence of plain records."""


class JsonlDirectory:
    """Writes each call's records to its own JSONL file in a directory.

    A file appears whole or not at all, and no two calls share one, so concurrent collectors and
    worker processes never interleave or lose lines. No records, no file. Names sort by time.

    Args:
        directory: Made when the first file is written.
        label: Part of every file's name, so that one writer's files can be told from others'.
    """

    def __init__(self, directory: str | Path, *, label: str = "") -> None:
        self.directory = Path(directory)
        self.label = label

    def __call__(self, records: Sequence[dict[str, Any]]) -> None:
        """Write one file.

        Raises:
            ValueError: A record holds a number JSON has no form for; nothing is written.
            OSError: The directory cannot be written.
        """
        if not records:
            return
        lines = [json.dumps(record, allow_nan=False) for record in records]
        own = f"{os.getpid()}-{self.label}" if self.label else f"{os.getpid()}"
        name = f"{time.time_ns():020d}-{own}-{uuid.uuid4().hex[:8]}.jsonl"
        write_atomically(self.directory / name, "\n".join(lines) + "\n")

    def __repr__(self) -> str:
        """The constructor call."""
        return f"JsonlDirectory({str(self.directory)!r})"


def append_lines(path: Path, values: Sequence[Any]) -> None:
    """Add JSON lines to a file in one write.

    Raises:
        OSError: Not all of it could be written; a last line may be cut short.
    """
    text = "".join(json.dumps(value, allow_nan=False) + "\n" for value in values).encode()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        if os.write(handle, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(handle)


def write_atomically(path: Path, text: str) -> None:
    """Write a whole file, or leave what was there; text is ASCII-safe JSON or UTF-8."""
    with atomic_file(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file to write: it appears whole at the end, or what was there stays.

    A link stays one, and the file it leads to is replaced. A device or a pipe is no file to
    replace: it is written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not (path.is_file() or path.is_dir()):
        with path.open("wb") as stream:
            yield stream
        return
    whole = Path(os.path.realpath(path))
    temporary = whole.with_name(f".{whole.name}.{uuid.uuid4().hex[:8]}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(whole)
    except BaseException as error:
        error.add_note(f"while writing {path}")
        temporary.unlink(missing_ok=True)
        raise
