"""What this distribution registers. Nothing heavy is imported here."""

from __future__ import annotations

from focus_core.hookspecs import hookimpl
from focus_core.plugins.specs import CommandSpec, ConverterSpec, TrainerSpec

_INSTALL = "pip install focus-adapter-slime"


@hookimpl
def focus_trainers() -> list[TrainerSpec]:
    """The trainer ``slime``."""
    return [
        TrainerSpec(
            "slime",
            "Slime's own loop, which collects trees through hooks; writes what it needs, starts it",
            "focus_adapter_slime.trainer:SlimeTrainer",
            install=_INSTALL,
            capabilities={"own-loop"},
        )
    ]


@hookimpl
def focus_converters() -> list[ConverterSpec]:
    """The target ``slime``."""
    return [
        ConverterSpec(
            "slime",
            "Slime's Sample in plain form, as Sample.from_dict takes it",
            "focus_adapter_slime.exporting:to_plain_sample",
            install=_INSTALL,
        )
    ]


@hookimpl
def focus_commands() -> list[CommandSpec]:
    """The command ``slime-args``."""
    return [
        CommandSpec(
            "slime-args",
            "prints the flags that train a task with Slime, and writes the files they name",
            "focus_adapter_slime.command:slime_args",
            install=_INSTALL,
        )
    ]
