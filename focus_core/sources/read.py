"""Reading a source, whatever it is."""

from __future__ import annotations

from pathlib import Path

from focus_core.errors import DataError
from focus_core.sources.file import read_file, stem
from focus_core.sources.folder import read_folder
from focus_core.sources.hub import PREFIX, read_data_set
from focus_core.sources.rows import Row

__all__ = ["read_rows"]


def read_rows(source: str | Path) -> list[Row]:
    """Read all rows of a source, or none.

    What a file is, its content says, not its suffix: JSON (an object, an array, or objects line
    after line), Parquet (needs ``focus-core[parquet]``), or one of them in gzip.

    Args:
        source: A file; a folder, of which every ``.json``, ``.jsonl``, ``.ndjson`` and
            ``.parquet`` (also with ``.gz``) is read, in natural order (``algebra/2`` before
            ``algebra/10``), hidden files left out; or ``hf:NAME[/CONFIG][@SPLIT]``, a Hugging
            Face data set (needs ``focus-core[datasets]``). NAME is ``owner/name``, or a path that
            starts with ``/``, ``./`` or ``../``; SPLIT is ``train`` unless given.

    Returns:
        At least one row, in the source's order, with ids that differ.

    Raises:
        DataError: The source does not exist, is empty or cannot be read; names every bad line.

    Warns:
        DataWarning: A file of a folder is empty.
    """
    if isinstance(source, str) and source.startswith(PREFIX):
        return read_data_set(source)
    path = Path(source)
    if path.is_dir():
        return read_folder(path)
    values, errors, typed = read_file(path)
    if errors:
        raise DataError.of(errors)
    if not values:
        raise DataError("is empty", path=path, remedy="give at least one record")
    name = stem(path.name)
    rows = enumerate(values, start=1)
    return [Row(path, line, value, f"{name}-{i}", typed) for i, (line, value) in rows]
