"""Mathematics problems with boxed answers: a FOCUS task, and its grader for use anywhere.

Public names are imported on first use (PEP 562): grading needs neither sympy here, which only
worker processes import, nor the rest of FOCUS.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focus_task_math.grading.pool import GradingPool, agrade, grade
    from focus_task_math.grading.verdict import GradingStats, Verdict
    from focus_task_math.problems import UnreadableGoldWarning, load_problems
    from focus_task_math.task import MathEnv, MathTask

__all__ = [
    "GradingPool",
    "GradingStats",
    "MathEnv",
    "MathTask",
    "UnreadableGoldWarning",
    "Verdict",
    "agrade",
    "grade",
    "load_problems",
]
__version__ = "0.1.0"

_HOME = {
    "GradingPool": "grading.pool",
    "GradingStats": "grading.verdict",
    "MathEnv": "task",
    "MathTask": "task",
    "UnreadableGoldWarning": "problems",
    "Verdict": "grading.verdict",
    "agrade": "grading.pool",
    "grade": "grading.pool",
    "load_problems": "problems",
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
