"""A record as a Slime sample in plain form, without Slime: for ``focus export --to slime``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from focus_adapter_slime.samples import to_sample
from focus_core.records import ActorRecord, as_actor

__all__ = ["to_plain_sample"]


@dataclasses.dataclass
class _PlainSample:
    """What ``to_sample`` fills of Slime's ``Sample``, by its names in v0.3.1 and later."""

    group_index: int | None
    index: int | None
    rollout_id: int | None
    prompt: str
    tokens: list[int]
    response: str
    response_length: int
    label: Any
    reward: float
    loss_mask: list[int]
    rollout_log_probs: list[float]
    remove_sample: bool
    status: str
    metadata: dict[str, Any]


@dataclasses.dataclass
class _Source:
    """The prompt's sample: a tree is a rollout of its own, known by its ``group_index``."""

    group_index: int | None
    index: int | None
    prompt: str = ""
    label: Any = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)


def to_plain_sample(record: ActorRecord | Mapping[str, Any]) -> dict[str, Any]:
    """One actor record as what Slime's ``Sample.from_dict`` takes.

    The samples of one tree share ``rollout_id``, its ``group_index``. The response's text is left
    out: a record holds tokens.

    Raises:
        RecordError: As in ``to_sample``.
    """
    record = as_actor(record)
    tree = record.metadata.get("group_index")
    sample = to_sample(record, _Source(tree, tree), None, _PlainSample)
    return dataclasses.asdict(sample)
