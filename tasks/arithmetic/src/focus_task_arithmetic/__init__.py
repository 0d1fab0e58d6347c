"""Sums and differences of graded difficulty: a FOCUS task that needs no data and no judge.

Questions and grading load neither numpy nor a model; every name is imported on first use (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from focus_core.utils.lazy import lazy

if TYPE_CHECKING:
    from focus_task_arithmetic.generate import LEVELS as LEVELS
    from focus_task_arithmetic.generate import Level as Level
    from focus_task_arithmetic.generate import Question as Question
    from focus_task_arithmetic.generate import questions as questions
    from focus_task_arithmetic.generate import split_of as split_of
    from focus_task_arithmetic.grading import boxed_integer as boxed_integer
    from focus_task_arithmetic.grading import grade as grade
    from focus_task_arithmetic.task import ArithmeticEnv as ArithmeticEnv
    from focus_task_arithmetic.task import ArithmeticTask as ArithmeticTask

_HOME = {
    "LEVELS": ".generate",
    "ArithmeticEnv": ".task",
    "ArithmeticTask": ".task",
    "Level": ".generate",
    "Question": ".generate",
    "boxed_integer": ".grading",
    "grade": ".grading",
    "questions": ".generate",
    "split_of": ".generate",
}

__all__ = sorted(_HOME)
__version__ = "0.1.0"
__getattr__, __dir__ = lazy(__name__, _HOME)
