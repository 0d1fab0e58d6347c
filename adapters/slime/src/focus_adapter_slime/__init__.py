"""FOCUS on Slime: hooks by which Slime's own loop collects trees and trains on their advantages.

Public names are exported here, lazily (PEP 562), so that importing the package costs nothing; Slime
and torch are imported only inside the hooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from focus_core.utils.lazy import lazy

if TYPE_CHECKING:
    from focus_adapter_slime.generate import GenerateHook as GenerateHook
    from focus_adapter_slime.generate import make_evaluate as make_evaluate
    from focus_adapter_slime.generate import make_generate as make_generate
    from focus_adapter_slime.losses import advantages as advantages
    from focus_adapter_slime.losses import preserve_advantages as preserve_advantages
    from focus_adapter_slime.losses import sum_policy_tokens as sum_policy_tokens
    from focus_adapter_slime.policy import RouterPolicy as RouterPolicy
    from focus_adapter_slime.samples import to_sample as to_sample

_HOME = {
    "GenerateHook": ".generate",
    "RouterPolicy": ".policy",
    "advantages": ".losses",
    "make_evaluate": ".generate",
    "make_generate": ".generate",
    "preserve_advantages": ".losses",
    "sum_policy_tokens": ".losses",
    "to_sample": ".samples",
}

__all__ = sorted(_HOME)
__version__ = "0.1.0"
__getattr__, __dir__ = lazy(__name__, _HOME)
