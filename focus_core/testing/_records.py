"""Records and batches from what a policy said, for the contracts of trainers."""

from __future__ import annotations

from collections.abc import Sequence

from focus_core.policy import Generation
from focus_core.records import ActorRecord, Batch, Span
from focus_core.testing._sampling import tokens_of
from focus_core.trainer import Trainer

__all__ = ["batch", "credited", "record"]


def record(
    prompt: Sequence[int], parts: Sequence[tuple[Generation, float]], edge: int = 0
) -> ActorRecord:
    """The record of one edge, or of several along a path."""
    tokens, logprobs = list(prompt), [0.0] * len(prompt)
    spans = []
    for place, (generation, advantage) in enumerate(parts):
        start = len(tokens)
        tokens += tokens_of([generation])[0]
        logprobs += [float(value) for value in generation.logprobs]
        spans.append(Span(start, len(tokens), advantage, edge + place))
    metadata = {"group_index": 0, "edge": edge, "parent": 0, "problem": "p"}
    return ActorRecord(tokens, logprobs, spans, metadata)


def credited(
    prompt: Sequence[int], said: Sequence[Generation], token: int, advantage: float
) -> list[ActorRecord]:
    """Up to eight records in which a token was said."""
    found = [generation for generation in said if tokens_of([generation])[0][0] == token]
    return [record(prompt, [(generation, advantage)]) for generation in found[:8]]


def batch(
    trainer: Trainer,
    records: Sequence[ActorRecord],
    step: int,
    lag: int = 0,
    *,
    replayed: bool = False,
) -> Batch:
    """A batch as the scheduler makes it."""
    return Batch(
        index=step,
        behavior_step=step - lag,
        learner_step=step,
        actor=records,
        items=trainer.convert(records),
        replayed=replayed,
    )
