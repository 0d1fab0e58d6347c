"""The arithmetic task and its environment keep every contract of the kit."""

from focus_task_arithmetic import ArithmeticTask

from focus_core.testing import TaskContract


class TestArithmetic(TaskContract):
    def subject(self):
        return ArithmeticTask()
