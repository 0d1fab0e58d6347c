"""JSON files of records, whatever their shape: one object, an array, or objects line after line.

The shape is told by the content, not by the suffix. Nothing is ever loaded in part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from focus_core import DataError

__all__ = ["Record", "complain", "read_records"]

MOST_COMPLAINTS = 10
"""Complaints that one error spells out; of the others it gives the number."""

_NAMES = {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "an array"}
_BLANK = re.compile(r"[ \t\r\n]*")


@attrs.frozen
class Record:
    """One row of a file.

    Attributes:
        path: The file.
        line: Where the row starts, from 1.
        value: The row as read.
    """

    path: str | Path
    line: int
    value: Any

    @property
    def fields(self) -> Mapping[str, Any]:
        """The keys and values of a row that is an object.

        Raises:
            DataError: It is none.
        """
        if isinstance(self.value, dict):
            return self.value
        kind = "null" if self.value is None else _NAMES.get(type(self.value), "no object")
        raise self.wrong(f"is {kind}, not an object", remedy='write {"problem": ..., ...}')

    def wrong(self, message: str, *, field: str | None = None, remedy: str) -> DataError:
        """An error that names this row."""
        return DataError(message, path=self.path, line=self.line, field=field, remedy=remedy)


@attrs.frozen
class _NotJsonError(Exception):
    """Where and why a text is not JSON."""

    line: int
    message: str
    remedy: str


def read_records(path: str | Path) -> list[Record]:
    """Read all the records of a file.

    Raises:
        DataError: It does not exist, is no text file in UTF-8, is empty, is not JSON, or
            repeats a key. All bad lines are named.
    """
    text = _text(Path(path))
    try:
        rows = list(_rows(text))
    except _NotJsonError as error:
        complain(path, [_as_data_error(path, error), *_bad_lines(path, text, error.line)])
        raise AssertionError from error  # complain raises
    return [Record(path, line, row) for line, row in rows]


def complain(path: str | Path, errors: Sequence[DataError]) -> None:
    """Raise one error for all of a file's, in order of lines; none for none.

    Raises:
        DataError: The first one's place, message and remedy, then the other ones' lines.
    """
    if not errors:
        return
    first, *others = sorted(errors, key=lambda error: error.line or 0)
    if not others:
        raise first
    also = ", ".join(
        f"line {error.line} ({f'field {error.field!r} ' if error.field else ''}{error.message})"
        for error in others[: MOST_COMPLAINTS - 1]
    )
    left = len(errors) - MOST_COMPLAINTS
    raise DataError(
        f"{first.message}; also {also}" + (f", and {left} more" if left > 0 else ""),
        path=path,
        line=first.line,
        field=first.field,
        remedy=first.remedy,
    )


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError("does not exist", path=path, remedy="check the path") from None
    except IsADirectoryError:
        raise DataError("is a directory", path=path, remedy="name a file") from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"is not UTF-8 (byte 0x{content[error.start]:02x})",
            path=path, line=line, remedy="save the file as UTF-8",
        ) from None  # fmt: skip
    if not text.strip():
        raise DataError("is empty", path=path, remedy="give at least one record")
    return text


def _rows(text: str) -> Iterator[tuple[int, Any]]:
    """Each value of the file with its line; an array counts as its elements."""
    position = _after_blank(text, 0)
    lines = _Lines(text)
    if text[position] != "[":
        while position < len(text):
            start = position
            value, position = _decode(text, position, lines)
            yield lines.of(start), value
            position = _after_blank(text, position)
            if text[position : position + 1] == ",":
                raise _NotJsonError(
                    lines.of(position), "has a comma after the object",
                    "remove it: in a file of one object per line nothing stands between them",
                )  # fmt: skip
        return
    position = _after_blank(text, position + 1)
    if text[position : position + 1] == "]":
        raise _NotJsonError(lines.of(position), "is an empty array", "give at least one record")
    while True:
        if text[position : position + 1] == "]":
            raise _NotJsonError(
                lines.of(position), "has a comma before the closing bracket", "remove the comma"
            )
        start = position
        value, position = _decode(text, position, lines)
        yield lines.of(start), value
        position = _after_blank(text, position)
        separator = text[position : position + 1]
        position = _after_blank(text, position + 1)
        if separator == "]":
            break
        if separator != ",":
            raise _NotJsonError(
                lines.of(min(position, len(text))), "is not JSON: a comma or ] is missing",
                "put a comma between records and ] at the end",
            )  # fmt: skip
    if position < len(text):
        raise _NotJsonError(lines.of(position), "goes on after the array", "remove what follows")


class _Lines:
    """Line numbers of ascending positions, counted once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.line = 1
        self.position = 0

    def of(self, position: int) -> int:
        if position < self.position:
            return self.text.count("\n", 0, position) + 1
        self.line += self.text.count("\n", self.position, position)
        self.position = position
        return self.line


def _after_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


def _decode(text: str, position: int, lines: _Lines) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        place = min(error.pos, len(text))
        remedy = "mend the line"
        if error.msg.startswith("Invalid \\"):
            remedy = "LaTeX needs two backslashes in JSON: \\\\frac"
        elif error.msg.startswith(("Expecting property name", "Illegal trailing comma")):
            remedy = "use double quotes, and no comma after the last field"
        message = error.msg.split(":")[0][:1].lower() + error.msg.split(":")[0][1:]
        raise _NotJsonError(lines.of(place), f"is not JSON: {message}", remedy) from None
    except RecursionError:
        raise _NotJsonError(lines.of(position), "is nested too deep", "mend the line") from None
    except ValueError as error:  # from the hooks below, or an integer with too many digits
        raise _NotJsonError(lines.of(position), str(error), "mend the line") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"gives the key {repeated!r} twice")
    return fields


def _no_constant(name: str) -> Any:
    raise ValueError(f"is not JSON: {name}")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_constant=_no_constant)


def _bad_lines(path: str | Path, text: str, known: int) -> Iterator[DataError]:
    """The other broken lines, if the file has one object a line."""
    lines = text.splitlines()
    whole = [line for line in lines if line.strip()]
    if sum(line.lstrip().startswith("{") for line in whole) < len(whole):
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if number != known and line.strip():
            try:
                list(_rows(line))
            except _NotJsonError as error:
                yield _as_data_error(path, attrs.evolve(error, line=number))


def _as_data_error(path: str | Path, error: _NotJsonError) -> DataError:
    return DataError(error.message, path=path, line=error.line, remedy=error.remedy)
