"""What this distribution registers with FOCUS; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence

from focus_core import TaskSpec, hookimpl

__all__ = ["focus_tasks"]


@hookimpl
def focus_tasks() -> Sequence[TaskSpec]:
    """The task ``arithmetic``."""
    return [
        TaskSpec(
            "arithmetic",
            "generated sums and differences, by number and size of operands",
            "focus_task_arithmetic.task:ArithmeticTask",
        )
    ]
