"""The losses of Tinker that FOCUS records can train, and their configurations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from focus_core.errors import UsageError

__all__ = ["CLIPPED", "LOSSES", "PPO_CLIP", "SUMS", "check_loss"]

PPO_CLIP: Mapping[str, float] = MappingProxyType(
    {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
)
"""Bounds on the ratio of learner to behaviour probability: the paper's, 1 - 0.2 and 1 + 0.2."""

SUMS = frozenset({"ppo", "importance_sampling", "cispo", "cross_entropy"})
"""Losses that are sums over tokens, each with its own advantage."""

LOSSES = SUMS | {"gspo"}
"""Losses that a record holds the inputs of; ``gspo`` has one ratio for a whole sequence."""

CLIPPED = frozenset({"ppo", "cispo", "gspo"})
"""Losses that read the clip bounds."""

_REFUSED = {
    "dro": "its quadratic term also reads conditioning tokens, whose behaviour log probabilities "
    "nobody has",
    "stable_reinforce": "it reads what a server recorded while sampling, which records do not hold",
}


def check_loss(name: str, config: Mapping[str, float] | None) -> dict[str, float] | None:
    """The configuration to send with a loss.

    ``PPO_CLIP``, the default, is left out for a loss that has no bounds.

    Raises:
        UsageError: FOCUS cannot train with this loss, or the configuration is wrong.
    """
    if name not in LOSSES:
        why = f": {_REFUSED[name]}" if name in _REFUSED else ""
        raise UsageError(
            f"the loss {name!r} cannot be trained with{why}; choose one of "
            f"{', '.join(sorted(LOSSES))}"
        )
    given = dict(config or {})
    if name not in CLIPPED:
        if given and given != PPO_CLIP:
            raise UsageError(f"the loss {name!r} takes no configuration, got {given}")
        return None
    if unknown := sorted(set(given) - set(PPO_CLIP)):
        raise UsageError(
            f"the loss {name!r} does not know {unknown[0]!r}; it takes {', '.join(PPO_CLIP)}"
        )
    for key, value in given.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise UsageError(f"{key} is {value!r}; it must be a plain, finite number")
    plain = {key: float(value) for key, value in given.items()}
    low, high = ({**PPO_CLIP, **plain}[key] for key in PPO_CLIP)
    if not 0.0 <= low <= 1.0 <= high:
        raise UsageError(
            f"the clip bounds {low:g} and {high:g} are bounds on the ratio: 0 <= low <= 1 <= high, "
            "for example 0.8 and 1.2"
        )
    return plain or None
