"""FOCUS on Tinker: its sampling clients as policies, its training clients as trainers.

Public names are exported here, lazily (PEP 562), so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focus_adapter_tinker._sdk import explain
    from focus_adapter_tinker._train import train
    from focus_adapter_tinker.datums import to_datum
    from focus_adapter_tinker.losses import PPO_CLIP
    from focus_adapter_tinker.policy import TinkerPolicy
    from focus_adapter_tinker.trainer import TinkerTrainer
    from focus_adapter_tinker.update import update_actor
    from focus_core.records import StepReport

__all__ = [
    "PPO_CLIP",
    "StepReport",
    "TinkerPolicy",
    "TinkerTrainer",
    "explain",
    "to_datum",
    "train",
    "update_actor",
]
__version__ = "0.1.0"

_HOME = {
    "PPO_CLIP": "focus_adapter_tinker.losses",
    "StepReport": "focus_core.records",
    "TinkerPolicy": "focus_adapter_tinker.policy",
    "TinkerTrainer": "focus_adapter_tinker.trainer",
    "explain": "focus_adapter_tinker._sdk",
    "to_datum": "focus_adapter_tinker.datums",
    "train": "focus_adapter_tinker._train",
    "update_actor": "focus_adapter_tinker.update",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    try:
        module = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'focus_adapter_tinker' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
