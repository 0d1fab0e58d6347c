"""Keys and values of prompts and finished rows, kept for whoever continues them.

A tree search asks for continuations of states, and every state is the end of a segment that was
just sampled: its keys and values were in the cache a moment ago. They are kept here per snapshot,
as a tree too: what several sequences begin with is kept once. Least recently used ends go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import attrs
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["KeysValues", "PrefixStore"]

KeysValues = list[list[Tensor]]
"""Per layer, keys and values of a run of one row, two tensors of shape (heads, length, width)."""

_WORTH = 2 / 3
"""Least share of a prompt that a stored prefix must cover to be extended on its own rather than
computing the whole prompt in a batch with others."""


@attrs.define(eq=False)
class _Run:
    """Tokens that follow another run's.

    Attributes:
        tokens: int32, shape (length,), at least one but for the root.
        layers: Their keys and values.
        before: The run they follow; ``None`` for the root.
        after: What follows, by first token.
    """

    tokens: NDArray[np.int32]
    layers: KeysValues
    before: _Run | None
    after: dict[int, _Run] = attrs.field(factory=dict)


class PrefixStore:
    """Token sequences whose keys and values are known, at most ``max_tokens`` tokens in all."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._held = 0
        self._root = _Run(np.zeros(0, np.int32), [], None)
        # Least recently used first. A run is used whenever what follows it is, and put behind it,
        # so that the first is always one that nothing follows.
        self._runs: OrderedDict[int, _Run] = OrderedDict()

    def find(self, tokens: NDArray[np.int32]) -> tuple[list[KeysValues], int]:
        """Runs whose keys and values, one after another, are those of the first of ``tokens``.

        Returns:
            The runs, and how many tokens they cover, as many as any kept sequence does: of the
            last run only the first part may be meant. Nothing and 0 where too few are covered to
            be worth it.
        """
        last, _, covered = self._follow(tokens)
        if covered < max(1, int(len(tokens) * _WORTH)):
            return [], 0
        path = self._touch(last)
        return [run.layers for run in reversed(path)], covered

    def add(self, tokens: NDArray[np.int32], copy: Callable[[int, int], KeysValues]) -> None:
        """Keep a sequence.

        Args:
            tokens: int32, shape (length,).
            copy: Copies the keys and values of tokens ``[start, stop)``; asked only for what is
                not kept already.
        """
        if not 0 < len(tokens) <= self.max_tokens:
            return
        last, same, covered = self._follow(tokens)
        if covered < len(tokens):
            if same < len(last.tokens):
                last = self._split(last, same)
            run = _Run(tokens[covered:].copy(), copy(covered, len(tokens)), last)
            last.after[int(run.tokens[0])] = run
            self._runs[id(run)] = run
            self._held += len(run.tokens)
            last = run
        self._touch(last)
        while self._held > self.max_tokens:
            self._drop()

    def _follow(self, tokens: NDArray[np.int32]) -> tuple[_Run, int, int]:
        """The last run that ``tokens`` lead into, how many of its tokens are theirs, and in all."""
        run, same, covered = self._root, 0, 0
        while same == len(run.tokens) and covered < len(tokens):
            following = run.after.get(int(tokens[covered]))
            if following is None:
                break
            run = following
            most = min(len(run.tokens), len(tokens) - covered)
            alike = run.tokens[:most] == tokens[covered : covered + most]
            same = most if alike.all() else int(alike.argmin())
            covered += same
        return run, same, covered

    def _touch(self, run: _Run) -> list[_Run]:
        """Mark a run and those before it as used; them, last first."""
        path = []
        while run.before is not None:
            self._runs.move_to_end(id(run))
            path.append(run)
            run = run.before
        return path

    def _split(self, run: _Run, at: int) -> _Run:
        """Part a run in two; the first, which the caller uses next."""
        assert run.before is not None
        # Copies: a view would hold on to the whole when the other part is gone.
        head = _Run(
            run.tokens[:at].copy(),
            [[states[:, :at].clone() for states in layer] for layer in run.layers],
            run.before,
        )
        run.before.after[int(head.tokens[0])] = head
        run.layers = [[states[:, at:].clone() for states in layer] for layer in run.layers]
        run.tokens, run.before = run.tokens[at:].copy(), head
        head.after[int(run.tokens[0])] = run
        self._runs[id(head)] = head
        return head

    def _drop(self) -> None:
        _, run = self._runs.popitem(last=False)
        assert run.before is not None
        del run.before.after[int(run.tokens[0])]
        self._held -= len(run.tokens)
