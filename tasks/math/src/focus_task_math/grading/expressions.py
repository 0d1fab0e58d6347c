"""Tokens of one mathematical expression to its exact sympy value.

A strict reader: every token must be understood and used, or the expression is unreadable. What a
rare command means is left to math-verify (``engine``); ``operators`` has sums and integrals.
"""

from __future__ import annotations

import operator
from typing import Any

import attrs
import sympy  # type: ignore[import-untyped]

from focus_task_math.grading import bounded, operators
from focus_task_math.grading.tokens import Token, Tokens, Unreadable, show
from focus_task_math.grading.vocabulary import (
    ACCENTS,
    CLOSING,
    CONNECTIVES,
    DEGREE,
    FUNCTIONS,
    GREEK,
    MATRICES,
    of_log,
    singled,
)

__all__ = ["Unsupported", "express"]

DEEPEST = 60
"""Nesting of brackets, powers and functions that is followed."""


class Unsupported(Unreadable):
    """A command this reader does not know; math-verify may."""


def express(tokens: Tokens) -> Any:
    """The value of an expression: a sympy expression, or an immutable matrix.

    Raises:
        Unreadable: The tokens are no expression.
        Unsupported: They hold a command this reader does not know.
    """
    reader = _Reader(tokens)
    try:
        value = reader.sum()
    except (TypeError, ValueError, AttributeError, ArithmeticError, NotImplementedError) as error:
        # sympy's complaints about shapes, domains and matrices as scalars
        raise Unreadable(f"makes no sense: {error}") from error
    except RecursionError as error:
        raise Unreadable("nested too deep") from error
    if reader.at < len(reader.tokens):
        raise Unreadable(f"cannot read {show(tuple(reader.tokens[reader.at :]))!r}")
    if isinstance(value, sympy.Basic) and value.has(sympy.nan, sympy.zoo):
        raise Unreadable("not a number")
    return value


def _is_d(token: Token) -> bool:
    return token.text in ("d", "partial") and token.kind in ("letters", "command")


def _is_quantity(token: Token) -> bool:
    return token.kind == "letters" or (
        token.kind == "command" and token.text in GREEK | set(ACCENTS)
    )


class _Reader:
    def __init__(self, tokens: Tokens, depth: int = 0, bound: frozenset[str] = frozenset()) -> None:
        self.tokens = singled(tokens)
        self.at = 0
        self.depth = depth
        self.bound = bound  # indices of the sums around
        self.bars = 0  # how many |...| are open
        self.integrals = 0  # how many wait for their dx

    # -- looking

    def peek(self, ahead: int = 0) -> Token | None:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else None

    def next_is(self, *ops: str) -> bool:
        token = self.peek()
        return token is not None and token.is_op(*ops)

    def accept(self, *ops: str) -> bool:
        if self.next_is(*ops):
            self.at += 1
            return True
        return False

    def accept_command(self, name: str) -> bool:
        token = self.peek()
        if token is None or token.kind != "command" or token.text != name:
            return False
        self.at += 1
        return True

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            raise Unreadable("something is missing at the end")
        self.at += 1
        return token

    def starts_factor(self) -> bool:
        token = self.peek()
        if token is None or operators.is_differential(self):
            return False
        if token.kind == "op":
            return token.text in ("(", "[", "langle") or (token.text == "|" and not self.bars)
        if token.kind == "command":
            return token.text not in ("rfloor", "rceil", "choose", "over")
        return token.kind != "word" or token.text not in CONNECTIVES

    def nested(self, tokens: Tokens) -> Any:
        """The value of a group's tokens."""
        inside = _Reader(tokens, self.depth + 1, self.bound)
        self.check_depth()
        value = inside.sum()
        if inside.peek() is not None:
            raise Unreadable(f"cannot read {show(tuple(inside.tokens[inside.at :]))!r}")
        return value

    def check_depth(self) -> None:
        if self.depth > DEEPEST:
            raise Unreadable("nested too deep")

    # -- grammar

    def sum(self) -> Any:
        value = self.sign() * self.product()
        while self.next_is("+", "-"):
            value = value + (-1 if self.take().text == "-" else 1) * self.sign() * self.product()
        if self.accept_command("over"):
            value = bounded.divide(value, self.sum())
        elif self.accept_command("choose"):
            value = bounded.binomial(value, self.sum())
        return value

    def sign(self) -> int:
        """One sign at most: ``--5`` is not 5."""
        if self.accept("-"):
            return -1
        self.accept("+")
        return 1

    def product(self) -> Any:
        value = self.mixed_number()
        if value is None:
            value = self.power()
        while True:
            if self.next_is("*", "times"):
                multiply = bounded.times if self.take().text == "times" else operator.mul
                value = multiply(value, self.sign() * self.power())
            elif self.accept("/"):
                value = bounded.divide(value, self.divisor())
            elif self.starts_factor():
                value = value * self.factor_after()
            else:
                return value

    def factor_after(self) -> Any:
        token, before = self.peek(), self.tokens[self.at - 1]
        if token is not None and token.kind == "number" and before.kind == "number":
            raise Unreadable("two numbers side by side")
        value = self.power()
        if value.is_zero:
            raise Unreadable("something times zero")  # q0 is not 0
        return value

    def divisor(self) -> Any:
        """What a slash divides by: in ``1/2x``, as typed, all of ``2x``; in ``1/2 x``, only 2."""
        value = self.sign() * self.power()
        while (
            (token := self.peek()) is not None
            and not token.spaced
            and (token.kind in ("letters", "command") and self.starts_factor())
        ):
            value = value * self.power()
        return value

    def mixed_number(self) -> Any:
        r"""``3\frac12`` or ``3 1/2``: an integer directly before a proper fraction."""
        whole, start = self.peek(), self.at
        if whole is None or whole.kind != "number" or not whole.text.isdigit():
            return None
        self.at += 1
        token, slash, below = self.peek(), self.peek(1), self.peek(2)
        part = None
        if token is not None and token.kind == "command" and token.text == "frac":
            self.at += 1
            part = self.fraction()
        elif (
            token is not None and token.kind == "number" and token.text.isdigit()
            and slash is not None and slash.is_op("/")
            and below is not None and below.kind == "number" and below.text.isdigit()
        ):  # fmt: skip
            self.at += 3
            part = bounded.divide(bounded.number(token.text), bounded.number(below.text))
        if part is not None and part.is_Rational and 0 < part < 1 and not self.next_is("^"):
            return bounded.number(whole.text) + part
        self.at = start
        return None

    def power(self) -> Any:
        value = self.postfixed(self.atom())
        if self.accept("^"):
            value = bounded.power(value, self.exponent())
            value = self.postfixed(value)
        return value

    def postfixed(self, value: Any) -> Any:
        while True:
            if self.accept("!"):
                double = self.accept("!")
                if self.next_is("!"):
                    raise Unreadable("three factorials in a row")
                value = bounded.factorial2(value) if double else bounded.factorial(value)
            elif self.accept("deg"):
                value = value * DEGREE
            elif self.accept("%"):
                value = value / 100
            else:
                return value

    def exponent(self) -> Any:
        self.depth += 1
        self.check_depth()
        sign = self.sign()
        value = self.argument(whole_numbers=True)
        if self.accept("^"):
            value = bounded.power(value, self.exponent())
        self.depth -= 1
        return sign * value

    def argument(self, *, whole_numbers: bool = False) -> Any:
        """What a command or ``^`` applies to: a group, or one symbol (TeX takes one digit)."""
        token = self.take()
        if token.kind == "group":
            return self.nested(token.inner)
        if (
            token.kind == "number"
            and token.text.isdigit()
            and len(token.text) > 1
            and not whole_numbers
        ):
            self.at -= 1
            self.tokens[self.at] = attrs.evolve(token, text=token.text[1:], spaced=False)
            return bounded.number(token.text[0])
        self.at -= 1
        return self.atom()

    def fraction(self) -> Any:
        if (derivative := self.derivative()) is not None:
            return derivative
        above = self.argument()
        return bounded.divide(above, self.argument())

    def derivative(self) -> Any:
        r"""``\frac{dy}{dx}`` as one symbol: the d does not cancel."""
        parts = [self.peek(), self.peek(1)]
        if any(part is None or part.kind != "group" for part in parts):
            return None
        above, below = (singled(part.inner) for part in parts if part is not None)
        if not (len(below) in (2, 4) and _is_d(below[0]) and _is_quantity(below[1])):
            return None
        if not (above and _is_d(above[0]) and above[0].text == below[0].text):
            return None
        order = 3 if len(above) > 1 and above[1].is_op("^") else 1
        if len(above) == order:
            raise Unreadable("a derivative of what follows")
        if not _is_quantity(above[order]):
            return None
        self.at += 2
        return sympy.Symbol("/".join(show(tuple(side)).replace(" ", "") for side in (above, below)))

    def atom(self) -> Any:
        self.depth += 1
        self.check_depth()
        token = self.take()
        if token.kind == "number":
            if self.next_is("_"):
                raise Unreadable("a number in another base inside an expression")
            value = bounded.number(token.text)
        elif token.kind in ("letters", "word"):
            value = self.symbol(token)
        elif token.kind == "group":
            value = self.nested(token.inner)
        elif token.kind == "env":
            value = self.matrix(token)
        elif token.kind == "command":
            value = self.command(token.text)
        elif token.text in CLOSING:
            value = self.bracketed(CLOSING[token.text])
        elif token.text == "langle":
            value = self.mean()
        elif token.text == "|":
            self.bars += 1
            value = sympy.Abs(self.sum())
            self.bars -= 1
            if not self.accept("|"):
                raise Unreadable("an absolute value never closes")
        else:
            raise Unreadable(f"cannot read {token.text!r}")
        self.depth -= 1
        return value

    def mean(self) -> Any:
        r"""``\langle x^2 \rangle`` as one symbol."""
        start = self.at
        while not self.take().is_op("rangle"):
            pass
        return sympy.Symbol(f"mean({show(tuple(self.tokens[start : self.at - 1]))})")

    def bracketed(self, close: str) -> Any:
        bars, self.bars = self.bars, 0
        value = self.sum()
        self.bars = bars
        if not self.accept(close):
            raise Unreadable("unbalanced brackets")
        return value

    def symbol(self, token: Token) -> Any:
        if token.text in CONNECTIVES and token.kind == "word":
            raise Unreadable(f"cannot read {token.text!r}")
        if (subscript := self.bound_subscript()) is not None:
            return sympy.Function(token.text)(subscript)
        name = self.marked(token.text)
        if name in self.bound:
            return sympy.Symbol(name)
        if name == "e":
            return sympy.E
        if name == "i":
            return sympy.I
        if self.at_zero():
            return self.application(name)
        if name[0] in "fghFGH" and token.kind == "letters":
            if self.next_is("^") and self._inverse():
                self.at += 2
                name += "^{-1}"
            if self.next_is("("):
                return self.application(name)
        return sympy.Symbol(name)

    def bound_subscript(self) -> Any:
        """The subscript of a sequence's term below a sum: its index, in ``a_n`` or ``a_{n+1}``."""
        token = self.peek(1)
        if not self.bound or not self.next_is("_") or token is None:
            return None
        inside = token.inner if token.kind == "group" else (token,)
        if not any(t.kind == "letters" and set(t.text) & self.bound for t in inside):
            return None
        self.at += 2
        return self.nested(inside)

    def at_zero(self) -> bool:
        """Whether ``(0)`` follows a name: an initial value, since nobody multiplies by zero."""
        inside, end = self.peek(1), self.peek(2)
        return (
            self.next_is("(")
            and inside is not None and inside.kind == "number" and inside.text == "0"
            and end is not None and end.is_op(")")
        )  # fmt: skip

    def _inverse(self) -> bool:
        above, after = self.peek(1), self.peek(2)
        return (
            above is not None and above.kind == "group" and show(above.inner) == "-1"
            and after is not None and after.is_op("(")
        )  # fmt: skip

    def marked(self, name: str) -> str:
        """A name with its subscript and primes."""
        while True:
            if self.accept("_"):
                token = self.take()
                name += "_" + show(token.inner if token.kind == "group" else (token,)).replace(
                    " ", ""
                )
            elif self.accept("'"):
                name += "'"
            else:
                return name

    def application(self, name: str) -> Any:
        """``f(x, y)`` of a function nobody has defined."""
        self.at += 1
        bars, self.bars = self.bars, 0
        arguments = [self.sum()]
        while self.accept(","):
            arguments.append(self.sum())
        self.bars = bars
        if not self.accept(")"):
            raise Unreadable("unbalanced brackets")
        return sympy.Function(name)(*arguments)

    def command(self, name: str) -> Any:
        if name == "frac":
            return self.fraction()
        if name == "sqrt":
            return self.radical()
        if name == "binom":
            above = self.argument()
            return bounded.binomial(above, self.argument())
        if name in FUNCTIONS:
            return self.function(name)
        if name == "pi":
            return sympy.pi
        if name == "infty":
            return sympy.oo
        if name in GREEK:
            name = self.marked("\\" + name)
            return self.application(name) if self.at_zero() else sympy.Symbol(name)
        if name in ACCENTS:
            token = self.take()
            text = show(token.inner if token.kind == "group" else (token,))
            return sympy.Symbol(self.marked(f"{ACCENTS[name]}({text})"))
        if name in ("angle", "triangle", "measuredangle"):
            return self.figure(name)
        if name in ("lfloor", "lceil"):
            return self.rounded(name)
        if name in operators.OPERATORS:
            return operators.operate(self, name)
        raise Unsupported(f"\\{name}")

    def radical(self) -> Any:
        degree = sympy.Integer(2)
        if self.accept("["):
            degree = self.bracketed("]")
        return bounded.root(self.argument(whole_numbers=True), degree)

    def function(self, name: str) -> Any:
        exponent: Any = None
        apply = FUNCTIONS[name]
        while self.next_is("_", "^"):
            if self.take().text == "_":
                if name != "log":
                    raise Unsupported(f"\\{name} with a subscript")
                apply = of_log(self.argument(whole_numbers=True))
            else:
                exponent = self.exponent()
        if exponent == -1 and f"arc{name}" in FUNCTIONS:
            apply, exponent = FUNCTIONS[f"arc{name}"], None
        value = apply(self.function_argument())
        return value if exponent is None else bounded.power(value, exponent)

    def function_argument(self) -> Any:
        """``(x+1)``, or without brackets the product up to the next sign or function."""
        token = self.peek()
        if token is not None and (token.kind == "group" or token.is_op("(", "[", "|")):
            return self.postfixed(self.atom())
        sign = self.sign()
        value = self.mixed_number()
        if value is None:
            value = self.power()
        while (token := self.peek()) is not None and self.starts_factor():
            if token.is_op("(", "[") or (token.kind == "command" and token.text in FUNCTIONS):
                break
            value = value * self.factor_after()
        return sign * value

    def figure(self, name: str) -> Any:
        letters = ""
        while (token := self.peek()) is not None and token.kind in ("letters", "word"):
            letters += self.take().text
        if not letters:
            raise Unreadable(f"\\{name} of nothing")
        return sympy.Symbol(f"{name} {letters}")

    def rounded(self, name: str) -> Any:
        bars, self.bars = self.bars, 0
        value = self.sum()
        self.bars = bars
        end = self.take()
        if end.kind != "command" or end.text != name.replace("l", "r", 1):
            raise Unreadable("unbalanced brackets")
        return sympy.floor(value) if name == "lfloor" else sympy.ceiling(value)

    def matrix(self, env: Token) -> Any:
        if env.text not in MATRICES | {"vmatrix"}:
            raise Unsupported(env.text)
        rows = [[self.nested(cell) for cell in row] for row in env.rows]
        if len({len(row) for row in rows}) != 1:
            raise Unreadable("a matrix with ragged rows")
        value = sympy.ImmutableMatrix(rows)
        if env.text != "vmatrix":
            return value
        if value.rows != value.cols or value.rows > 5:
            raise Unreadable("not a determinant")
        return value.det()
