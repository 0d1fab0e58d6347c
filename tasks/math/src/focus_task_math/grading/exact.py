"""Whether two sympy values are the same: exactly where both are exact, never by rounding.

Rationals compare as rationals. Other constants are told apart by 30 digits and taken as equal
only if they agree to more digits than either's rationals have, 60 at least. Functions are told
apart by their values at fixed rational points (Schwartz-Zippel), where both are defined. Where one
counts in steps (floors, double factorials, sums up to ``n``) the points are whole numbers and
simple fractions, and only whole numbers for what counts.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import sympy  # type: ignore[import-untyped]
from sympy.concrete.expr_with_limits import ExprWithLimits  # type: ignore[import-untyped]
from sympy.core.function import AppliedUndef  # type: ignore[import-untyped]

__all__ = ["proportional", "same_value", "value_at"]

COARSE = 30
"""Digits that tell two different numbers apart."""
FINE = 60
"""Digits that two equal numbers agree to, besides those of their rationals."""
MOST_DIGITS = 3000
POINTS = 12
ENOUGH = 3
"""Points at which both sides must be defined."""

# Coordinates are p/q with primes p and q, so that no two symbols and no two points coincide.
_PRIMES = tuple(sympy.primerange(7, 500))

_STEPS = (sympy.floor, sympy.ceiling, sympy.factorial2, sympy.Sum, sympy.Product)


def same_value(one: Any, other: Any) -> bool:
    """Whether two values are equal as real (or complex) functions of their symbols."""
    if isinstance(one, sympy.MatrixBase) or isinstance(other, sympy.MatrixBase):
        return (
            isinstance(one, sympy.MatrixBase)
            and isinstance(other, sympy.MatrixBase)
            and one.shape == other.shape
            and all(itertools.starmap(same_value, zip(one.flat(), other.flat(), strict=True)))
        )
    if one == other:
        return True
    one, other = _unmarked(one, other), _unmarked(other, one)
    if one == other:
        return True
    if one.has(ExprWithLimits) or other.has(ExprWithLimits):
        if one.as_dummy() == other.as_dummy():  # an index has any name
            return True
        if one.has(AppliedUndef) or other.has(AppliedUndef):
            return False  # f(t) below an integral is no constant
    if one.is_Rational and other.is_Rational:
        return False
    if one.has(sympy.oo, sympy.zoo, sympy.nan) or other.has(sympy.oo, sympy.zoo, sympy.nan):
        return False
    if not one.has(sympy.Symbol, AppliedUndef) and not other.has(sympy.Symbol, AppliedUndef):
        return _same_number(one, other)
    one, other = _defined(one, other)
    return bool(_same_function(one, other))


def _unmarked(one: Any, other: Any) -> Any:
    r"""``one`` in the notation of ``other``, where only that tells them apart.

    Bold is an arrow or nothing, where the other side has that (``\mathbf{i}`` may be ``i``), and
    ``g(h + r)`` is a product where the other side has a quantity ``g``.
    """
    names: dict[Any, Any] = {}
    for bold in one.free_symbols - other.free_symbols:
        if bold.name.startswith("bold("):
            for plain in _plain(bold.name):
                if plain in other.atoms(type(plain)) and not one.has(plain):
                    names[bold] = plain
                    break
    for use in one.atoms(AppliedUndef):
        factor = sympy.Symbol(use.func.__name__)
        if factor in other.free_symbols and len(use.args) == 1 and use.args[0].is_Add:
            names[use] = factor * use.args[0]
    return one.xreplace(names) if names else one


def _plain(name: str) -> list[Any]:
    """``bold(v)_1`` with an arrow, and without."""
    vector = sympy.Symbol(name.replace("bold(", "vec(", 1))
    letter = name.removeprefix("bold(").replace(")", "", 1)
    return [vector, {"i": sympy.I, "e": sympy.E}.get(letter, sympy.Symbol(letter))]


def proportional(one: Any, other: Any) -> int:
    """Sign of the constant that makes ``one`` of ``other``; 0 if no real constant does.

    Two equations (left minus right) say the same if this is not 0, two inequalities if it is 1.
    """
    one, other = _defined(one, other)
    ratios = []
    for above, below in _values(one, other):
        if above is None or below is None:
            continue
        if below == 0 or above == 0:
            if below != above:
                return 0
            continue
        ratio = above / below
        if not sympy.im(ratio).is_zero and abs(sympy.im(ratio)) > abs(ratio) * _tiny(COARSE):
            return 0
        ratios.append(sympy.re(ratio))
        if abs(ratios[-1] - ratios[0]) > abs(ratios[0]) * _tiny(COARSE):
            return 0
    if len(ratios) < ENOUGH:
        return 0
    return 1 if ratios[0] > 0 else -1


def value_at(value: Any, point: dict[Any, Any], digits: int = FINE) -> Any:
    """The complex number that a function takes at a point; ``None`` where it is not defined."""
    try:
        number = value.evalf(digits, subs=point) if point else value.evalf(digits)
    except (TypeError, ValueError, ArithmeticError, AttributeError, NotImplementedError):
        return None
    if not number.is_number or number.has(sympy.oo, sympy.zoo, sympy.nan):
        return None
    real, imaginary = number.as_real_imag()
    return number if real.is_Number and imaginary.is_Number else None


def _tiny(digits: int) -> Any:
    return sympy.Float(10, 20) ** (10 - digits)


def _same_number(one: Any, other: Any) -> bool:
    for digits in (COARSE, FINE + _digits(one) + _digits(other)):
        a, b = value_at(one, {}, digits), value_at(other, {}, digits)
        if a is None or b is None:
            return False
        size = max(abs(a), abs(b))
        if size < _tiny(COARSE):  # both hardly differ from 0: only a proof tells them apart
            return bool(sympy.simplify(one - other) == 0)
        if abs(a - b) > size * _tiny(digits):
            return False
    return True


def _digits(value: Any) -> int:
    """Digits of the longest rational in a value."""
    bits = (max(r.p.bit_length(), r.q.bit_length()) for r in value.atoms(sympy.Rational))
    return min(MOST_DIGITS, int(max(bits, default=0) * 0.302))


def _defined(one: Any, other: Any) -> tuple[Any, Any]:
    """Each distinct use of an undefined function, such as ``f(2)``, as a symbol of its own."""
    uses = one.atoms(AppliedUndef) | other.atoms(AppliedUndef)
    ordered = sorted(uses, key=sympy.default_sort_key)
    ordered.sort(key=lambda use: -use.count_ops())  # outermost first
    for index, use in enumerate(ordered):
        symbol = sympy.Symbol(f"use {index}")
        one, other = one.xreplace({use: symbol}), other.xreplace({use: symbol})
    return one, other


def _points(symbols: set[Any]) -> list[dict[Any, Any]]:
    """Fixed rational points: the first half positive, the others with both signs."""
    ordered = sorted(symbols, key=str)
    points = []
    for index in range(POINTS):
        point = {}
        for place, symbol in enumerate(ordered):
            at = (index * 7 + place * 3) % (len(_PRIMES) - 1)
            size = Fraction(_PRIMES[at], _PRIMES[(at * 5 + 11) % len(_PRIMES)])
            if size == 1:
                size = Fraction(_PRIMES[at], 5)
            negative = index >= POINTS // 2 and (index + place) % 2 == 0
            point[symbol] = sympy.Rational(-size if negative else size)
        points.append(point)
    return points


def _same_function(one: Any, other: Any) -> bool:
    agreed = 0
    stepped = one.has(*_STEPS) or other.has(*_STEPS)
    complex_valued = one.has(sympy.I) or other.has(sympy.I)
    for index, (a, b) in enumerate(_values(one, other)):
        if a is None or b is None:
            continue
        may_leave = (stepped or index >= POINTS // 2) and not complex_valued
        if may_leave and not (_real(a) and _real(b)):
            continue  # outside of the domain of one of them, as ln(x^2) and 2 ln x at x < 0
        if abs(a - b) > max(abs(a), abs(b), sympy.Float(1)) * _tiny(COARSE):
            return False
        agreed += 1
    return agreed >= ENOUGH


def _values(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    """What both are at each of the points that tell such functions apart."""
    if one.has(*_STEPS) or other.has(*_STEPS):
        for point in _steps(one, other):
            yield _value_on_step(one, point), _value_on_step(other, point)
    else:
        for point in _points(one.free_symbols | other.free_symbols):
            yield value_at(one, point), value_at(other, point)


def _counting(value: Any) -> set[Any]:
    """Symbols that stand for natural numbers: by name, or as a bound or under a factorial."""
    names = {symbol for symbol in value.free_symbols if symbol.name[0] in "ijklmnMN"}
    steps = value.atoms(sympy.factorial, sympy.factorial2, sympy.Sum, sympy.Product)
    return names.union(*(step.free_symbols for step in steps))


def _steps(one: Any, other: Any) -> list[dict[Any, Any]]:
    """Points on the steps and between: small and larger whole numbers, halves, thirds, ..."""
    whole = _counting(one) | _counting(other)
    slow = (sympy.factorial, sympy.factorial2, sympy.Sum, sympy.Product)
    most = 8 if one.has(*slow) or other.has(*slow) else 17
    counts = [*range(most), *(() if most == 8 else (27, 31, 32, 63, 64, 100, 125, 128, 1000))]
    reals = [
        *range(-6, 10),
        *(sympy.Rational(k, q) for q in (2, 3, 4, 5, 7, 10) for k in range(-9, 12, 2)),
    ]
    symbols = sorted(one.free_symbols | other.free_symbols, key=str)
    if len(symbols) == 1:
        return [{symbols[0]: sympy.sympify(at)} for at in (counts if whole else reals)]
    chance = random.Random(0)
    return [
        {
            symbol: sympy.sympify(chance.choice(counts if symbol in whole else reals))
            for symbol in symbols
        }
        for _ in range(60)
    ]


def _value_on_step(value: Any, point: dict[Any, Any]) -> Any:
    """As ``value_at``, with exact floors: ``log 8 / log 2`` is 3, and not a little less."""
    try:
        value = value.xreplace(point).doit()
        value = value.replace(sympy.floor, _floor)
        value = value.replace(sympy.ceiling, lambda inside: -_floor(-inside))
    except (TypeError, ValueError, ArithmeticError, AttributeError, NotImplementedError):
        return None
    return value_at(value, {})


def _floor(value: Any) -> Any:
    number = value_at(value, {})
    if number is None or not _real(number):
        raise ValueError("a floor of no real number")
    nearest = sympy.Integer(round(sympy.re(number)))
    close = abs(number - nearest) <= (abs(number) + 1) * _tiny(COARSE)
    return nearest if close else sympy.Integer(sympy.floor(sympy.re(number)))


def _real(number: Any) -> bool:
    real, imaginary = number.as_real_imag()
    return bool(abs(imaginary) <= (abs(real) + 1) * _tiny(COARSE))
