"""What grading says about one completion."""

from __future__ import annotations

import attrs

__all__ = ["GradingStats", "Verdict"]


@attrs.frozen
class Verdict:
    """A verdict.

    Attributes:
        correct: Whether the completion's answer is the reference's; ``None`` if it could not be
            graded, which is neither right nor wrong.
        reason: Why, in a few words.
        answer: The LaTeX that was graded; ``None`` if the completion has no answer.
    """

    correct: bool | None
    reason: str
    answer: str | None = None


@attrs.frozen
class GradingStats:
    """What a pool has done so far.

    Attributes:
        graded: Verdicts that are right or wrong.
        not_graded: Verdicts of ``None``.
        timed_out: Verdicts, of either kind, that took the whole limit.
        replaced: Workers that died or were killed.
    """

    graded: int = 0
    not_graded: int = 0
    timed_out: int = 0
    replaced: int = 0
