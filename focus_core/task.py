"""What a task is: problems, and how to collect one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import attrs

from focus_core.collect import Collector
from focus_core.policy import Policy
from focus_core.records import Problem

__all__ = ["CollectorFor", "Task", "TaskDefaults", "defaults_of"]

CollectorFor = Callable[[Policy, Problem], Collector]
"""From the trainer's current policy and one problem to the collector of that problem's tree."""


@attrs.frozen(kw_only=True)
class TaskDefaults:
    """What the command line uses where the user names nothing.

    Attributes:
        source: What ``problems`` is given without ``--problems``; ``None`` if it must be given.
        eval_source: Problems held out for evaluation; without any, ``focus train --eval-every``
            needs ``--eval-source``, and ``focus eval`` measures the task's own source.
        eval_problems: How many of them an evaluation takes.
        problems_per_step: Trees per update.
    """

    source: str | None = None
    eval_source: str | None = None
    eval_problems: int = 64
    problems_per_step: int = 1


@runtime_checkable
class Task(Protocol):
    """A task, the same under every trainer.

    Usually an attrs class whose fields are the options that ``--set task.NAME=VALUE`` sets.

    Optional attribute: ``defaults``, a ``TaskDefaults`` for what the user does not name.
    """

    @property
    def name(self) -> str:
        """Its registered name."""
        ...

    def problems(self, source: Any) -> Sequence[Problem]:
        """Read or make the problems of a source (a path, a split's name, ...).

        With the keyword arguments ``strict`` and ``skip_bad_rows`` (both ``False`` by default) it
        follows the options of that name: to refuse what it would warn of, and to leave out, count
        and name the rows that it would refuse. The options are refused for a task without them.

        Raises:
            DataError: The source cannot be used; names file, line, field and remedy.
        """
        ...

    def collector_for(self, policy: Policy, problem: Problem) -> Collector:
        """A fresh collector, with a fresh environment, for one problem."""
        ...

    def validate(self) -> None:
        """Prove the task on its own data: the grader accepts every gold answer and no other.

        Raises:
            FocusError: What is wrong.
        """
        ...


def defaults_of(task: Task) -> TaskDefaults:
    """A task's own defaults, or the usual ones."""
    found = getattr(task, "defaults", None)
    return found if isinstance(found, TaskDefaults) else TaskDefaults()
