"""Small doubles: random policies, an environment that counts, a trainer that records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from focus_core.env.env import Reply, Transition
from focus_core.policy import Generation, PreparedPrompt, SamplingParams
from focus_core.records import ActorRecord, Batch, Problem
from focus_core.trainer import RunStatus

__all__ = ["CountdownEnv", "RandomPolicy", "RecordingTrainer", "TextPolicy"]


class RandomPolicy:
    """A context-free policy over a small vocabulary, exact in tokens and log probabilities.

    It samples from its own probabilities whatever the temperature, but for 0, and whatever
    ``top_p`` and ``top_k``.
    Token 0 ends a turn. ``decode`` writes token ids as words, so text and tokens map one to one.

    Args:
        vocabulary: Number of tokens.
        end: Probability of token 0; the others share the rest evenly.
        version: The snapshot's name.
        seed: Of the draws of requests that carry none.
        delay: Awaited before each answer, called with the request's tokens.
    """

    end_tokens = frozenset({0})

    def __init__(
        self,
        vocabulary: int = 8,
        *,
        end: float = 0.1,
        version: int | str = 0,
        seed: int = 0,
        delay: Callable[[Sequence[int]], Awaitable[None]] | None = None,
    ) -> None:
        self.version = version
        self.probabilities = np.full(vocabulary, (1.0 - end) / (vocabulary - 1))
        self.probabilities[0] = end
        self.closed = False
        self._random = random.Random(seed)
        self._delay = delay

    def prepare(self, messages: Sequence[Any]) -> PreparedPrompt:
        """Each message's text as token ids, after one token for its role."""
        roles = {"system": 1, "user": 2, "assistant": 3, "tool": 4}
        tokens: list[int] = []
        for message in messages:
            tokens.append(roles[message["role"]])
            tokens += [int(word) for word in message["content"].split()]
            if message["role"] == "assistant":
                tokens.append(0)
        return PreparedPrompt([*tokens, roles["assistant"]])

    def decode(self, tokens: Sequence[int]) -> str:
        """Token ids as words."""
        return " ".join(str(token) for token in tokens)

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> Sequence[Generation]:
        """Draw ``n`` continuations."""
        if self.closed:
            raise RuntimeError("this policy is closed")
        await (self._delay(tokens) if self._delay else asyncio.sleep(0))
        draw = self._random if params.seed is None else random.Random(params.seed)
        probabilities = self.probabilities
        if params.temperature == 0.0:
            probabilities = np.eye(len(probabilities))[probabilities.argmax()]
        weights, stops = probabilities.tolist(), {0, *params.stop}
        found = []
        for _ in range(n):
            said: list[int] = []
            while len(said) < params.max_tokens and (not said or said[-1] not in stops):
                said += draw.choices(range(len(weights)), weights)
            logprobs = np.log(probabilities[said]).tolist()
            found.append(Generation(said, logprobs, "stop" if said[-1] in stops else "length"))
        return found

    async def aclose(self) -> None:
        """No more answers."""
        self.closed = True


class TextPolicy(RandomPolicy):
    """A random policy that reads and writes text: a token is a byte.

    Token 0 ends a turn, 1 to 4 open one (system, user, assistant, tool), and byte ``b`` is token
    ``5 + b``. It says printable ASCII, and renders any message whose content is text.

    Args:
        end: Probability of token 0; the printable characters share the rest evenly.
        version: The snapshot's name.
        seed: Of the draws of requests that carry none.
    """

    def __init__(self, *, end: float = 0.02, version: int | str = 0, seed: int = 0) -> None:
        super().__init__(5 + 256, version=version, seed=seed)
        self.probabilities[:] = 0.0
        self.probabilities[5 + 32 : 5 + 127] = (1.0 - end) / 95
        self.probabilities[0] = end

    def prepare(self, messages: Sequence[Any]) -> PreparedPrompt:
        """Each message as its role's token, its bytes, and token 0."""
        tokens: list[int] = []
        for message in messages:
            tokens.append(("system", "user", "assistant", "tool").index(message["role"]) + 1)
            tokens += [5 + byte for byte in message["content"].encode()]
            tokens.append(0)
        return PreparedPrompt([*tokens, 3])

    def decode(self, tokens: Sequence[int]) -> str:
        """The bytes as text; the first five tokens by name."""
        names = ("<end>", "<system>", "<user>", "<assistant>", "<tool>")
        parts = (bytes([t - 5]) if t > 4 else names[t].encode() for t in tokens)
        return b"".join(parts).decode(errors="replace")


class CountdownEnv:
    """Ends after ``steps`` transitions or at a stop; the reward is the share of even tokens.

    Args:
        steps: Transitions of a rollout.
    """

    def __init__(self, steps: int = 4) -> None:
        self.steps = steps
        self.said: tuple[int, ...] = ()
        self.left = steps

    def reset(self, problem: Problem) -> Sequence[Any]:
        """One user message."""
        self.said, self.left = (), self.steps
        return ({"role": "user", "content": str(problem.prompt)},)

    async def step(self, reply: Reply) -> Transition:
        """Count down; grade at the end."""
        self.said = (*self.said, *reply.tokens)
        self.left -= 1
        if self.left and reply.stop_reason == "length":
            return Transition()
        even = sum(token % 2 == 0 for token in self.said)
        return Transition(even / len(self.said), done=True)

    def snapshot(self) -> tuple[tuple[int, ...], int]:
        """What was said, and how much is left."""
        return self.said, self.left

    def restore(self, state: tuple[tuple[int, ...], int]) -> None:
        """Continue from there."""
        self.said, self.left = state


class RecordingTrainer:
    """Keeps every batch it is given; publishes random policies.

    Args:
        delay: Awaited in each update, called with the batch.
        policy: Makes the policy of an update count.
    """

    capabilities = frozenset({"merges-spans"})

    def __init__(
        self,
        *,
        delay: Callable[[Batch], Awaitable[None]] | None = None,
        policy: Callable[[int], RandomPolicy] | None = None,
    ) -> None:
        self.batches: list[Batch] = []
        self.policies: list[RandomPolicy] = []
        self.saved: list[str] = []
        self.status: RunStatus | None = None
        self._delay = delay
        self._policy = policy or (lambda step: RandomPolicy(version=step, seed=step))

    async def __aenter__(self) -> RecordingTrainer:
        """Nothing to load."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close, if the run has not."""
        if self.status is None:
            await self.close("success" if kind is None else "errored")

    async def publish_policy(self) -> RandomPolicy:
        """The next policy."""
        self.policies.append(self._policy(len(self.batches)))
        return self.policies[-1]

    def convert(self, records: Sequence[ActorRecord]) -> Sequence[Any]:
        """Plain records."""
        return [record.to_dict() for record in records]

    async def update(self, batch: Batch) -> Mapping[str, float]:
        """Keep the batch."""
        if self._delay is not None:
            await self._delay(batch)
        self.batches.append(batch)
        return {"loss": 0.0}

    async def save_state(self, name: str) -> str:
        """Keep the name."""
        self.saved.append(name)
        return name

    async def close(self, status: RunStatus) -> None:
        """Keep the status."""
        self.status = status
