"""A frozen snapshot as the core's ``Policy``."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from focus_adapter_local.engine import Engine
from focus_adapter_local.snapshot import Snapshot
from focus_core.agent.profiles import decode
from focus_core.errors import GenerationError, TrainerError, UsageError
from focus_core.policy import Generation, PreparedPrompt, SamplingParams

__all__ = ["LocalPolicy"]

_SURROGATE = re.compile("[\ud800-\udfff]")


class LocalPolicy:
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
    """

    takes_prefix = True
    samples_together = "seeded"

    def __init__(
        self, snapshot: Snapshot, tokenizer: Any, engine: Engine, tokenizer_lock: threading.Lock
    ) -> None:
        self._snapshot: Snapshot | None = snapshot
        self._facts = snapshot.facts
        self._tokenizer = tokenizer
        self._engine = engine
        self._lock = tokenizer_lock
        self.version: int = snapshot.version
        self.context_length: int | None = snapshot.facts.context_length
        self.end_tokens = frozenset(snapshot.facts.stops)

    def prepare(self, messages: Sequence[Any]) -> PreparedPrompt:
        """Render with the model's chat template, up to where the assistant speaks.

        The template writes the begin token where the model wants one; none is added.

        Raises:
            UsageError: The template refuses these messages, or they hold half a character.
        """
        from jinja2 import TemplateError

        try:
            with self._lock:
                tokens = self._tokenizer.apply_chat_template(
                    list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
                )
        except TemplateError as error:
            raise UsageError(f"the model's chat template refuses the messages: {error}") from error
        except TypeError as error:
            for message in messages:
                found = _SURROGATE.search(str(message.get("content", "")))
                if found:
                    raise UsageError(
                        f"a message holds half a character ({found.group()!a}), which no tokenizer "
                        "takes; mend the text"
                    ) from error
            raise
        return PreparedPrompt([int(token) for token in tokens])

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of these tokens, special ones included, spaces as they are."""
        with self._lock:
            return decode(self._tokenizer, tokens)

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> list[Generation]:
        """Sample ``n`` continuations; they share the computation of the prompt.

        Log probabilities are of the distribution that was sampled: after temperature, ``top_k``
        and ``top_p``, so that training on them asks for 1, 0 and 1 (the defaults) except where
        the loss does not read them; a greedy token has 0. With ``params.seed``, sample ``i`` is a
        function of seed, ``i`` and prompt, up to the rounding of a forward pass in other company.

        Raises:
            GenerationError: No tokens, one the model does not have, or no room left for a reply.
            TrainerError: The forward pass failed, or the policy or its trainer was closed.
        """
        if n < 1:
            raise GenerationError(f"n is {n}; ask for at least one continuation")
        if self._snapshot is None:
            raise TrainerError(f"policy {self.version} was closed; sample the newest one")
        prompt = np.asarray(tokens, np.int64).reshape(-1)
        if not len(prompt):
            raise GenerationError("the prompt is empty; a model continues at least one token")
        outside = np.flatnonzero((prompt < 0) | (prompt >= self._facts.vocabulary))
        if len(outside):
            raise GenerationError(
                f"token {outside[0]} of the prompt is {prompt[outside[0]]}, but the model has "
                f"{self._facts.vocabulary} tokens"
            )
        room = params.max_tokens
        if self.context_length is not None:
            room = min(room, self.context_length - len(prompt))
        if room < 1:
            raise GenerationError(
                f"a prompt of {len(prompt)} tokens leaves no room in the model's context of "
                f"{self.context_length}"
            )
        return await self._engine.sample(
            self._snapshot,
            tokens=prompt.astype(np.int32),
            params=params,
            stops=(*self._facts.stops, *params.stop),
            limit=room,
            n=n,
        )

    async def aclose(self) -> None:
        """Free the snapshot; whoever still samples it gets a ``TrainerError``."""
        if self._snapshot is not None:
            snapshot, self._snapshot = self._snapshot, None
            await self._engine.retire(snapshot)
