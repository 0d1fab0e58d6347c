"""The math task and its environment keep every contract of the kit."""

from focus_task_math import MathTask

from focus_core.testing import TaskContract


class TestMath(TaskContract):
    def subject(self):
        return MathTask()
