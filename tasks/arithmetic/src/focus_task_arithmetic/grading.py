r"""Grading: the integer in the last closed ``\boxed{}``, compared exactly."""

from __future__ import annotations

import re

__all__ = ["boxed_integer", "grade"]

_BRACE = re.compile(r"\\boxed\{|[{}]")
_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,30})\s*")


def boxed_integer(text: str) -> int | None:
    r"""The integer in the last ``\boxed{}`` that closes.

    Returns:
        ``None`` if no box closes, or if the last one that does holds anything but an integer;
        an earlier box is never used instead. Of a box in a box the inner one counts.
    """
    opened: list[int | None] = []  # where each open box's content starts; None for a bare brace
    last = (-1, "")
    for match in _BRACE.finditer(text):
        if match[0] != "}":
            opened.append(match.end() if match[0] != "{" else None)
        elif opened and (start := opened.pop()) is not None and start > last[0]:
            last = (start, text[start : match.start()])
    integer = _INTEGER.fullmatch(last[1])
    return int(integer[1]) if integer else None


def grade(text: str, answer: int) -> bool:
    """Whether a reply boxes the answer."""
    return boxed_integer(text) == answer
