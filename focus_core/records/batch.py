"""What one update trains on, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import attrs

from focus_core.records.actor import ActorRecord

__all__ = ["Batch", "StepReport"]


@attrs.frozen(kw_only=True)
class Batch:
    """What one update trains on.

    Attributes:
        index: From 0, in order.
        behavior_step: Updates completed when the sampling policy was published.
        learner_step: Updates completed before this one.
        actor: Actor records of all the batch's trees.
        items: What the trainer's ``convert`` made of them, in the same order of trees.
        others: Records of the other lanes, by lane name.
        metrics: The collection's numbers.
        replayed: Another run sampled it: the steps are that run's, and say nothing of how far
            this learner is from the policy that sampled.
    """

    index: int
    behavior_step: int
    learner_step: int
    actor: Sequence[ActorRecord]
    items: Sequence[Any]
    others: Mapping[str, Sequence[Any]] = attrs.field(factory=dict)
    metrics: Mapping[str, Any] = attrs.field(factory=dict)
    replayed: bool = False

    @property
    def policy_lag(self) -> int:
        """How many updates the learner is ahead of the policy that sampled the batch."""
        return self.learner_step - self.behavior_step

    @property
    def on_policy(self) -> bool:
        """Whether the learner's own current weights sampled it, so that the ratio must be 1."""
        return self.policy_lag == 0 and not self.replayed


@dataclass(frozen=True)
class StepReport:
    """What one actor update trained on.

    Attributes:
        batch: Index of the batch, from 0.
        behavior_step: Updates completed when the policy that sampled the batch was published.
        learner_step: Updates completed before this one.
        policy_lag: ``learner_step - behavior_step``.
        metrics: The trainer's and the collection's numbers; ``skipped`` says why nothing was
            trained.
    """

    batch: int
    behavior_step: int
    learner_step: int
    policy_lag: int
    metrics: Mapping[str, Any] = field(default_factory=dict)
