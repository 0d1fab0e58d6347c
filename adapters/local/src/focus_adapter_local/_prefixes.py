"""Keys and values of prompts and finished rows, kept for whoever continues them.

A tree search asks for continuations of states, and every state is the end of a segment that was
just sampled: its keys and values were in the cache a moment ago. They are kept here per snapshot,
least recently used out first.
"""

from __future__ import annotations

from collections import OrderedDict

import attrs
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["KeysValues", "Prefix", "PrefixStore"]

KeysValues = list[list[Tensor]]
"""Per layer, keys and values of one row, two tensors of shape (heads, length, width)."""

_WORTH = 2 / 3
"""Least share of a prompt that a stored prefix must cover to be extended on its own rather than
computing the whole prompt in a batch with others."""


@attrs.frozen(eq=False)
class Prefix:
    """A token sequence whose keys and values are known.

    Attributes:
        tokens: int32, shape (length,).
        ends: Lengths at which something was, or will be, continued; the last is ``length``.
        layers: The keys and values.
    """

    tokens: NDArray[np.int32]
    ends: tuple[int, ...]
    layers: KeysValues


class PrefixStore:
    """Prefixes by content, at most ``max_tokens`` of them in total."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._held = 0
        self._prefixes: OrderedDict[int, Prefix] = OrderedDict()
        self._ends: dict[bytes, int] = {}
        self._next = 0

    def find(self, tokens: NDArray[np.int32]) -> tuple[Prefix, int] | None:
        """The prefix that covers most of ``tokens``, and how many of them it covers."""
        key = self._ends.get(tokens.tobytes())
        if key is not None:
            self._prefixes.move_to_end(key)
            return self._prefixes[key], len(tokens)
        best, key, worth = 0, None, max(1, int(len(tokens) * _WORTH))
        for candidate, prefix in self._prefixes.items():
            most = min(len(prefix.tokens), len(tokens))
            if most < worth or most <= best or prefix.tokens[worth - 1] != tokens[worth - 1]:
                continue
            same = prefix.tokens[:most] == tokens[:most]
            common = most if same.all() else int(same.argmin())
            if common >= worth and common > best:
                best, key = common, candidate
        if key is None:
            return None
        self._prefixes.move_to_end(key)
        return self._prefixes[key], best

    def add(self, tokens: NDArray[np.int32], start: int, layers: KeysValues) -> None:
        """Keep a sequence whose tokens from ``start`` on were sampled in one go.

        A kept prefix that ends at ``start`` and agrees up to there is replaced: the new one
        contains it.
        """
        if len(tokens) > self.max_tokens or tokens.tobytes() in self._ends:
            return
        ends = {start, len(tokens)} - {0}
        before = self._ends.get(tokens[:start].tobytes())
        if before is not None and len(self._prefixes[before].tokens) == start:
            ends |= set(self._prefixes[before].ends)
            self._remove(before)
        key, self._next = self._next, self._next + 1
        self._prefixes[key] = Prefix(tokens, tuple(sorted(ends)), layers)
        self._held += len(tokens)
        for end in ends:
            self._ends[tokens[:end].tobytes()] = key
        while self._held > self.max_tokens:
            self._remove(next(iter(self._prefixes)))

    def _remove(self, key: int) -> None:
        prefix = self._prefixes.pop(key)
        self._held -= len(prefix.tokens)
        for end in prefix.ends:
            name = prefix.tokens[:end].tobytes()
            if self._ends.get(name) == key:
                del self._ends[name]
