"""Grading of mathematical answers, in killable processes; see ``pool`` and ``judge``."""
