"""The actor lane: generated segments with advantages, per edge or merged along paths."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from focus_core.lanes.lane import CreditedTree, Lane
from focus_core.records import ActorRecord, Span
from focus_core.tree.tree import ROOT

__all__ = ["ACTOR", "export_actor", "export_merged", "split_merged"]


def _trained(collection: CreditedTree) -> list[int]:
    """Edges with an advantage and at least one generated token, oldest first."""
    tree, advantages = collection.tree, collection.advantages
    threshold = collection.min_abs_advantage or 0.0
    return [
        node
        for node in tree.edges()
        if not math.isnan(advantages[node])
        and abs(advantages[node]) >= threshold
        and tree.said(node)
    ]


def _metadata(collection: CreditedTree, node: int) -> dict[str, Any]:
    return {
        "group_index": collection.group_index,
        "edge": node,
        "parent": collection.tree.parent[node],
        "problem": collection.problem.id,
    }


def export_actor(collection: CreditedTree) -> list[ActorRecord]:
    """One record per trained edge: the sequence up to it, then its own tokens as one span."""
    return split_merged(export_merged(collection))


def export_merged(collection: CreditedTree) -> list[ActorRecord]:
    """The minimum cover: one record per trained edge that has no trained edge beyond it.

    Edges along one path share a sequence; each trained edge is a span in exactly one record. An
    edge that starts a new sequence (a re-rendered chat) is not beyond the one before it. Source:
    the project's algorithm notes, "Merging spans".
    """
    trained = _trained(collection)
    inner = set()
    for node in trained:
        for above in _extended(collection, node):
            if above in inner:
                break
            inner.add(above)
    left = set(trained)
    return [_path(collection, leaf, left) for leaf in trained if leaf not in inner]


def _path(collection: CreditedTree, leaf: int, left: set[int]) -> ActorRecord:
    """One sequence of the cover: the path to ``leaf``, training the edges on it that are left."""
    tree = collection.tree
    tokens, path = tree.path_tokens(leaf)
    logprobs = np.zeros(len(tokens), np.float32)
    spans = []
    for node, start in path:
        if node in left:
            left.remove(node)
            _, own = tree.generated(node)
            stop = start + len(own)
            logprobs[start:stop] = own
            advantage = float(collection.advantages[node])
            spans.append(Span(start, stop, advantage, node, tree.parent[node]))
    return ActorRecord(tokens, logprobs, tuple(spans), _metadata(collection, leaf))


def split_merged(records: Sequence[ActorRecord]) -> list[ActorRecord]:
    """One record per trained edge of one tree, oldest first, from merged ones.

    A record that trains one edge is kept as it is. Tokens are views of the merged record's.
    """
    single = [record for merged in records for record in _split(merged)]
    return sorted(single, key=lambda record: (record.spans and record.spans[0].edge) or ROOT)


def _split(record: ActorRecord) -> Iterator[ActorRecord]:
    if not record.merged:
        yield record
        return
    for edge, spans in itertools.groupby(record.spans, key=lambda span: span.edge):
        own = tuple(spans)
        stop = own[-1].stop
        logprobs = np.zeros(stop, np.float32)
        for span in own:
            logprobs[span.start : span.stop] = record.logprobs[span.start : span.stop]
        metadata = {**copy.deepcopy(record.metadata), "edge": edge, "parent": own[0].parent}
        yield ActorRecord(record.tokens[:stop], logprobs, own, metadata)


def _extended(collection: CreditedTree, node: int) -> Iterator[int]:
    """Edges whose tokens the edge to ``node`` extends, nearest first."""
    tree = collection.tree
    node = tree.parent[node]
    while node != ROOT and not tree.fresh[node]:
        yield node
        node = tree.parent[node]


ACTOR = Lane("actor", ActorRecord, export_actor, "update")
