r"""LaTeX whose backslash was taken for an escape: a tab and ``an x`` where ``\tan x`` was meant.

JSON, and the string literals of most languages, read ``\t``, ``\n``, ``\r``, ``\f`` and ``\b`` as
control characters (languages ``\v`` and ``\a``, too). What is left of a command is a control
character before the rest of its name, or that rest alone, where white space was stripped since.
"""

from __future__ import annotations

import bisect
import re

import attrs

__all__ = ["Eaten", "find_eaten"]

_COMMANDS = """
above abovewithdelims abs acute aleph alpha amalg angle approx approxeq arccos arccosh arccot arccsc
arcctg arcosh arcsec arcsin arcsinh arctan arctanh arctg arg argmax argmin arsinh artanh ast asymp
atop
backepsilon backprime backsim backsimeq backslash bar barwedge bbox because begin begingroup beta
beth between bf bfseries big bigcap bigcirc bigcup bigg biggl biggm biggr bigl bigm bigodot bigoplus
bigotimes bigr bigsqcup bigstar bigtriangledown bigtriangleup biguplus bigvee bigwedge binom
blacklozenge blacksquare blacktriangle blacktriangledown blacktriangleleft blacktriangleright bm
bmod bold boldsymbol bot bowtie box boxdot boxed boxminus boxplus boxtimes boxast brace
bracevert brack breve buildrel bullet bumpeq
fallingdotseq fbox fint flat foot footnotesize forall frac frak frown fcolorbox
nLeftarrow nLeftrightarrow nRightarrow nVDash nVdash nabla natural ncong ne nearrow neg neq nequiv
newcommand newline nexists ngeq ngeqq ngeqslant ngtr ni nicefrac nleftarrow nleftrightarrow nleq
nleqq nleqslant nless nmid nobreak nolimits nonumber normalsize not notag notin nparallel nprec
npreceq nrightarrow nshortmid nshortparallel nsim nsubset nsubseteq nsubseteqq nsucc nsucceq nsupset
nsupseteq nsupseteqq ntriangleleft ntrianglelefteq ntriangleright ntrianglerighteq nu nvDash nvdash
nwarrow
raise raisebox ragged rangle rVert rbrace rbrack rceil relax renewcommand restriction rfloor rgroup
rhd rho right rightarrow rightarrowtail rightharpoondown rightharpoonup rightleftarrows
rightleftharpoons rightrightarrows rightsquigarrow rightthreetimes risingdotseq rlap rm rmoustache
root rtimes rule rvert
tag tan tanh tau tbinom text textasciicircum textbackslash textbf textcircled textcolor textdegree
textit textmd textnormal textrm textsc textsf textsl textstyle textsubscript textsuperscript texttt
textup tfrac tg th therefore theta thetasym thickapprox thicksim thickspace thinspace tilde times
tiny to top triangle triangledown triangleleft trianglelefteq triangleq triangleright
trianglerighteq tt twoheadleftarrow twoheadrightarrow
ulcorner underbar underbrace underbracket undergroup underleftarrow underleftrightarrow underline
underrightarrow underset unlhd unrhd uparrow updownarrow upharpoonleft upharpoonright uplus upsilon
upuparrows urcorner
varDelta varGamma varLambda varOmega varPhi varPi varPsi varSigma varTheta varUpsilon varXi varcoppa
varepsilon varinjlim varkappa varliminf varlimsup varnothing varphi varpi varprojlim varpropto
varrho varsigma varsubsetneq varsubsetneqq varsupsetneq varsupsetneqq vartheta vartriangle
vartriangleleft vartriangleright vcenter vdash vdots vec vee veebar vert vphantom vspace
""".split()  # noqa: SIM905
"""The commands of LaTeX, amsmath and amssymb, and of KaTeX, whose first letter makes an escape."""

_COMMON = {
    *"""
a an angle ar arrow bove box brace brack ceil center cong cute dash dots e eg equiv eta eth exists
flat floor foot g geq group gtr h i int lap lat leq less m matrix max mid mod o old oot op ot
parallel phantom plus prec race rack rg sim space st subset succ supset t top u vert
""".split()  # noqa: SIM905
}
"""Rests that are words, or variables: they mean something only where mathematics is."""

_ESCAPES = {"\t": "t", "\n": "n", "\r": "r", "\f": "f", "\b": "b", "\v": "v", "\a": "a"}
_REST = {first: {name[1:] for name in _COMMANDS if name[0] == first} for first in "abfnrtuv"}
_ARGUMENT = re.compile(
    r"text.*|t?frac|[tb]binom|binom|boxed|[ft]?box|tilde|vec|bar|boldsymbol|bold|underline|underbrace"
    r"|underset|begin|breve|acute|raisebox|nicefrac|bm|phantom|vphantom"
)
"""Commands that an argument in braces (or a digit) follows."""
_WHOLE = {
    rest: first + rest
    for first, rests in _REST.items()
    for rest in rests
    if len(rest) > 2 and rest not in _COMMON and rest not in _COMMANDS
}
"""Rests that can be told without the control character, and their commands."""

_MARK = re.compile(r"([\x00-\x1f])([A-Za-z]*)|(?<![A-Za-z\\])[A-Za-z]+")
_MATH = re.compile(
    r"\\\\|\\\$|\\([\[(])|\\([\])])|(\$\$?)"
    r"|\\(begin|end)\{(?:align|equation|gather|multline|eqnarray|array|cases|split|[pbvBV]?matrix)"
)
_ROW = re.compile(
    r"(?:\\\\(?:\[[^\]]*\])?|\\\[|\\hline|\$\$|\\(?:begin|end)\{[^}]*\}(?:\{[^}]*\})?|[\r\n])"
    r"[ \t]*\Z"
)
_WRAPPED = re.compile(r"[=+\-&<>,.;:]\Z")
_IN_TEXT = re.compile(r"\\text\w*\s*\{[^{}]*\Z")
_OPERAND = re.compile(r"(?:\A|[^A-Za-z])[A-Za-z0-9)}\]] ?\Z")
_APPLIED = re.compile(r" *[\\^_{\d]|\(|\[| +[A-Za-z](?![\w'-])")
_WINDOW = 200
"""Characters before a place that tell what it is."""


@attrs.frozen
class Eaten:
    """What is left of a command.

    Attributes:
        character: The control character, or ``""`` where it is lost, too.
        rest: The text after it.
        command: What was probably meant, with its backslash; ``""`` if nothing known.
        certain: Whether no text could mean it as it stands.
    """

    character: str
    rest: str
    command: str
    certain: bool

    @property
    def found(self) -> str:
        """What a reader of the file is told is there."""
        meant = f" ({self.command}?)" if self.command else ""
        if not self.character:
            return f"has {self.rest!r}, a command without its beginning{meant}"
        letter = _ESCAPES.get(self.character)
        shown = f"\\{letter}" if letter in ("t", "n", "r", "f", "b") else None
        shown = shown or f"\\x{ord(self.character):02x}"
        return f"has a control character ({shown}) before {self.rest!r}{meant}"


def find_eaten(text: str, *, bare: bool = False) -> Eaten | None:
    """The first command of a text that an escape has eaten; one that is certain before others.

    Line breaks and tabs of prose, and of LaTeX that is laid out in rows, are none.

    Args:
        text: Prose with LaTeX in it.
        bare: It is mathematics throughout, as a reference answer is.
    """
    doubtful: Eaten | None = None
    edges: list[tuple[int, str]] | None = None
    for mark in _MARK.finditer(text):
        character, rest = mark.groups()
        if character is None:
            doubtful = doubtful or _without_character(text, mark, bare)
            continue
        first = _ESCAPES.get(character, "")
        known = rest in _REST.get(first, ())
        blank = character in "\t\n\r"
        if blank and (not known or text[max(0, mark.start() - 2) : mark.start()].count("\\") == 1):
            continue
        shown = text[mark.start(2) : mark.start(2) + 6]
        found = Eaten(character, shown, f"\\{first}{rest}" if known else "", certain=True)
        if not blank or rest not in _COMMON:
            return found
        if doubtful is None:
            edges = _edges(text) if edges is None else edges
            place = bisect.bisect(edges, (mark.start(), "")) - 1
            if _meant(text, mark, "bare" if bare else edges[place][1]):
                doubtful = attrs.evolve(found, certain=False)
    return doubtful


def _edges(text: str) -> list[tuple[int, str]]:
    """Where mathematics begins and ends: positions, each with what it is from there."""
    edges = [(-1, "")]
    display = inline = False
    depth = 0
    for mark in _MATH.finditer(text):
        opened, closed, dollars, edge = mark.groups()
        if side := opened or closed:
            display, inline = (bool(opened), inline) if side in "[]" else (display, bool(opened))
        elif dollars == "$$":
            display = not display
        elif dollars:
            inline = not inline
        elif edge:
            depth = max(0, depth + (1 if edge == "begin" else -1))
        edges.append((mark.start(), "display" if display or depth else "inline" if inline else ""))
    return edges


def _meant(text: str, mark: re.Match[str], where: str) -> bool:
    """Whether a rest that is also a word or a variable stands for a command."""
    before, rest = text[max(0, mark.start() - _WINDOW) : mark.start()], mark.group(2)
    if where and not _IN_TEXT.search(before):
        if mark.group(1) == "\t" or len(rest) > 1:
            return True
        return not (_ROW.search(before) or (where == "display" and _WRAPPED.search(before)))
    if not _APPLIED.match(text, mark.end()):
        return False
    spaced = before.endswith(" ") or text[mark.end()] == " "
    return mark.group(1) == "\t" or (spaced and _OPERAND.search(before) is not None)


def _without_character(text: str, mark: re.Match[str], bare: bool) -> Eaten | None:
    """A rest before which white space was stripped."""
    word, command = mark.group(), _WHOLE.get(mark.group(), "")
    if not command:
        function = bare and word == "an" and _APPLIED.match(text, mark.end())
        return Eaten("", word, r"\tan", certain=False) if function else None
    after = text[mark.end() : mark.end() + 2].lstrip(" ")[:1]
    if _ARGUMENT.fullmatch(command) and after != "{" and not after.isdigit():
        return None
    return Eaten("", word, f"\\{command}", certain=False)
