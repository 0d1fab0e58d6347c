"""What a critic's context and a grader see of the way to a state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import attrs

from focus_core.tree.tree import ROOT, TERMINAL, Tree

__all__ = ["Rollout", "Turn"]


@attrs.frozen
class Turn:
    """One assistant turn, finished or not.

    Attributes:
        prefix: Tokens the policy was given when the turn began.
        tokens: Tokens it sampled since, over all the turn's segments.
        logprobs: Their behaviour log probabilities.
    """

    prefix: list[int]
    tokens: list[int]
    logprobs: list[float]


class Rollout:
    """The way from the root to one state, read from the tree when asked for.

    Attributes:
        messages: The chat as the policy sees it at this state, without the unfinished turn.
    """

    def __init__(self, tree: Tree, node: int) -> None:
        self._tree = tree
        self._node = node
        self.messages: Sequence[Any] = tree.messages[node]

    @cached_property
    def turns(self) -> list[Turn]:
        """Assistant turns so far; empty at the root."""
        tree = self._tree
        turns: list[Turn] = []
        prefix = tree.rendered(ROOT).tolist()
        open_turn: Turn | None = None
        for node in tree.path(self._node)[1:]:
            tokens, logprobs = tree.generated(node)
            if open_turn is None:
                open_turn = Turn(prefix, [], [])
                turns.append(open_turn)
            open_turn.tokens.extend(tokens.tolist())
            open_turn.logprobs.extend(logprobs.tolist())
            if tree.ends_turn(node):
                prefix = [] if tree.fresh[node] else open_turn.prefix + open_turn.tokens
                prefix = prefix + tree.rendered(node).tolist()
                open_turn = None
        return turns

    @property
    def tokens(self) -> list[int]:
        """All tokens of the sequence at this state: what the next request would send."""
        tokens: list[int] = self._tree.prefix(self._node).tolist()
        return tokens

    @property
    def done(self) -> bool:
        """Whether the rollout ended here with an outcome."""
        return self._tree.kind[self._node] == TERMINAL

    @property
    def reward(self) -> float:
        """Sum of the rewards on the way here."""
        return sum(self._tree.reward[node] for node in self._tree.path(self._node))
