"""math-verify's parser for what the strict reader does not know: gcd, lcm, max, min."""

# ruff: noqa: SIM905  # lists of words read best as words

from __future__ import annotations

from typing import Any

import sympy  # type: ignore[import-untyped]

from focus_task_math.grading.tokens import Tokens, Unreadable

__all__ = ["express_with_math_verify"]

_KNOWN = frozenset(
    "gcd lcm max min infty frac sqrt pi log ln exp sin cos tan cot sec csc binom".split()
)


def express_with_math_verify(tokens: Tokens, cause: Unreadable) -> Any:
    """The value of an expression as math-verify's LaTeX grammar reads it, evaluated.

    The grammar skips what it does not know and stops where it cannot go on, so it is given only
    commands whose meaning it has, and must use up its input.

    Raises:
        Unreadable: It cannot; ``cause`` says what the strict reader met.
    """
    from latex2sympy2_extended.latex2sympy2 import (  # type: ignore[import-untyped]
        ConversionConfig,
        _Latex2Sympy,
    )

    latex = _latex(tokens, cause)
    parser: Any = None

    class Whole(_Latex2Sympy):  # type: ignore[misc]  # untyped
        def create_parser(self, latex_str: str) -> Any:
            nonlocal parser
            parser = super().create_parser(latex_str)
            return parser

    try:
        value = Whole(is_real=None, config=ConversionConfig(lowercase_symbols=False)).parse(latex)
        if parser.getCurrentToken().text != "<EOF>":
            raise cause
        value = value.doit().subs({sympy.Symbol("e"): sympy.E, sympy.Symbol("i"): sympy.I})
    except Exception as error:  # its parser raises bare Exceptions
        raise cause from error
    if not isinstance(value, sympy.Expr) or value.has(sympy.nan, sympy.zoo):
        raise cause
    return value


def _latex(tokens: Tokens, cause: Unreadable) -> str:
    """The tokens as LaTeX in which every argument has its braces, so that no two numbers join."""
    written = []
    arguments = 0
    for token in tokens:
        if token.kind == "group":
            latex = "{" + _latex(token.inner, cause) + "}"
        elif token.kind == "number" and token.text.replace(".", "", 1).isdigit():
            whole, _, digits = token.text.partition(".")
            latex = rf"\frac{{{int(whole + digits)}}}{{1{'0' * len(digits)}}}" if digits else whole
        elif token.kind == "letters" or (token.kind == "op" and token.text in "+-*/^_=()[],!|"):
            latex = token.text + " "
        elif token.is_op("times"):
            latex = "* "
        elif token.kind == "command" and token.text in _KNOWN:
            latex = f"\\{token.text} "
        else:
            raise cause
        if arguments:
            pieces = list(token.text) if token.kind in ("letters", "number") else [latex]
            if len(pieces) > arguments:
                raise cause  # TeX takes the first digit or letter
            latex = "".join(f"{{{piece}}}" for piece in pieces)  # a group in a group is the group
            arguments -= len(pieces)
        if token.is_op("^", "_"):
            arguments = 1
        elif token.kind == "command" and token.text in ("frac", "binom"):
            arguments = 2
        written.append(latex)
    return "".join(written)
