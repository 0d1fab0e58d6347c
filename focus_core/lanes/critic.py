"""The critic lane: expanded states with their backup targets."""

from __future__ import annotations

from focus_core.lanes.lane import CreditedTree, Lane
from focus_core.records import CriticRecord
from focus_core.tree.tree import ROOT, TERMINAL

__all__ = ["CRITIC", "export_critic"]


def export_critic(collection: CreditedTree) -> list[CriticRecord]:
    """One record per expanded, unfinished state that has a prediction."""
    tree, values = collection.tree, collection.values
    records = []
    for node in range(len(tree)):
        if tree.alive[node] and tree.kind[node] != TERMINAL and values.branches[node]:
            metadata = {
                "group_index": collection.group_index,
                "edge": node if node != ROOT else None,
                "parent": tree.parent[node] if node != ROOT else None,
                "problem": collection.problem.id,
                "branches": int(values.branches[node]),
            }
            records.append(
                CriticRecord(collection.context(node), float(values.target[node]), metadata)
            )
    return records


CRITIC = Lane("critic", CriticRecord, export_critic, "sink")
