"""tinker-cookbook and FOCUS: what either has plugs into the other.

Public names are exported here, lazily (PEP 562), so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Chat": "chat",
    "CompleterPolicy": "policy",
    "CookbookEnv": "envs",
    "CookbookSandbox": "sandboxes",
    "CookbookTask": "task",
    "DivergenceError": "errors",
    "FocusSandbox": "sandboxes",
    "FocusDatasetBuilder": "datasets",
    "FocusGroupBuilder": "datasets",
    "PromptOverflowError": "errors",
    "TemplateRenderer": "chat",
    "from_cookbook": "task",
    "open_sandbox": "sandboxes",
    "to_datum": "trajectories",
    "trajectory_group": "trajectories",
    "trajectory_groups": "trajectories",
}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    try:
        module = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'focus_adapter_cookbook' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(f"focus_adapter_cookbook.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
