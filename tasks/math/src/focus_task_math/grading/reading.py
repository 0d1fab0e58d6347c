"""An answer's LaTeX to what it says: a number, a list, an interval, an equation, a name, ..."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import attrs
import sympy  # type: ignore[import-untyped]

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
from focus_task_math.grading.numerals import COUNTS
from focus_task_math.grading.progressions import without_dots
from focus_task_math.grading.prose import without_remark, without_sentence
from focus_task_math.grading.scalars import angle, in_words, scalar
from focus_task_math.grading.tokens import Token, Tokens, Unreadable, show, tokenise

__all__ = ["read", "relational"]

_OPENING = ("(", "[", "{", "langle")
_CLOSING = (")", "]", "}", "rangle")
_ROUND = {"langle": "(", "rangle": ")"}
_SIGNS = ("=", "<", ">", "<=", ">=", "!=", "~", "in", "equiv")
_SET_SIGNS = ("cup", "cap", "setminus")
_NAMED = {"R": "R", "Z": "Z", "Q": "Q", "C": "C", "N": "N"}
_CLOCK = re.compile(
    r"(\d{1,2})(?::([0-5]\d))?(?::([0-5]\d))?\s*(?:([ap])\s?\.?\s?m\.?)?", re.IGNORECASE
)
_STARTS = ("(", "[", "{", "-", "|", "$")
_ORDINALS = ("st", "nd", "rd", "th")
_ANGLES = frozenset(["sin", "cos", "tan", "cot", "sec", "csc", "cis"])
_VARIABLES = frozenset("nstxz")
_LETTERS = "ABCDEFGHIJ"


def read(latex: str) -> Answer:
    """Read an answer as written.

    Raises:
        Unreadable: It is empty, or no answer of a kind known here.
    """
    try:
        return _read(tokenise(latex))
    except RecursionError as error:
        raise Unreadable("nested too deep") from error


def _read(tokens: Tokens) -> Answer:
    tokens = _trimmed(without_remark(without_sentence(_trimmed(tokens))))
    if not tokens:
        raise Unreadable("empty")
    for reader in (
        _clock, _choice, angle, in_words, _listing, _combination, _chain, _braces, _plus_minus,
        _ratio, _bracketed, _grid, _named, _based,
    ):  # fmt: skip
        answer = reader(tokens)
        if answer is not None:
            return answer
    return scalar(tokens)


def _trimmed(tokens: Tokens) -> Tokens:
    """Without a full stop at the end, and without a group around everything."""
    while tokens:
        if len(tokens) == 1 and tokens[0].kind == "group":
            tokens = tokens[0].inner
        elif tokens[-1].is_op(".", ",", ";"):
            tokens = tokens[:-1]
        else:
            break
    return tokens


def _split(
    tokens: Tokens, divides: Callable[[Token, int], bool]
) -> tuple[list[Tokens], list[Token]]:
    """Parts between the dividing tokens outside of brackets, and those tokens.

    ``divides`` is given each token and its index.
    """
    parts: list[list[Token]] = [[]]
    dividers = []
    depth = 0
    for index, token in enumerate(tokens):
        if token.is_op(*_OPENING):
            depth += 1
        elif token.is_op(*_CLOSING):
            depth = max(0, depth - 1)
        elif depth == 0 and divides(token, index):
            parts.append([])
            dividers.append(token)
            continue
        parts[-1].append(token)
    return [tuple(part) for part in parts], dividers


# -- one reader for each kind: an answer, or None if the tokens are of another kind


def _clock(tokens: Tokens) -> Answer | None:
    match = _CLOCK.fullmatch(show(tokens))
    if match is None:
        return None
    hour, minute, second, half = match.groups()
    if (minute is None and half is None) or int(hour) > (12 if half else 24):
        return None
    seconds = int(hour) * 3600 + int(minute or 0) * 60 + int(second or 0)
    return Clock(seconds, half.lower() if half else None)


def _choice(tokens: Tokens) -> Answer | None:
    r"""``(C)``, ``\text{C}``, ``\textbf{(C) } 5``, ``C. 5``, ``\text{Choice C}``."""
    if tokens[0].text.lower() in ("choice", "option") and len(tokens) > 1:
        tokens = tokens[1:]
    at = 1 if tokens[0].is_op("(") else 0
    if at >= len(tokens) or tokens[at].kind not in ("word", "letters"):
        return None
    token, rest = tokens[at], tokens[at + 1 :]
    letter = token.text.upper() if token.kind == "word" and at else token.text
    if len(letter) != 1 or letter not in _LETTERS:
        return None
    marked = bool(rest) and rest[0].is_op(*((")",) if at else (")", ".", ":")))
    if marked:
        rest = rest[1:]
    elif at or rest:
        return None
    if not rest:
        return Choice(letter) if marked or token.kind == "word" else None
    if not rest[0].spaced or (rest[0].kind == "op" and not rest[0].is_op(*_STARTS)):
        return None  # (A)(B); C:3; (C) and (D); (C) + 1
    if _joins(rest[0], 0):
        return None
    try:
        said = _read(rest)
        others = said.items if isinstance(said, Listing) else (said,)
        others = tuple(item for item in others if isinstance(item, Choice))
        return Listing((Choice(letter), *others)) if others else Choice(letter, said)
    except Unreadable:
        return Choice(letter, Words(show(rest)))


def _joins(token: Token, _: int) -> bool:
    return token.is_op(",", ";") or (
        token.kind in ("word", "letters") and token.text.lower() in ("and", "or")
    )


def _listing(tokens: Tokens) -> Answer | None:
    parts, dividers = _split(tokens, _joins)
    parts = [part for part in parts if part]
    if not dividers or not parts:
        return None
    if len(parts) == 1:
        return _read(parts[0])
    items = [_read(part) for part in parts]
    signs = {divider.text.lower() for divider in dividers}
    joint: Literal["", "or", ";"] = "or" if "or" in signs else ";" if signs == {";"} else ""
    first = items[0]
    if (
        isinstance(first, Chain)
        and first.signs == ("=",)
        and not any(isinstance(item, Chain) for item in items[1:])
    ):  # x = 1, 2
        values = Listing(_flat([first.members[1], *items[1:]]), joint=joint)
        return attrs.evolve(first, members=(first.members[0], values))
    return Listing(without_dots(_flat(items)), joint=joint)


def _flat(items: list[Answer]) -> tuple[Answer, ...]:
    flat: list[Answer] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Listing) and not item.braces else [item])
    return tuple(flat)


def _combination(tokens: Tokens) -> Answer | None:
    def divides(token: Token, index: int) -> bool:
        return token.is_op(*_SET_SIGNS) or (
            token.text == "U" and 0 < index < len(tokens) - 1
            and tokens[index - 1].is_op(*_CLOSING) and tokens[index + 1].is_op(*_OPENING)
        )  # fmt: skip

    if any(token.is_op(*_SIGNS) for token in _split(tokens, lambda *_: False)[0][0][:2]):
        return None  # x \in A \cup B
    parts, dividers = _split(tokens, divides)
    if not dividers:
        return None
    answer = _read(parts[0])
    for sign, part in zip(dividers, parts[1:], strict=True):
        answer = Combination("cup" if sign.text == "U" else sign.text, answer, _read(part))
    return answer


def _chain(tokens: Tokens) -> Answer | None:
    parts, dividers = _split(tokens, lambda token, _: token.is_op(*_SIGNS))
    if not dividers:
        return None
    first = _function(parts[0]) if dividers[0].is_op("=") else None
    members = ((first or _read(parts[0])), *map(_read, parts[1:]))
    return Chain(tuple(sign.text for sign in dividers), members)


def _function(tokens: Tokens) -> Value | None:
    """``P(x)`` before an equals sign, which defines P: elsewhere only f, g and h are functions."""
    if (
        len(tokens) == 4 and tokens[0].kind == tokens[2].kind == "letters"
        and tokens[1].is_op("(") and tokens[3].is_op(")")
        and len(tokens[0].text) == 1
        and (tokens[2].text in _VARIABLES or (tokens[0].text.isupper() and tokens[2].text in "uy"))
    ):  # fmt: skip
        return Value(sympy.Function(tokens[0].text)(sympy.Symbol(tokens[2].text)))
    return None


def _plus_minus(tokens: Tokens) -> Answer | None:
    upper, lower = _signed(tokens, 0), _signed(tokens, 1)
    return None if upper == tokens else Listing(_flat([_read(upper), _read(lower)]))


def _signed(tokens: Tokens, branch: int) -> Tokens:
    r"""One branch of all the ``\pm`` and ``\mp`` of an expression."""
    signs = {"+-": "+-"[branch], "-+": "-+"[branch]}
    return tuple(
        attrs.evolve(token, text=signs[token.text])
        if token.is_op("+-", "-+")
        else attrs.evolve(
            token, rows=tuple(tuple(_signed(cell, branch) for cell in row) for row in token.rows)
        )
        if token.rows
        else token
        for token in tokens
    )


def _ratio(tokens: Tokens) -> Answer | None:
    parts, dividers = _split(tokens, lambda token, _: token.is_op(":"))
    return Ratio(tuple(map(_read, parts))) if dividers else None


def _inside(tokens: Tokens) -> Tokens | None:
    """What stands between the bracket at the start and its partner at the end."""
    if len(tokens) < 2 or not (tokens[0].is_op(*_OPENING) and tokens[-1].is_op(*_CLOSING)):
        return None
    depth = 0
    for token in tokens[:-1]:
        depth += token.is_op(*_OPENING) - token.is_op(*_CLOSING)
        if depth == 0:
            return None  # (a)(b)
    return tokens[1:-1]


def _braces(tokens: Tokens) -> Answer | None:
    inside = _inside(tokens)
    if inside is None or (tokens[0].text, tokens[-1].text) != ("{", "}"):
        return None
    if not inside:
        return NamedSet("empty")
    parts, dividers = _split(inside, lambda token, _: token.is_op("mid", "|", ":"))
    if len(dividers) == 1 and relational(condition := _read(parts[1])):
        element = _read(parts[0])
        if isinstance(element, Chain):  # {x in R | x < 3}
            element = element.members[0]
        if not (isinstance(element, Value) and element.expr.is_Symbol):  # {2k | k in Z}
            return Listing((element, condition), braces=True)
        if isinstance(condition, Chain):  # {x | x < 3}
            return attrs.evolve(condition, bound=True)
        return condition
    answer = _read(inside)
    items = answer.items if isinstance(answer, Listing) and not answer.braces else (answer,)
    return Listing(items, braces=True)


def _bracketed(tokens: Tokens) -> Answer | None:
    inside = _inside(tokens)
    if inside is None:
        return None
    opening, closing = (_ROUND.get(token.text, token.text) for token in (tokens[0], tokens[-1]))
    parts, dividers = _split(inside, lambda token, _: token.is_op(",", ";"))
    if dividers:
        return Bracketed(opening, closing, tuple(map(_read, parts)))
    if len(inside) == 1 and inside[0].kind == "env":
        return _grid(inside)
    return _read(inside) if (opening, closing) == ("(", ")") else None


def relational(answer: Answer) -> bool:
    r"""Whether it is an inequality or ``x \in S``, or several."""
    if isinstance(answer, Listing):
        return all(map(relational, answer.items))
    return isinstance(answer, Chain) and answer.signs != ("=",)


def _grid(tokens: Tokens) -> Answer | None:
    if len(tokens) != 1 or tokens[0].kind != "env" or tokens[0].text in ("vmatrix", "Vmatrix"):
        return None
    rows = tokens[0].rows
    if "matrix" not in tokens[0].text and tokens[0].text not in ("array", "tabular"):
        # aligned, ...: one statement a line; cases: a value and its condition
        if tokens[0].text != "cases" or all(len(row) == 1 for row in rows):
            lines = [_read(tuple(token for cell in row for token in cell)) for row in rows]
            return Listing(_flat(lines)) if len(lines) > 1 else lines[0]
        rows = tuple(tuple(map(_condition, row)) for row in rows)
    return Grid(tuple(tuple(_read(cell) if cell else Words("") for cell in row) for row in rows))


def _condition(cell: Tokens) -> Tokens:
    r"""``x > 0`` of ``\text{if } x > 0,``."""
    cell = _trimmed(cell)
    return cell[1:] if cell and cell[0].text.lower() in ("if", "when", "for") else cell


def _named(tokens: Tokens) -> Answer | None:
    if tokens[0].kind != "command":
        return None
    if tokens[0].text == "emptyset" and len(tokens) == 1:
        return NamedSet("empty")
    if tokens[0].text == "mathbb" and (
        len(tokens) == 2 or (len(tokens) == 4 and tokens[2].is_op("^", "_"))
    ):
        name = _NAMED.get(show(tokens[1:2]))
        return NamedSet(name + show(tokens[2:]).replace(" ", "")) if name else None
    return None


def _based(tokens: Tokens) -> Answer | None:
    r"""``204_5``, ``204_{\text{five}}``, ``(204)_5``, ``204 \text{ (base 5)}``."""
    text = show(tokens)
    match = re.fullmatch(
        r"\(?([0-9A-F]*[0-9][0-9A-F]*|[A-F]+(?=\)?_1[1-6]$))\)?"
        r"(?:_\(?(?:base[ -]?)?|\s*\(?\s*(?:in )?base[ -])([a-z]+|\d{1,2})\)?\)?",
        text,
    )
    if match is None:
        return None
    digits, base = match.groups()
    size = COUNTS.get(base, -1) if base.isalpha() else int(base)
    if not 2 <= size <= 36 or any(int(digit, 36) >= size for digit in digits):
        raise Unreadable(f"no numeral of base {base}: {digits}")
    return Based(digits.lstrip("0") or "0", size)
