"""MATH records as problems: ``problem`` with a ``solution`` or an ``answer``."""

from __future__ import annotations

import dataclasses
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from focus_core import DataError, DataWarning, Problem, Row, read_rows
from focus_task_math.eaten import find_eaten
from focus_task_math.grading.answers import find_answer, find_boxes, find_gold
from focus_task_math.grading.pool import default_pool
from focus_task_math.grading.verdict import Verdict

__all__ = ["UnreadableGoldWarning", "load_problems"]

_OR = re.compile(r"\s*\\(?:text|mbox|mathrm)\s*\{[\s,]*or\s*\}\s*")
_UNREAD = Verdict(None, "not read yet")
_HALF = re.compile("[\ud800-\udfff]")


class UnreadableGoldWarning(UserWarning):
    """A reference answer cannot be read, so its rollouts will fail to be graded."""


def load_problems(
    source: str | Path, *, strict: bool = False, skip_bad_rows: bool = False
) -> list[Problem]:
    """Read MATH records from any source of rows: a file, a folder, a Hugging Face data set.

    A record has ``problem`` and ``solution`` (whose last closed box is the answer), ``answer``, or
    both, which must then agree; ``id`` is optional, and anything else becomes metadata. A blank
    field is a missing one. The label is the solution, or the answer where no solution has one or
    where its box or boxes are forms of one value; it is no part of the prompt.

    Args:
        source: What to read.
        strict: Refuse the rows that are otherwise warned of.
        skip_bad_rows: Leave out the rows that would be refused, count and name them in a
            ``DataWarning``. What is no row (broken JSON, a cut file) is refused all the same.

    Returns:
        The problems in the source's order. Without an ``id`` a problem has its row's:
        ``train-1``, or ``algebra/1`` in MATH's own folders.

    Raises:
        DataError: Anything about the source or a record is wrong; names file, lines, fields and
            remedy. Nothing is loaded in part, unless ``skip_bad_rows`` and some rows are good.

    Warns:
        DataWarning: LaTeX has probably lost its backslash to JSON, or rows were left out.
        UnreadableGoldWarning: A reference answer cannot be read as written.
    """
    rows = read_rows(source)
    entries: list[_Entry] = []
    wrong: dict[str, DataError] = {}
    for row in rows:
        try:
            entries.append(_entry(row, strict))
        except DataError as error:
            wrong[row.id] = error
    wrong |= _repeated(entries)
    _refuse(wrong, skip_bad_rows, len(rows))
    entries = _with_golds([entry for entry in entries if entry.row.id not in wrong])
    for entry in entries:
        if entry.gold.correct is None and not strict:
            where = f"{entry.row.path}:{entry.row.line}: problem {entry.problem.id!r}"
            message = f"{where}: {entry.gold.reason}; its rollouts will be failures, not rewards"
            warnings.warn(message, UnreadableGoldWarning, stacklevel=2)
        elif not entry.gold.correct:
            wrong[entry.row.id] = _unusable(entry)
    _refuse(wrong, skip_bad_rows, len(rows))
    entries = [entry for entry in entries if entry.row.id not in wrong]
    if doubts := [entry.doubt for entry in entries if entry.doubt is not None]:
        warnings.warn(f"{DataError.of(doubts)} (refused with --strict)", DataWarning, stacklevel=2)
    if wrong:
        left_out = f"{len(wrong)} of {len(rows)} rows left out"
        named = DataError.of(list(wrong.values()))
        warnings.warn(f"{left_out}: {named}", DataWarning, stacklevel=2)
    return [entry.problem for entry in entries]


def _refuse(wrong: dict[str, DataError], skip: bool, rows: int) -> None:
    if wrong and (not skip or len(wrong) == rows):
        raise DataError.of(list(wrong.values()))


@attrs.frozen
class _Entry:
    row: Row
    problem: Problem
    solution: str | None
    answer: str | None
    doubt: DataError | None
    gold: Verdict = _UNREAD


def _entry(row: Row, strict: bool) -> _Entry:
    fields = row.fields
    doubts: list[DataError] = []

    def text(field: str) -> str | None:
        value = _value(row, field)
        if value is None:
            return None
        if row.typed and field == "answer" and type(value) is int:
            return str(value)
        if not isinstance(value, str):
            remedy = "make the column text" if row.typed else "put it in double quotes"
            message = f"is of type {type(value).__name__}, not text"
            raise row.wrong(message, field=field, remedy=remedy)
        if half := _HALF.search(value):
            raise row.wrong(
                f"holds half a character ({half.group()!a}), which no tokenizer takes",
                field=field,
                remedy="write the whole character",
            )
        if eaten := find_eaten(value, bare=field == "answer"):
            remedy = "LaTeX needs two backslashes in JSON: \\\\frac"
            if row.typed:
                remedy = 'write the file with its backslashes: r"\\frac" in Python'
            error = row.wrong(eaten.found, field=field, remedy=remedy)
            if eaten.certain or strict:
                raise error
            doubts.append(error)
        return value

    prompt, answer, solution = text("problem"), text("answer"), text("solution")
    if prompt is None:
        raise _missing(row, "problem")
    if answer is None and solution is None:
        only_answer = "answer" in fields and "solution" not in fields
        raise _missing(row, "answer" if only_answer else "solution")
    boxed = solution is not None and find_gold(solution) != solution.strip()
    if not boxed and answer is None:
        raise row.wrong(
            "has no closed \\boxed answer",
            field="solution",
            remedy="box the answer, or add 'answer'",
        )
    if boxed and not find_gold(solution or ""):
        if answer is None:
            raise row.wrong(
                "has an empty last box", field="solution", remedy="fill it in, or add 'answer'"
            )
        boxed = False
    name = _value(row, "id")
    if name is None:
        name = row.id
    elif isinstance(name, bool) or not isinstance(name, str | int):
        raise row.wrong(f"is {name!r}", field="id", remedy="use text or a number, or leave it out")
    metadata: dict[str, Any] = {
        key: value
        for key, value in fields.items()
        if key not in ("problem", "solution", "answer", "id")
    }
    problem = Problem(prompt, solution if boxed else answer, id=str(name), metadata=metadata)
    return _Entry(row, problem, solution if boxed else None, answer, next(iter(doubts), None))


def _value(row: Row, field: str) -> Any:
    """A field's value; ``None`` for a blank one, and an integer also where a table made a float."""
    value = row.fields.get(field)
    if isinstance(value, str) and not value.strip():
        return None
    if row.typed and isinstance(value, float):
        if value != value:  # what is missing, in a column of numbers
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value


def _missing(row: Row, field: str) -> DataError:
    if field not in row.fields:
        return row.wrong("is missing", field=field, remedy=f"add {field!r}")
    said = "is empty" if isinstance(row.fields[field], str) else "is null"
    return row.wrong(said, field=field, remedy="fill it in or remove the record")


def _repeated(entries: list[_Entry]) -> dict[str, DataError]:
    first: dict[str | None, Row] = {}
    wrong: dict[str, DataError] = {}
    for entry in entries:
        name, row = entry.problem.id, entry.row
        other = first.setdefault(name, row)
        if other is not row:
            place = f"{other.path}:" if other.path != row.path else "line "
            also = f"{name!r} is also the id of {place}{other.line}"
            wrong[row.id] = row.wrong(also, field="id", remedy="make ids unique")
    return wrong


def _with_golds(entries: list[_Entry]) -> list[_Entry]:
    """Read every reference answer; compare the two of a record that has both."""
    pool = default_pool()

    def check(entry: _Entry) -> _Entry:
        solution, answer = entry.solution, entry.answer
        forms = [form for box in find_boxes(solution or "") for form in _OR.split(box)]
        if len(set(forms)) > 1:  # "1.5 or 3/2": forms of one value are not two answers
            one = forms[0] if answer is None else answer
            if all(pool.grade(rf"\boxed{{{form}}}", one).correct for form in forms):
                problem = dataclasses.replace(entry.problem, label=one)
                return attrs.evolve(entry, problem=problem, gold=Verdict(True, ""))
        if solution is not None and answer is not None:
            return attrs.evolve(entry, gold=pool.grade(solution, answer))
        return attrs.evolve(entry, gold=pool.check_gold(entry.problem.label))

    with ThreadPoolExecutor(2, "focus-golds") as threads:
        return list(threads.map(check, entries))


def _unusable(entry: _Entry) -> DataError:
    """Of a record whose gold cannot be read, or that disagrees with itself."""
    row, gold = entry.row, entry.gold
    field = "solution" if entry.answer is None else "answer"
    if gold.correct is None:
        return row.wrong(gold.reason, field=field, remedy="mend it")
    box = find_answer(entry.solution or "").text
    return row.wrong(
        f"is {entry.answer!r}, but the solution's box says {box!r}",
        field=field,
        remedy="mend the one that is wrong",
    )
