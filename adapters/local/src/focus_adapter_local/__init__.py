"""The embedded trainer: samples and learns in this process, on a CPU or one GPU.

Public names are exported here, lazily (PEP 562), so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Item": "items",
    "LocalPolicy": "policy",
    "LocalTrainer": "trainer",
    "to_item": "items",
}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    try:
        module = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'focus_adapter_local' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(f"focus_adapter_local.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
