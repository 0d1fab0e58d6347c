"""Unicode typed for LaTeX: every character a model may write, as plain ASCII LaTeX."""

# ruff: noqa: RUF001  # look-alikes are what this module is about

from __future__ import annotations

import functools
import re
import unicodedata

__all__ = ["plain"]

_WRITTEN = {
    **dict.fromkeys("−‐‑‒–—﹣－", "-"),
    **dict.fromkeys("×✕✖", r"\times "),
    **dict.fromkeys("·⋅∙•", r"\cdot "),
    **dict.fromkeys("“”„″", '"'),
    **dict.fromkeys("‘’‚′", "'"),
    **dict.fromkeys("…⋯", r"\ldots "),
    **dict.fromkeys("°º˚", r"^{\circ}"),
    **dict.fromkeys("⟨〈", r"\langle "),
    **dict.fromkeys("⟩〉", r"\rangle "),
    **dict.fromkeys("∅⌀", r"\emptyset "),
    **dict.fromkeys("≤⩽≦", r"\le "),
    **dict.fromkeys("≥⩾≧", r"\ge "),
    **dict.fromkeys("∣｜", "|"),
    **dict.fromkeys("。．", "."),
    **dict.fromkeys("、，", ","),
    "：": ":",
    "∶": ":",
    "⁄": "/",
    "∕": "/",
    "÷": r"\div ",
    "√": r"\sqrt ",
    "∛": r"\sqrt[3]",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "≡": r"\equiv ",
    "±": r"\pm ",
    "∓": r"\mp ",
    "∞": r"\infty ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∖": r"\setminus ",
    "∈": r"\in ",
    "∠": r"\angle ",
    "△": r"\triangle ",
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}",
    "ℕ": r"\mathbb{N}",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "⌈": r"\lceil ",
    "⌉": r"\rceil ",
    "∗": "*",
    "µ": r"\mu ",
    "∑": r"\sum ",
    "∫": r"\int ",
}
_THIN = "\u00a0\u2007\u2009\u202f"
_SUPER = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ]+")
_SUB = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎]+")


def plain(text: str) -> str:
    """Rewrite typographic characters as LaTeX; other letters stay as they are."""
    if text.isascii():
        return text
    text = _SUPER.sub(lambda run: "^{" + _compatible(run.group()) + "}", text)
    text = _SUB.sub(lambda run: "_{" + _compatible(run.group()) + "}", text)
    return "".join(map(_written, text))


def _compatible(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("\u2212", "-")


@functools.lru_cache(maxsize=4096)
def _written(character: str) -> str:
    if character.isascii():
        return character
    if character in _WRITTEN:
        return _WRITTEN[character]
    if character in _THIN:
        return r"\,"
    category = unicodedata.category(character)
    if category == "Zs":
        return " "
    if category == "Cf":  # zero-width characters, directional marks, soft hyphens
        return ""
    if category == "Nd":
        return str(unicodedata.decimal(character))
    compatible = _compatible(character)
    if "\u2044" in compatible:  # a vulgar fraction
        above, below = compatible.split("\u2044")
        return rf"\frac{{{above}}}{{{below}}}" if above and below else character
    if compatible != character:
        return "".join(map(_written, compatible)) if len(compatible) < 20 else character
    name = unicodedata.name(character, "")
    greek = re.fullmatch(r"GREEK (SMALL |CAPITAL )?(?:LETTER )?(\w+)(?: SYMBOL)?", name)
    if greek:
        word = greek[2].lower().replace("lamda", "lambda")
        return "\\" + (word.capitalize() if greek[1] == "CAPITAL " else word) + " "
    return character
