"""MATH records as problems: ``problem`` with a ``solution`` or an ``answer``."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from focus_core import DataError, Problem, Row, read_rows
from focus_task_math.grading.answers import find_answer, find_gold
from focus_task_math.grading.pool import default_pool

__all__ = ["UnreadableGoldWarning", "load_problems"]

# What is left of LaTeX whose single backslash JSON took for an escape: \boxed, \frac, \text, ...
_DESTROYED = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f]"
    r"|\t(?=ext(?:bf|it|rm)?\s*\{|imes(?![a-z])|heta(?![a-z])|riangle|frac|au(?![a-z])|ilde|binom|an\s*[\\({])"
    r"|\r(?=ight|angle|ceil|floor|ho(?![a-z])|brace|m\s*\{)"
    r"|\n(?=eq(?![a-z])|abla(?![a-z])|otin(?![a-z])|eg(?![a-z])|ewline(?![a-z]))"
)
_HALF = re.compile("[\ud800-\udfff]")
_ESCAPES = {"\x08": r"\b", "\x0c": r"\f", "\t": r"\t", "\r": r"\r", "\n": r"\n"}


class UnreadableGoldWarning(UserWarning):
    """A reference answer cannot be read, so its rollouts will fail to be graded."""


def load_problems(source: str | Path) -> list[Problem]:
    """Read MATH records from any source of rows: a file, a folder, a Hugging Face data set.

    A record has ``problem`` and ``solution`` (whose last closed box is the answer), ``answer``, or
    both, which must then agree; ``id`` is optional, and anything else becomes metadata. The label
    is the solution, or the answer where no solution has one; it is no part of the prompt.

    Returns:
        The problems in the source's order. Without an ``id`` a problem has its row's:
        ``train-1``, or ``algebra/1`` in MATH's own folders.

    Raises:
        DataError: Anything about the source or a record is wrong; names file, lines, fields and
            remedy. Nothing is loaded in part.

    Warns:
        UnreadableGoldWarning: A reference answer cannot be read as written.
    """
    entries: list[_Entry] = []
    errors: list[DataError] = []
    for row in read_rows(source):
        try:
            entries.append(_entry(row))
        except DataError as error:
            errors.append(error)
    if errors := errors + list(_repeated(entries)):
        raise DataError.of(errors)
    if errors := list(_disagreeing(entries)):
        raise DataError.of(errors)
    return [entry.problem for entry in entries]


@attrs.frozen
class _Entry:
    row: Row
    problem: Problem
    solution: str | None
    answer: str | None


def _entry(row: Row) -> _Entry:
    fields = row.fields

    def wrong(field: str, message: str, remedy: str) -> DataError:
        return row.wrong(message, field=field, remedy=remedy)

    def text(field: str, *, needed: bool) -> str | None:
        value = fields.get(field)
        if value is None and not needed:
            return None
        if field not in fields:
            raise wrong(field, "is missing", f"add {field!r}")
        if not isinstance(value, str):
            kind = "null" if value is None else f"of type {type(value).__name__}"
            raise wrong(field, f"is {kind}, not text", "put it in double quotes")
        if not value.strip():
            raise wrong(field, "is empty", "fill it in or remove the record")
        if destroyed := _DESTROYED.search(value):
            character = destroyed.group()
            shown = _ESCAPES.get(character, f"\\x{ord(character):02x}")
            rest = value[destroyed.end() : destroyed.end() + 6]
            raise wrong(
                field,
                f"has a control character ({shown}) before {rest!r}",
                "LaTeX needs two backslashes in JSON: \\\\frac",
            )
        if half := _HALF.search(value):
            raise wrong(
                field,
                f"holds half a character ({half.group()!a}), which no tokenizer takes",
                "write the whole character",
            )
        return value

    prompt = text("problem", needed=True)
    answer = text("answer", needed="answer" in fields and "solution" not in fields)
    solution = text("solution", needed=answer is None)
    boxed = solution is not None and find_gold(solution) != solution.strip()
    if not boxed and answer is None:
        raise wrong("solution", "has no closed \\boxed answer", "box the answer, or add 'answer'")
    if boxed and not find_gold(solution or ""):
        raise wrong("solution", "has an empty last box", "fill it in, or add 'answer'")
    name = fields.get("id")
    if name is None:
        name = row.id
    elif isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise wrong("id", f"is {name!r}", "use text or a number, or leave it out")
    metadata: dict[str, Any] = {
        key: value
        for key, value in fields.items()
        if key not in ("problem", "solution", "answer", "id")
    }
    problem = Problem(prompt, solution if boxed else answer, id=str(name), metadata=metadata)
    return _Entry(row, problem, solution if boxed else None, answer)


def _repeated(entries: list[_Entry]) -> Iterator[DataError]:
    first: dict[str, Row] = {}
    for entry in entries:
        name = entry.problem.id
        if name in first:
            other = first[name]
            place = f"{other.path}:" if other.path != entry.row.path else "line "
            also = f"{name!r} is also the id of {place}{other.line}"
            yield entry.row.wrong(also, field="id", remedy="make ids unique")
        first.setdefault(name, entry.row)


def _disagreeing(entries: list[_Entry]) -> Iterator[DataError]:
    """Read every reference answer; compare the two of a record that has both."""
    pool = default_pool()

    def check(entry: _Entry) -> Any:
        if entry.solution is not None and entry.answer is not None:
            return pool.grade(entry.solution, entry.answer)
        return pool.check_gold(entry.problem.label)

    with ThreadPoolExecutor(2, "focus-golds") as threads:
        verdicts = list(threads.map(check, entries))
    for entry, verdict in zip(entries, verdicts, strict=True):
        if verdict.correct is None:
            where = f"{entry.row.path}:{entry.row.line}: problem {entry.problem.id!r}"
            warnings.warn(
                f"{where}: {verdict.reason}; its rollouts will be failures, not rewards",
                UnreadableGoldWarning,
                stacklevel=3,
            )
        elif not verdict.correct:
            box = find_answer(entry.solution or "").text
            yield entry.row.wrong(
                f"is {entry.answer!r}, but the solution's box says {box!r}",
                field="answer",
                remedy="mend the one that is wrong",
            )
