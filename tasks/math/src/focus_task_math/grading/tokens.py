"""LaTeX to a tree of tokens: numbers whole, groups and environments nested, cosmetics gone."""

# ruff: noqa: SIM905  # lists of words read best as words

from __future__ import annotations

import re
from typing import Literal

import attrs

from focus_task_math.grading.letters import plain

__all__ = ["Token", "Tokens", "Unreadable", "show", "tokenise"]

Kind = Literal["number", "letters", "word", "command", "op", "group", "env"]

LONGEST = 4000
"""Characters of an answer that are read at all."""
DEEPEST = 50
"""Nesting of braces and environments that is followed."""


class Unreadable(Exception):  # a verdict about a text, not a fault of the program
    """The text cannot be read as written; the message says why."""


@attrs.frozen
class Token:
    r"""One symbol, or a nested group of them.

    Attributes:
        kind: ``number`` (``text`` is digits, maybe with a point, a repeating block in brackets and
            an exponent), ``letters`` (a run as in math), ``word`` (a run inside ``\text``),
            ``command`` (``text`` has no backslash), ``op``, ``group``, or ``env``.
        text: As above; the environment's name.
        rows: Of an environment: cells of tokens. Of a group: one row with one cell.
        spaced: White space or an explicit space stands before it.
    """

    kind: Kind
    text: str
    rows: tuple[tuple[tuple[Token, ...], ...], ...] = ()
    spaced: bool = False

    @property
    def inner(self) -> tuple[Token, ...]:
        """The tokens of a group."""
        return self.rows[0][0]

    def is_op(self, *texts: str) -> bool:
        """Whether it is one of these operators."""
        return self.kind == "op" and self.text in texts


Tokens = tuple[Token, ...]

_OPS = {
    **dict.fromkeys(["le", "leq", "leqslant", "leqq"], "<="),
    **dict.fromkeys(["ge", "geq", "geqslant", "geqq"], ">="),
    **dict.fromkeys(["ne", "neq"], "!="),
    **dict.fromkeys(["approx", "thickapprox", "simeq"], "~"),
    **dict.fromkeys(["cdot", "ast"], "*"),
    **dict.fromkeys(["lvert", "rvert", "vert", "lVert", "rVert", "Vert", "|"], "|"),
    **dict.fromkeys(["setminus", "backslash", "smallsetminus"], "setminus"),
    **dict.fromkeys(["{", "lbrace"], "{"),
    **dict.fromkeys(["}", "rbrace"], "}"),
    **dict.fromkeys(["lbrack"], "["),
    **dict.fromkeys(["rbrack"], "]"),
    **dict.fromkeys(["ldots", "dots", "cdots", "dotsc"], "..."),
    **dict.fromkeys(["langle", "rangle", "cup", "cap", "in", "mid", "equiv", "times"], ""),
    "lt": "<",
    "gt": ">",
    "div": "/",
    "pm": "+-",
    "mp": "-+",
    "colon": ":",
    "$": "$",
    "%": "%",
    "#": "#",
    "&": "&",
    "_": "_",
    "degree": "deg",
    "prime": "'",
}
_SPACES = frozenset(
    [",", ";", ":", ">", " ", "quad", "qquad", "thinspace", "enspace", "space", "\n"]
)
_NOTHING = frozenset(
    "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle "
    "textstyle scriptstyle limits nolimits rm bf it sf tt mathstrut strut boxed fbox hline cline "
    "tiny small normalsize large Large LARGE huge Huge relax nonumber notag ! / ( ) [ ]".split()
)
_SAME = {
    **dict.fromkeys(["dfrac", "tfrac", "cfrac"], "frac"),
    **dict.fromkeys(["dbinom", "tbinom"], "binom"),
    **dict.fromkeys(["varnothing"], "emptyset"),
    **dict.fromkeys(["overrightarrow", "hat", "widehat"], "vec"),
    **dict.fromkeys(["widetilde"], "tilde"),
    **dict.fromkeys(["underline", "mathit", "mathnormal", "mathcal", "mathsf", "mathtt"], ""),
    "varepsilon": "epsilon",
    "vartheta": "theta",
    "varphi": "phi",
    "tg": "tan",
    "ctg": "cot",
    "arctg": "arctan",
}
_BOLD = re.compile(r" ?\{ ?[A-Za-z] ?\}| ?[A-Za-z]")
_TEXTS = frozenset(
    "text textbf textit textrm textsf texttt textnormal textsc mbox hbox emph mathrm "
    "operatorname".split()
)

_GROUP = r"(?:(?:[,~ ]|\{,\}|\\[ ])\d{3}|\\[,;:] ?\d{3}|(?:[,~ ]|\{,\}|\\[,;: ])? ?\\! ?\d{3})"
_NUMBERS = re.compile(
    # 0.1\overline{6}; 0.(3)
    r"(?P<repeating>\d*\.\d* ?(?:\\(?:overline|bar|dot) ?(?:\{ ?\d+ ?\}|\d))+|\d*\.\(\d+\))"
    # 1,234,567.8 with any thin separator; a space does not group the numerator of 3 100/200
    rf"|(?P<grouped>[1-9]\d{{0,2}}{_GROUP}+(?!\d)(?! ?/)(?:\.\d+)?)"
    r"|(?P<scientific>(?:\d+\.?\d*|\.\d+)[eE][+-]?\d+(?![.\d]))"
    r"|(?P<plain>\d+\.\d+|\.\d+|\d+)"
)
_DIGITS = re.compile(r"\d|\.(?:\d| ?\\(?:overline|bar|dot) ?(?:\{ ?\d|\d)|\(\d+\))")
_SEPARATOR = re.compile(r"[,~ ]|\{,\}|\\[,;:! ]")
_COMMA = re.compile(r"(?<!\{),(?!\}| ?\\!)")
_PLAIN = re.compile(r"\d+\.\d+|\.\d+|\d+")
_SCRIPT = re.compile(r"[_^] ?\Z")
_ENDLESS = re.compile(r" ?(?:\.\.\.|\\[lc]?dots(?![A-Za-z]))")
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_ROW_GAP = re.compile(r" ?\[-?[\d.]+ ?[a-z]{2}\]")
_LETTERS = re.compile(r"[^\W\d_]+")
_DEGREE = re.compile(r"\^\s*(?:\{\s*\\(?:circ|degree)\s*\}|\\(?:circ|degree)(?![A-Za-z]))")
_PRIME = re.compile(r"\^\s*(?:\{\s*(?:\\prime\s*)+\}|\\prime(?![A-Za-z]))")
_DECORATION = re.compile(r"\\(?:label|tag|color|hspace|vspace)\s*\{[^{}]*\}")


def tokenise(latex: str) -> Tokens:
    """Read LaTeX (or Unicode) math.

    Raises:
        Unreadable: Too long, too deep, unbalanced, or with control characters.
    """
    if len(latex) > LONGEST:
        raise Unreadable(f"longer than {LONGEST} characters")
    text = _DECORATION.sub("", plain(latex))
    if bad := re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffd]", text):
        raise Unreadable(f"holds the character {bad.group()!r}")
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"\\\\(?=(?:frac|dfrac|sqrt|text|left|pi|boxed|cdot|times|pm)\b)", r"\\", text)
    return _Lexer(text).cell_until(None)


class _Lexer:
    def __init__(self, text: str, *, prose: bool = False, depth: int = 0) -> None:
        self.text = text
        self.at = 0
        self.prose = prose
        self.depth = depth
        self.brackets = 0
        self.open_space = False  # a \\text ended in a space
        if depth > DEEPEST:
            raise Unreadable("nested too deep")

    def cell_until(self, close: str | None) -> Tokens:
        """Tokens up to the closing brace, or to the end without one."""
        rows = self.rows_until(close)
        cells = [cell for row in rows for cell in row]
        tokens = cells[0]
        for cell in cells[1:]:  # a line break outside of an environment separates
            tokens += (Token("op", ";"), *cell)
        return tokens

    def rows_until(self, close: str | None) -> tuple[tuple[Tokens, ...], ...]:
        r"""Rows and cells up to ``}`` or ``\end{close}``."""
        rows: list[list[list[Token]]] = [[[]]]
        spaced = False
        while True:
            if self.at >= len(self.text):
                if close is not None:
                    raise Unreadable("unbalanced braces")
                break
            character = self.text[self.at]
            if character in " ~":
                self.at += 1
                spaced = True
                continue
            if character == "}":
                if close != "}":
                    raise Unreadable("unbalanced braces")
                self.at += 1
                break
            if character == "&":
                self.at += 1
                rows[-1].append([])
                continue
            if character == "\\":
                match = _COMMAND.match(self.text, self.at)
                if match is None:
                    raise Unreadable("ends in a backslash")
                name = match[1]
                self.at = match.end()
                if name == "\\":
                    if gap := _ROW_GAP.match(self.text, self.at):
                        self.at = gap.end()
                    rows.append([[]])
                    continue
                if name in _SPACES:
                    spaced = True
                    continue
                if name in _NOTHING:
                    self._null_delimiter(name)
                    continue
                if name == "end":
                    if close is None or self._argument() != close:
                        raise Unreadable("unbalanced environments")
                    break
                new = self._command(name)
            else:
                new = self._other(character)
            if new:
                rows[-1][-1].append(attrs.evolve(new[0], spaced=spaced or new[0].spaced))
                rows[-1][-1].extend(new[1:])
                spaced, self.open_space = self.open_space, False
        if len(rows) > 1 and rows[-1] == [[]]:
            rows.pop()  # a line break after the last row
        return tuple(tuple(map(tuple, row)) for row in rows)

    def _null_delimiter(self, name: str) -> None:
        if name in ("left", "right") and self.text[self.at : self.at + 1] == ".":
            self.at += 1

    def _command(self, name: str) -> list[Token]:
        if name == "begin":
            return [self._environment()]
        if name in _TEXTS:
            return self._text(name)
        if name in _OPS:
            op = _OPS[name] or name
            self.brackets += (op in ("{", "langle")) - (op in ("}", "rangle"))
            return [Token("op", op)]
        if name in ("mathbf", "boldsymbol", "bm", "pmb"):  # a vector's name, or mere emphasis
            return [Token("command", "bold")] if _BOLD.match(self.text, self.at) else []
        name = _SAME.get(name, name)
        return [Token("command", name)] if name else []

    def _other(self, character: str) -> list[Token]:
        if character == "{":
            self.at += 1
            inside = _Lexer(self.text, prose=self.prose, depth=self.depth + 1)
            inside.at = self.at
            inside.brackets = self.brackets
            tokens = inside.cell_until("}")
            self.at = inside.at
            return [Token("group", "", ((tokens,),))]
        if _DIGITS.match(self.text, self.at):
            return [self._number()]
        if match := _DEGREE.match(self.text, self.at):
            self.at = match.end()
            return [Token("op", "deg")]
        if match := _PRIME.match(self.text, self.at):
            self.at = match.end()
            return [Token("op", "'")] * match.group().count("prime")
        if match := _LETTERS.match(self.text, self.at):
            self.at = match.end()
            return [Token("word" if self.prose else "letters", match.group())]
        if self.text.startswith("...", self.at):
            self.at += 3
            return [Token("op", "...")]
        if self.text.startswith("**", self.at):  # a power, as programs write it
            self.at += 2
            return [Token("op", "^")]
        self.at += 1
        if character == "$":
            return []
        self.brackets += (character in "([") - (character in ")]")
        if self.brackets > DEEPEST:
            raise Unreadable("nested too deep")
        for pair in ("<=", ">=", "!="):
            if character == pair[0] and self.text[self.at : self.at + 1] == "=":
                self.at += 1
                return [Token("op", pair)]
        return [Token("op", character)]

    def _number(self) -> Token:
        match = _NUMBERS.match(self.text, self.at)
        assert match is not None  # the caller has seen a digit
        if match["grouped"] and (
            (self.brackets > 0 and _COMMA.search(match[0]))  # (1,234) is a pair
            or _SCRIPT.search(self.text, 0, self.at)  # \log_2 100
        ):
            match = _PLAIN.match(self.text, self.at)
            assert match is not None
        self.at = match.end()
        written = match[0]
        if match.lastgroup == "grouped":
            written = _SEPARATOR.sub("", written)
        elif match.lastgroup == "repeating":
            digits, *blocks = re.findall(r"\d*\.\d*|\d+", written)
            written = f"{digits}({''.join(blocks)})"
        elif "." in written and (endless := _ENDLESS.match(self.text, self.at)):
            written = _with_block(written)
            self.at = endless.end()
        return Token("number", written.lower())

    def _argument(self) -> str:
        """The raw text of a braced argument, without the braces."""
        start = self.at
        while start < len(self.text) and self.text[start].isspace():
            start += 1
        if self.text[start : start + 1] != "{":
            return ""
        depth = 0
        at = start
        while at < len(self.text):
            character = self.text[at]
            if character == "\\":
                at += 1
            elif character in "{}":
                depth += 1 if character == "{" else -1
                if depth == 0:
                    self.at = at + 1
                    return self.text[start + 1 : at]
            at += 1
        raise Unreadable("unbalanced braces")

    def _text(self, name: str) -> list[Token]:
        content = self._argument()
        if name == "operatorname":
            if not content and self.text[self.at : self.at + 1] == "*":
                self.at += 1
                content = self._argument()
            return [Token("command", content.strip())] if content.strip().isalpha() else []
        if name == "mathrm" and content.strip() in ("e", "i", "d"):
            return [Token("letters", content.strip())]
        inside = _Lexer(content, prose=True, depth=self.depth + 1)
        inside.brackets = self.brackets
        tokens = list(inside.cell_until(None))
        self.brackets = inside.brackets
        if tokens and content[:1].isspace():
            tokens[0] = attrs.evolve(tokens[0], spaced=True)
        self.open_space = content[-1:].isspace()
        return tokens

    def _environment(self) -> Token:
        name = self._argument().rstrip("*")
        if name in ("array", "tabular"):
            self._argument()  # column layout
        inside = _Lexer(self.text, depth=self.depth + 1)
        inside.at = self.at
        rows = inside.rows_until(name)
        self.at = inside.at
        return Token("env", name, rows)


def _with_block(written: str) -> str:
    """``0.1666`` of ``0.1666...`` as ``0.1(6)``: the shortest block seen to repeat to the end."""
    whole, _, digits = written.partition(".")
    for size in range(1, len(digits) // 2 + 1):
        block = digits[-size:]
        times = 1
        while digits[: len(digits) - times * size].endswith(block):
            times += 1
        if times >= (3 if size == 1 else 2):
            return f"{whole}.{digits[: len(digits) - times * size]}({block})"
    raise Unreadable("a decimal that goes on without a repeating block")


def show(tokens: Tokens) -> str:
    """The text that a reader sees, with single spaces where the source has some."""
    shown = []
    for token in tokens:
        if token.kind == "group":
            text = show(token.inner)
        elif token.kind == "env":
            text = "; ".join(", ".join(map(show, row)) for row in token.rows)
        else:
            text = token.text
        shown.append((" " if token.spaced else "") + text)
    return "".join(shown).strip()
