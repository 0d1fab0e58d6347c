"""What this distribution registers. Nothing heavy is imported here."""

from __future__ import annotations

from focus_core.hookspecs import hookimpl
from focus_core.plugins.specs import ConverterSpec, SandboxSpec, TaskSpec

_INSTALL = "pip install focus-adapter-cookbook"


@hookimpl
def focus_tasks() -> list[TaskSpec]:
    """The task ``cookbook``."""
    return [
        TaskSpec(
            "cookbook",
            "environments of any tinker-cookbook dataset, branched by replaying actions",
            "focus_adapter_cookbook.task:CookbookTask",
            requires=("tinker_cookbook",),
            install=_INSTALL,
        )
    ]


@hookimpl
def focus_converters() -> list[ConverterSpec]:
    """The target ``cookbook``."""
    return [
        ConverterSpec(
            "cookbook",
            "a Datum as the cookbook assembles it, with its mask",
            "focus_adapter_cookbook.trajectories:to_datum",
            requires=("tinker_cookbook",),
            install=_INSTALL,
        )
    ]


@hookimpl
def focus_sandboxes() -> list[SandboxSpec]:
    """The sandbox ``cookbook``."""
    return [
        SandboxSpec(
            "cookbook",
            "what a sandbox factory written for the cookbook makes",
            "focus_adapter_cookbook.sandboxes:open_sandbox",
            requires=("tinker_cookbook",),
            install=_INSTALL,
        )
    ]
