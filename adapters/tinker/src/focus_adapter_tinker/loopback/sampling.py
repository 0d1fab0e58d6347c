"""Sampling frozen weights, which are merged into a model when someone samples them."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import numpy as np
import torch
from focus_adapter_local.engine import Engine
from focus_adapter_local.snapshot import Changes, ModelFacts, Snapshot, merged_copy
from numpy.typing import NDArray

from focus_core.errors import GenerationError, UsageError
from focus_core.policy import Generation, SamplingParams

__all__ = ["SampleRequest", "Sampler", "Weights"]

_MERGED = 4
"""Weights kept merged while nobody samples them; each is a copy of the layers that LoRA adapts."""


@attrs.define(eq=False)
class Weights:
    """What a sampling session samples.

    Attributes:
        base_model: What the client calls the base.
        path: Where the client saved them, if it named them.
        changes: To the base.
        version: Updates completed.
        users: Requests that sample them right now.
    """

    base_model: str
    path: str | None = None
    changes: Changes = attrs.field(factory=dict)
    version: int = 0
    users: int = attrs.field(default=0, init=False)
    _merging: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)


@attrs.frozen(kw_only=True)
class SampleRequest:
    """A checked ``asample``.

    Attributes:
        tokens: int32, shape (length,), at least one.
        params: How to sample; ``stop`` is empty here.
        stops: Token ids that end a sample.
        stop_texts: Texts that end a sample.
        n: Samples.
        scored: How many of the last prompt tokens are scored; 0 scores none.
    """

    tokens: NDArray[np.int32]
    params: SamplingParams
    stops: tuple[int, ...]
    stop_texts: tuple[str, ...]
    n: int
    scored: int

    @classmethod
    def read(cls, body: dict[str, Any], facts: ModelFacts, seed: int | None) -> SampleRequest:
        """Check a request's body.

        Args:
            body: As sent.
            facts: Of the model.
            seed: For a request that brings none.

        Raises:
            UsageError: It asks for what the loopback does not have.
            GenerationError: The prompt does not fit the model.
        """
        for name in ("topk_prompt_logprobs", "topk_sample_logprobs", "prompt_alt_tokens_k"):
            if body.get(name):
                raise UsageError(f"the loopback does not answer {name}")
        if body.get("target_prompt_logprobs") is not None:
            raise UsageError("the loopback does not answer target_prompt_logprobs")
        tokens = _prompt(body, facts)
        asked: dict[str, Any] = body.get("sampling_params") or {}
        room = asked.get("max_tokens") or 2**31
        if facts.context_length is not None:
            room = min(room, facts.context_length - len(tokens))
        if room < 1:
            raise GenerationError(
                f"a prompt of {len(tokens)} tokens leaves no room in the model's context of "
                f"{facts.context_length}"
            )
        stop = asked.get("stop")
        stop = [stop] if isinstance(stop, str) else stop
        ids = facts.stops if stop is None else [each for each in stop if isinstance(each, int)]
        count = int(body.get("num_samples") or 1)
        if count < 1:
            raise UsageError(f"num_samples is {count}; ask for at least one")
        if asked.get("seed") is not None:
            seed = int(asked["seed"])
        last = body.get("prompt_logprobs_last_n")
        try:
            params = SamplingParams(
                max_tokens=room,
                temperature=asked.get("temperature", 1.0),
                top_p=asked.get("top_p", 1.0),
                top_k=max(asked.get("top_k", 0), 0),
                seed=seed,
            )
        except ValueError as error:
            raise UsageError(f"the sampling parameters cannot be used: {error}") from error
        return cls(
            tokens=tokens,
            params=params,
            stops=tuple(ids),
            stop_texts=tuple(each for each in stop or () if isinstance(each, str)),
            n=count,
            scored=(last or len(tokens)) if body.get("prompt_logprobs") else 0,
        )


def _prompt(body: dict[str, Any], facts: ModelFacts) -> NDArray[np.int32]:
    chunks = (body.get("prompt") or {}).get("chunks") or []
    if any(chunk.get("type", "encoded_text") != "encoded_text" for chunk in chunks):
        raise UsageError("the prompt has a part that is not text, which the model lacks")
    tokens = np.array([token for chunk in chunks for token in chunk["tokens"]], np.int64)
    if not len(tokens):
        raise GenerationError("the prompt is empty; a model continues at least one token")
    outside = np.flatnonzero((tokens < 0) | (tokens >= facts.vocabulary))
    if len(outside):
        raise GenerationError(
            f"token {outside[0]} of the prompt is {tokens[outside[0]]}, but the model has "
            f"{facts.vocabulary} tokens; does the tokenizer belong to another model?"
        )
    return tokens.astype(np.int32)


class Sampler:
    """Samples any weights of one base, merging them when needed.

    Args:
        base: The base model.
        facts: Of the base model.
        tokenizer: Decodes, to find stop texts.
        engine: Samples.
        in_thread: Runs torch work besides the engine.
    """

    def __init__(
        self,
        base: torch.nn.Module,
        facts: ModelFacts,
        tokenizer: Any,
        engine: Engine,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._base = base
        self._facts = facts
        self._tokenizer = tokenizer
        self._engine = engine
        self._in_thread = in_thread
        self._merged: OrderedDict[int, tuple[Weights, Snapshot]] = OrderedDict()

    async def sample(
        self, weights: Weights, request: SampleRequest
    ) -> tuple[list[Generation], NDArray[np.float32] | None]:
        """Samples, and log probabilities of the prompt (NaN where none) if asked for.

        Log probabilities are the model's own, whatever temperature, ``top_k`` and ``top_p``.
        """
        async with self._open(weights) as snapshot:
            generations = await self._engine.sample(
                snapshot,
                tokens=request.tokens,
                params=request.params,
                stops=request.stops,
                limit=request.params.max_tokens,
                n=request.n,
            )
            if request.stop_texts:
                generations = [self._cut(each, request.stop_texts) for each in generations]
            plain = (request.params.temperature, request.params.top_k, request.params.top_p)
            if plain != (1.0, 0, 1.0):
                generations = [
                    attrs.evolve(each, logprobs=await self._rescored(snapshot, request, each))
                    for each in generations
                ]
            if not request.scored:
                return generations, None
            scores = await self._in_thread(lambda: score(snapshot, request.tokens))
        scores[: len(scores) - request.scored] = np.nan
        return generations, scores

    async def _rescored(
        self, snapshot: Snapshot, request: SampleRequest, generation: Generation
    ) -> list[float]:
        whole = np.concatenate((request.tokens, np.array(generation.tokens, np.int32)))
        scores = await self._in_thread(lambda: score(snapshot, whole))
        return [float(each) for each in scores[len(request.tokens) :]]

    def _cut(self, generation: Generation, texts: Sequence[str]) -> Generation:
        """Up to and with the token that completes a stop text."""
        tokens = list(generation.tokens)
        if not any(text in self._tokenizer.decode(tokens) for text in texts):
            return generation
        for count in range(1, len(tokens) + 1):
            decoded = self._tokenizer.decode(tokens[:count])
            if any(text in decoded for text in texts):
                break
        return Generation(tokens[:count], list(generation.logprobs)[:count], "stop")

    @asynccontextmanager
    async def _open(self, weights: Weights) -> AsyncIterator[Snapshot]:
        """The weights merged, and kept so until the block ends."""
        weights.users += 1
        try:
            async with weights._merging:
                if id(weights) not in self._merged:
                    model = await self._in_thread(lambda: merged_copy(self._base, weights.changes))
                    snapshot = Snapshot(model, self._facts, weights.version)
                    self._merged[id(weights)] = (weights, snapshot)
            self._merged.move_to_end(id(weights))
            yield self._merged[id(weights)][1]
        finally:
            weights.users -= 1
            await self._evict()

    async def _evict(self) -> None:
        idle = [key for key, (weights, _) in self._merged.items() if not weights.users]
        gone = [self._merged.pop(key)[1] for key in idle[: max(len(idle) - _MERGED, 0)]]
        for snapshot in gone:
            await self._engine.retire(snapshot)


@torch.inference_mode()
def score(snapshot: Snapshot, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    """Log probability of each token after those before it; NaN for the first."""
    ids = torch.from_numpy(tokens.astype(np.int64)).to(snapshot.facts.device)[None]
    logits = snapshot.model(input_ids=ids, use_cache=False).logits[0, :-1].float()
    logits = snapshot.facts.possible(logits)
    scores = -torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
    return np.concatenate((np.full(1, np.nan, np.float32), scores.cpu().numpy()))


def request_seed(seed: int, session: int, seq_id: int) -> int:
    """A seed for one request, the same whenever the same program runs again."""
    digest = hashlib.sha256(f"{seed}/{session}/{seq_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big")
