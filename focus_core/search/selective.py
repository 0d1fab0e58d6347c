"""FIFO warm-up, then the state whose critic error falls most."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence

import attrs

from focus_core.search.calibration import Calibration
from focus_core.search.worth import Evidence, expected_error_reduction
from focus_core.tree.tree import OPEN, ROOT, Tree

__all__ = ["Selective"]


@attrs.frozen
class Selective:
    """Two phases over one tree.

    Warm-up gives every state two direct branches, in the order the states landed, until
    ``warmup`` transitions were generated; it drains before refinement starts. Refinement launches
    from the eligible state with the largest expected critic-error reduction until ``budget``
    further transitions were generated. Running continuations finish, so a phase can exceed its
    budget by what was in flight.

    Args:
        budget: Transitions of refinement.
        warmup: Transitions of warm-up.
        max_concurrency: Most continuations in flight in the tree; at 1 a tree is reproducible.
        max_failures: Failed continuations that end the collection.
    """

    budget: int = attrs.field(default=32, validator=attrs.validators.ge(0))
    warmup: int = attrs.field(default=16, validator=attrs.validators.ge(1))
    max_concurrency: int = attrs.field(default=4, validator=attrs.validators.ge(1))
    max_failures: int = attrs.field(default=3, validator=attrs.validators.ge(1))

    def start(self, tree: Tree, *, kappa: float, calibration: Calibration) -> _SelectiveFrontier:
        """Begin on a tree that holds only its root."""
        return _SelectiveFrontier(self, tree, kappa, calibration)


class _SelectiveFrontier:
    """The state of both phases.

    Warm-up keeps a queue of states in landing order. Refinement keeps a heap with lazy
    invalidation: an entry counts only if it carries the state's latest score, so choosing never
    scans the tree.
    """

    def __init__(
        self, search: Selective, tree: Tree, kappa: float, calibration: Calibration
    ) -> None:
        self._search = search
        self._tree = tree
        self._kappa = kappa
        self._calibration = calibration
        self._refining = False
        self._generated = 0
        self._in_flight = 0
        self._queue: deque[int] = deque([ROOT])
        self._evidence: dict[int, Evidence] = {ROOT: Evidence()}
        self._branches: dict[int, int] = {ROOT: 0}
        self._order: dict[int, int] = {ROOT: 0}
        self._heap: list[tuple[float, int, int]] = []
        self._score: dict[int, float] = {}
        self.stopped = ""

    def generated(self) -> None:
        self._generated += 1

    def next(self) -> int | None:
        if not self._refining:
            source = self._warm()
            if source is None and not self._in_flight:
                self._start_refinement()
            elif source is None:
                return None
        if self._refining:
            source = self._best()
        if source is not None:
            self._evidence[source].in_flight += 1
            self._in_flight += 1
            if self._refining:
                self._rescore(source)
        return source

    def _warm(self) -> int | None:
        if self._generated >= self._search.warmup:
            return None
        while self._queue and self._branches[self._queue[0]] >= 2:
            self._queue.popleft()
        for state in self._queue:
            if self._branches[state] + self._evidence[state].in_flight < 2:
                return state
        return None

    def _start_refinement(self) -> None:
        self._refining = True
        self._generated = 0
        if not any(math.isfinite(self._tree.prediction[state]) for state in self._evidence):
            self.stopped = "warm-up done; refinement skipped: no state has a critic prediction"
            return
        for state in self._evidence:
            self._rescore(state)

    def _best(self) -> int | None:
        if self.stopped:
            return None
        if self._generated >= self._search.budget:
            self.stopped = f"the budget of {self._search.budget} transitions is used"
            return None
        while self._heap:
            negative, _, state = self._heap[0]
            if self._score.get(state) == -negative:
                return state
            heapq.heappop(self._heap)
        if not self._in_flight:
            self.stopped = "no state is eligible"
        return None

    @property
    def phase(self) -> str:
        return "refinement" if self._refining else "warm-up"

    def worth(self, state: int) -> float | None:
        if self._refining:
            return self._score.get(state)
        return self._worth(state) if state in self._evidence else None

    def _worth(self, state: int) -> float:
        return expected_error_reduction(
            self._tree.prediction[state],
            self._evidence[state],
            kappa=self._kappa,
            calibration=self._calibration,
        )

    def _rescore(self, state: int) -> None:
        """Put a state's current score on the heap; older entries lapse."""
        score = self._worth(state)
        if score != self._score.get(state):
            self._score[state] = score
            if score > 0.0:
                heapq.heappush(self._heap, (-score, self._order[state], state))

    def landed(self, source: int, chain: Sequence[int], returns: Sequence[float] | None) -> None:
        self._end(source)
        self._branches[source] += 1
        last = len(chain) - 1
        for place, state in enumerate(chain):
            if self._tree.kind[state] != OPEN or not self._tree.forkable[state]:
                continue
            self._evidence[state] = evidence = Evidence()
            self._branches[state] = int(place < last)
            self._order[state] = len(self._order)
            if not self._refining:
                self._queue.append(state)
            if returns is not None:
                evidence.observe(returns[place + 1])
        if returns is not None:
            self._evidence[source].observe(returns[0])
        if self._refining:
            for state in (source, *chain):
                if state in self._evidence:
                    self._rescore(state)

    def failed(self, source: int) -> None:
        self._end(source)
        if self._refining:
            self._rescore(source)

    def _end(self, source: int) -> None:
        self._evidence[source].in_flight -= 1
        self._in_flight -= 1
