"""What failed while a tree was grown, and when that is too much."""

from __future__ import annotations

from collections import Counter

import attrs

__all__ = ["Failure", "Failures"]


@attrs.frozen
class Failure:
    """Something that failed in a collection, with its cause attached.

    Attributes:
        stage: ``"generation"``, ``"environment"``, ``"deadline"`` or ``"prediction"``.
        state: The state acted from, or whose prediction failed.
        launch: The continuation, -1 for the root's own reset and prediction.
        error: The exception as it was raised.
    """

    stage: str
    state: int
    launch: int
    error: Exception

    def __str__(self) -> str:
        """One line."""
        return f"{self.stage} at state {self.state}: {type(self.error).__name__}: {self.error}"


@attrs.define(eq=False)
class Failures:
    """Those of one tree.

    Attributes:
        most: So many stop the collection.
        counts: Failed continuations and predictions are counted up.
        found: In the order in which they happened.
        stopped: Why the collection stops, if it does.
    """

    most: int
    counts: Counter[str]
    found: list[Failure] = attrs.field(factory=list)
    stopped: str = ""

    def add(self, stage: str, state: int, launch: int, raised: BaseException) -> None:
        """Keep one, as ``Failure`` says; the first too many stops the collection."""
        error = raised
        if not isinstance(error, Exception):  # a library's sys.exit() must not end the program
            error = RuntimeError(f"the code raised {raised!r}")
            error.__cause__ = raised
        self.found.append(Failure(stage, state, launch, error))
        counter = "failed_predictions" if stage == "prediction" else "failed_continuations"
        self.counts[counter] += 1
        if len(self.found) >= self.most:
            self.stopped = f"stopped after {len(self.found)} failures"

    def stop(self, why: str) -> None:
        """Give a reason to stop, unless there is one."""
        self.stopped = self.stopped or why
