"""What stands behind a number: units of measure, currencies, and things counted."""

# ruff: noqa: SIM905  # lists of words read best as words

from __future__ import annotations

import re

from focus_task_math.grading.numerals import SCALES, is_number_word
from focus_task_math.grading.tokens import Token, Tokens, Unreadable, show

__all__ = ["Unit", "is_word", "read_unit"]

Unit = tuple[tuple[str, int], ...]
"""Names with their powers, sorted: ``(("hour", -1), ("mile", 1))``."""

_KNOWN: dict[str, Unit] = {
    alias: ((name, 1),)
    for name, aliases in {
        "meter": "m meters metre metres",
        "kilometer": "km kilometers kilometre kilometres",
        "centimeter": "cm centimeters centimetre centimetres",
        "millimeter": "mm millimeters millimetre millimetres",
        "inch": "in inches ins",
        "foot": "ft feet",
        "yard": "yd yards yds",
        "mile": "mi miles",
        "second": "s sec secs seconds",
        "minute": "min mins minutes",
        "hour": "h hr hrs hours",
        "day": "days",
        "week": "wk weeks",
        "month": "months",
        "year": "yr yrs years",
        "gram": "g grams",
        "kilogram": "kg kilograms kgs",
        "milligram": "mg milligrams",
        "pound": "lb lbs pounds",
        "ounce": "oz ounces",
        "ton": "tons",
        "liter": "L l liters litre litres",
        "milliliter": "mL ml milliliters millilitre millilitres",
        "gallon": "gal gallons",
        "quart": "qt quarts",
        "pint": "pt pints",
        "dollar": "$ dollars USD usd bucks",
        "cent": "cents ¢",
        "euro": "€ euros EUR",
        "pound sterling": "£ GBP",
        "yen": "¥ JPY",
        "rupee": "₹ rupees Rs INR",
        "percent": "% percentage pct",
        "degree": "deg degs degrees",
        "radian": "rad rads radians",
        "newton": "N newtons",
        "joule": "J joules",
        "watt": "W watts",
        "kilowatt": "kW kilowatts",
        "volt": "V volts",
        "ampere": "A amperes amps",
        "ohm": "ohms",
        "hertz": "Hz",
        "acre": "acres",
        "hectare": "ha hectares",
        "celsius": "",
        "fahrenheit": "",
        "kelvin": "K kelvins",
        "person": "people persons",
        "child": "children",
        "man": "men",
        "woman": "women",
    }.items()
    for alias in [name, *aliases.split()]
} | {
    "mph": (("hour", -1), ("mile", 1)),
    "kph": (("hour", -1), ("kilometer", 1)),
    "kmh": (("hour", -1), ("kilometer", 1)),
    "cc": (("centimeter", 3),),
    "unit": (("unit", 1),),
    "units": (("unit", 1),),
}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_AFTER = {"squared": 2, "cubed": 3}
_SILENT = frozenset(
    "long tall wide high deep old away apart ago later total each left remaining altogether in "
    "length width height area volume of the a an st nd rd th".split()
)
# Words that make a statement of a noun phrase: what they stand in is no unit.
_STATEMENT = frozenset(
    "not no or and if when but except unless wrong incorrect false less more fewer greater than "
    "plus minus double twice least most about over under between to is are was were equals equal "
    "maybe either neither nor below above up approximately halved doubled tripled quadrupled "
    "inverse inverted reciprocal negative negated raised power divided multiplied added subtracted "
    "increased decreased choose remainder".split()
)
_VOWEL = re.compile(r"[aeiouy]", re.IGNORECASE)
_SHORT_WORDS = frozenset("yes no odd even red blue none all both one two six ten".split())


def is_word(run: str) -> bool:
    """Whether a bare run of letters is a word, and not a product of variables.

    Products are written in order and without repetition: ``abc``, ``xyz``; powers are not spelled
    out as ``xx``.
    """
    if run.lower() in _SHORT_WORDS or not run.isascii():
        return True
    if len(run) < 3 or not _VOWEL.search(run):
        return False
    return any(a >= b for a, b in zip(run.lower(), run.lower()[1:], strict=False))


def read_unit(tokens: Tokens) -> tuple[int, Unit]:
    """A scale and a unit: ``million dollars`` is 10**6 and dollars.

    Raises:
        Unreadable: The tokens are no unit, or say more than one.
    """
    powers: dict[str, int] = {}
    scale, noun = 1, ""
    side, pending, last = 1, 1, ""
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        text = token.text
        if token.kind == "group":
            tokens = (*token.inner, *tokens[at:])
            at = 0
        elif token.is_op("/") or text == "per":
            side, last = -1, ""
        elif token.is_op("^") and last and at < len(tokens):
            powers[last] = powers[last] * _exponent(tokens[at])
            at += 1
        elif token.is_op(".", "*", "times", "(", ")", "-"):
            continue
        elif token.kind == "command" and text in ("pmod", "bmod", "mod"):
            return scale, ((f"mod {show(tokens[at:])}".replace("(", "").replace(")", ""), 1),)
        elif token.kind not in ("word", "letters") and not token.is_op(
            "$", "%", "deg", "€", "£", "¥"
        ):
            raise Unreadable(f"no unit: {show(tokens)!r}")
        elif text.lower() in SCALES or text.lower().rstrip("s") in SCALES:
            scale *= SCALES.get(text.lower(), 0) or SCALES[text.lower().rstrip("s")]
        elif text.lower() == "tens":
            scale *= 10
        elif text == "times" and (at == len(tokens) or tokens[at].text == "as"):
            break  # six times, six times as many
        elif text.lower() in _STATEMENT or text == "times" or is_number_word(text.lower()):
            raise Unreadable(f"no unit: {show(tokens)!r}")
        elif text.lower() in _POWERS:
            pending = _POWERS[text.lower()]
        elif text.lower() in _AFTER and last:
            powers[last] *= _AFTER[text.lower()]
        elif (known := _known(token, powers)) is not None:
            for name, power in known:
                powers[name] = powers.get(name, 0) + side * pending * power
                last = name
            pending = 1
        elif text.lower() in _SILENT:
            continue
        elif pending > 1 and text.lower() in ("root", "roots"):
            raise Unreadable(f"no unit: {show(tokens)!r}")
        elif token.kind == "word" or is_word(text):
            noun = _singular(text.lower())
        else:
            raise Unreadable(f"no unit: {show(tokens)!r}")
    powers.pop("unit", None)  # stands for any
    if noun and not powers:
        powers[noun] = 1
    return scale, tuple(sorted((name, power) for name, power in powers.items() if power))


def _known(token: Token, powers: dict[str, int]) -> Unit | None:
    text = token.text
    if "degree" in powers and text.lower() in ("c", "f", "celsius", "fahrenheit"):
        powers.pop("degree")
        return (("celsius" if text.lower().startswith("c") else "fahrenheit", 1),)
    known = _KNOWN.get(text)
    if known is None and len(text) > 2:
        known = _KNOWN.get(text.lower())
    # "5 in length" names no inches
    return None if text == "in" and powers else known


def _exponent(token: Token) -> int:
    digits = show(token.inner if token.kind == "group" else (token,))
    if not re.fullmatch(r"-?[1-9]", digits):
        raise Unreadable(f"no unit: power {digits!r}")
    return int(digits)


def _singular(noun: str) -> str:
    for ending, single in (
        ("ies", "y"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("xes", "x"),
        ("sses", "ss"),
    ):
        if noun.endswith(ending):
            return noun.removesuffix(ending) + single
    return noun if noun.endswith("ss") else noun.removesuffix("s")
