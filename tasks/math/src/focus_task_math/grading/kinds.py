"""What an answer can be, once read."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from focus_task_math.grading.units import Unit

__all__ = [
    "Answer",
    "Based",
    "Bracketed",
    "Chain",
    "Choice",
    "Clock",
    "Combination",
    "Grid",
    "Listing",
    "NamedSet",
    "Ratio",
    "Value",
    "Words",
]


@attrs.frozen
class Value:
    """An expression, maybe with a unit.

    Attributes:
        expr: A sympy expression or matrix.
        unit: As written; ``None`` without one.
        quantity: The other reading of ``9 m^2``: 9 of a unit instead of a product.
    """

    expr: Any
    unit: Unit | None = None
    quantity: Value | None = None


@attrs.frozen
class Words:
    """Prose: a name, a weekday, "no solution"."""

    text: str


@attrs.frozen
class Choice:
    """An option's letter, maybe followed by what the option says."""

    letter: str
    rest: Answer | None = None


@attrs.frozen
class Clock:
    """A time of day in seconds; ``half`` is ``"a"`` or ``"p"`` where written."""

    seconds: int
    half: str | None


@attrs.frozen
class Based:
    """A numeral with its base."""

    digits: str
    base: int


@attrs.frozen
class Ratio:
    """``3:2``."""

    parts: tuple[Answer, ...]


@attrs.frozen
class Listing:
    """Several answers in no order; ``braces`` if written as a set.

    ``joint`` is ``"or"`` where an "or" joins them, ``";"`` where they stand in boxes of their own.
    """

    items: tuple[Answer, ...]
    braces: bool = False
    joint: Literal["", "or", ";"] = ""


@attrs.frozen
class Bracketed:
    """A point, tuple or interval: ordered answers in brackets."""

    opening: str
    closing: str
    items: tuple[Answer, ...]


@attrs.frozen
class Chain:
    r"""``a = b = c``, ``1 < x <= 3``, ``x \in S``: members and the signs between them.

    ``bound`` if it is the condition of a set, whose variable has any name.
    """

    signs: tuple[str, ...]
    members: tuple[Answer, ...]
    bound: bool = False


@attrs.frozen
class Combination:
    """Union (``cup``), intersection (``cap``) or difference (``setminus``) of two sets."""

    sign: str
    left: Answer
    right: Answer


@attrs.frozen
class NamedSet:
    """``R``, ``Z``, ..., or ``empty``."""

    name: str


@attrs.frozen
class Grid:
    """A matrix or table, cell by cell."""

    rows: tuple[tuple[Answer, ...], ...]


Answer = (
    Value | Words | Choice | Clock | Based | Ratio | Listing | Bracketed | Chain | Combination
    | NamedSet | Grid
)  # fmt: skip
