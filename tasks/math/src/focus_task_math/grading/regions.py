"""Sets of real numbers: intervals, unions, inequalities and points in one canonical form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import sympy  # type: ignore[import-untyped]

from focus_task_math.grading.exact import same_value, value_at
from focus_task_math.grading.kinds import (
    Answer,
    Bracketed,
    Chain,
    Combination,
    Listing,
    NamedSet,
    Value,
    Words,
)
from focus_task_math.grading.prose import ALL_REALS, NOTHING
from focus_task_math.grading.reading import relational

__all__ = ["Region", "region_of", "same_region"]

_EMPTY: tuple[bool, ...] = (False,)
_ALL: tuple[bool, ...] = (True,)


@attrs.frozen
class Region:
    """A subset of the real line.

    Attributes:
        points: Ascending real constants where membership changes.
        inside: Membership of the gap below the first point, of the point, of the next gap, ...;
            one more than twice the points.
    """

    points: tuple[Any, ...]
    inside: tuple[bool, ...]

    @property
    def empty(self) -> bool:
        """Whether it has no element."""
        return not any(self.inside)


def same_region(one: Region, other: Region) -> bool:
    """Whether two regions have the same elements; end points compare exactly."""
    return one.inside == other.inside and all(
        same_value(a, b) for a, b in zip(one.points, other.points, strict=True)
    )


def region_of(answer: Answer) -> Region | None:
    """The real numbers that an answer describes; ``None`` if it describes something else.

    A pair in round brackets is taken for the open interval that it also is.
    """
    if isinstance(answer, NamedSet):
        return {
            "R": Region((), _ALL),
            "R^+": _compare(">", sympy.Integer(0)),
            "empty": Region((), _EMPTY),
        }.get(answer.name)
    if isinstance(answer, Words):
        text = answer.text.lower()
        return (
            Region((), _ALL)
            if text in ALL_REALS
            else Region((), _EMPTY)
            if text in NOTHING
            else None
        )
    if isinstance(answer, Value):
        return _compare("=", answer.expr) if _is_real(answer.expr) and answer.unit is None else None
    if isinstance(answer, Bracketed):
        return _interval(answer)
    if isinstance(answer, Chain):
        return _solutions(answer)
    if isinstance(answer, Combination):
        left, right = region_of(answer.left), region_of(answer.right)
        return _combined(left, right, _OPERATIONS[answer.sign]) if left and right else None
    return _of_listing(answer) if isinstance(answer, Listing) else None


_OPERATIONS: dict[str, Callable[[bool, bool], bool]] = {
    "cup": lambda a, b: a or b,
    "cap": lambda a, b: a and b,
    "setminus": lambda a, b: a and not b,
}


def _of_listing(listing: Listing) -> Region | None:
    """Numbers, or disjoint sets, or inequalities; a mixture is a list of guesses."""
    if len({isinstance(item, Value) for item in listing.items}) > 1:
        return None
    regions = [region for item in listing.items if (region := region_of(item)) is not None]
    if len(regions) < len(listing.items):
        return None
    union = met = regions[0]
    disjoint = True
    for region in regions[1:]:
        disjoint = disjoint and _combined(union, region, _OPERATIONS["cap"]).empty
        union = _combined(union, region, _OPERATIONS["cup"])
        met = _combined(met, region, _OPERATIONS["cap"])
    # "x > 1 and x < 3" is one interval; "x < 1 and x > 3" can only mean both parts.
    if relational(listing) and listing.joint != "or" and not met.empty:
        return met
    return union if disjoint else None


def _interval(bracketed: Bracketed) -> Region | None:
    if len(bracketed.items) != 2:
        return None
    ends = [
        item.expr if isinstance(item, Value) and item.unit is None else None
        for item in bracketed.items
    ]
    low, high = ends
    if low is None or high is None or not (_is_real(low) and _is_real(high)):
        return None
    if not _below(low, high):
        return None
    above = _compare(">=" if bracketed.opening == "[" else ">", low)
    below = _compare("<=" if bracketed.closing == "]" else "<", high)
    return _combined(above, below, _OPERATIONS["cap"])


def _solutions(chain: Chain) -> Region | None:
    r"""Solutions of ``a < x <= b``, of ``2x \ne 3``, or of ``x \in S``."""
    if chain.signs == ("in",):
        return region_of(chain.members[1])
    values = [member.expr if isinstance(member, Value) else None for member in chain.members]
    region = Region((), _ALL)
    for sign, left, right in zip(chain.signs, values, values[1:], strict=False):
        part = _linear(sign, left, right)
        if part is None:
            return None
        region = _combined(region, part, _OPERATIONS["cap"])
    symbols = set().union(*(value.free_symbols for value in values))  # type: ignore[union-attr]
    return region if len(symbols) == 1 else None


def _linear(sign: str, left: Any, right: Any) -> Region | None:
    """Solutions of one relation that is linear in its only symbol."""
    if left is None or right is None or sign not in ("<", "<=", ">", ">=", "!=", "="):
        return None
    symbols = left.free_symbols | right.free_symbols
    if len(symbols) != 1:
        return None
    (symbol,) = symbols
    for side, bound, flip in ((left, right, False), (right, left, True)):
        if side == symbol and not bound.free_symbols and _is_real(bound):
            return _compare(_flipped(sign) if flip else sign, bound)
    difference = sympy.expand(left - right)
    slope = difference.coeff(symbol, 1)
    rest = difference.coeff(symbol, 0)
    if difference != slope * symbol + rest or slope.free_symbols or rest.free_symbols:
        return None
    if not (_is_real(slope) and _is_real(rest)) or slope.is_zero:
        return None
    return _compare(_flipped(sign) if _below(slope, sympy.Integer(0)) else sign, -rest / slope)


def _flipped(sign: str) -> str:
    return sign.translate(str.maketrans("<>", "><"))


def _compare(sign: str, bound: Any) -> Region:
    """The numbers that are ``sign`` the bound."""
    if bound in (sympy.oo, -sympy.oo):
        everything = (bound == sympy.oo) == (sign in ("<", "<="))
        return Region((), _ALL if everything and sign != "=" else _EMPTY)
    inside = {
        "<": (True, False, False),
        "<=": (True, True, False),
        ">": (False, False, True),
        ">=": (False, True, True),
        "=": (False, True, False),
        "!=": (True, False, True),
    }
    return Region((bound,), inside[sign])


def _is_real(value: Any) -> bool:
    if value in (sympy.oo, -sympy.oo):
        return True
    if not isinstance(value, sympy.Expr) or value.free_symbols:
        return False
    number = value_at(value, {}, 20)
    return number is not None and bool(number.is_real)


def _below(one: Any, other: Any) -> bool:
    if one == -sympy.oo or other == sympy.oo:
        return bool(one != other)
    if one == sympy.oo or other == -sympy.oo:
        return False
    return not same_value(one, other) and bool(value_at(one, {}) < value_at(other, {}))


def _combined(one: Region, other: Region, keeps: Callable[[bool, bool], bool]) -> Region:
    points: list[Any] = list(one.points)
    for point in other.points:
        if not any(same_value(point, known) for known in points):
            points.append(point)
    points.sort(key=lambda point: value_at(point, {}))
    inside = [
        keeps(a, b) for a, b in zip(_refined(one, points), _refined(other, points), strict=True)
    ]
    kept, flags = [], inside[:1]
    for index, point in enumerate(points):
        at, after = inside[2 * index + 1], inside[2 * index + 2]
        if not flags[-1] == at == after:
            kept.append(point)
            flags += [at, after]
    return Region(tuple(kept), tuple(flags))


def _refined(region: Region, points: list[Any]) -> list[bool]:
    """Membership of the gaps and points of a finer division of the line."""
    flags, known = [region.inside[0]], 0
    for point in points:
        if known < len(region.points) and same_value(point, region.points[known]):
            known += 1
            flags += [region.inside[2 * known - 1], region.inside[2 * known]]
        else:
            flags += [region.inside[2 * known]] * 2
    return flags
