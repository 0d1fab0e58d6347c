"""Whether an answer says what the reference says.

Not symmetric: the reference decides what is asked. A unit it does not have, a name before an
equals sign and an option's wording may be given on top; nothing it has may be left out, but for a
unit, a percent sign or a base that the question names.
"""

from __future__ import annotations

from typing import Any

import attrs
import sympy  # type: ignore[import-untyped]
from sympy.core.function import AppliedUndef  # type: ignore[import-untyped]

from focus_task_math.grading.exact import proportional, same_value
from focus_task_math.grading.kinds import (
    Answer,
    Based,
    Bracketed,
    Chain,
    Choice,
    Clock,
    Combination,
    Grid,
    Listing,
    NamedSet,
    Ratio,
    Value,
    Words,
)
from focus_task_math.grading.prose import same_words
from focus_task_math.grading.regions import region_of, same_region

__all__ = ["same_answer"]

_PERCENT = (("percent", 1),)
_ORDERED = ("<", "<=", ">", ">=", "!=")


def same_answer(gold: Answer, given: Answer) -> bool:
    """Whether ``given`` answers what ``gold`` answers, by the policy in the package's README."""
    given = _without_restated(gold, _in_names_of(gold, given))
    if isinstance(gold, Listing) and not isinstance(given, Listing) and _is_one(gold):
        gold = gold.items[0]
    if isinstance(gold, Chain) and gold.signs == ("~",):  # x is about 12.5
        gold = attrs.evolve(gold, signs=("=",))
        if isinstance(given, Chain) and given.signs == ("~",):
            given = attrs.evolve(given, signs=("=",))
    if isinstance(gold, Chain) and gold.signs in (("=",), ("in",)) and not isinstance(given, Chain):
        return _is_unknown(gold.members[0]) and same_answer(gold.members[1], given)
    if (
        isinstance(given, Chain)
        and not isinstance(gold, Chain)
        and set(given.signs) & {"=", "~", "equiv"}
    ):
        return _chain_ends_in(gold, given)
    if isinstance(given, Chain) and given.signs == ("in",) and not isinstance(gold, Chain):
        return _is_unknown(given.members[0]) and same_answer(gold, given.members[1])
    if isinstance(gold, Choice) or isinstance(given, Choice):
        return _same_choice(gold, given)
    if isinstance(gold, Listing) != isinstance(given, Listing):
        # {5} is 5
        if isinstance(gold, Listing) and len(gold.items) == 1:
            return same_answer(gold.items[0], given)
        if isinstance(given, Listing) and (
            len(given.items) == 1 or _is_one(given)
        ):  # {5}; 0.5 or 1/2
            return same_answer(gold, given.items[0])
    compare = _SAME_KIND.get(type(gold))
    if compare is not None and type(gold) is type(given) and compare(gold, given):
        return True
    return _same_across(gold, given)


def _is_one(listing: Listing) -> bool:
    """Whether it is one value in several forms: ``0.5 or 1/2``, or each in a box of its own."""
    return listing.joint != "" and all(
        same_answer(listing.items[0], item) for item in listing.items[1:]
    )


def _without_restated(gold: Answer, given: Answer) -> Answer:
    r"""``k\pi`` of ``k\pi, k \in \mathbb{Z}``, where the reference does not say so either."""
    if not isinstance(given, Listing) or isinstance(gold, Listing) or given.braces:
        return given
    kept = tuple(
        item
        for item in given.items
        if not (_index(item) or _counts(item) or _is_undefined_where(gold, item))
    )
    return kept[0] if len(kept) == 1 and len(given.items) > 1 else given


def _index(answer: Answer) -> Answer | None:
    """The name that is said to be in a set of numbers."""
    if (
        isinstance(answer, Chain)
        and answer.signs == ("in",)
        and _is_unknown(answer.members[0])
        and isinstance(answer.members[1], NamedSet)
    ):
        return answer.members[0]
    return None


def _counts(answer: Answer) -> bool:
    """``n >= 1``, ``n >= 0`` or ``n > 0``: that n is a natural number."""
    if not (isinstance(answer, Chain) and answer.signs in ((">=",), (">",))):
        return False
    name, bound = (member.expr if isinstance(member, Value) else None for member in answer.members)
    return (name is not None and name.is_Symbol and name.name in "ijklmn") and (
        bound == 0 or (bound == 1 and answer.signs == (">=",))
    )


def _is_undefined_where(gold: Answer, answer: Answer) -> bool:
    """Whether ``x != 0`` excludes what the reference, ``1/x``, excludes by itself."""
    if not (isinstance(answer, Chain) and answer.signs == ("!=",)):
        return False
    said = gold.members[-1] if isinstance(gold, Chain) else gold
    name, bound = (member.expr if isinstance(member, Value) else None for member in answer.members)
    if not isinstance(said, Value) or name is None or not name.is_Symbol or bound is None:
        return False
    return bool(said.expr.subs(name, bound).has(sympy.zoo, sympy.nan))


def _in_names_of(gold: Answer, given: Answer) -> Answer:
    """``given`` with the names of the reference for what may have any name.

    That is the variable of a set, the argument of a function that is defined, and an index of
    which both say the set.
    """
    ours, theirs = _free_names(gold, given), _free_names(given, gold)
    if ours == theirs or len(ours) != len(theirs) or not ours:
        return given
    if set(ours) & (_symbols(given) - set(theirs)):
        return given  # f(a) = a + x is not f(x) = 2x
    return _renamed(given, dict(zip(theirs, ours, strict=True)))


def _free_names(answer: Answer, other: Answer) -> list[Any]:
    if isinstance(answer, Chain) and isinstance(other, Chain):
        if answer.bound or other.bound:
            return sorted(_symbols(answer), key=str)
        head = answer.members[0]
        if answer.signs == ("=",) and isinstance(head, Value) and _is_unknown(head):
            return [name for name in head.expr.args if name.is_Symbol]
    if isinstance(answer, Listing) and isinstance(other, Listing):
        indices = (_index(item) for item in answer.items)
        return [index.expr for index in indices if isinstance(index, Value)]
    return []


def _renamed(answer: Answer, names: dict[Any, Any]) -> Answer:
    if isinstance(answer, Value):
        return attrs.evolve(answer, expr=answer.expr.xreplace(names))
    if isinstance(answer, Chain):
        members = tuple(_renamed(member, names) for member in answer.members)
        return attrs.evolve(answer, members=members)
    if isinstance(answer, Listing):
        return attrs.evolve(answer, items=tuple(_renamed(item, names) for item in answer.items))
    return answer


def _same_across(gold: Answer, given: Answer) -> bool:
    """Two kinds that can say the same."""
    if isinstance(given, Words) and isinstance(gold, Value):
        return _is_product_of_letters(gold.expr) and (
            sorted(str(gold.expr).replace("*", "")) == sorted(given.text)
        )
    if isinstance(gold, Based) and isinstance(given, Value):
        return given.unit is None and str(given.expr) == gold.digits
    if isinstance(given, Based) and isinstance(gold, Value):
        return given.base == 10 and str(gold.expr) == given.digits
    if isinstance(gold, Value) and isinstance(given, Ratio):
        return _same_quotient(gold, given)
    if isinstance(gold, Ratio) and isinstance(given, Value):
        return _same_quotient(given, gold)
    if isinstance(gold, Grid) and isinstance(given, Value):
        return _same_matrix(gold, given)
    if isinstance(given, Grid) and isinstance(gold, Value):
        return _same_matrix(given, gold)
    if isinstance(gold, Bracketed) and isinstance(given, Listing):
        return _same_point(gold, given)
    return _same_set(gold, given)


def _same_set(gold: Answer, given: Answer) -> bool:
    """Two ways to write one set of reals. A pair is no set of two points, nor a list a point."""
    if all(isinstance(answer, Bracketed) or _is_plain(answer) for answer in (gold, given)):
        return False  # compared as they are written
    names = _symbols(gold), _symbols(given)
    if all(names) and names[0] != names[1]:
        return False
    one, other = region_of(gold), region_of(given)
    return one is not None and other is not None and same_region(one, other)


def _is_plain(answer: Answer) -> bool:
    """A value, or a list of values."""
    if isinstance(answer, Listing):
        return all(map(_is_plain, answer.items))
    return isinstance(answer, Value)


def _symbols(answer: Answer) -> set[Any]:
    if isinstance(answer, Value):
        return set(answer.expr.free_symbols)
    if isinstance(answer, Chain):
        return set().union(*map(_symbols, answer.members))
    return set().union(*map(_symbols, answer.items)) if isinstance(answer, Listing) else set()


# -- the same kind twice


def _same_values(gold: Value, given: Value) -> bool:
    if given.quantity is not None and gold.quantity is None and _same_values(gold, given.quantity):
        return True
    if gold.quantity is not None and _same_values(gold.quantity, given):
        return True
    if gold.unit == _PERCENT and given.unit in (None, ()):
        return same_value(gold.expr, given.expr) or same_value(gold.expr / 100, given.expr)
    if given.unit == _PERCENT and gold.unit in (None, ()):
        # 50% for 50 is a slip one forgives; 25% is the number 0.25; 5000% is not what 50 means.
        proportion = gold.expr.is_Rational and abs(gold.expr) <= 1
        return same_value(gold.expr, given.expr) or bool(
            proportion and same_value(gold.expr, given.expr / 100)
        )
    if gold.unit and given.unit and gold.unit != given.unit:
        return False
    return same_value(gold.expr, given.expr)


def _same_listings(gold: Listing, given: Listing) -> bool:
    if len(gold.items) != len(given.items):
        return False
    left = list(given.items)
    for item in gold.items:
        match = next((other for other in left if same_answer(item, other)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _same_in_order(gold: tuple[Answer, ...], given: tuple[Answer, ...]) -> bool:
    return len(gold) == len(given) and all(map(same_answer, gold, given))


def _same_brackets(gold: Bracketed, given: Bracketed) -> bool:
    return (gold.opening, gold.closing) == (given.opening, given.closing) and _same_in_order(
        gold.items, given.items
    )


def _same_point(gold: Bracketed, given: Listing) -> bool:
    """``x = 8, y = -2`` for ``(8, -2)``; else a list is compared as a set of reals."""
    pairs = [
        item.members for item in given.items if isinstance(item, Chain) and item.signs == ("=",)
    ]
    if len(pairs) != len(given.items):
        return _same_set(gold, given)
    names = [str(name.expr) if isinstance(name, Value) else "" for name, _ in pairs]
    return (
        (gold.opening, gold.closing) == ("(", ")")
        and all(names)
        and names == sorted(set(names))
        and _same_in_order(gold.items, tuple(value for _, value in pairs))
    )


def _same_grids(gold: Grid, given: Grid) -> bool:
    return len(gold.rows) == len(given.rows) and all(map(_same_in_order, gold.rows, given.rows))


def _same_combinations(gold: Combination, given: Combination) -> bool:
    return gold.sign == given.sign and (
        (same_answer(gold.left, given.left) and same_answer(gold.right, given.right))
        or (
            gold.sign != "setminus"
            and same_answer(gold.left, given.right)
            and same_answer(gold.right, given.left)
        )
    )


def _same_clock(gold: Clock, given: Clock) -> bool:
    if gold.half is None:  # a 24-hour clock, or the half is not asked for
        return gold.seconds == given.seconds or gold.seconds == _seconds(given)
    if given.half is None:
        return given.seconds >= 13 * 3600 and given.seconds == _seconds(gold)
    return _seconds(gold) == _seconds(given)


def _seconds(clock: Clock) -> int:
    """Seconds since midnight."""
    if clock.half is None:
        return clock.seconds
    return clock.seconds % (12 * 3600) + (12 * 3600 if clock.half == "p" else 0)


def _same_chains(gold: Chain, given: Chain) -> bool:
    if gold.signs == ("=",) and set(given.signs) == {"="} and len(given.members) > 2:
        # x = 2 + 3 = 5
        rest = Chain(given.signs[1:], given.members[1:])
        return same_answer(gold.members[0], given.members[0]) and same_answer(gold.members[1], rest)
    if len(gold.members) == len(given.members) == 2:
        if _same_relations(gold, given):
            return True
    elif gold.signs == given.signs and _same_in_order(gold.members, given.members):
        return True
    elif gold.signs == tuple(map(_turned, reversed(given.signs))):
        return _same_in_order(gold.members, given.members[::-1])
    return False


def _turned(sign: str) -> str:
    return sign.translate(str.maketrans("<>", "><"))


def _same_relations(gold: Chain, given: Chain) -> bool:
    """Two equations or inequalities that a constant factor makes the same."""
    (a, b), (c, d) = gold.members, given.members
    if gold.signs == given.signs and same_answer(a, c) and same_answer(b, d):
        return True
    if gold.signs == ("=",) and given.signs == ("=",) and same_answer(a, d) and same_answer(b, c):
        return True
    sides = [member.expr if isinstance(member, Value) else None for member in (a, b, c, d)]
    if any(not isinstance(side, sympy.Expr) or side.has(sympy.oo) for side in sides):
        return False
    factor = proportional(sides[0] - sides[1], sides[2] - sides[3])  # type: ignore[operator]
    if gold.signs[0] in ("=", "!="):
        return factor != 0 and gold.signs == given.signs
    if gold.signs[0] not in _ORDERED:
        return False
    return factor != 0 and given.signs[0] == (
        gold.signs[0] if factor > 0 else _turned(gold.signs[0])
    )


_SAME_KIND: dict[type, Any] = {
    Value: _same_values,
    Words: lambda gold, given: same_words(gold.text, given.text),
    Clock: _same_clock,
    Based: lambda gold, given: gold == given,
    Ratio: lambda gold, given: _same_in_order(gold.parts, given.parts),
    Listing: _same_listings,
    Bracketed: _same_brackets,
    Combination: _same_combinations,
    NamedSet: lambda gold, given: gold == given,
    Grid: _same_grids,
    Chain: _same_chains,
}

# -- across kinds


def _chain_ends_in(gold: Answer, given: Chain) -> bool:
    """Whether ``x = ... = gold``: every member is a name or the gold, and the signs hold."""
    if not set(given.signs) <= {"=", "~", "equiv"}:
        return False
    exact = given.members
    if "~" in given.signs:
        at = given.signs.index("~")
        exact, rough = given.members[: at + 1], given.members[at + 1 :]
        if all(map(_is_name, exact)):
            exact = (*exact, rough[0])
            rough = rough[1:]
        elif not any(same_answer(gold, member) for member in exact if not _is_name(member)):
            # \pi \approx 3.14 for a gold of 3.14
            return (
                len(rough) == 1 and same_answer(gold, rough[0]) and _rounds_to(exact[-1], rough[0])
            )
        if not all(_rounds_to(exact[-1], member) for member in rough):
            return False
    name = _is_unknown if _is_zero(gold) else _is_name  # "3x + y = 0" does not answer 0
    said = [member for member in exact if not name(member)]
    if not said:  # y = -2x
        said = [member for member in exact if not _is_unknown(member)] or [exact[-1]]
    return all(same_answer(gold, member) for member in said)


def _is_zero(answer: Answer) -> bool:
    return isinstance(answer, Value) and bool(answer.expr.is_zero)


def _rounds_to(value: Answer, rough: Answer) -> bool:
    """Whether a decimal is a value to within one unit of its last digit."""
    if not (isinstance(value, Value) and isinstance(rough, Value) and rough.expr.is_Rational):
        return False
    digits = next((k for k in range(20) if (rough.expr * 10**k).is_Integer), None)
    error = sympy.Abs(value.expr - rough.expr).evalf(20)
    return digits is not None and bool(error.is_number and error <= sympy.Rational(1, 10**digits))


def _is_unknown(answer: Answer) -> bool:
    r"""What stands for the answer before an equals sign: ``x``, ``f(2)``, ``\text{Area}``."""
    if isinstance(answer, Words):
        return True
    if isinstance(answer, Value):
        return bool(answer.expr.is_Symbol) or isinstance(answer.expr, AppliedUndef)
    if isinstance(answer, Bracketed | Listing):
        return all(map(_is_unknown, answer.items))
    return isinstance(answer, Ratio) and all(map(_is_unknown, answer.parts))


def _is_name(answer: Answer) -> bool:
    """What a question may ask for: an unknown, or ``a + b``, ``m/n``, ``100a + b``, ``|AB|``."""
    if _is_unknown(answer):
        return True
    if not isinstance(answer, Value) or not answer.expr.atoms(sympy.Symbol, AppliedUndef):
        return False
    return all(term.atoms(sympy.Symbol, AppliedUndef) for term in sympy.Add.make_args(answer.expr))


def _same_choice(gold: Answer, given: Answer) -> bool:
    if isinstance(gold, Choice):
        return _letter(given) == gold.letter
    assert isinstance(given, Choice)
    if _letter(gold) == given.letter:
        return True
    return given.rest is not None and same_answer(gold, given.rest)


def _letter(answer: Answer) -> str | None:
    if isinstance(answer, Choice):
        return answer.letter
    if isinstance(answer, Value) and answer.expr.is_Symbol:
        name = str(answer.expr.name).removeprefix("vec(").removeprefix("bold(").removesuffix(")")
        return name.upper() if len(name) == 1 else None
    return None


def _is_product_of_letters(expr: Any) -> bool:
    return bool(expr.is_Mul) and all(factor.is_Symbol for factor in expr.args)


def _same_quotient(value: Value, ratio: Ratio) -> bool:
    parts = [part.expr for part in ratio.parts if isinstance(part, Value)]
    return (
        len(parts) == len(ratio.parts) == 2
        and not parts[1].is_zero
        and value.unit is None
        and same_value(value.expr, parts[0] / parts[1])
    )


def _same_matrix(grid: Grid, value: Value) -> bool:
    cells = [[cell.expr if isinstance(cell, Value) else None for cell in row] for row in grid.rows]
    if not isinstance(value.expr, sympy.MatrixBase) or value.expr.rows != len(cells):
        return False
    return all(
        len(row) == value.expr.cols
        and all(
            cell is not None and same_value(cell, value.expr[r, c]) for c, cell in enumerate(row)
        )
        for r, row in enumerate(cells)
    )
