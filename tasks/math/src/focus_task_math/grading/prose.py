"""Prose around and instead of an answer: leading sentences, words for numbers and sets."""

# ruff: noqa: SIM905  # lists of words read best as words

from __future__ import annotations

import re

from focus_task_math.grading.tokens import Token, Tokens

__all__ = ["ALL_REALS", "NOTHING", "NUMBER_WORDS", "same_words", "without_sentence"]

NUMBER_WORDS = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen twenty".split()
    )
}
ALL_REALS = frozenset(["all real numbers", "all reals", "all real values", "real numbers"])
NOTHING = frozenset(
    ["no solution", "no solutions", "no real solution", "no real solutions", "empty set", "none"]
)

# A sentence ends where its verb hands over to the answer.
_LINKS = frozenset("is are was were be equals equal".split())
_CONCLUDING = frozenset("thus so therefore hence".split())
_LINKS_TO_MATH = _CONCLUDING | frozenset("of to has have get gives by at".split())
_DENIALS = frozenset("not no never neither nor isn aren cannot t except than least most".split())
_ARTICLES = re.compile(r"^(?:an?|the) ")


def without_sentence(tokens: Tokens) -> Tokens:
    r"""The tokens after a leading sentence, as in ``\text{The answer is } 5``."""
    cut = 0
    for index, token in enumerate(tokens[:-1]):
        word = token.text.lower()
        if (
            token.is_op(":")
            and index
            and tokens[index - 1].kind == "word"
            and _is_long(tokens[index - 1])
        ):
            cut = index + 1
        elif token.kind in ("word", "letters"):
            if word in _DENIALS:
                return tokens
            if (index or word in _CONCLUDING) and (
                word in _LINKS
                or (word in _LINKS_TO_MATH and tokens[index + 1].kind not in ("word", "letters"))
            ):
                cut = index + 1
        elif not token.is_op(",", "'"):
            break
    return tokens[cut:]


def _is_long(token: Token) -> bool:
    return len(token.text) > 1


def same_words(one: str, other: str) -> bool:
    """Whether two texts name the same: case, punctuation and articles aside, letter for letter."""
    return _bare(one) == _bare(other)


def _bare(text: str) -> str:
    text = re.sub(r"(?<=\w)-(?=\w)|\s+", " ", re.sub(r"[.,'\"`!?:()]", "", text.casefold())).strip()
    return _ARTICLES.sub("", text)
