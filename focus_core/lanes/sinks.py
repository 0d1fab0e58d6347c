"""Where records that no trainer consumes go."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from focus_core.utils.files import write_atomically

__all__ = ["CriticSink", "JsonlDirectory"]

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
