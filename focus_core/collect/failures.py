"""What failed while a tree was grown, and when that is too much."""

from __future__ import annotations

from collections import Counter

import attrs

from focus_core.failure import Failure

__all__ = ["Failures"]


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
