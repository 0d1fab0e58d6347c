"""Arithmetic that stays small: what would not fit is kept as an opaque symbol instead.

``9^{9^{9^9}}`` is read as ``power(9, power(9, 387420489))``: equal to itself, to nothing else, and
never evaluated. So a reader may build values bottom-up without asking what they cost.
"""

from __future__ import annotations

import re
from typing import Any

import sympy  # type: ignore[import-untyped]
from sympy.core.function import AppliedUndef  # type: ignore[import-untyped]

from focus_task_math.grading.tokens import Unreadable

__all__ = ["binomial", "divide", "factorial", "factorial2", "number", "power", "root", "times"]

MOST_BITS = 1 << 18
"""Size of the largest integer that is computed."""
ROOT_BITS = 1 << 11
"""Size of the largest integer that a root is taken of: sympy looks for its factors."""
MOST_FACTORIAL = 3000
MOST_EXPONENT = 2000
"""Exponent up to which sympy may multiply out powers of products."""

_NUMBER = re.compile(r"(\d*)(?:\.(\d*)(?:\((\d+)\))?)?(?:e([+-]?\d+))?")


def number(written: str) -> Any:
    """A decimal as the exact rational it names: ``1.5``, ``0.1(6)`` with its block, ``1.5e6``."""
    match = _NUMBER.fullmatch(written)
    if match is None:  # pragma: no cover  # the lexer writes nothing else
        raise Unreadable(f"not a number: {written}")
    whole, digits, block, exponent = match.groups(default="")
    value = sympy.Rational(int(whole + digits or "0"), 10 ** len(digits))
    if block:
        value += sympy.Rational(int(block), (10 ** len(block) - 1) * 10 ** len(digits))
    return value * power(sympy.Integer(10), sympy.Integer(int(exponent))) if exponent else value


def divide(above: Any, below: Any) -> Any:
    """A quotient.

    Raises:
        Unreadable: The divisor is zero.
    """
    if below.is_zero:
        raise Unreadable("division by zero")
    return above / below


def power(base: Any, exponent: Any) -> Any:
    """A power; opaque if its digits would not fit.

    Raises:
        Unreadable: A negative power of zero.
    """
    if exponent.is_Rational:
        if base.is_zero and exponent <= 0:
            raise Unreadable("zero to a power that is not positive")
        if base.is_Rational:
            bits = max(base.p.bit_length(), base.q.bit_length())
            limit = MOST_BITS if exponent.is_Integer else ROOT_BITS
            if base not in (-1, 0, 1) and bits * max(abs(exponent), 1) > limit:
                return sympy.Function("power")(base, exponent)
        elif abs(exponent) > MOST_EXPONENT and not (
            base.is_Symbol or base.is_Add or base.is_NumberSymbol
        ):
            return sympy.Function("power")(base, exponent)
    return base**exponent


def root(base: Any, degree: Any) -> Any:
    """A root; the real one of a negative number when the degree is odd."""
    if base.is_Rational and base < 0 and degree.is_Integer and degree % 2 == 1:
        return -power(-base, divide(sympy.Integer(1), degree))
    return power(base, divide(sympy.Integer(1), degree))


def factorial(value: Any) -> Any:
    """A factorial; opaque above ``MOST_FACTORIAL``.

    Raises:
        Unreadable: Of a negative integer.
    """
    if value.is_Integer:
        if value < 0:
            raise Unreadable("factorial of a negative number")
        if value > MOST_FACTORIAL:
            return sympy.Function("factorial")(value)
    if value.atoms(AppliedUndef):
        return sympy.Function("factorial")(value)
    return sympy.factorial(value)


def factorial2(value: Any) -> Any:
    """A double factorial; opaque above ``MOST_FACTORIAL``.

    Raises:
        Unreadable: Of a number that is neither a natural number nor -1.
    """
    if value.is_Number:
        if not value.is_Integer or value < -1:
            raise Unreadable("double factorial of no natural number")
        if value > MOST_FACTORIAL:
            return sympy.Function("factorial2")(value)
    if (value.is_number and not value.is_Integer) or value.atoms(AppliedUndef):
        return sympy.Function("factorial2")(value)
    return sympy.factorial2(value)


def binomial(above: Any, below: Any) -> Any:
    """A binomial coefficient; opaque above ``MOST_FACTORIAL``."""
    if above.is_Rational and below.is_Rational and max(abs(above), abs(below)) > MOST_FACTORIAL:
        return sympy.Function("binomial")(above, below)
    return sympy.binomial(above, below)


def times(one: Any, other: Any) -> Any:
    """A product, of two vectors the cross product, which changes its sign with their order."""
    vectors = [
        [name for name in value.free_symbols if name.name.startswith(("vec(", "bold("))]
        for value in (one, other)
    ]
    if not all(vectors):
        return one * other
    (a, left), (b, right) = (
        value.as_independent(*names, as_Add=False)
        for value, names in zip((one, other), vectors, strict=True)
    )
    cross = sympy.Function("cross")
    return a * b * (cross(left, right) if str(left) < str(right) else -cross(right, left))
