"""The embedded trainer: samples and learns in this process, on a CPU or one GPU.

Public names are exported here, lazily (PEP 562), so that importing the package costs nothing.
"""

from __future__ import annotations

from focus_core.utils.lazy import lazy

_HOME = {
    "Item": ".items",
    "LocalPolicy": ".policy",
    "LocalTrainer": ".trainer",
    "to_item": ".items",
}

__all__ = sorted(_HOME)
__version__ = "0.1.0"
__getattr__, __dir__ = lazy(__name__, _HOME)
