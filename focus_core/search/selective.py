"""FIFO warm-up, then the state whose critic error falls most."""

from __future__ import annotations

import math

import attrs

from focus_core.search.calibration import Calibration
from focus_core.search.frontier import Ranking, TreeFrontier
from focus_core.search.worth import expected_error_reduction
from focus_core.tree.tree import Tree

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


class _SelectiveFrontier(TreeFrontier):
    def __init__(
        self, search: Selective, tree: Tree, kappa: float, calibration: Calibration
    ) -> None:
        super().__init__(tree)
        self._search = search
        self._kappa = kappa
        self._calibration = calibration
        self._ranking: Ranking | None = None  # until refinement starts

    @property
    def phase(self) -> str:  # type: ignore[override]  # read only, as in Explained
        """``"warm-up"`` or ``"refinement"``."""
        return "refinement" if self._ranking else "warm-up"

    def worth(self, state: int) -> float | None:
        """Also in warm-up, which does not go by it: what refinement will begin with."""
        if self._ranking is not None:
            return self._ranking.score(state)
        return self._score(state) if state in self._standing else None

    def _choose(self) -> int | None:
        if self._ranking is None:
            state = self._fifo() if self._generated < self._search.warmup else None
            if state is not None or self._in_flight:
                return state
            self._refine()
        return self._best()

    def _refine(self) -> None:
        """Warm-up has drained: rank what it found."""
        self._ranking = Ranking()
        self._generated = 0
        if not any(math.isfinite(self._tree.prediction[state]) for state in self._order):
            self.stopped = "warm-up done; refinement skipped: no state has a critic prediction"
        for state in self._order:
            self._changed(state)

    def _best(self) -> int | None:
        if self.stopped or self._used(self._search.budget) or self._ranking is None:
            return None
        state = self._ranking.first()
        if state is None and not self._in_flight:
            self.stopped = "no state is eligible"
        return state

    def _changed(self, state: int) -> None:
        if self._ranking is not None:
            self._ranking.put(state, self._standing[state].age, self._score(state))

    def _score(self, state: int) -> float | None:
        score = expected_error_reduction(
            self._tree.prediction[state],
            self._standing[state].evidence,
            kappa=self._kappa,
            calibration=self._calibration,
        )
        return score if score > 0.0 else None
