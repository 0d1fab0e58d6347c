"""Why each state was chosen: a search's launches, and what every state was worth over time."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import attrs

from focus_core.search.base import Explained, Frontier
from focus_core.search.worth import Evidence

__all__ = ["Decisions"]


def _integers() -> array[int]:
    return array("q")


def _floats() -> array[float]:
    return array("d")


@attrs.define(eq=False)
class Launches:
    """One row a launch, in order: what was known when it was made. Columns of equal length.

    Attributes:
        state: The state chosen.
        phase: The search's phase.
        worth: What the state was worth then; NaN if the search gives its states no worth.
        n: Returns observed at the state.
        mean: Their mean; 0 before the first.
        in_flight: Other continuations launched from the state that had not ended.
        transitions: Generated in the tree so far.
    """

    state: array[int] = attrs.field(factory=_integers)
    phase: list[str] = attrs.field(factory=list)
    worth: array[float] = attrs.field(factory=_floats)
    n: array[int] = attrs.field(factory=_integers)
    mean: array[float] = attrs.field(factory=_floats)
    in_flight: array[int] = attrs.field(factory=_integers)
    transitions: array[int] = attrs.field(factory=_integers)


@attrs.define(eq=False)
class Changes:
    """One row a change of a state's worth, in order. Columns of equal length.

    Attributes:
        state: Whose worth changed.
        worth: What it became; NaN if it is no longer offered.
        launches: Made before the change, so launch ``i`` saw the changes with ``launches <= i``.
        transitions: Generated in the tree so far.
    """

    state: array[int] = attrs.field(factory=_integers)
    worth: array[float] = attrs.field(factory=_floats)
    launches: array[int] = attrs.field(factory=_integers)
    transitions: array[int] = attrs.field(factory=_integers)


@attrs.define(eq=False)
class Decisions:
    """The log of one tree's search. An entry a launch, and one a change: no state is ever scanned.

    Attributes:
        launches: Which state was chosen each time, and what spoke for it.
        changes: How the worth of each state went.
        evidence: Returns observed at each state: of continuations launched from it, and of the
            one it was born in.
    """

    launches: Launches = attrs.field(factory=Launches)
    changes: Changes = attrs.field(factory=Changes)
    evidence: dict[int, Evidence] = attrs.field(factory=dict)
    _explained: Explained | None = None
    _worth: dict[int, float | None] = attrs.field(factory=dict)

    def follow(self, frontier: Frontier | None) -> None:
        """Read worth from this search from now on; ``None`` lets go of it."""
        self._explained = frontier if isinstance(frontier, Explained) else None

    def launched(self, state: int, transitions: int) -> None:
        """The search has just chosen a state."""
        evidence = self._at(state)
        launches = self.launches
        launches.state.append(state)
        launches.phase.append(self._explained.phase if self._explained else "")
        worth = self._worth.get(state)
        launches.worth.append(math.nan if worth is None else worth)
        launches.n.append(evidence.n)
        launches.mean.append(evidence.mean)
        launches.in_flight.append(evidence.in_flight)
        launches.transitions.append(transitions)
        evidence.in_flight += 1
        self._note((state,), transitions)

    def landed(
        self,
        source: int,
        chain: Sequence[int],
        returns: Sequence[float] | None,
        transitions: int,
    ) -> None:
        """The search was told of a landing; arguments as in ``Frontier.landed``."""
        states = (source, *chain)
        if returns is not None:  # then the last state is terminal, and nothing follows it
            for state, value in zip(states[:-1], returns, strict=False):
                self._at(state).observe(value)
        self.evidence[source].in_flight -= 1
        self._note(states, transitions)

    def failed(self, source: int, transitions: int) -> None:
        """The search was told of a failure."""
        self.evidence[source].in_flight -= 1
        self._note((source,), transitions)

    def _at(self, state: int) -> Evidence:
        evidence = self.evidence.get(state)
        if evidence is None:
            evidence = self.evidence[state] = Evidence()
        return evidence

    def _note(self, states: Sequence[int], transitions: int) -> None:
        """Log what these states are worth now, where that is news."""
        if self._explained is None:
            return
        changes = self.changes
        for state in states:
            worth = self._explained.worth(state)
            if worth == self._worth.get(state):
                continue
            self._worth[state] = worth
            changes.state.append(state)
            changes.worth.append(math.nan if worth is None else worth)
            changes.launches.append(len(self.launches.state))
            changes.transitions.append(transitions)
