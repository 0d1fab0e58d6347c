"""What the core's tests share: collecting one problem, and a policy that says what it is told."""

import asyncio

import pytest

from focus_core import Generation, PreparedPrompt, Problem


class ScriptedPolicy:
    """Says the given segments, one a request, in order; every token has log probability -0.5.

    A segment that ends in 0 ended its turn. An exception among them is raised. ``prompts`` and
    ``params`` keep what was asked.
    """

    end_tokens = frozenset({0})
    version = 0

    def __init__(self, *segments):
        self.segments = list(segments)
        self.prompts = []
        self.params = []

    def prepare(self, messages):
        tokens = []
        for message in messages:
            words = [int(word) for word in message["content"].split()]
            tokens += [3, *words, 0] if message["role"] == "assistant" else words
        return PreparedPrompt([*tokens, 3])

    def decode(self, tokens):
        return " ".join(map(str, tokens))

    async def generate(self, tokens, params, n=1):
        self.prompts.append(list(tokens))
        self.params.append(params)
        await asyncio.sleep(0)
        said = self.segments.pop(0)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, Generation):
            return [said]
        return [Generation(said, [-0.5] * len(said), "stop" if said[-1:] == [0] else "length")]


@pytest.fixture(scope="session")
def scripted():
    """The class of policies that say what they are told."""
    return ScriptedPolicy


@pytest.fixture(scope="session")
def collect():
    """Collect one problem with a collector, not yet prepared."""

    def run(collector, problem=None, **options):
        async def inside():
            async with collector:
                return await collector.collect(problem or Problem("5", id="p"), **options)

        return asyncio.run(inside())

    return run
