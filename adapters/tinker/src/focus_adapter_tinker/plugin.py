"""What this distribution registers. Nothing heavy is imported here."""

from __future__ import annotations

from focus_core.hookspecs import hookimpl
from focus_core.plugins.specs import ConverterSpec, TrainerSpec

_INSTALL = "pip install focus-adapter-tinker"


@hookimpl
def focus_trainers() -> list[TrainerSpec]:
    """The trainer ``tinker``."""
    return [
        TrainerSpec(
            "tinker",
            "Tinker: LoRA on hosted models; --dry-run runs it on this machine, for nothing",
            "focus_adapter_tinker.trainer:TinkerTrainer",
            requires=("tinker",),
            install=_INSTALL,
            capabilities={"merges-spans", "resumes"},
        )
    ]


@hookimpl
def focus_converters() -> list[ConverterSpec]:
    """The target ``tinker``: a saved record as a datum."""
    return [
        ConverterSpec(
            "tinker",
            "Tinker's Datum: targets, log probabilities and advantages, shifted by one position",
            "focus_adapter_tinker.datums:to_datum",
            install=_INSTALL,
        )
    ]
