"""Hugging Face data sets by id, through the ``datasets`` library."""

from __future__ import annotations

from focus_core.errors import DataError
from focus_core.sources.rows import Row

__all__ = ["PREFIX", "read_data_set"]

PREFIX = "hf:"
_FORM = "hf:OWNER/NAME[/CONFIG][@SPLIT], such as hf:openai/gsm8k/main@test"


def read_data_set(source: str) -> list[Row]:
    """The rows of ``hf:NAME[/CONFIG][@SPLIT]``; see ``read_rows``.

    Raises:
        DataError: ``datasets`` is not installed, or cannot load it; its own words are in the
            message.
    """
    name, config, split = _parsed(source)
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            "is a Hugging Face data set, and the datasets library is not installed",
            path=source,
            remedy="pip install 'focus-core[datasets]'",
        ) from error
    try:
        rows = [dict(row) for row in datasets.load_dataset(name, config, split=split)]
    except Exception as error:  # of whatever library the data set's host and format take
        said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        remedy = "check its name, configuration and split, and the network"
        raise DataError(f"cannot be loaded: {said}", path=source, remedy=remedy) from error
    if not rows:
        raise DataError("is empty", path=source, remedy="name another split")
    stem = f"{name.rstrip('/').rpartition('/')[2]}-{split}"
    return [Row(source, i, row, f"{stem}-{i}", True) for i, row in enumerate(rows, start=1)]


def _parsed(source: str) -> tuple[str, str | None, str]:
    """Name, configuration and split."""
    whole, at, split = source.removeprefix(PREFIX).partition("@")
    is_path = whole.startswith(("/", "./", "../"))
    parts = [whole] if is_path else whole.split("/", 2)
    if not all(parts) or (at and not split):
        raise DataError("names no data set", path=source, remedy=f"write {_FORM}")
    return "/".join(parts[:2]), parts[2] if len(parts) > 2 else None, split or "train"
