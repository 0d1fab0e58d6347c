"""FOCUS on Tinker: its sampling clients as policies, its training clients as trainers.

Public names are exported here, lazily (PEP 562), so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from focus_core.utils.lazy import lazy

if TYPE_CHECKING:
    from focus_adapter_tinker._sdk import explain as explain
    from focus_adapter_tinker._train import train as train
    from focus_adapter_tinker.datums import to_datum as to_datum
    from focus_adapter_tinker.losses import PPO_CLIP as PPO_CLIP
    from focus_adapter_tinker.policy import TinkerPolicy as TinkerPolicy
    from focus_adapter_tinker.trainer import TinkerTrainer as TinkerTrainer
    from focus_adapter_tinker.update import update_actor as update_actor
    from focus_core.records import StepReport as StepReport

_HOME = {
    "PPO_CLIP": ".losses",
    "StepReport": "focus_core.records",
    "TinkerPolicy": ".policy",
    "TinkerTrainer": ".trainer",
    "explain": "._sdk",
    "to_datum": ".datums",
    "train": "._train",
    "update_actor": ".update",
}

__all__ = sorted(_HOME)
__version__ = "0.1.0"
__getattr__, __dir__ = lazy(__name__, _HOME)
