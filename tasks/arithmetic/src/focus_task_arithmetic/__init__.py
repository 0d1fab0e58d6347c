"""Sums and differences of graded difficulty: a FOCUS task that needs no data and no judge.

Questions and grading need only the standard library; the task itself is imported on first use
(PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focus_task_arithmetic.generate import LEVELS, Level, Question, questions, split_of
    from focus_task_arithmetic.grading import boxed_integer, grade
    from focus_task_arithmetic.task import ArithmeticEnv, ArithmeticTask

__all__ = [
    "LEVELS",
    "ArithmeticEnv",
    "ArithmeticTask",
    "Level",
    "Question",
    "boxed_integer",
    "grade",
    "questions",
    "split_of",
]
__version__ = "0.1.0"

_HOME = {
    "LEVELS": "generate",
    "ArithmeticEnv": "task",
    "ArithmeticTask": "task",
    "Level": "generate",
    "Question": "generate",
    "boxed_integer": "grading",
    "grade": "grading",
    "questions": "generate",
    "split_of": "generate",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
