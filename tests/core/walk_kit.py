"""Long walks at once: a policy that says a thousand tokens a transition, and what they lead to."""

import asyncio

import numpy as np

from focus_core import (
    Agent,
    Collector,
    Critic,
    Generation,
    Independent,
    PreparedPrompt,
    Segments,
    Transition,
)

SEGMENT = 1024


class Fluent:
    """Says the same segment over and over, in arrays, at once; writes a token as a word."""

    version, takes_prefix, end_tokens = 0, True, frozenset({0})
    tokens = np.arange(1, SEGMENT + 1, dtype=np.int32)
    logprobs = np.full(SEGMENT, -0.5, np.float32)

    def prepare(self, messages):
        return PreparedPrompt(range(1, 65))

    def decode(self, tokens):
        return " ".join(map(str, tokens))

    async def generate(self, tokens, params, n=1):
        await asyncio.sleep(0)
        size = params.max_tokens
        return [Generation(self.tokens[:size], self.logprobs[:size], "length")] * n


class Lists(Fluent):
    """The same in lists, with whole prefixes."""

    takes_prefix = False
    tokens, logprobs = Fluent.tokens.tolist(), Fluent.logprobs.tolist()


class Walk:
    """So many transitions; every other walk pays."""

    walks = 0

    def __init__(self, depth):
        self.depth, self.taken = depth, 0

    def reset(self, problem):
        self.taken = 0
        return ({"role": "user", "content": "walk"},)

    async def step(self, reply):
        self.taken += 1
        if self.taken < self.depth:
            return Transition()
        Walk.walks += 1
        return Transition(float(Walk.walks % 2), done=True)

    def snapshot(self):
        return self.taken

    def restore(self, state):
        self.taken = state


def last_words(rollout):
    """A short context."""
    return len(rollout.tokens)


def collector(policy, problem, *, depth, search=None, critic=None):
    return Collector(
        Agent(policy, Walk(depth), context=Segments(SEGMENT), max_transitions=depth),
        critic=critic or Critic.constant(0.5, context=last_words),
        search=search or Independent(1),
    )
