r"""Sums, products, integrals and limits: their bounds, what they range over, and their value.

A bound without braces is one symbol, as TeX typesets it: ``\int_0^12x`` goes to 1. What sympy
cannot evaluate stays as it is, and is compared by its numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import sympy  # type: ignore[import-untyped]

from focus_task_math.grading.tokens import Token, Tokens, Unreadable, show
from focus_task_math.grading.vocabulary import GREEK

__all__ = ["OPERATORS", "Reader", "is_differential", "operate"]

OPERATORS = frozenset(["sum", "prod", "int", "lim"])
_ARROWS = ("to", "rightarrow", "longrightarrow")


class Reader(Protocol):
    """What reading an operator needs of the expression's reader."""

    tokens: list[Token]
    at: int
    bound: frozenset[str]
    integrals: int

    def sum(self) -> Any:
        """Terms with signs between them."""

    def product(self) -> Any:
        """Factors."""

    def sign(self) -> int:
        """-1 after a minus."""

    def take(self) -> Token:
        """The next token."""

    def peek(self, ahead: int = 0) -> Token | None:
        """A coming token."""

    def next_is(self, *ops: str) -> bool:
        """Whether the next token is one of these."""

    def starts_factor(self) -> bool:
        """Whether a factor comes next."""

    def nested(self, tokens: Tokens) -> Any:
        """The value of a group."""

    def argument(self) -> Any:
        """A group, or one symbol."""


def operate(reader: Reader, name: str) -> Any:
    """The value of the operator that has just been read.

    Raises:
        Unreadable: Its bounds or what it ranges over are missing, or of a kind not known here.
    """
    below, above = _scripts(reader)
    if name == "int":
        return _integral(reader, below, above)
    if below is None or below.kind != "group" or (name == "lim") != (above is None):
        raise Unreadable(f"\\{name} without its bounds")
    variable, rest = _variable(below.inner, _ARROWS if name == "lim" else ("=",))
    if name == "lim":
        return _limit(reader, variable, rest)
    low, high = reader.nested(rest), _bound(reader, above)
    with _binding(reader, variable):
        body = reader.sign() * reader.product()
    operator = sympy.Sum if name == "sum" else sympy.Product
    return _evaluated(operator(body, (variable, low, high)))


def is_differential(reader: Reader) -> bool:
    """Whether ``dx`` comes next, of an integral that is open."""
    token, after = reader.peek(), reader.peek(1)
    return (
        reader.integrals > 0
        and token is not None and token.kind == "letters" and token.text == "d"
        and after is not None and (after.kind == "letters" or _is_greek(after))
    )  # fmt: skip


def _is_greek(token: Token) -> bool:
    return token.kind == "command" and token.text in GREEK


def _scripts(reader: Reader) -> tuple[Token | None, Token | None]:
    """What stands below and above, each as one token."""
    found: dict[str, Token] = {}
    while reader.next_is("_", "^"):
        place = reader.take().text
        token = reader.take()
        if place in found:
            raise Unreadable("two bounds in one place")
        if token.kind == "number" and len(token.text) > 1:
            if not token.text.isdigit():
                raise Unreadable("a decimal bound without braces")
            reader.at -= 1
            reader.tokens[reader.at] = Token("number", token.text[1:])
            token = Token("number", token.text[0])
        found[place] = token
    return found.get("_"), found.get("^")


def _bound(reader: Reader, token: Token | None) -> Any:
    if token is None:
        raise Unreadable("a bound is missing")
    return reader.nested(token.inner if token.kind == "group" else (token,))


def _variable(tokens: Tokens, signs: tuple[str, ...]) -> tuple[Any, Tokens]:
    """``k`` and ``1`` of ``k = 1``."""
    if len(tokens) < 3 or tokens[1].text not in signs:
        raise Unreadable(f"bounds of a kind not known: {show(tokens)!r}")
    return _symbol(tokens[0]), tokens[2:]


def _symbol(token: Token) -> Any:
    if token.kind == "letters" and len(token.text) == 1:
        return sympy.Symbol(token.text)
    if _is_greek(token):
        return sympy.Symbol("\\" + token.text)
    raise Unreadable(f"no variable: {token.text!r}")


@contextmanager
def _binding(reader: Reader, variable: Any) -> Iterator[None]:
    """Inside, ``i`` is an index and no imaginary unit; a ``dx`` outside is another's."""
    before = reader.bound, reader.integrals
    reader.bound = reader.bound | {variable.name}
    yield
    reader.bound, reader.integrals = before


def _integral(reader: Reader, below: Token | None, above: Token | None) -> Any:
    if (below is None) != (above is None):
        raise Unreadable("an integral with one bound")
    bounds = () if below is None else (_bound(reader, below), _bound(reader, above))
    _move_differential(reader)
    reader.integrals += 1
    if is_differential(reader):
        body = sympy.Integer(1)
    else:
        body = reader.sum()
        if not is_differential(reader):
            raise Unreadable("an integral without its differential")
    reader.integrals -= 1
    reader.take()
    variable = _symbol(reader.take())
    if body == 1 and not reader.integrals and reader.starts_factor():
        raise Unreadable("an integrand after its differential")
    return _evaluated(sympy.Integral(body, (variable, *bounds)))


def _move_differential(reader: Reader) -> None:
    r"""``\frac{dx}{x}`` as ``\frac{1}{x} dx``."""
    for at in range(reader.at, len(reader.tokens) - 2):
        token, above, below = reader.tokens[at : at + 3]
        if token.kind == "command" and token.text in ("int", "sum", "prod"):
            return
        if token.kind != "command" or token.text != "frac" or above.kind != "group":
            continue
        letters = above.inner
        moved: Tokens
        if letters and letters[-1].kind == "letters" and letters[-1].text[:-1] == "d":
            kept, last = letters[:-1], letters[-1].text[-1:]
            moved = (Token("letters", "d"), Token("letters", last))
        elif len(letters) > 1 and letters[-2].text == "d":
            kept, moved = letters[:-2], letters[-2:]
        else:
            continue
        group = Token("group", "", ((kept or (Token("number", "1"),),),))
        reader.tokens[at + 1 : at + 3] = [group, below, *moved]
        return


def _limit(reader: Reader, variable: Any, rest: Tokens) -> Any:
    side = "+-"
    if len(rest) > 2 and rest[-2].is_op("^") and show(rest[-1:]) in ("+", "-"):
        side, rest = show(rest[-1:]), rest[:-2]
    at = reader.nested(rest)
    with _binding(reader, variable):
        body = reader.sign() * reader.product()
    value = sympy.limit(body, variable, at, "-" if at.is_infinite else side)
    if value.has(sympy.Limit, sympy.AccumBounds):
        raise Unreadable("a limit that is not found")
    return value


def _evaluated(value: Any) -> Any:
    """The value without the operator where sympy finds one, for variables in general position."""
    try:
        found = value.doit()
    except Exception:  # sympy's own; it is compared by its numbers
        return value
    if found.has(sympy.Piecewise):
        found = found.replace(sympy.Piecewise, lambda *branches: _general(branches))
    return value if found.has(sympy.nan, sympy.zoo) else found


def _general(branches: tuple[Any, ...]) -> Any:
    """What holds in general: the last branch, or the first where the last is no closed form."""
    last = branches[-1][0]
    open_form = last.has(sympy.Sum, sympy.Product, sympy.Integral, sympy.oo, sympy.nan)
    return branches[0][0] if open_form else last
