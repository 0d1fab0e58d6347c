"""FOCUS on Slime: hooks by which Slime's own loop collects trees and trains on their advantages.

Public names are exported here, lazily (PEP 562), so that importing the package costs nothing; Slime
and torch are imported only inside the hooks.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focus_adapter_slime.generate import GenerateHook, make_evaluate, make_generate
    from focus_adapter_slime.losses import advantages, preserve_advantages, sum_policy_tokens
    from focus_adapter_slime.policy import RouterPolicy
    from focus_adapter_slime.samples import to_sample

__all__ = [
    "GenerateHook",
    "RouterPolicy",
    "advantages",
    "make_evaluate",
    "make_generate",
    "preserve_advantages",
    "sum_policy_tokens",
    "to_sample",
]
__version__ = "0.1.0"

_HOME = {
    "GenerateHook": "focus_adapter_slime.generate",
    "RouterPolicy": "focus_adapter_slime.policy",
    "advantages": "focus_adapter_slime.losses",
    "make_evaluate": "focus_adapter_slime.generate",
    "make_generate": "focus_adapter_slime.generate",
    "preserve_advantages": "focus_adapter_slime.losses",
    "sum_policy_tokens": "focus_adapter_slime.losses",
    "to_sample": "focus_adapter_slime.samples",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    try:
        module = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'focus_adapter_slime' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
