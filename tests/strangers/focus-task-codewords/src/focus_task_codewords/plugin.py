"""What this distribution registers."""

from focus_core import TaskSpec, hookimpl


@hookimpl
def focus_tasks() -> list[TaskSpec]:
    """The task ``codewords``."""
    return [TaskSpec("codewords", "guess a secret word", "focus_task_codewords.task:Codewords")]
