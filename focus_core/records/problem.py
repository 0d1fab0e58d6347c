"""One training item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

__all__ = ["Problem"]


@dataclass(frozen=True)
class Problem:
    """One training item.

    Attributes:
        prompt: What the policy sees: text, or a sequence of chat messages.
        label: What the environment grades against; it never reaches the policy.
        id: Names the problem in exported metadata.
        metadata: Anything else the task wants to keep.
    """

    prompt: Any
    label: Any = None
    id: Any = None
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy although a mapping proxy does neither."""
        return type(self), (self.prompt, self.label, self.id, dict(self.metadata))
