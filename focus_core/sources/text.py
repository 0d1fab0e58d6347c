"""JSON texts, whatever their shape: one object, an array, or objects line after line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from focus_core.errors import DataError
from focus_core.utils.plain_json import DECODER

__all__ = ["read_text"]

_BLANK = re.compile(r"[ \t\r\n]*")


@attrs.frozen
class _NotJsonError(Exception):
    """Where and why a text is not JSON."""

    line: int
    message: str
    remedy: str


def read_text(path: Path, content: bytes) -> tuple[list[tuple[int, Any]], list[DataError]]:
    """The values of a text with their lines, or else all that is wrong with it.

    A blank text has no values and no errors.

    Args:
        path: For errors.
        content: UTF-8, with or without a byte order mark.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        wrong = DataError(
            f"is not UTF-8 (byte 0x{content[error.start]:02x})",
            path=path, line=line, remedy="save the file as UTF-8",
        )  # fmt: skip
        return [], [wrong]
    try:
        return list(_rows(text)) if text.strip() else [], []
    except _NotJsonError as error:
        return [], [_as_data_error(path, error), *_bad_lines(path, text, error.line)]


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
        return DECODER.raw_decode(text, position)
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
        raise _NotJsonError(
            lines.of(position), f"cannot be read: {error}", "mend the line"
        ) from None


def _bad_lines(path: Path, text: str, known: int) -> Iterator[DataError]:
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


def _as_data_error(path: Path, error: _NotJsonError) -> DataError:
    return DataError(error.message, path=path, line=error.line, remedy=error.remedy)
