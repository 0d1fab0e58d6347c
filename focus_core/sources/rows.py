"""One row of a source, and errors that name it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from focus_core.errors import DataError

__all__ = ["DataWarning", "Row"]

_NAMES = {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "an array"}


class DataWarning(UserWarning):
    """Data that can be used, but is probably not as it was meant."""


@attrs.frozen
class Row:
    """One row of a source.

    Attributes:
        path: The file, or the data set's id.
        line: Where the row starts, from 1: the line of a text, else the number of the row.
        value: The row as read: JSON types, or what Parquet and Arrow hold.
        id: Names the row within its source: ``train-7``, or ``algebra/7`` in a folder of files
            of one object.
        typed: Its values have the types of Parquet or a data set: there are no quotes to put and
            no backslashes to double.
    """

    path: str | Path
    line: int
    value: Any
    id: str
    typed: bool = attrs.field(default=False, eq=False)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The keys and values of a row that is an object.

        Raises:
            DataError: It is none.
        """
        if isinstance(self.value, dict):
            return self.value
        kind = "null" if self.value is None else _NAMES.get(type(self.value), "no object")
        raise self.wrong(f"is {kind}, not an object", remedy='write {"field": value, ...}')

    def wrong(self, message: str, *, field: str | None = None, remedy: str) -> DataError:
        """An error that names this row; several are raised as one with ``DataError.of``."""
        return DataError(message, path=self.path, line=self.line, field=field, remedy=remedy)
