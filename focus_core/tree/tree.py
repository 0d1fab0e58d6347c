"""The tree of collected continuations, stored as columns.

A node is a state; every node but the root is also the edge that leads to it. A node owns one
slice of the token columns: first the tokens the policy generated on its edge, then the tokens
that rendering the environment's answer added (the prompt, at the root). Prefixes are walked,
never copied, so memory grows with the tokens generated and not with depth.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ASKED", "FOLDED", "OPEN", "ROOT", "TERMINAL", "TRUNCATED", "Tree"]

Ids = Sequence[int] | NDArray[np.int32]
ROOT = 0
OPEN = 0
"""Kind of a state that is unfinished: continuations can leave it."""
TERMINAL = 1
"""Kind of a state that ends a rollout: its returns count."""
TRUNCATED = 2
"""Kind of a state where a rollout was cut without an outcome."""
ASKED, FOLDED = 1, 2
"""Of a folding context: the policy is asked for a summary here; the chat was folded here."""


class Tree:
    """States and edges of one problem.

    Columns are indexed by node; index 0 is the root and a child's index is larger than its
    parent's. ``parent``, ``depth`` (transitions from the root), ``duration`` (transitions on the
    edge), ``launch`` (the continuation that made it) and ``kind`` are integers; ``reward`` (of
    the edge) and ``prediction`` (the critic's, NaN without one) are floats; ``alive`` is 0 on
    what a failure removed; ``fold`` is ``ASKED`` before a summary, ``FOLDED`` after a fold, else
    0. ``snapshot``, ``messages``, ``workspace`` and ``context`` hold whatever the environment,
    the agent and the critic keep per state.
    """

    def __init__(
        self,
        prompt: Sequence[int] = (),
        *,
        messages: Sequence[Any] = (),
        snapshot: Any = None,
        forkable: bool = True,
        prediction: float = math.nan,
    ) -> None:
        self._tokens = np.empty(256, np.int32)
        self._logprobs = np.zeros(256, np.float32)
        self._used = 0
        self.parent = array("q")
        self.depth = array("q")
        self.duration = array("q")
        self.launch = array("q")
        self.kind = bytearray()
        self.alive = bytearray()
        self.fresh = bytearray()
        self.forkable = bytearray()
        self.fold = bytearray()
        self.reward = array("d")
        self.prediction = array("d")
        self._bounds = array("q", [0])  # a node's tokens lie between two of them
        self._middle = array("q")
        self.snapshot: list[Any] = []
        self.messages: list[Sequence[Any]] = []
        self.workspace: list[Any] = []
        self.context: list[Any] = []
        self.add(
            -1,
            rendered=prompt,
            messages=messages,
            fresh=True,
            duration=0,
            launch=-1,
            prediction=prediction,
        )
        self.snapshot[ROOT] = snapshot
        self.forkable[ROOT] = forkable

    def __len__(self) -> int:
        """Number of nodes, removed ones included."""
        return len(self.parent)

    def add(
        self,
        parent: int,
        tokens: Ids = (),
        logprobs: Sequence[float] | NDArray[np.float32] = (),
        *,
        rendered: Ids = (),
        messages: Sequence[Any] | None = None,
        fresh: bool = False,
        reward: float = 0.0,
        duration: int = 1,
        kind: int = OPEN,
        launch: int = 0,
        prediction: float = math.nan,
    ) -> int:
        """Add the state an edge leads to; returns its index.

        Args:
            parent: State the edge leaves.
            tokens: Generated ids, shape (T,).
            logprobs: Their behaviour log probabilities, shape (T,), in nats.
            rendered: Conditioning ids that follow them; with ``fresh``, the whole prompt of a
                sequence that does not continue the tokens before it.
            messages: The chat as the policy sees it from this state on; the parent's if ``None``.
            fresh: Whether a new sequence starts with ``rendered``.
            reward: Reward of the edge; over several transitions, already discounted to its start.
            duration: Transitions on the edge.
            kind: ``OPEN``, ``TERMINAL`` or ``TRUNCATED``.
            launch: The continuation that made it.
            prediction: The critic's value of the state, if known by now.
        """
        node, start = len(self.parent), self._used
        try:
            self._write(tokens, logprobs)
            self._middle.append(self._used)
            if len(rendered):
                self._write(rendered, 0.0)
            self._bounds.append(self._used)
            self.parent.append(parent)
            self.depth.append(self.depth[parent] + duration if node else 0)
            self.duration.append(duration)
            self.launch.append(launch)
            self.kind.append(kind)
            self.alive.append(1)
            self.fresh.append(fresh)
            self.forkable.append(0)
            self.fold.append(0)
            self.reward.append(reward)
            self.prediction.append(prediction)
            self.snapshot.append(None)
            self.messages.append(self.messages[parent] if messages is None else tuple(messages))
            self.workspace.append(None)
            self.context.append(None)
        except BaseException:  # something that no column holds: they stay of one length
            self._used = start
            del self._bounds[node + 1 :]
            for column in self._columns():
                del column[node:]
            raise
        return node

    def _columns(self) -> tuple[Any, ...]:
        """All that has one entry a node."""
        return (
            *(self._middle, self.parent, self.depth, self.duration, self.launch),
            *(self.kind, self.alive, self.fresh, self.forkable, self.fold),
            *(self.reward, self.prediction),
            *(self.snapshot, self.messages, self.workspace, self.context),
        )

    def _write(self, tokens: Ids, logprobs: Sequence[float] | NDArray[np.float32] | float) -> None:
        stop = self._used + len(tokens)
        if stop > len(self._tokens):
            room = max(stop, len(self._tokens) * 5 // 4)
            self._tokens = _grown(self._tokens, self._used, room)
            self._logprobs = _grown(self._logprobs, self._used, room)
        self._tokens[self._used : stop] = tokens
        self._logprobs[self._used : stop] = logprobs
        self._used = stop

    def remove(self, nodes: Sequence[int]) -> None:
        """Take the states of a failed continuation out of every count and export."""
        for node in nodes:
            self.alive[node] = 0
            self.snapshot[node] = self.context[node] = self.workspace[node] = None

    def generated(self, node: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Tokens and log probabilities the edge to ``node`` generated; views, shape (T,)."""
        at = slice(self._bounds[node], self._middle[node])
        return self._tokens[at], self._logprobs[at]

    def said(self, node: int) -> int:
        """How many tokens the edge to ``node`` generated."""
        return self._middle[node] - self._bounds[node]

    def rendered(self, node: int) -> NDArray[np.int32]:
        """Tokens rendered after the edge to ``node``; a view."""
        return self._tokens[self._middle[node] : self._bounds[node + 1]]

    def ends_turn(self, node: int) -> bool:
        """Whether the environment answered with messages here, even if they rendered to nothing."""
        return (
            self._bounds[node + 1] > self._middle[node]
            or bool(self.fresh[node])
            or self.messages[node] is not self.messages[self.parent[node]]
        )

    def path(self, node: int) -> list[int]:
        """Nodes from the root to ``node``, both included."""
        path = []
        while node >= 0:
            path.append(node)
            node = self.parent[node]
        return path[::-1]

    def sequence(self, node: int) -> list[int]:
        """The end of ``path(node)`` whose tokens form the sequence the policy continues here."""
        nodes = [node]
        while not self.fresh[node]:
            node = self.parent[node]
            nodes.append(node)
        return nodes[::-1]

    def prefix(self, node: int) -> NDArray[np.int32]:
        """Every token of the sequence up to ``node``: what the next request sends. A copy."""
        return np.concatenate([tokens for _, tokens in self.chunks(node)])

    def chunks(self, node: int) -> list[tuple[int, NDArray[np.int32]]]:
        """The parts of ``prefix(node)`` in order: a node, and the tokens it adds; views."""
        first, *rest = self.sequence(node)
        chunks = [(first, self.rendered(first))]
        at = self._bounds
        chunks += [(n, self._tokens[at[n] : at[n + 1]]) for n in rest]
        return chunks

    def path_tokens(self, node: int) -> tuple[NDArray[np.int32], list[tuple[int, int]]]:
        """The sequence that ends with what the edge to ``node`` generated.

        Returns:
            Its tokens, a copy; and the edges of the sequence, each with the place in it where its
            generated tokens start.
        """
        first, *path = [*self.sequence(self.parent[node]), node]
        bounds, start = self._bounds, self._middle[first]
        stop = bounds[first + 1]
        length, runs, edges = stop - start, [], []
        for edge in path:
            edges.append((edge, length))
            if bounds[edge] != stop:  # else it lies behind the one before: one slice for both
                runs.append(self._tokens[start:stop])
                start = bounds[edge]
            stop = self._middle[edge] if edge == node else bounds[edge + 1]
            length += stop - bounds[edge]
        runs.append(self._tokens[start:stop])
        return np.concatenate(runs), edges

    def prefix_length(self, node: int) -> int:
        """``len(prefix(node))``, without building it."""
        first, *rest = self.sequence(node)
        at = self._bounds
        own = at[first + 1] - self._middle[first]
        return own + sum(at[n + 1] - at[n] for n in rest)

    def turns(self, node: int) -> int:
        """Turns that ended before ``node``, since the start or the last fold."""
        count = 0
        while node != ROOT and self.fold[node] != FOLDED:
            count += self.ends_turn(node)
            node = self.parent[node]
        return count

    def open_turn(self, node: int) -> list[int]:
        """Tokens sampled so far in the turn that goes on at ``node``."""
        segments = []
        while node != ROOT and not self.ends_turn(node):
            segments.append(self.generated(node)[0].tolist())
            node = self.parent[node]
        return [token for segment in reversed(segments) for token in segment]

    def edges(self) -> Iterator[int]:
        """Every node that is the end of a surviving edge, oldest first."""
        return (node for node in range(1, len(self)) if self.alive[node])

    def children(self) -> list[list[int]]:
        """Surviving children of every node, oldest first."""
        children: list[list[int]] = [[] for _ in range(len(self))]
        for node in self.edges():
            children[self.parent[node]].append(node)
        return children

    @property
    def token_bytes(self) -> int:
        """Memory of the token columns, in bytes."""
        return self._tokens.nbytes + self._logprobs.nbytes

    @property
    def token_count(self) -> int:
        """Tokens stored: prompts, generated and rendered."""
        return self._used


def _grown(column: NDArray[Any], used: int, room: int) -> NDArray[Any]:
    larger = np.empty(room, column.dtype)
    larger[:used] = column[:used]
    return larger
