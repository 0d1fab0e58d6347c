"""The names that an expression may use: functions, letters, accents, brackets."""

# ruff: noqa: SIM905  # lists of words read best as words

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy  # type: ignore[import-untyped]

from focus_task_math.grading import bounded
from focus_task_math.grading.tokens import Token, Tokens

__all__ = [
    "ACCENTS",
    "ALIAS",
    "BARE",
    "CLOSING",
    "CONNECTIVES",
    "DEGREE",
    "FUNCTIONS",
    "GREEK",
    "MATRICES",
    "of_log",
    "singled",
]

DEGREE = sympy.pi / 180


def of_log(base: Any) -> Callable[[Any], Any]:
    """The logarithm to a base."""
    return lambda value: bounded.divide(sympy.log(value), sympy.log(base))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{
        name: getattr(sympy, name) for name in "sin cos tan cot sec csc sinh cosh tanh coth".split()
    },
    **{f"arc{name}": getattr(sympy, f"a{name}") for name in "sin cos tan cot sec csc".split()},
    "exp": lambda value: bounded.power(sympy.E, value),
    "ln": sympy.log,
    "log": of_log(10),
    "lg": of_log(10),
    "cis": lambda value: sympy.exp(sympy.I * value),
}
BARE = frozenset(FUNCTIONS) | {"sqrt", "pi", "infty", "theta", "alpha", "beta"}
ALIAS = {"inf": "infty", "infinity": "infty", "Infinity": "infty", "asin": "arcsin"}
GREEK = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega "
    "varpi varrho varsigma ell hbar".split()
)
CLOSING = {"(": ")", "[": "]"}
ACCENTS = {"overline": "bar"} | {
    name: name for name in "bar vec bold tilde dot ddot dddot check breve mathring".split()
}
MATRICES = frozenset(["matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array"])
CONNECTIVES = frozenset(["and", "or", "not", "if", "for", "but"])


def singled(tokens: Tokens) -> list[Token]:
    """Runs of letters as single symbols, but for the names of functions and constants."""
    single: list[Token] = []
    for token in tokens:
        if token.kind != "letters" or len(token.text) == 1:
            single.append(token)
        elif (name := ALIAS.get(token.text, token.text)) in BARE:
            single.append(Token("command", name, spaced=token.spaced))
        else:
            single.extend(
                Token("letters", letter, spaced=token.spaced and not index)
                for index, letter in enumerate(token.text)
            )
    return single
