"""One file: JSON, Parquet, or either in gzip, told apart by content."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

from focus_core.errors import DataError
from focus_core.sources.text import read_text

__all__ = ["SUFFIXES", "read_file", "stem"]

SUFFIXES = (".json", ".jsonl", ".ndjson", ".parquet")
"""Of the files that a folder is read for, ``.gz`` after them or not."""


def stem(name: str) -> str:
    """A file's name without the suffixes that say its format."""
    name = name.removesuffix(".gz")
    return name[: -len(Path(name).suffix)] if Path(name).suffix else name


def read_file(path: Path) -> tuple[list[tuple[int, Any]], list[DataError], bool]:
    """The values of a file with their lines (or row numbers), and all that is wrong with it.

    An empty file has no values and no errors. The last is whether it is ``typed``; see ``Row``.
    """
    try:
        content = _content(path)
        if content.startswith(b"PAR1"):
            return list(enumerate(_parquet(path, content), start=1)), [], True
    except DataError as error:
        return [], [error], False
    return *read_text(path, content), False


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except FileNotFoundError:
        raise DataError("does not exist", path=path, remedy="check the path") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"is not a whole gzip file: {error}", path=path, remedy="fetch it again"
        ) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path) from error
    return content


def _parquet(path: Path, content: bytes) -> list[Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(
            "is a Parquet file, and pyarrow is not installed",
            path=path,
            remedy="pip install 'focus-core[parquet]'",
        ) from error
    try:
        table = parquet.ParquetFile(pyarrow.BufferReader(content)).read()
    except (pyarrow.ArrowException, OSError) as error:
        message = f"is not a whole Parquet file: {str(error).splitlines()[0]}"
        raise DataError(message, path=path, remedy="fetch it again") from error
    names = table.column_names
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise DataError(
            f"has two columns {repeated!r}", path=path, remedy="rename or drop one of them"
        )
    columns: list[list[Any]] = []
    for column_name, column in zip(names, table.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except Exception as error:  # a time Python has no form for, bytes that are no UTF-8
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(
                f"holds a value that cannot be read: {said}",
                path=path,
                field=column_name,
                remedy="mend or drop the column",
            ) from error
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
