"""Lists with dots: ``1, 2, ..., 40`` and ``1, 2, 3, ..., 40`` are one list."""

from __future__ import annotations

import itertools
from typing import Any

import sympy  # type: ignore[import-untyped]

from focus_task_math.grading.kinds import Answer, Value, Words

__all__ = ["without_dots"]

MOST = 200
"""Terms that are written out."""
_DOTS = Words("...")


def without_dots(items: tuple[Answer, ...]) -> tuple[Answer, ...]:
    """All terms of an arithmetic or geometric progression, or as few as name it.

    Dots that stand in no such progression stay where they are.
    """
    if items.count(_DOTS) != 1:
        return items
    at = items.index(_DOTS)
    values: list[Any] = [item.expr if isinstance(item, Value) else None for item in items]
    first, after = values[:at], values[at + 1 :]
    if not first or any(value is None or not _is_scalar(value) for value in (*first, *after)):
        return items
    if len(after) > 1 or (len(first) == 1 and not after):
        return items
    last = after[0] if after else None
    if len(first) == 1:
        first.append(first[0] + 1)
    step = first[1] - first[0]
    if all(_same(b - a, step) for a, b in itertools.pairwise(first)):
        return _arithmetic(items, first, step, last)
    if any(value.is_zero for value in first):
        return items
    ratio = first[1] / first[0]
    if all(_same(b / a, ratio) for a, b in itertools.pairwise(first)):
        return _geometric(items, first, ratio, last)
    return items


def _arithmetic(
    items: tuple[Answer, ...], first: list[Any], step: Any, last: Any
) -> tuple[Answer, ...]:
    if last is not None and not step.is_zero:
        count = sympy.expand((last - first[0]) / step)
        if count.is_Integer and 1 <= count < MOST:
            return tuple(Value(first[0] + step * index) for index in range(int(count) + 1))
        if count.is_number and (not count.is_Integer or count < 1):
            return items  # 1, 3, ..., 6
    return (Value(first[0]), Value(first[0] + step), *_rest(items))


def _geometric(
    items: tuple[Answer, ...], first: list[Any], ratio: Any, last: Any
) -> tuple[Answer, ...]:
    if last is not None and last.is_Rational and ratio.is_Rational and abs(ratio) != 1:
        terms = [first[0]]
        while terms[-1] != last and len(terms) < MOST:
            terms.append(terms[-1] * ratio)
        return tuple(map(Value, terms)) if terms[-1] == last else items
    return (*(Value(first[0] * ratio**index) for index in range(3)), *_rest(items))


def _rest(items: tuple[Answer, ...]) -> tuple[Answer, ...]:
    return items[items.index(_DOTS) :]


def _is_scalar(value: Any) -> bool:
    return isinstance(value, sympy.Expr) and not value.has(sympy.oo)


def _same(one: Any, other: Any) -> bool:
    return bool(sympy.expand(one - other) == 0)
