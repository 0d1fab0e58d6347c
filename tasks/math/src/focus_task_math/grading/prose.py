"""Prose around and instead of an answer: leading sentences, words for numbers and sets."""

# ruff: noqa: SIM905  # lists of words read best as words

from __future__ import annotations

import re

from focus_task_math.grading.tokens import Token, Tokens
from focus_task_math.grading.units import is_word

__all__ = ["ALL_REALS", "NOTHING", "same_words", "without_remark", "without_sentence"]

ALL_REALS = frozenset(["all real numbers", "all reals", "all real values", "real numbers"])
NOTHING = frozenset(
    ["no solution", "no solutions", "no real solution", "no real solutions", "empty set", "none"]
)

# A sentence ends where its verb hands over to the answer.
_LINKS = frozenset("is are was were be equals equal".split())
_CONCLUDING = frozenset("thus so therefore hence".split())
_LINKS_TO_MATH = _CONCLUDING | frozenset("has have get gets gives yields".split())
# "of", "to", "by" and "at" hand over only after these; "half of 10" and "divide by 5" compute.
_HANDING = {
    "of": frozenset(
        "total answer value area volume length perimeter maximum minimum probability chance "
        "distance speed rate cost price result radius diameter slope measure height width depth "
        "weight mass magnitude amount profit loss time age temperature remainder".split()
    ),
    "to": frozenset(
        "equal equals simplifies reduces evaluates comes amounts leads corresponds converges tends "
        "sums adds rounds works boils up".split()
    ),
    "by": frozenset("given represented described denoted expressed defined bounded".split()),
    "at": frozenset(
        "occurs attained achieved located reached intersect intersects meet meets cross crosses "
        "centered maximum minimum vertex is".split()
    ),
}
_DENIALS = frozenset(
    "not no never neither nor isn aren cannot t except than least most wrong incorrect "
    "false".split()
)
# "half the answer is 10", "the answer squared is 49"
_COMPUTING = frozenset(
    "half halved twice double doubled triple tripled thrice squared cubed square cube root times "
    "plus minus reciprocal inverse opposite negative".split()
)
_ASKED = frozenset("answer result solution number".split())
_ARTICLES = re.compile(r"^(?:an?|the) ")


def without_sentence(tokens: Tokens) -> Tokens:
    r"""The tokens after a leading sentence, as in ``\text{The answer is } 5``."""
    cut = 0
    said: list[str] = []
    subject: list[str] = []
    for index, token in enumerate(tokens[:-1]):
        word = token.text.lower()
        if token.is_op(":") and index and _is_long(tokens[index - 1]):
            cut = index + 1
        elif token.kind in ("word", "letters"):
            if word in _DENIALS:
                return tokens
            before_math = tokens[index + 1].kind not in ("word", "letters")
            if (index or word in _CONCLUDING) and (
                word in _LINKS
                or (before_math and word in _LINKS_TO_MATH)
                or (
                    before_math
                    and said[-1:]
                    and said[-1] in _HANDING.get(word, ())
                    and "absolute" not in said
                )
            ):
                cut = index + 1
                subject = said.copy()
            said.append(word)
        elif not token.is_op(",", "'"):
            break
    return tokens if _ASKED & set(subject) and _COMPUTING & set(subject) else tokens[cut:]


# -- what restates a domain after a formula, and adds nothing

_NAME = r"(?:[a-z](?: _ \w+)?|alpha|beta|gamma|lambda|mu|omega|phi|theta)"
_NAMES = rf"{_NAME}(?: (?:,|and) {_NAME})*"
_SORT = (
    r"(?:(?:real|complex|rational|natural|integer|whole|arbitrary|any|some|all|nonzero"
    r"|(?:positive|non - negative|nonnegative)(?= (?:integer|whole|natural))) )*"
    r"(?:constants?|numbers?|integers?|reals?|parameters?|values?|scalars?|real|complex)"
)
_SET = r"(?:in (?:mathbb )?[rzqcn](?: (?:\^|_) (?:\+|0|\*))?)"
_REMARK = re.compile(
    rf"(?:(?:for|where|with|and) )*(?:"
    rf"(?:all|any|every|each|some)(?: {_SORT}(?: of)?)? {_NAMES}(?: {_SET})?"
    rf"|(?:(?:all|any|every|each) )?{_SORT}(?: {_NAMES})?(?: {_SET})?"
    rf"|{_NAMES} (?:(?:is|are|being|be) )?(?:(?:an?|the|any|some|all) )?{_SORT}(?: of integration)?"
    rf"|(?:forall )?{_NAMES} {_SET}|forall {_NAMES}"
    r"|(?:(?:all|any|every|each) )?(?:integers? )?[i-n] (?:>=? 0|>= 1)"
    r")"
)
_EXCLUDED = re.compile(rf"(?:for|where|with)(?: all| any| every| real)*(?= {_NAME} != )")
_OPENERS = frozenset(["for", "where", "with", "forall"])


def without_remark(tokens: Tokens) -> Tokens:
    r"""The tokens before a remark: ``x + c \text{ where } c \text{ is a constant}``."""
    for index, token in enumerate(tokens):
        if index and (
            token.text.lower() in _OPENERS
            or (token.is_op("(") and token.spaced and tokens[-1].is_op(")"))
        ):
            said = _spelled(tokens[index:]).lower()
            if token.is_op("("):
                said = said.removeprefix("( ").removesuffix(" )")
            if _REMARK.fullmatch(said):
                return tokens[:index]
            if match := _EXCLUDED.match(said):  # "for all x != 0" is ", x != 0"
                start = index + len(match[0].split())
                return (*tokens[:index], Token("op", ","), *tokens[start:])
    return tokens


def _spelled(tokens: Tokens) -> str:
    """The texts of all tokens, with a space between any two."""
    return " ".join(
        _spelled(token.inner) if token.kind == "group" else token.text for token in tokens
    )


def _is_long(token: Token) -> bool:
    """Whether a colon after it ends a sentence: ``Answer:``, but not ``AB:CD``."""
    return (token.kind == "word" and len(token.text) > 1) or (
        token.kind == "letters" and (is_word(token.text) or token.text in _LINKS)
    )


def same_words(one: str, other: str) -> bool:
    """Whether two texts name the same: case, punctuation and articles aside, letter for letter."""
    return _bare(one) == _bare(other)


def _bare(text: str) -> str:
    text = re.sub(r"(?<=\w)-(?=\w)|\s+", " ", re.sub(r"[.,'\"`!?:()]", "", text.casefold())).strip()
    return _ARTICLES.sub("", text)
