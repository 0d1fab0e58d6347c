"""Numbers in English words, and words that compute: ``two thirds``, ``half of``, ``squared``."""

# ruff: noqa: SIM905  # lists of words read best as words

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]

from focus_task_math.grading import bounded
from focus_task_math.grading.tokens import Unreadable

__all__ = [
    "COUNTS",
    "SCALES",
    "applied_after",
    "applied_before",
    "applies",
    "is_number_word",
    "spoken",
    "spoken_start",
]

COUNTS = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen".split()
    )
}
_TENS = {
    word: 10 * number
    for number, word in enumerate(
        "twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2
    )
} | {"fourty": 40}
SCALES = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
"""Words that multiply the number before them."""
_SINGULAR = {
    "half": 2, "quarter": 4, "hundredth": 100, "thousandth": 1000, "millionth": 10**6,
} | {
    word: number
    for number, word in enumerate(
        "third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
        "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth".split(),
        start=3,
    )
}  # fmt: skip
_PARTS = {f"{word}s": number for word, number in _SINGULAR.items()} | {"halves": 2}

_POWERS = {"squared": 2, "cubed": 3}
_ARTICLES = ("a", "an")
_OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "square root of": lambda value: bounded.root(value, sympy.Integer(2)),
    "cube root of": lambda value: bounded.root(value, sympy.Integer(3)),
    "square of": lambda value: bounded.power(value, sympy.Integer(2)),
    "cube of": lambda value: bounded.power(value, sympy.Integer(3)),
    "absolute value of": sympy.Abs,
    "twice": lambda value: 2 * value,
    "double": lambda value: 2 * value,
    "triple": lambda value: 3 * value,
    "thrice": lambda value: 3 * value,
}


def is_number_word(word: str) -> bool:
    """Whether a word names a number or a part, alone."""
    return word in COUNTS or word in _TENS or word in _SINGULAR or word in _PARTS


def spoken(words: Sequence[str]) -> Any:
    """The number that lower-case words name; ``None`` if they name none.

    ``half`` is one half; the other parts need a number or an article, since ``third`` may be a
    place.
    """
    if words and words[0] in ("minus", "negative"):
        value = spoken(words[1:])
        return None if value is None else -value
    if "point" in words:
        return _decimal(words)
    if not words:
        return None
    if words[-1] in _SINGULAR or words[-1] in _PARTS:
        return _fraction(words)
    return _cardinal(words[1:], 1) if words[0] in _ARTICLES else _cardinal(words)


def spoken_start(words: Sequence[str]) -> int:
    """How many of the words, from the first, name a number; the most that do."""
    return next((size for size in range(len(words), 0, -1) if spoken(words[:size]) is not None), 0)


def applied_before(words: Sequence[str]) -> Callable[[Any], Any] | None:
    """What words before a number do to it: ``the square root of``, ``two thirds of``."""
    if words and words[0] == "the":
        words = words[1:]
    operation = _OPERATIONS.get(" ".join(words))
    if operation is not None:
        return operation
    if len(words) > 1 and words[-1] == "of":
        part = spoken(words[:-1])
        if part is not None and 0 < part < 1:
            return lambda value: part * value
    return None


def applies(word: str) -> bool:
    """Whether a word after a number computes with it."""
    return word in _POWERS or word == "factorial" or is_number_word(word)


def applied_after(word: str, value: Any) -> Any:
    """What such a word makes of the value before it: ``7 squared``, ``5 halves``.

    Raises:
        Unreadable: Nothing: ``5 ten``, ``-7 squared``.
    """
    number = value.is_Rational and value >= 0
    if word in _POWERS and (number or value.is_Symbol):
        return bounded.power(value, sympy.Integer(_POWERS[word]))
    if word == "factorial" and number:
        return bounded.factorial(value)
    if word in _PARTS and number:
        return value / _PARTS[word]
    if word in _SINGULAR and value == 1:
        return value / _SINGULAR[word]
    raise Unreadable(f"{word!r} after {value}")


def _fraction(words: Sequence[str]) -> Any:
    """``half``, ``a third``, ``three quarters``, ``two and a half``."""
    below = _SINGULAR.get(words[-1]) or _PARTS[words[-1]]
    if "and" in words[:-1] and (cut := len(words) - 1 - words[::-1].index("and")):
        whole, part = _cardinal(words[:cut]), spoken(words[cut + 1 :])
        if whole is not None and part is not None and 0 < part < 1:
            return whole + part
    before = words[:-1]
    if not before:
        return sympy.Rational(1, 2) if words[-1] == "half" else None
    above = 1 if len(before) == 1 and before[0] in _ARTICLES else _cardinal(before)
    if above is None or (above == 1) != (words[-1] in _SINGULAR):
        return None
    return sympy.Rational(above, below)


def _decimal(words: Sequence[str]) -> Any:
    at = list(words).index("point")
    whole = _cardinal(words[:at]) if at else sympy.Integer(0)
    digits = [COUNTS.get(word, 10) for word in words[at + 1 :]]
    if whole is None or not digits or max(digits) > 9:
        return None
    return whole + sympy.Rational(int("".join(map(str, digits))), 10 ** len(digits))


def _cardinal(words: Sequence[str], said: int | None = None) -> Any:
    """``two thousand one hundred and five``; ``said`` stands for an article before a scale."""
    total, group = 0, said
    scale = 10**15
    open_to = 0  # what may still be added: units below this
    if said is not None:
        if not words or words[0] not in SCALES:
            return None
    else:
        open_to = 1000
    for index, word in enumerate(words):
        last = index == len(words) - 1
        if word == "and":
            if last or not index or words[index - 1] not in SCALES or words[index - 1] == "dozen":
                return None
        elif word in COUNTS or word in _TENS:
            number = COUNTS.get(word, _TENS.get(word, 0))
            if number >= open_to or (number == 0 and len(words) > 1):
                return None
            group = (group or 0) + number
            open_to = 10 if number >= 20 else 0
        elif word in SCALES:
            size = SCALES[word]
            if group is None or size >= scale:
                return None
            if size == 100:
                if group >= 100 or group == 0:
                    return None
                group, open_to = group * 100, 100
            else:
                total, group, scale = total + group * size, None, size
                open_to = 1000
        else:
            return None
    if group is None and not total:
        return None
    return sympy.Integer(total + (group or 0))
