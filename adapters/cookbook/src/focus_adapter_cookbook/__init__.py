"""tinker-cookbook and FOCUS: what either has plugs into the other.

Public names are exported here, lazily (PEP 562), so that importing the package costs nothing.
"""

from __future__ import annotations

from focus_core.utils.lazy import lazy

_HOME = {
    "Chat": ".chat",
    "CompleterPolicy": ".policy",
    "CookbookEnv": ".envs",
    "CookbookSandbox": ".sandboxes",
    "CookbookTask": ".task",
    "DivergenceError": ".errors",
    "FocusSandbox": ".sandboxes",
    "FocusDatasetBuilder": ".datasets",
    "FocusGroupBuilder": ".datasets",
    "PromptOverflowError": ".errors",
    "TemplateRenderer": ".chat",
    "from_cookbook": ".task",
    "open_sandbox": ".sandboxes",
    "to_datum": ".trajectories",
    "trajectory_group": ".trajectories",
    "trajectory_groups": ".trajectories",
}

__all__ = sorted(_HOME)
__version__ = "0.1.0"
__getattr__, __dir__ = lazy(__name__, _HOME)
