"""One self-contained page for trees: it loads nothing, and nothing in a tree can act in it."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from importlib import resources

from focus_core.view.saved import SavedTree

__all__ = ["render_html"]

_SCRIPTS = (
    *("text.js", "model.js", "colours.js", "canvas.js", "chart.js", "turns.js"),
    *("details.js", "main.js"),
)


def render_html(saved: SavedTree | Sequence[SavedTree], *, title: str | None = None) -> str:
    """A page that shows one tree, or several to choose from.

    The page needs no network and asks for none: its policy allows the one style and the one
    script it carries, by their hashes, and nothing else. Trees are embedded as data, in which no
    character can end the element they lie in; the script puts text on the page as text only.

    Args:
        saved: One tree at least.
        title: Of the page; by default the problem of the first tree.

    Returns:
        The whole HTML document, ASCII only.

    Raises:
        ValueError: There is no tree.
    """
    trees = [saved] if isinstance(saved, SavedTree) else list(saved)
    if not trees:
        raise ValueError("render_html needs one tree at least")
    if title is None:
        title = "Tree" if trees[0].problem is None else f"Tree of {trees[0].problem}"
    style = _asset("page.css")
    script = '"use strict";\n{\n' + "".join(map(_asset, _SCRIPTS)) + "}\n"
    parts = {
        "policy": _policy(style, script),
        "title": _escaped("".join(c if c.isprintable() else " " for c in title)),
        "style": style,
        "script": script,
        "trees": "\n".join(map(_embedded, trees)),
    }
    page = re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _asset("page.html"))
    return page


def _policy(style: str, script: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embedded(tree: SavedTree) -> str:
    """The tree's JSON in an element that only the page's script reads."""
    data = tree.to_json()  # ASCII: U+2028 and U+2029 are escaped already
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    problem = "tree" if tree.problem is None else _escaped(str(tree.problem))
    return f'<script type="application/json" class="saved" data-problem="{problem}">{data}</script>'


def _escaped(text: str) -> str:
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode()


def _asset(name: str) -> str:
    return resources.files("focus_core.view").joinpath("page", name).read_text(encoding="ascii")
