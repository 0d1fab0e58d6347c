"""What samples: the policy protocol and its inputs and outputs."""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Literal, Protocol, runtime_checkable

import attrs
import numpy as np
from numpy.typing import NDArray

from focus_core.errors import GenerationError

__all__ = [
    "COLLECTING",
    "Generation",
    "Policy",
    "PreparedPrompt",
    "SamplingParams",
    "check_generation",
    "check_tokens",
]

StopReason = Literal["stop", "length"]

COLLECTING: ContextVar[int | None] = ContextVar("COLLECTING", default=None)
"""Index of the batch that the present task collects for, if it does: a policy that counts what it
was asked for counts it for that batch, however far the learner is."""


@attrs.frozen
class PreparedPrompt:
    """A rendered prompt.

    Attributes:
        tokens: Token ids of the chat rendered up to where the policy speaks.
    """

    tokens: Sequence[int]


def _stops(given: Any) -> tuple[int | str, ...]:
    """One string, or ids and strings; an empty string would stop before anything is said."""
    stops = (given,) if isinstance(given, str) else tuple(given)
    if "" in stops:
        raise ValueError("stop holds an empty string, which ends nothing; leave it out")
    return stops


@attrs.frozen(kw_only=True)
class SamplingParams:
    """How to sample one generation.

    Attributes:
        max_tokens: Most tokens to sample; a context (``Segments``) lowers it per segment.
        temperature: 1.0 samples from the policy itself, which training needs; 0.0 is greedy.
        top_p: Nucleus mass; 1.0 keeps all.
        top_k: Most likely tokens kept; 0 keeps all.
        stop: Extra stop token ids, and strings for policies with ``takes_stop_strings``: the token
            that completes one is the last. The policy's own end tokens always stop.
        seed: Makes this one request reproducible where the policy can; ``None`` draws freely.
    """

    max_tokens: int = attrs.field(default=1024, validator=attrs.validators.ge(1))
    temperature: float = attrs.field(default=1.0, validator=attrs.validators.ge(0.0))
    top_p: float = attrs.field(
        default=1.0, validator=[attrs.validators.gt(0.0), attrs.validators.le(1.0)]
    )
    top_k: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    stop: tuple[int | str, ...] = attrs.field(default=(), converter=_stops)
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

    An int32 and a float32 array are fastest; they are copied, and may be written to again.
    """

    tokens: Sequence[int] | NDArray[np.int32]
    logprobs: Sequence[float] | NDArray[np.float32]
    stop_reason: StopReason


@runtime_checkable
class Policy(Protocol):
    """A frozen snapshot that can be sampled.

    Optional attributes:

    - ``context_length``: most tokens of prompt and reply together; ``None`` or absent: unlimited.
    - ``end_tokens``: ids that end a turn; they are left out of the text of a finished turn, to
      which the chat template adds its own.
    - ``takes_prefix``: if true, ``generate`` is given a ``Prefix``, which names the parts that
      requests share, instead of a list of its own.
    - ``takes_stop_strings``: if true, ``SamplingParams.stop`` may hold strings; a generation ends
      with the token that completes one, tokens as they were sampled, and ``"stop"``.
    - ``samples_together``: continuations that leave a state at once are asked for in one request
      of several samples. ``"seeded"`` promises that samples of one seed differ; ``"unseeded"``
      gets no seed with such a request.
    - ``aclose()``: awaited by the scheduler after the snapshot's last tree.
    """

    @property
    def version(self) -> int | str:
        """Names the snapshot; two policies with different weights never share one."""
        ...

    def prepare(self, messages: Sequence[Any]) -> PreparedPrompt:
        """Render a chat, with the opening of the assistant's turn, into tokens."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of these tokens, special tokens included.

        Also called in worker threads: guard a tokenizer that is not thread-safe with a lock.
        """
        ...

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> Sequence[Generation]:
        """Sample ``n`` continuations of ``tokens``, independently."""
        ...


def check_generation(
    generation: Generation, *, max_tokens: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Refuse an answer that cannot be trained on.

    Returns:
        Its tokens and log probabilities as records keep them, each of shape (T,); copies.

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
    return check_tokens(tokens, "the policy returned"), _checked_logprobs(logprobs)


def _checked_logprobs(logprobs: Sequence[float] | NDArray[np.float32]) -> NDArray[np.float32]:
    column = _column(logprobs, "f", "f")
    if column is not None and column.dtype != np.float32:
        with np.errstate(over="ignore"):  # infinite then, which is refused below
            column = column.astype(np.float32)
    # The dot product is neither below infinity if a number is NaN, infinite or very large.
    if (
        column is not None
        and column.dot(column) < math.inf
        and np.maximum.reduce(column, initial=-1.0) <= _HIGHEST
    ):
        return column
    for position, logprob in enumerate(logprobs):
        try:
            fits = np.ndim(logprob) == 0 and _LOWEST <= logprob <= _HIGHEST
        except TypeError:
            fits = False
        if not fits:
            raise GenerationError(
                f"log probability {position} of {len(logprobs)} is {logprob!r}; "
                "each must be a finite number not above 0"
            )
    return np.array(logprobs, np.float32)  # numbers of some other kind


def _column(values: Any, kinds: str, code: str) -> NDArray[Any] | None:
    """Numbers as an array of their own; ``None`` if they must be looked at one by one.

    Args:
        values: Claimed numbers.
        kinds: Of arrays whose numbers are such.
        code: Type of the array made of anything else, which refuses what does not fit.
    """
    if isinstance(values, np.ndarray):  # whose owner may use it again for the next answer
        return values.copy() if values.dtype.kind in kinds and values.ndim == 1 else None
    try:
        if isinstance(values, bytes | bytearray):  # else taken for the array's own memory
            values = list(values)
        return np.array(array(code, values))
    except (TypeError, ValueError, OverflowError):
        return None


_LOWEST, _HIGHEST = -3.4e38, 1e-3
"""Log probabilities are kept as float32, in which a lower one is infinite; rounding may leave one
above 0."""


def check_tokens(tokens: Sequence[int] | NDArray[np.int32], what: str) -> NDArray[np.int32]:
    """Refuse what is no sequence of token ids: records keep them as int32.

    Args:
        tokens: Claimed ids.
        what: Who gave them, as the beginning of a sentence.

    Returns:
        The ids, shape (T,); a copy.

    Raises:
        GenerationError: One is no integer from 0 to 2**31 - 1.
    """
    ids = _column(tokens, "iu", "i")
    if ids is not None and ids.dtype != np.int32:
        fits = not len(ids) or (ids.min() >= 0 and ids.max() < 2**31)
        ids = ids.astype(np.int32) if fits else None
    # As unsigned numbers, negative ones are the largest.
    if ids is not None and np.maximum.reduce(ids.view(np.uint32), initial=0) < 2**31:
        return ids
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
    return np.array(tokens, np.int32)  # ids of some other kind
