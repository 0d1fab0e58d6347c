"""What this distribution registers. Nothing heavy is imported here."""

from __future__ import annotations

from focus_core.hookspecs import hookimpl
from focus_core.plugins.specs import ConverterSpec, TrainerSpec

_INSTALL = "pip install focus-adapter-local"


@hookimpl
def focus_trainers() -> list[TrainerSpec]:
    """The trainer ``local``."""
    return [
        TrainerSpec(
            "local",
            "embedded: LoRA on any local causal language model, CPU or one GPU",
            "focus_adapter_local.trainer:LocalTrainer",
            requires=("torch", "transformers", "peft"),
            install=_INSTALL,
            capabilities={"merges-spans", "resumes"},
        )
    ]


@hookimpl
def focus_converters() -> list[ConverterSpec]:
    """The target ``local``: a saved record as the item that the trainer's losses read."""
    return [
        ConverterSpec(
            "local",
            "tokens, targets, log probabilities, advantages and mask, shifted by one position",
            "focus_adapter_local.items:to_item",
            install=_INSTALL,
        )
    ]
