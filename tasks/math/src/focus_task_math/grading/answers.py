"""Where the answer is: the last closed box of a completion, or of a reference solution."""

from __future__ import annotations

import re

import attrs

__all__ = ["Found", "find_answer", "find_boxes", "find_gold"]

TAIL = 100_000
"""Characters read from the end of a completion: an answer that starts earlier is none."""

# A doubled backslash is what JSON habits leave of one.
_MARK = re.compile(r"\\{1,2}(?:boxed|fbox)(?![A-Za-z])\s*(\{|\Z)?|\\.|[{}]", re.DOTALL)

# Between boxes that are one answer there is nothing but connectives, spaces and math delimiters.
_CONNECTIVE = (
    r"(?:(?:and|or|And|Or|AND|OR)(?![A-Za-z])|[,;]"
    r"|\\(?:text|mbox|mathrm|textbf|textrm)\s*\{\s*[,;]?\s*(?:and|or)?\s*\})"
)
_BLANK = r"(?:\s|\$|~|\*\*|\\[,;:! ()\[\]]|\\q?quad(?![A-Za-z]))"
_JOIN = re.compile(rf"{_BLANK}*(?:{_CONNECTIVE}{_BLANK}*)+")
_JOIN_LENGTH = 60


@attrs.frozen
class Found:
    """What a completion answers.

    Attributes:
        text: LaTeX inside the last box; boxes joined by connectives are joined likewise. ``None``
            without an answer.
        reason: Why there is none.
    """

    text: str | None
    reason: str = ""


@attrs.frozen
class _Box:
    start: int
    inside: int
    close: int


def find_answer(completion: str) -> Found:
    """The answer of a completion.

    Everything up to the last ``</think>`` is ignored, and a ``<think>`` after it never closed.
    The last box counts; if it is empty or never closes there is no answer, since falling back to
    an earlier box would reward truncation. Time is linear in the completion's length.
    """
    said = completion.rpartition("</think>")[2]
    if "<think>" in said:
        return Found(None, "the thinking never ends")
    said = said[-TAIL:]
    closed, unclosed = _boxes(said)
    if not closed and unclosed is None:
        return Found(None, "no box")
    if unclosed is not None and (not closed or closed[-1].start < unclosed.start):
        return Found(None, "the last box is not closed")
    boxes = _last_group(said, closed)
    if unclosed is not None and not said[unclosed.inside : boxes[0].start].strip():
        return Found(None, "the last box is not closed")  # \boxed{\boxed{3}: one box, cut
    parts = [said[box.inside : box.close].strip() for box in boxes]
    if not all(parts):
        return Found(None, "the last box is empty")
    return Found(_join(said, boxes, parts))


def find_gold(gold: str) -> str:
    """The reference answer of a solution or bare answer: its last closed box, or all of it."""
    closed, _ = _boxes(gold)
    if not closed:
        return gold.strip()
    boxes = _last_group(gold, closed)
    parts = [gold[box.inside : box.close].strip() for box in boxes]
    return _join(gold, boxes, parts) if all(parts) else parts[-1]


def find_boxes(gold: str) -> list[str]:
    """What is in the boxes that ``find_gold`` takes for one answer."""
    closed, _ = _boxes(gold)
    group = _last_group(gold, closed) if closed else []
    return [gold[box.inside : box.close].strip() for box in group]


def _boxes(text: str) -> tuple[list[_Box], _Box | None]:
    r"""Outermost closed boxes in order, and the last one that never closes.

    Braces must balance; ``\{`` and ``\}`` are no braces. A box inside a closed box is part of it.
    """
    frames: list[tuple[int, int]] = []  # (start of the box or -1, first position inside)
    closed: list[_Box] = []
    cut: _Box | None = None
    for mark in _MARK.finditer(text):
        token = mark.group()
        if token == "}":
            if frames:
                start, inside = frames.pop()
                if start >= 0:
                    while closed and closed[-1].start > start:
                        closed.pop()
                    closed.append(_Box(start, inside, mark.start()))
        elif token == "{":
            frames.append((-1, mark.end()))
        elif mark.group(1) == "{":
            frames.append((mark.start(), mark.end()))
        elif mark.group(1) is not None:  # "\boxed" is the last thing said
            cut = _Box(mark.start(), mark.end(), mark.end())
    for start, inside in frames:
        if start >= 0 and (cut is None or start > cut.start):
            cut = _Box(start, inside, len(text))
    return closed, cut


def _last_group(text: str, closed: list[_Box]) -> list[_Box]:
    group = [closed[-1]]
    for box in reversed(closed[:-1]):
        gap = text[box.close + 1 : group[0].start]
        if len(gap) > _JOIN_LENGTH or not _JOIN.fullmatch(gap):
            break
        group.insert(0, box)
    return group


def _join(text: str, boxes: list[_Box], parts: list[str]) -> str:
    """One answer of several boxes; the connective is kept, and a repeated box counts once."""
    joined = parts[0]
    seen = {parts[0]}
    for before, box, part in zip(boxes, boxes[1:], parts[1:], strict=False):
        if part in seen:
            continue
        seen.add(part)
        gap = text[before.close + 1 : box.start].lower()
        word = next((word for word in ("or", "and") if word in gap), None)
        joined += rf" \text{{ {word} }} {part}" if word else f" ; {part}"
    return joined
