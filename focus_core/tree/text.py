"""The tree as text, one line a state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from focus_core.tree.tree import ROOT, TERMINAL, TRUNCATED, Tree

__all__ = ["render_text"]

_MARK = {TERMINAL: "●", TRUNCATED: "✂"}


def render_text(
    tree: Tree,
    values: Sequence[float] | None = None,
    advantages: Sequence[float] | None = None,
    decode: Callable[[Sequence[int]], str] | None = None,
    *,
    width: int = 72,
) -> str:
    r"""Draw a tree with box characters.

    Args:
        tree: The tree; removed states are left out.
        values: Adds each state's value, by node.
        advantages: Adds each edge's advantage; over nodes, NaN where an edge has none.
        decode: Adds the generated text, escaped to one printable line.
        width: Characters of that text shown.

    Returns:
        Lines such as ``├── 3 ● R=1.00 A=+0.25 12 tok  "so \n 5"``, root first.
    """
    children = tree.children()
    lines: list[str] = []
    stack: list[tuple[int, str, str]] = [(ROOT, "", "")]
    while stack:
        node, lead, rest = stack.pop()
        lines.append(lead + _line(tree, node, values, advantages, decode, width))
        below = children[node]
        for child in reversed(below):
            last = child == below[-1]
            stack.append(
                (child, rest + ("└── " if last else "├── "), rest + ("    " if last else "│   "))
            )
    return "\n".join(lines)


def _line(
    tree: Tree,
    node: int,
    values: Sequence[float] | None,
    advantages: Sequence[float] | None,
    decode: Callable[[Sequence[int]], str] | None,
    width: int,
) -> str:
    parts = [f"{node} {_MARK.get(tree.kind[node], '○')}"]
    if tree.reward[node] or tree.kind[node] == TERMINAL:
        parts.append(f"R={tree.reward[node]:.2f}")
    if tree.kind[node] != TERMINAL and values is not None:
        parts.append(f"V={values[node]:.2f}")
    if advantages is not None and node != ROOT and not math.isnan(advantages[node]):
        parts.append(f"A={advantages[node]:+.3f}")
    tokens, _ = tree.generated(node)
    if node == ROOT:
        parts.append(f"{len(tree.rendered(ROOT))} prompt tokens")
    else:
        parts.append(f"{len(tokens)} tok")
        if decode is not None:
            text = decode(tokens.tolist())
            text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
            parts.append(f'"{text if len(text) <= width else text[: width - 1] + "…"}"')
    return " ".join(parts)
