"""A policy that looks its next token's probabilities up, by everything that came before."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from focus_core import Generation, GenerationError, PreparedPrompt, SamplingParams, TrainerError

END = 0
ROLES = ("system", "user", "assistant", "tool")
CHARACTERS = string.printable
NAMES = ("<end>", *(f"<{role}>" for role in ROLES), *CHARACTERS)
"""Text of each token: the end of a turn, the openings of turns, characters."""

Table = Mapping[bytes, NDArray[np.float64]]
"""Logits of the tokens that can be said, by prefix; a prefix not seen has zeros."""


def key(tokens: Any) -> bytes:
    """A prefix as the table's key."""
    return np.asarray(tokens, np.int32).tobytes()


def log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log probabilities."""
    shifted = logits - logits.max()
    normal: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return normal


class TabularPolicy:
    """A frozen table.

    Args:
        table: Its owner must not change the arrays any more.
        sayable: Tokens it can say, END included, in the order of the logits.
        version: Updates in it.
    """

    end_tokens = frozenset({END})

    def __init__(self, table: Table, sayable: Sequence[int], version: int) -> None:
        self.version = version
        self._table = table
        self._sayable = list(sayable)
        self._free = np.random.default_rng(version)
        self._closed = False

    def prepare(self, messages: Sequence[Any]) -> PreparedPrompt:
        """Role, characters, end; then the assistant's opening."""
        tokens: list[int] = []
        for message in messages:
            tokens.append(1 + ROLES.index(message["role"]))
            tokens += [self._token(character) for character in message["content"]]
            tokens.append(END)
        return PreparedPrompt([*tokens, 1 + ROLES.index("assistant")])

    def _token(self, character: str) -> int:
        place = CHARACTERS.find(character)
        return 5 + (place if place >= 0 else CHARACTERS.index("?"))

    def decode(self, tokens: Sequence[int]) -> str:
        """The tokens' names, one after another."""
        return "".join(NAMES[token] for token in tokens)

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> Sequence[Generation]:
        """Draw ``n`` continuations."""
        if self._closed:
            raise TrainerError(f"policy {self.version} was closed; sample the newest one")
        if params.top_k or params.top_p < 1.0:
            raise GenerationError("the tabular policy samples without top_k and top_p")
        await asyncio.sleep(0)
        draws = [
            self._free if params.seed is None else np.random.default_rng([params.seed, sample])
            for sample in range(n)
        ]
        return [self._one(list(tokens), params, draw) for draw in draws]

    def _one(
        self, prefix: list[int], params: SamplingParams, draw: np.random.Generator
    ) -> Generation:
        tokens: list[int] = []
        logprobs: list[float] = []
        stop: Literal["stop", "length"] = "length"
        while len(tokens) < params.max_tokens and stop == "length":
            logits = self._table.get(key([*prefix, *tokens]), np.zeros(len(self._sayable)))
            if params.temperature == 0.0:
                place, logprob = int(logits.argmax()), 0.0
            else:
                every = log_softmax(logits / params.temperature)
                place = int(draw.choice(len(every), p=np.exp(every)))
                logprob = float(every[place])
            tokens.append(self._sayable[place])
            logprobs.append(logprob)
            if tokens[-1] == END or tokens[-1] in params.stop:
                stop = "stop"
        return Generation(tokens, logprobs, stop)

    async def aclose(self) -> None:
        """No more answers."""
        self._closed = True
