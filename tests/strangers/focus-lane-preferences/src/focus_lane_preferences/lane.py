"""The lane: at each branched state, the continuation with the largest advantage over the least."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from focus_core import Collection, Lane


@attrs.frozen
class Preference:
    """Two continuations of one prefix, as exact tokens."""

    prefix: tuple[int, ...]
    chosen: tuple[int, ...]
    rejected: tuple[int, ...]
    margin: float
    metadata: dict[str, Any] = attrs.field(factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The plain form."""
        return {
            "schema": 1,
            "lane": "preferences",
            "prefix": list(self.prefix),
            "chosen": list(self.chosen),
            "rejected": list(self.rejected),
            "margin": self.margin,
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Preference:
        """Read the plain form."""
        prefix, chosen, rejected = (tuple(plain[n]) for n in ("prefix", "chosen", "rejected"))
        return cls(prefix, chosen, rejected, plain["margin"], dict(plain["metadata"]))


def export(collection: Collection) -> list[Preference]:
    """One pair per state whose branches differ in advantage."""
    tree, advantages = collection.tree, collection.advantages
    found = []
    for parent, children in enumerate(tree.children()):
        ranked = sorted(
            (child for child in children if not math.isnan(advantages[child])),
            key=lambda child: float(advantages[child]),
        )
        if len(ranked) < 2:
            continue
        worst, best = ranked[0], ranked[-1]
        margin = float(advantages[best] - advantages[worst])
        if margin > 0.0:
            metadata = {
                "group_index": collection.group_index,
                "problem": collection.problem.id,
                "parent": parent,
                "edges": [best, worst],
            }
            found.append(
                Preference(
                    tuple(tree.prefix(parent).tolist()),
                    tuple(tree.generated(best)[0].tolist()),
                    tuple(tree.generated(worst)[0].tolist()),
                    margin,
                    metadata,
                )
            )
    return found


def preferences() -> Lane:
    """The lane."""
    return Lane("preferences", Preference, export, "sink")
