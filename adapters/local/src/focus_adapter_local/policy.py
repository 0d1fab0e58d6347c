"""A frozen snapshot as the core's ``Policy``."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from focus_adapter_local.engine import Engine
from focus_adapter_local.snapshot import Snapshot
from focus_core.errors import GenerationError, TrainerError
from focus_core.policy import Generation, SamplingParams
from focus_core.tokenizer import ChatTokenizer, Reading, check_room, stop_ids, stop_texts

__all__ = ["LocalPolicy"]


class LocalPolicy(ChatTokenizer):
    """Samples one snapshot; what several callers ask at a time is sampled together.

    Args:
        snapshot: The weights.
        tokenizer: Renders chats and decodes.
        engine: Samples.
        tokenizer_lock: Held while the tokenizer is in use, as it is not thread-safe.

    Attributes:
        version: Updates completed when the snapshot was taken.
        context_length: Most tokens of prompt and reply together; ``None``: unlimited.
        end_tokens: Ids that end a turn.
        tokenizer: As given.
    """

    takes_prefix = True
    takes_stop_strings = True
    samples_together = "seeded"

    def __init__(
        self, snapshot: Snapshot, tokenizer: Any, engine: Engine, tokenizer_lock: threading.Lock
    ) -> None:
        super().__init__(tokenizer, Reading(frozenset(snapshot.facts.stops)), tokenizer_lock)
        self._snapshot: Snapshot | None = snapshot
        self._facts = snapshot.facts
        self._engine = engine
        self.version: int = snapshot.version
        self.context_length: int | None = snapshot.facts.context_length

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> list[Generation]:
        """Sample ``n`` continuations; they share the computation of the prompt.

        Log probabilities are of the distribution that was sampled: after temperature, ``top_k``
        and ``top_p``, so that training on them asks for 1, 0 and 1 (the defaults) except where
        the loss does not read them; a greedy token has 0. With ``params.seed``, sample ``i`` is a
        function of seed, ``i`` and prompt, up to the rounding of a forward pass in other company.
        Stop strings end a sample with the token that completes one.

        Raises:
            GenerationError: No tokens, one the model does not have, or no room left for a reply.
            TrainerError: The forward pass failed, or the policy or its trainer was closed.
        """
        if self._snapshot is None:
            raise TrainerError(f"policy {self.version} was closed; sample the newest one")
        prompt = np.asarray(tokens, np.int64).reshape(-1)
        room = check_room(len(prompt), params, n, self.context_length)
        outside = np.flatnonzero((prompt < 0) | (prompt >= self._facts.vocabulary))
        if len(outside):
            raise GenerationError(
                f"token {outside[0]} of the prompt is {prompt[outside[0]]}, but the model has "
                f"{self._facts.vocabulary} tokens"
            )
        texts = stop_texts(params)
        return await self._engine.sample(
            self._snapshot,
            tokens=prompt.astype(np.int32),
            params=params,
            stops=tuple(stop_ids(params, self.end_tokens)),
            ended=(lambda tokens: self.stopped(tokens, texts)) if texts else None,
            limit=room,
            n=n,
        )

    async def aclose(self) -> None:
        """Free the snapshot; whoever still samples it gets a ``TrainerError``."""
        if self._snapshot is not None:
            snapshot, self._snapshot = self._snapshot, None
            await self._engine.retire(snapshot)
