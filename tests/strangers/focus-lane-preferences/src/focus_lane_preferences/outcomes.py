"""The lane: one record a tree, with the returns of its rollouts and no tokens."""

from __future__ import annotations

from typing import Any

import attrs

from focus_core import Collection, Lane


@attrs.frozen
class Outcome:
    """What one tree's rollouts scored."""

    returns: tuple[float, ...]
    stopped: str
    metadata: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The plain form."""
        return {
            "schema": 1,
            "lane": "outcomes",
            "returns": list(self.returns),
            "stopped": self.stopped,
            "metadata": dict(self.metadata),
        }


def export(collection: Collection) -> list[Outcome]:
    """One record, for a tree without a finished rollout too."""
    metadata = {"group_index": collection.group_index, "problem": collection.problem.id}
    return [Outcome(tuple(collection.returns), collection.stopped, metadata)]


def outcomes() -> Lane:
    """The lane."""
    return Lane("outcomes", Outcome, export, "sink")
