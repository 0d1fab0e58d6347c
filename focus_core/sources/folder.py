"""A folder of data files: subjects of one-object files, or shards."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

from focus_core.errors import DataError
from focus_core.sources.file import SUFFIXES, read_file, stem
from focus_core.sources.rows import DataWarning, Row

__all__ = ["read_folder"]


def read_folder(folder: Path) -> list[Row]:
    """The rows of all data files below a folder, in natural order of their paths.

    If each file has one row, its path without suffix is the row's id (``algebra/1``), else that
    and the row's position (``part-0-1``); either way ids differ.

    Raises:
        DataError: There are none, or something is wrong with any of them.

    Warns:
        DataWarning: Some are empty.
    """
    found: list[tuple[Path, list[tuple[int, Any]], bool]] = []
    errors: list[DataError] = []
    empty: list[Path] = []
    for path in _data_files(folder):
        values, wrong, typed = read_file(path)
        errors += wrong
        if values:
            found.append((path, values, typed))
        elif not wrong:
            empty.append(path)
    if errors:
        raise DataError.of(errors)
    if not found:
        kinds = ", ".join(SUFFIXES)
        message = "holds only empty files" if empty else f"holds no {kinds} files"
        raise DataError(message, path=folder, remedy="name a file, or another folder")
    if empty:
        more = f" and {len(empty) - 10} more" if len(empty) > 10 else ""
        shown = ", ".join(str(path) for path in empty[:10])
        warnings.warn(f"empty files, left out: {shown}{more}", DataWarning, stacklevel=3)
    stems = [path.relative_to(folder).with_name(stem(path.name)).as_posix() for path, *_ in found]
    if len(set(stems)) < len(stems):  # a.json beside a.jsonl
        stems = [path.relative_to(folder).as_posix() for path, *_ in found]
    alone = all(len(values) == 1 for _, values, _ in found)
    return [
        Row(path, line, value, name if alone else f"{name}-{position}", typed)
        for name, (path, values, typed) in zip(stems, found, strict=True)
        for position, (line, value) in enumerate(values, start=1)
    ]


def _data_files(folder: Path) -> list[Path]:
    """Data files below a folder, links to folders followed, each folder once."""

    def refuse(error: OSError) -> None:
        raise DataError(f"cannot be read: {error.strerror}", path=error.filename) from error

    found: list[Path] = []
    seen: set[str] = set()
    for here, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        found += [
            Path(here, name)
            for name in files
            if not name.startswith(".") and name.lower().removesuffix(".gz").endswith(SUFFIXES)
        ]
    return sorted(found, key=lambda path: _natural(path.relative_to(folder)))


def _natural(path: Path) -> tuple[list[list[str | int]], str]:
    """Numbers in names by size; the text itself between equals such as 1 and 01."""
    parts = [
        [int(piece) if i % 2 else piece for i, piece in enumerate(re.split(r"([0-9]+)", part))]
        for part in path.parts
    ]
    return parts, path.as_posix()
