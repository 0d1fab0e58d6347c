"""The contract with plug-ins: what they register, and what they may observe.

A plug-in is a module (or object) named by an entry point of group ``focus``::

    [project.entry-points.focus]
    countdown = "focus_task_countdown.plugin"

    # focus_task_countdown/plugin.py: import nothing heavy here
    from focus_core import TaskSpec, hookimpl

    @hookimpl
    def focus_tasks():
        return [TaskSpec("countdown", "reach a number", "focus_task_countdown.task:Countdown")]

Hooks register and observe. Whatever is awaited is a method on a protocol object (``Trainer``,
``Policy``, ``Env``): pluggy would take a coroutine for a result, so no hook is async.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from focus_core.plugins.events import (
        BatchCollected,
        PolicyEvaluated,
        PolicyPublished,
        RecordsDelivered,
        RunFinished,
        RunStarted,
        StepFinished,
        UpdateStarted,
    )
    from focus_core.plugins.specs import (
        CommandSpec,
        ConverterSpec,
        CriticSpec,
        LaneSpec,
        ObserverSpec,
        RecipeSpec,
        SandboxSpec,
        SearchSpec,
        TaskSpec,
        TrainerSpec,
    )
    from focus_core.trainer import Trainer

__all__ = ["Hooks", "hookimpl", "hookspec", "new_manager"]

hookspec = pluggy.HookspecMarker("focus")
hookimpl = pluggy.HookimplMarker("focus")
"""Marks a function or method as the implementation of the hook of its name."""


class Hooks:
    """The hook specs. Every hook is called with keyword arguments."""

    # Registration: process-wide, synchronous and cheap.

    @hookspec
    def focus_tasks(self) -> Sequence[TaskSpec]:
        """Tasks this plug-in offers."""
        raise NotImplementedError

    @hookspec
    def focus_trainers(self) -> Sequence[TrainerSpec]:
        """Trainers this plug-in offers."""
        raise NotImplementedError

    @hookspec
    def focus_searches(self) -> Sequence[SearchSpec]:
        """Searches this plug-in offers: where a tree's budget is spent."""
        raise NotImplementedError

    @hookspec
    def focus_recipes(self) -> Sequence[RecipeSpec]:
        """Recipes this plug-in offers: what an edge is worth."""
        raise NotImplementedError

    @hookspec
    def focus_critics(self) -> Sequence[CriticSpec]:
        """Critics this plug-in offers: what predicts the value of a state."""
        raise NotImplementedError

    @hookspec
    def focus_lanes(self) -> Sequence[LaneSpec]:
        """Lanes this plug-in offers, beside ``actor`` and ``critic``."""
        raise NotImplementedError

    @hookspec
    def focus_converters(self) -> Sequence[ConverterSpec]:
        """Functions from a saved record to a trainer's own item."""
        raise NotImplementedError

    @hookspec
    def focus_observers(self) -> Sequence[ObserverSpec]:
        """Observers of every run in this process."""
        raise NotImplementedError

    @hookspec
    def focus_sandboxes(self) -> Sequence[SandboxSpec]:
        """Kinds of sandbox for code that a policy wrote."""
        raise NotImplementedError

    @hookspec
    def focus_commands(self) -> Sequence[CommandSpec]:
        """Commands this plug-in adds to ``focus``, looked up when the core has none of a name."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def focus_open_trainer(self, spec: TrainerSpec, config: Mapping[str, Any]) -> Trainer | None:
        """Make the trainer of a run; the first plug-in to return one wins, ``None`` passes.

        Lets a plug-in wrap or replace a trainer. The built-in implementation, last in line,
        calls the spec's factory.

        :param spec: The trainer the user named.
        :param config: Its options, already checked against the factory's parameters.
        """
        raise NotImplementedError

    # The run: notify only. A failing observer is logged and never stops the run.

    @hookspec
    def focus_run_started(self, event: RunStarted) -> None:
        """Before the first policy is published."""

    @hookspec
    def focus_policy_published(self, event: PolicyPublished) -> None:
        """After each ``publish_policy``."""

    @hookspec
    def focus_policy_evaluated(self, event: PolicyEvaluated) -> None:
        """After each evaluation, the first policy's included."""

    @hookspec
    def focus_batch_collected(self, event: BatchCollected) -> None:
        """When all trees of a batch are in, collected or replayed, before its update."""

    @hookspec
    def focus_update_started(self, event: UpdateStarted) -> None:
        """Right before ``Trainer.update``."""

    @hookspec
    def focus_step_finished(self, event: StepFinished) -> None:
        """After each update or skipped batch, before ``on_step``."""

    @hookspec
    def focus_records_delivered(self, event: RecordsDelivered) -> None:
        """After a sink took a lane's records of one batch."""

    @hookspec
    def focus_run_finished(self, event: RunFinished) -> None:
        """Once, at the end."""


def new_manager() -> pluggy.PluginManager:
    """A manager of these hooks; with ``FOCUS_TRACE=1`` it prints each call to stderr."""
    manager = pluggy.PluginManager("focus")
    manager.add_hookspecs(Hooks)
    if os.environ.get("FOCUS_TRACE"):
        manager.trace.root.setwriter(sys.stderr.write)
        manager.enable_tracing()
    return manager
