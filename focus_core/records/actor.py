"""What a policy is trained on: a token sequence with spans.

A record has two forms. The native form (attrs, numpy) is what lanes write and trainers convert;
the plain form (``to_dict``) is what files, sinks and other languages read. Functions that take a
record take either.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.errors import RecordError
from focus_core.records.plain import SCHEMA, check_header, metadata_of, number, numbers

__all__ = ["ActorRecord", "Span", "as_actor", "as_plain"]


@attrs.frozen
class Span:
    """Generated tokens that share one advantage.

    Attributes:
        start: First token, an index into the record's ``tokens``.
        stop: One past the last token.
        advantage: Weight of each of these tokens in the policy gradient.
        edge: The tree edge that generated them.
        parent: The state that edge leaves.
    """

    start: int
    stop: int
    advantage: float
    edge: int | None = None
    parent: int | None = None


def _int32(values: Any) -> NDArray[np.int32]:
    array = np.asarray(values)
    if array.dtype == np.int32:
        return np.ascontiguousarray(array)
    if array.dtype.kind in "iu" or not array.size:
        tokens = np.ascontiguousarray(array, dtype=np.int32)
        if (tokens == array).all():
            return tokens
    raise RecordError("tokens must be integers from 0 to 2**31 - 1")


def _tuple(spans: Sequence[Span]) -> tuple[Span, ...]:
    return tuple(spans)


def _float32(values: Any) -> NDArray[np.float32]:
    return np.ascontiguousarray(values, dtype=np.float32)


@attrs.frozen(eq=False)
class ActorRecord:
    """A token sequence with spans: what a policy is trained on.

    Attributes:
        tokens: int32, shape (T,). Prompt, generated and tool tokens in the order the policy saw
            and sampled them.
        logprobs: float32, shape (T,). Behaviour log probability of each generated token, 0
            elsewhere.
        spans: Disjoint, ascending, non-empty. Tokens outside all spans are conditioning.
        metadata: ``group_index``, ``edge``, ``parent``, ``problem``, and ``training`` once the
            scheduler has stamped it.

    Two records are equal when their plain forms are.
    """

    tokens: NDArray[np.int32] = attrs.field(converter=_int32)
    logprobs: NDArray[np.float32] = attrs.field(converter=_float32)
    spans: tuple[Span, ...] = attrs.field(converter=_tuple)
    metadata: Mapping[str, Any] = attrs.field(factory=dict)

    lane = "actor"

    def __attrs_post_init__(self) -> None:
        """Refuse a record that a trainer would misread."""
        if self.tokens.ndim != 1 or self.tokens.shape != self.logprobs.shape:
            raise RecordError(
                f"tokens and logprobs must be two sequences of one length, got shapes "
                f"{self.tokens.shape} and {self.logprobs.shape}"
            )
        if len(self.tokens) and np.minimum.reduce(self.tokens) < 0:
            raise RecordError("a token is negative")
        if not np.isfinite(self.logprobs).all():
            at = int(np.flatnonzero(~np.isfinite(self.logprobs))[0])
            raise RecordError(f"logprobs[{at}] is {self.logprobs[at]}; it must be finite")
        end = inside = 0
        for span in self.spans:
            if not end <= span.start < span.stop <= len(self.tokens):
                raise RecordError(
                    f"span {span.start}:{span.stop} is empty, overlaps the one before, or leaves "
                    f"the {len(self.tokens)} tokens"
                )
            if not math.isfinite(span.advantage):
                raise RecordError(f"the advantage of span {span.start}:{span.stop} is not finite")
            end = span.stop
            inside += int(np.count_nonzero(self.logprobs[span.start : end]))
        if np.count_nonzero(self.logprobs) != inside:
            at = int(np.flatnonzero((self.logprobs != 0) & (self.loss_mask == 0))[0])
            raise RecordError(f"logprobs[{at}] is outside the spans, where it must be 0")

    def __eq__(self, other: object) -> bool:
        """Compare by plain form."""
        return isinstance(other, ActorRecord) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    @property
    def loss_mask(self) -> NDArray[np.int8]:
        """1 on generated tokens, 0 on conditioning; shape (T,)."""
        mask = np.zeros(len(self.tokens), np.int8)
        for span in self.spans:
            mask[span.start : span.stop] = 1
        return mask

    @property
    def advantages(self) -> NDArray[np.float64]:
        """Advantage of each token, 0 on conditioning; shape (T,)."""
        advantages = np.zeros(len(self.tokens))
        for span in self.spans:
            advantages[span.start : span.stop] = span.advantage
        return advantages

    @property
    def merged(self) -> bool:
        """Whether the record trains several edges."""
        return len({span.edge for span in self.spans}) > 1

    @property
    def reward(self) -> float | None:
        """The advantage all spans share; ``None`` on a merged record."""
        values = {span.advantage for span in self.spans}
        return values.pop() if len(values) == 1 and not self.merged else None

    @property
    def trained_tokens(self) -> int:
        """Number of generated tokens."""
        return sum(span.stop - span.start for span in self.spans)

    @property
    def has_signal(self) -> bool:
        """Whether any generated token has a non-zero advantage."""
        return any(span.advantage != 0.0 for span in self.spans)

    def to_dict(self) -> dict[str, Any]:
        """The plain form: JSON types only. A merged record also names its spans' edges."""
        metadata = dict(self.metadata)
        if self.merged:
            metadata["spans"] = [[span.start, span.stop, span.edge] for span in self.spans]
            if any(span.parent is not None for span in self.spans):
                metadata["parents"] = [span.parent for span in self.spans]
        return {
            "schema": SCHEMA,
            "lane": self.lane,
            "tokens": self.tokens.tolist(),
            "loss_mask": self.loss_mask.tolist(),
            "logprobs": self.logprobs.tolist(),
            "advantages": self.advantages.tolist(),
            "reward": self.reward,
            "metadata": metadata,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> ActorRecord:
        """Read and validate the plain form.

        ``advantages`` may be missing: then it is ``reward`` on every generated token.

        Raises:
            RecordError: A key is missing, a length or number is wrong, or the advantages
                disagree with the reward or the mask.
        """
        check_header(plain, "actor")
        keys = ("tokens", "loss_mask", "logprobs")
        tokens, mask, logprobs = columns = [numbers(key, plain.get(key)) for key in keys]
        for key, column in zip(keys, columns, strict=True):
            if len(column) != len(tokens):
                raise RecordError(f"{key!r} has {len(column)} entries for {len(tokens)} tokens")
        if not np.isin(mask, (0, 1)).all():
            raise RecordError("loss_mask must hold 0 and 1 only")
        advantages = _advantages(plain, mask)
        if (advantages[mask == 0] != 0).any():
            raise RecordError("a token outside the loss mask has an advantage")
        if (tokens != np.floor(tokens)).any() or (tokens < 0).any() or (tokens >= 2**31).any():
            raise RecordError("tokens must be integers from 0 to 2**31 - 1")
        metadata = metadata_of(plain)
        return cls(
            tokens.astype(np.int32),
            logprobs.astype(np.float32),
            _named_spans(mask, advantages, metadata)
            if metadata.get("spans") is not None
            else _spans(mask, advantages, metadata),
            metadata,
        )


def _advantages(plain: Mapping[str, Any], mask: NDArray[np.float64]) -> NDArray[np.float64]:
    reward = plain.get("reward")
    if reward is not None:
        reward = number("reward", reward)
    if plain.get("advantages") is None:
        if reward is None:
            raise RecordError("the record has neither 'advantages' nor 'reward'")
        return mask * reward
    advantages = numbers("advantages", plain["advantages"])
    if advantages.shape != mask.shape:
        raise RecordError(f"'advantages' has {len(advantages)} entries for {len(mask)} tokens")
    if reward is not None and (advantages != mask * reward).any():
        raise RecordError(f"'advantages' disagree with reward {reward!r} on the loss mask")
    return advantages


def _named_spans(
    mask: NDArray[np.float64], advantages: NDArray[np.float64], metadata: dict[str, Any]
) -> tuple[Span, ...]:
    """Spans as a merged record's metadata name them, which they leave."""
    named, parents = metadata.pop("spans"), metadata.pop("parents", None)
    try:
        spans = tuple(
            Span(
                operator.index(start),
                operator.index(stop),
                float(advantages[start]),
                None if edge is None else operator.index(edge),
                None if parent is None else operator.index(parent),
            )
            for (start, stop, edge), parent in zip(
                named, [None] * len(named) if parents is None else parents, strict=True
            )
        )
    except (TypeError, ValueError, IndexError):
        raise RecordError(
            f"metadata 'spans' is {named!r} and 'parents' {parents!r}; the first must hold "
            "[start, stop, edge], the second, if there, one state each"
        ) from None
    covered = np.zeros_like(mask)
    for span in spans:
        covered[span.start : span.stop] += 1
        if (advantages[span.start : span.stop] != span.advantage).any():
            raise RecordError(f"span {span.start}:{span.stop} has several advantages")
    if (covered != mask).any():
        raise RecordError("metadata 'spans' do not cover the loss mask exactly once")
    return spans


def _spans(
    mask: NDArray[np.float64], advantages: NDArray[np.float64], metadata: Mapping[str, Any]
) -> tuple[Span, ...]:
    """Runs of the mask with one advantage, all of the record's one edge."""
    if not mask.any():
        return ()
    edge, parent = (_state(key, metadata.get(key)) for key in ("edge", "parent"))
    change = np.flatnonzero((np.diff(mask) != 0) | (np.diff(advantages) != 0)) + 1
    bounds = np.concatenate(([0], change, [len(mask)]))
    return tuple(
        Span(int(start), int(stop), float(advantages[start]), edge, parent)
        for start, stop in itertools.pairwise(bounds)
        if mask[start]
    )


def _state(key: str, value: Any) -> int | None:
    """A state's number, or none."""
    try:
        return None if value is None else operator.index(value)
    except TypeError:
        raise RecordError(f"metadata {key!r} is {value!r:.80}; it must be a state") from None


def as_actor(record: ActorRecord | Mapping[str, Any]) -> ActorRecord:
    """The native form of either form."""
    return record if isinstance(record, ActorRecord) else ActorRecord.from_dict(record)


def as_plain(record: ActorRecord | Mapping[str, Any]) -> Mapping[str, Any]:
    """The plain form of either form."""
    return record.to_dict() if isinstance(record, ActorRecord) else record
