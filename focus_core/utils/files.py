"""Files that are written whole, or lines that are added whole."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["append_lines", "atomic_file", "torn", "write_atomically"]


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


def torn(directory: Path, pattern: str) -> list[Path]:
    """What ``atomic_file`` had not finished when its process was killed, of files by a pattern.

    One that is being written now looks the same: ask only who alone writes there.
    """
    found = directory.glob(f".{pattern}.{'[0-9a-f]' * 8}")
    return sorted(path for path in found if path.is_file())
