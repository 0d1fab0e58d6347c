"""Drawing from a policy to learn its probabilities, for the contracts of policies and trainers."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from focus_core.policy import Generation, Policy, SamplingParams
from focus_core.testing.base import require

__all__ = ["draw", "first_logprobs", "require_frequencies", "tokens_of"]

DOUBT = math.log(2e6 / 1e-9)
"""A frequency is refused when its probability is below 1e-9, over a vocabulary of two million."""


async def draw(
    policy: Policy, prompt: Sequence[int], count: int, *, max_tokens: int = 1, seed: int = 0
) -> list[Generation]:
    """``count`` samples, asked for 64 at a time with seeds of their own."""
    sizes = [min(64, count - at) for at in range(0, count, 64)]
    answers = await asyncio.gather(
        *(
            policy.generate(prompt, SamplingParams(max_tokens=max_tokens, seed=seed + place), size)
            for place, size in enumerate(sizes)
        )
    )
    return [generation for answer in answers for generation in answer]


async def first_logprobs(
    policy: Policy, prompt: Sequence[int], count: int
) -> tuple[Counter[int], dict[int, float]]:
    """How often each next token was drawn, and the log probability it came with."""
    counts: Counter[int] = Counter()
    logprobs: dict[int, float] = {}
    for generation in await draw(policy, prompt, count):
        if len(generation.tokens) and len(generation.logprobs):
            token = int(generation.tokens[0])
            counts[token] += 1
            logprobs.setdefault(token, float(generation.logprobs[0]))
    return counts, logprobs


def require_frequencies(counts: Counter[int], logprobs: dict[int, float]) -> None:
    """Tokens were drawn as often as their log probabilities say.

    By the Chernoff bound a token of probability p is drawn in a share q of N draws with
    probability at most exp(-N KL(q || p)); with the bound taken over every token there may be,
    a sound policy fails once in 1e9 times. Source: Hoeffding 1963, theorem 1.
    """
    total = counts.total()
    mass = sum(math.exp(value) for value in logprobs.values())
    require(
        mass < 1.0 + 1e-2,
        f"the probabilities of {len(logprobs)} tokens after one prompt add up to {mass:.3f}; a "
        "log probability must be the natural log of the probability with which its own token was "
        "drawn",
    )
    for token, count in counts.items():
        q, p = count / total, min(math.exp(logprobs[token]), 1.0 - 1e-12)
        divergence = q * math.log(q / p) + (
            (1 - q) * math.log((1 - q) / (1 - p)) if q < 1.0 else 0.0
        )
        require(
            total * divergence < DOUBT,
            f"token {token} was drawn in {q:.1%} of {total} draws but reported with probability "
            f"{p:.1%}; report the natural log of the probability with which it was drawn, at the "
            "temperature that was asked for",
        )


def tokens_of(generations: Sequence[Generation]) -> list[list[int]]:
    """Their tokens, as plain lists."""
    return [np.asarray(generation.tokens).tolist() for generation in generations]
