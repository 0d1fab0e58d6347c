"""One verdict, computed here and now: unbounded in time, so only workers call it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from focus_task_math.grading.equivalence import same_answer
from focus_task_math.grading.kinds import Answer
from focus_task_math.grading.reading import read
from focus_task_math.grading.tokens import Unreadable

__all__ = ["judge"]


# "About" before a reference answer, which textbooks have; an answer may have it as well then.
_ABOUT = re.compile(
    r"^(\s*\$?\s*)(?:(?:\\(?:approx|simeq|sim)(?![A-Za-z])|[\u2248~])"
    r"|\\text\s*\{\s*(?:about|approximately|roughly)\s*\}|(?:about|approximately|roughly)(?![a-z]))\s*",
    re.IGNORECASE,
)


@functools.lru_cache(maxsize=512)
def _read_gold(gold: str) -> Answer | Unreadable:
    try:
        return read(_ABOUT.sub(r"\1", gold))
    except Unreadable as error:
        return error
    except Exception as error:  # sympy's own
        return Unreadable(f"{type(error).__name__}: {error}")


def judge(
    gold: str, answer: str | None, on_gold: Callable[[], None] = lambda: None
) -> tuple[bool | None, str]:
    """Compare an answer's LaTeX with a reference answer's.

    Args:
        gold: The reference answer.
        answer: The answer; ``None`` only reads the reference.
        on_gold: Called once the reference has been read, before the answer is.

    Returns:
        ``correct`` (``None`` if the reference cannot be read) and the reason.
    """
    reference = _read_gold(gold)
    if isinstance(reference, Unreadable):
        return None, f"the reference answer cannot be read: {reference}"
    on_gold()
    if answer is None:
        return True, "readable"
    if answer == gold or answer.replace(", ", ",") == gold:  # 100,200 may also be a list
        return True, "the same"
    if _ABOUT.match(gold):
        answer = _ABOUT.sub(r"\1", answer)
    try:
        correct = same_answer(reference, read(answer))
    except Unreadable as error:
        return False, f"the answer cannot be read: {error}"
    except MemoryError:
        return False, "the answer is too large to evaluate"
    except RecursionError:
        return False, "the answer is nested too deep"
    except Exception as error:  # sympy gave up: nothing shows that the answer is right
        return False, f"the answer cannot be compared: {type(error).__name__}: {error}"
    return correct, "the same" if correct else "differs from the reference answer"
