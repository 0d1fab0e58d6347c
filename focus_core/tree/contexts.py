"""Critic contexts as a tree keeps them: a long text as what it adds to an earlier state's.

The contexts of a path repeat one another, so whole texts would grow with the square of its length.
Neither decoding tokens again nor asking a user's function again is sure to give the text that was
sent; what is kept here is, character for character.
"""

from __future__ import annotations

from typing import Any

import attrs

from focus_core.tree.tree import Tree

__all__ = ["context_of", "kept"]

_WORTH_SHARING = 256
"""Characters; what refers to another text costs about as much."""


@attrs.frozen
class _Continued:
    """The first ``length`` characters of the context of ``state``, then ``rest``."""

    state: int
    length: int
    rest: str


def kept(tree: Tree, node: int, context: Any) -> Any:
    """The form in which ``tree.context[node]`` holds a state's context."""
    if type(context) is not str:
        return context
    above = tree.parent[node]
    while above >= 0 and tree.context[above] is None:  # not asked about, or not yet
        above = tree.parent[above]
    earlier = context_of(tree, above) if above >= 0 else None
    if type(earlier) is not str:
        return context
    length = _shared(earlier, context)
    if length < _WORTH_SHARING:
        return context
    return _Continued(above, length, context[length:])


def context_of(tree: Tree, node: int) -> Any:
    """A state's context as it was given to ``kept``; ``None`` without one."""
    held = tree.context[node]
    if not isinstance(held, _Continued):
        return held
    parts, length = [held.rest], held.length
    while isinstance(held, _Continued):
        held = tree.context[held.state]
        if not isinstance(held, _Continued):
            parts.append(held[:length])
        elif held.length < length:
            parts.append(held.rest[: length - held.length])
            length = held.length
    return "".join(reversed(parts))


def _shared(one: str, other: str) -> int:
    """Characters that two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        # Nearly always one text begins the other: try all of it first.
        for middle in (high, (low + high + 1) // 2):
            if one.startswith(other[low:middle], low):
                low = middle
                break
            high = middle - 1
    return low
