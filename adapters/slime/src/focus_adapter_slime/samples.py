"""Records as Slime's samples: response-aligned, siblings of one rollout, never an empty list."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from focus_adapter_slime.columns import Column, Mask
from focus_adapter_slime.versions import contract_of
from focus_core.errors import RecordError, UsageError
from focus_core.records import ActorRecord, as_actor

__all__ = ["ADVANTAGES", "FACTS", "RETURN", "removed_sample", "to_sample", "to_samples"]

ADVANTAGES = "focus_advantages"
"""Key of a sample's metadata: the advantage of each response token, if they are not all one.

``preserve_advantages`` puts them in the place of the sample's reward on its way to training, and
``advantages`` takes them from there; Slime drops the metadata itself on that way.
"""
FACTS = "focus"
"""Key of a sample's metadata: where in its tree the sample comes from, or why it was removed."""
RETURN = "raw_reward"
"""Key of a sample's metadata that Slime logs in the place of its reward: the tree's mean return."""

_OWN = (ADVANTAGES, FACTS, RETURN)
_COPIED = (
    *("group_index", "index", "prompt", "label", "session_id", "generate_function_path"),
    *("custom_rm_path", "train_metadata", "apply_chat_template_kwargs"),
)


def to_sample(
    record: ActorRecord | Mapping[str, Any], source: Any, tokenizer: Any, sample_type: Any
) -> Any:
    """One actor record as a response-aligned sample.

    ``tokens`` are the record's own. The response starts at the first generated token; conditioning
    tokens inside it keep loss mask 0 and log probability 0. ``reward`` is the advantage; on a
    record whose tokens have several, it is their mean and the metadata's ``focus_advantages`` has
    one for each response token, 0 outside the mask. ``response`` is for people only.

    Args:
        record: Either form of an actor record.
        source: The sample of the prompt; it is not changed. Its ids are copied, and its
            ``rollout_id`` (in v0.3.0 ``group_id``), else its ``index``, is that of all its
            tree's samples.
        tokenizer: Decodes the response; ``None`` leaves it empty.
        sample_type: Slime's ``Sample`` class.

    Raises:
        RecordError: The record trains no token, or has no prompt before its first generated one.
        UsageError: The class is of a Slime older than v0.3.0.
    """
    record = as_actor(record)
    if not record.spans:
        raise RecordError("the record trains no token; there is nothing to make a sample of")
    start = record.spans[0].start
    if start == 0:
        raise RecordError(
            "the record's first token was generated; a sample needs a prompt of one token or more"
        )
    advantages = record.advantages[start:]
    weights = {span.advantage for span in record.spans}
    facts = {key: record.metadata.get(key) for key in ("group_index", "problem", "edge", "parent")}
    extra: dict[str, Any] = {FACTS: facts}
    if len(weights) > 1:
        extra[ADVANTAGES] = Column(advantages)
        reward = float(advantages.sum() / record.trained_tokens)
    else:
        reward = float(weights.pop())
    return _sample(
        source,
        sample_type,
        extra,
        tokens=Column(record.tokens),
        response="" if tokenizer is None else _text(tokenizer, record.tokens[start:].tolist()),
        response_length=len(record.tokens) - start,
        loss_mask=Column(record.loss_mask[start:].astype(np.uint8).view(Mask)),
        rollout_log_probs=Column(record.logprobs[start:]),
        reward=reward,
        status="COMPLETED",
    )


def to_samples(
    records: Sequence[ActorRecord | Mapping[str, Any]],
    source: Any,
    tokenizer: Any,
    sample_type: Any,
) -> list[Any]:
    """One tree's actor records as samples of one rollout: at least one, always a list.

    Without a record there is one sample that Slime removes from training.

    Raises:
        RecordError: A record cannot be a sample.
        UsageError: The class is of a Slime older than v0.3.0, or there are several samples and
            ``source`` has neither a rollout id nor an index that they could share.
    """
    if not records:
        return [removed_sample(source, tokenizer, sample_type, "the tree trains no edge")]
    field = contract_of(sample_type).sibling_field
    if len(records) > 1 and _shared_id(source, field) is None:
        raise UsageError(
            f"the source sample has neither {field} nor index, so the {len(records)} samples of "
            "its tree cannot count as one rollout; use a data source that numbers its samples"
        )
    return [to_sample(record, source, tokenizer, sample_type) for record in records]


def removed_sample(
    source: Any, tokenizer: Any, sample_type: Any, reason: str, *, status: str = "COMPLETED"
) -> Any:
    """A well-formed sample that trains nothing: two tokens, a mask of zero, ``remove_sample``.

    Its reward of 0.0 is a placeholder, which Slime's own code needs to be a number.

    Args:
        source: The sample of the prompt; it is not changed.
        tokenizer: Gives the token that fills it; ``None`` is token 0.
        sample_type: Slime's ``Sample`` class.
        reason: Why nothing is trained, for the metadata.
        status: Name of a member of ``Sample.Status``.
    """
    filler = getattr(tokenizer, "eos_token_id", None)
    if isinstance(filler, list | tuple):
        filler = filler[0] if filler else None
    filler = int(filler or 0)
    return _sample(
        source,
        sample_type,
        {FACTS: {"removed": reason}},
        tokens=[filler, filler],
        response="",
        response_length=1,
        loss_mask=[0],
        rollout_log_probs=[0.0],
        reward=0.0,
        remove_sample=True,
        status=status,
    )


def _sample(source: Any, sample_type: Any, extra: Mapping[str, Any], **values: Any) -> Any:
    """A new sample of the source's rollout."""
    field = contract_of(sample_type).sibling_field
    known = getattr(sample_type, "__dataclass_fields__", None)
    for name in _COPIED:
        if hasattr(source, name) and (known is None or name in known):
            values[name] = copy.copy(getattr(source, name))
    values[field] = _shared_id(source, field)
    given = getattr(source, "metadata", None) or {}  # shared among the source's copies
    values["metadata"] = {k: v for k, v in given.items() if k not in _OWN} | dict(extra)
    status = values.pop("status")
    statuses = getattr(sample_type, "Status", None)
    values["status"] = status.lower() if statuses is None else getattr(statuses, status)
    values.setdefault("remove_sample", False)
    return sample_type(**values)


def _shared_id(source: Any, field: str) -> Any:
    own = getattr(source, field, None)
    return getattr(source, "index", None) if own is None else own


def _text(tokenizer: Any, tokens: Sequence[int]) -> str:
    text: str = tokenizer.decode(tokens, skip_special_tokens=False)
    return text
