"""One value with its unit, in figures or in words; and names, which are neither."""

from __future__ import annotations

import re

import attrs
import sympy  # type: ignore[import-untyped]

from focus_task_math.grading.engine import express_with_math_verify
from focus_task_math.grading.expressions import Unsupported, express
from focus_task_math.grading.kinds import Value, Words
from focus_task_math.grading.numerals import (
    applied_after,
    applied_before,
    applies,
    spoken,
    spoken_start,
)
from focus_task_math.grading.tokens import Tokens, Unreadable, show
from focus_task_math.grading.units import is_word, read_unit

__all__ = ["angle", "in_words", "scalar"]

_ORDINALS = ("st", "nd", "rd", "th")
_ANGLES = frozenset(["sin", "cos", "tan", "cot", "sec", "csc", "cis"])
_ANGLE_MARKS = {
    "deg": "d", "'": "m", '"': "s",
    **dict.fromkeys(["degree", "degrees"], "d"),
    **dict.fromkeys(["minute", "minutes", "min"], "m"),
    **dict.fromkeys(["second", "seconds", "sec"], "s"),
}  # fmt: skip
_MOST_WORDS = 30
_ANGLE = re.compile(r"(-?)(\d+)d([\d.]+)m(?:([\d.]+)(?:s|mm))?")


def angle(tokens: Tokens) -> Value | None:
    r"""Degrees, minutes and maybe seconds: ``48^\circ 30' 15''`` is 48 + 30/60 + 15/3600 degrees.

    Raises:
        Unreadable: Sixty minutes or more.
    """
    written = "".join(
        token.text
        if token.kind == "number" or token.is_op("-")
        else _ANGLE_MARKS.get(token.text.lower(), "" if token.text == "and" else "?")
        for token in tokens
    )
    match = _ANGLE.fullmatch(written)
    if match is None:
        return None
    sign, *sizes = match.groups(default="0")
    degrees, minutes, seconds = (sympy.Rational(size) for size in sizes)
    if minutes >= 60 or seconds >= 60:
        raise Unreadable("sixty minutes or seconds")
    value = degrees + minutes / 60 + seconds / 3600
    return Value(-value if sign else value, (("degree", 1),))


def in_words(tokens: Tokens) -> Value | None:
    """``thirty-one``, ``two dozen eggs``, ``5 and a half``, ``half of 10``."""
    more = len(tokens) > 2 and tokens[0].kind == "number" and tokens[1].text == "and"
    start = 2 if more else 0
    words: list[str] = []
    ends = []  # for each word, where the tokens after it begin
    for index, token in enumerate(tokens[start:], start + 1):
        if token.kind in ("word", "letters"):
            words.append(token.text.lower())
            ends.append(index)
        elif not (words and token.is_op("-")):
            break
        if len(words) == _MOST_WORDS:
            break
    if size := spoken_start(words):
        number, rest = spoken(words[:size]), tokens[ends[size - 1] :]
        if more:
            number = number + _value(tokens[:1]) if 0 < number < 1 else None
        if number is not None and "of" not in words[size : size + 1]:
            try:
                scale, unit = read_unit(rest) if rest else (1, None)
            except Unreadable:
                pass
            else:
                return Value(number * scale, unit)
    for size in range(len(words), 0, -1) if not more else ():
        apply, rest = applied_before(words[:size]), tokens[ends[size - 1] :]
        if apply is not None and rest:
            inner = in_words(rest) or scalar(rest)
            return Value(apply(inner.expr), inner.unit) if isinstance(inner, Value) else None
    return None


def scalar(tokens: Tokens) -> Value | Words:
    """A number, expression or quantity; else words."""
    if len(tokens) == 1 and tokens[0].is_op("..."):
        return Words("...")  # 1, 2, ..., 10
    if len(tokens) > 2 and tokens[-2].is_op("^") and show(tokens[-1:]) in _ORDINALS:
        tokens = tokens[:-2]  # 21^{\text{st}}
    prefix: Tokens = ()
    if tokens[0].is_op("$", "€", "£", "¥"):
        prefix, tokens = (tokens[0],), tokens[1:]
    elif len(tokens) > 1 and tokens[0].is_op("-") and tokens[1].is_op("$"):
        prefix, tokens = (tokens[1],), (tokens[0], *tokens[2:])
    for start in range(1, len(tokens)):
        quantity = _quantity(tokens, start, prefix)
        if quantity is not None:
            return quantity
    if prefix:
        return Value(_value(tokens), read_unit(prefix)[1])
    if _is_prose(tokens):
        return Words(show(tokens))
    return Value(_value(tokens))


def _quantity(tokens: Tokens, start: int, prefix: Tokens) -> Value | None:
    """The tokens as an expression before ``start`` and a unit from there."""
    first = tokens[start]
    bare = first.kind == "letters"
    if not (
        first.kind == "word" or first.is_op("%", "deg", "€", "£", "¥", "$")
        or (first.kind == "group" and first.inner and first.inner[0].kind == "word")
        or (first.kind == "command" and first.text in ("pmod", "bmod", "mod"))
        or (bare and (first.spaced or len(first.text) > 1))
    ):  # fmt: skip
        return None
    before = tokens[:start]
    if _is_prose(before) or (
        first.is_op("deg") and any(t.kind == "command" and t.text in _ANGLES for t in before)
    ):
        return None  # "no solution"; \sin 30^\circ
    try:
        if first.text == "of":
            part, whole = _value(before), scalar(tokens[start + 1 :])
            if isinstance(whole, Value) and part.is_Rational and 0 < part < 1:  # 50% of 4
                return attrs.evolve(whole, expr=part * whole.expr, quantity=None)
        if applies(first.text.lower()):
            return _computed(before, first.text.lower(), (*tokens[start + 1 :], *prefix))
        scale, unit = read_unit((*tokens[start:], *prefix))
        number = Value(_value(before) * scale, unit)
    except Unreadable:
        return None
    if not bare or is_word(first.text):
        return number
    try:
        return Value(_value(tokens), None, number)  # 9\ m^2
    except Unreadable:
        return number


def _computed(before: Tokens, word: str, rest: Tokens) -> Value:
    """``7 squared``, ``5 halves``, ``3 quarters of an hour``."""
    value = applied_after(word, _value(before))
    if rest and rest[0].text == "of":
        rest = rest[1:]
    return Value(value, read_unit(rest)[1] if rest else None)


def _value(tokens: Tokens) -> sympy.Basic:
    try:
        return express(tokens)
    except Unsupported as error:
        return express_with_math_verify(tokens, error)


def _is_prose(tokens: Tokens) -> bool:
    return all(
        token.kind in ("word", "letters", "number") or token.is_op(*".,'-()!?:/%&$`\"")
        for token in tokens
    ) and any(
        (token.kind == "word" and len(token.text) > 1)
        or (token.kind == "letters" and is_word(token.text))
        for token in tokens
    )
