"""What this distribution registers with FOCUS; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence

from focus_core import TaskSpec, hookimpl

__all__ = ["focus_tasks"]


@hookimpl
def focus_tasks() -> Sequence[TaskSpec]:
    """The task ``math``."""
    return [
        TaskSpec(
            "math",
            "mathematics problems with a boxed answer (MATH records in files, folders, data sets)",
            "focus_task_math.task:MathTask",
        )
    ]
