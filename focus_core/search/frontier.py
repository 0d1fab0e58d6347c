"""What branching searches share: the standing of each state, a FIFO rule and a ranking."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import attrs

from focus_core.search.worth import Evidence
from focus_core.tree.tree import OPEN, ROOT, Tree

__all__ = ["RankedFrontier", "Ranking", "Standing", "TreeFrontier"]


@attrs.define(eq=False)
class Standing:
    """A state that may be offered.

    Attributes:
        age: Its place in landing order; ties go to the lower.
        branches: Its direct branches that landed, the child of the chain it lies on included.
        evidence: Returns observed through it, and launches in flight.
    """

    age: int
    branches: int = 0
    evidence: Evidence = attrs.field(factory=Evidence)

    @property
    def width(self) -> int:
        """Direct branches, those in flight included."""
        return self.branches + self.evidence.in_flight


class TreeFrontier:
    """Keeps the standing of every state of one tree; a search adds ``_choose``.

    Terminal, truncated and non-forkable states have no standing and are never offered, nor are
    those of a failed continuation, which never lands.
    """

    phase = ""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._order = [ROOT]
        self._standing = {ROOT: Standing(0)}
        self._head = 0
        self._in_flight = 0
        self._generated = 0
        self.stopped = ""

    def next(self) -> int | None:
        """See ``Frontier``."""
        source = self._choose()
        if source is not None:
            self._standing[source].evidence.in_flight += 1
            self._in_flight += 1
            self._changed(source)
        return source

    def generated(self) -> None:
        """See ``Frontier``."""
        self._generated += 1

    def landed(self, source: int, chain: Sequence[int], returns: Sequence[float] | None) -> None:
        """See ``Frontier``."""
        self._ended(source)
        self._standing[source].branches += 1
        last = len(chain) - 1
        for place, state in enumerate(chain):
            if self._tree.kind[state] == OPEN and self._tree.forkable[state]:
                self._standing[state] = Standing(len(self._order), branches=int(place < last))
                self._order.append(state)
        for place, state in enumerate((source, *chain)):
            if state in self._standing:
                if returns is not None:
                    self._standing[state].evidence.observe(returns[place])
                self._changed(state)

    def failed(self, source: int) -> None:
        """See ``Frontier``."""
        self._ended(source)
        self._changed(source)

    def worth(self, state: int) -> float | None:
        """The score a state is ranked by now; ``None``: it is not offered, or not by rank."""
        return None

    def _ended(self, source: int) -> None:
        self._standing[source].evidence.in_flight -= 1
        self._in_flight -= 1

    def _choose(self) -> int | None:
        """The state to launch from; sets ``stopped`` when there will be none."""
        raise NotImplementedError

    def _changed(self, state: int) -> None:
        """A state's standing is new or has changed."""

    def _fifo(self) -> int | None:
        """The oldest state with fewer than two direct branches, those in flight included."""
        while self._head < len(self._order) and self._branches(self._head) >= 2:
            self._head += 1
        for place in range(self._head, len(self._order)):
            state = self._order[place]
            if self._standing[state].width < 2:
                return state
        return None

    def _branches(self, place: int) -> int:
        return self._standing[self._order[place]].branches

    def _used(self, budget: int) -> bool:
        """Whether the budget is used; then says so."""
        if self._generated >= budget:
            self.stopped = f"the budget of {budget} transitions is used"
        return self._generated >= budget


class Ranking:
    """States by score, highest first, the older of equals.

    A heap with lazy invalidation: an entry counts only if it carries the state's latest score, so
    choosing never scans the tree.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []
        self._score: dict[int, float | None] = {}

    def put(self, state: int, age: int, score: float | None) -> None:
        """Set a state's score; with ``None`` it is not ranked."""
        if score != self._score.get(state):
            self._score[state] = score
            if score is not None:
                heapq.heappush(self._heap, (-score, age, state))

    def score(self, state: int) -> float | None:
        """A state's latest score."""
        return self._score.get(state)

    def first(self) -> int | None:
        """The state with the highest score."""
        while self._heap:
            negative, _, state = self._heap[0]
            if self._score[state] == -negative:
                return state
            heapq.heappop(self._heap)
        return None


class RankedFrontier(TreeFrontier):
    """Launches from the state with the highest score that has room for a branch.

    A state has one launch in flight at most, and ``branches`` direct branches at most. The root
    comes first, and alone, until a continuation from it has landed.

    Args:
        tree: Holds only its root.
        budget: Transitions.
        branches: Direct branches at which a state is done.
        score: Of a state that has landed; it never changes. ``None``: the state is not offered.
    """

    def __init__(
        self, tree: Tree, budget: int, branches: int, score: Callable[[int], float | None]
    ) -> None:
        super().__init__(tree)
        self._budget = budget
        self._most = branches
        self._score = score
        self._ranking = Ranking()

    def worth(self, state: int) -> float | None:
        """See ``TreeFrontier``."""
        return self._ranking.score(state)

    def _choose(self) -> int | None:
        if self._used(self._budget):
            return None
        if not self._standing[ROOT].branches:
            return None if self._in_flight else ROOT
        state = self._ranking.first()
        if state is None and not self._in_flight:
            self.stopped = "no state is eligible"
        return state

    def _changed(self, state: int) -> None:
        standing = self._standing[state]
        room = standing.branches < self._most and not standing.evidence.in_flight
        self._ranking.put(state, standing.age, self._score(state) if room else None)
