"""What samples: the policy protocol and its inputs and outputs."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import attrs
import numpy as np

from focus_core.errors import GenerationError

__all__ = [
    "Generation",
    "Policy",
    "PreparedPrompt",
    "SamplingParams",
    "check_generation",
    "check_tokens",
]

StopReason = Literal["stop", "length"]


@attrs.frozen
class PreparedPrompt:
    """A rendered prompt.

    Attributes:
        tokens: Token ids of the chat rendered up to where the policy speaks.
    """

    tokens: Sequence[int]


@attrs.frozen(kw_only=True)
class SamplingParams:
    """How to sample one generation.

    Attributes:
        max_tokens: Most tokens to sample; a context (``Segments``) lowers it per segment.
        temperature: 1.0 samples from the policy itself, which training needs; 0.0 is greedy.
        top_p: Nucleus mass; 1.0 keeps all.
        top_k: Most likely tokens kept; 0 keeps all.
        stop: Extra stop token ids; the policy's own end tokens always stop.
        seed: Makes this one request reproducible where the policy can; ``None`` draws freely.
    """

    max_tokens: int = attrs.field(default=1024, validator=attrs.validators.ge(1))
    temperature: float = attrs.field(default=1.0, validator=attrs.validators.ge(0.0))
    top_p: float = attrs.field(
        default=1.0, validator=[attrs.validators.gt(0.0), attrs.validators.le(1.0)]
    )
    top_k: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    stop: tuple[int, ...] = attrs.field(default=(), converter=tuple)
    seed: int | None = None


@attrs.frozen
class Generation:
    """One sampled continuation.

    Attributes:
        tokens: Sampled ids, integers from 0 to 2**31 - 1, the stop token included if it was
            sampled.
        logprobs: One float per token: the natural log of the probability with which that token
            was sampled.
        stop_reason: ``"stop"`` at an end token, ``"length"`` at ``max_tokens``.
    """

    tokens: Sequence[int]
    logprobs: Sequence[float]
    stop_reason: StopReason


@runtime_checkable
class Policy(Protocol):
    """A frozen snapshot that can be sampled.

    Optional attributes: ``context_length`` (most tokens of prompt and reply together; ``None``
    or absent: unlimited), ``end_tokens`` (ids that end a turn; they are left out of the text of a
    finished turn, to which the chat template adds its own) and ``aclose()`` (awaited by the
    scheduler after the snapshot's last tree).
    """

    @property
    def version(self) -> int | str:
        """Names the snapshot; two policies with different weights never share one."""
        ...

    def prepare(self, messages: Sequence[Any]) -> PreparedPrompt:
        """Render a chat, with the opening of the assistant's turn, into tokens."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of these tokens, special tokens included."""
        ...

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> Sequence[Generation]:
        """Sample ``n`` continuations of ``tokens``, independently."""
        ...


def check_generation(generation: Generation, *, max_tokens: int) -> None:
    """Refuse an answer that cannot be trained on.

    Raises:
        GenerationError: No log probabilities, a wrong number of them, one that is not a finite
            number at most 0 (up to rounding), more tokens than asked for, one that is no token
            id, or a stop reason that is neither ``"stop"`` nor ``"length"``.
    """
    tokens, logprobs = generation.tokens, generation.logprobs
    if logprobs is None:
        raise GenerationError(
            "the policy returned no log probabilities; ask its server for them (logprobs=true)"
        )
    if len(logprobs) != len(tokens):
        raise GenerationError(
            f"the policy returned {len(tokens)} tokens but {len(logprobs)} log probabilities"
        )
    if len(tokens) > max_tokens:
        raise GenerationError(
            f"the policy returned {len(tokens)} tokens where at most {max_tokens} were asked for"
        )
    if generation.stop_reason not in ("stop", "length"):
        raise GenerationError(
            f"stop_reason is {generation.stop_reason!r}; it must be 'stop' or 'length'"
        )
    check_tokens(tokens, "the policy returned")
    if _within(logprobs, "fiu", _LOWEST, 1e-3):
        return
    for position, logprob in enumerate(logprobs):
        if logprob is None or not math.isfinite(logprob) or not _LOWEST <= logprob <= 1e-3:
            raise GenerationError(
                f"log probability {position} of {len(logprobs)} is {logprob!r}; "
                "each must be a finite number not above 0"
            )


_LOWEST = -3.4e38
"""Log probabilities are kept as float32, in which a lower one is infinite."""


def check_tokens(tokens: Sequence[int], what: str) -> None:
    """Refuse what is no sequence of token ids: records keep them as int32.

    Args:
        tokens: Claimed ids.
        what: Who gave them, as the beginning of a sentence.

    Raises:
        GenerationError: One is no integer from 0 to 2**31 - 1.
    """
    if _within(tokens, "iu", 0, 2**31 - 1):
        return
    for position, token in enumerate(tokens):
        try:
            fits = 0 <= operator.index(token) < 2**31
        except TypeError:
            fits = False
        if not fits:
            raise GenerationError(
                f"{what} {token!r} as token {position} of {len(tokens)}; token ids are integers "
                "from 0 to 2**31 - 1"
            )


def _within(values: Sequence[Any], kinds: str, low: float, high: float) -> bool:
    """Whether all are numbers of such a dtype kind in a range; ``False`` also if that is not clear.

    A long reply is checked on the event loop, which a look at one number after the other holds up.
    """
    try:
        found = np.asarray(values)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        return False
    if found.ndim != 1 or found.dtype.kind not in kinds:
        return False
    numbers = found.astype(np.float64)
    return bool(((low <= numbers) & (numbers <= high)).all())
