"""Doubles that behave like the real thing, for tests of tasks, trainers and plug-ins."""

from focus_core.testing.fakes import CountdownEnv, RandomPolicy, RecordingTrainer

__all__ = ["CountdownEnv", "RandomPolicy", "RecordingTrainer"]
