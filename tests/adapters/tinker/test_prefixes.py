"""The tokens of a tree as a request's chunks: exact, made once, and counted like one list."""

import asyncio

import numpy as np
import pytest
from focus_adapter_tinker import TinkerPolicy, TinkerTrainer
from focus_adapter_tinker.usage import Usage

from focus_core import GenerationError, Prefix, SamplingParams
from focus_core.tree.tree import Tree
from tests.adapters.tinker.sdk_kit import Sampler

PARTS = ([24, 7, 18], [7, 25], [], [7, 36, 9])
"""A prompt, and what three edges add; one of them nothing."""
TOKENS = [token for part in PARTS for token in part]


@pytest.fixture
def prefix_of():
    """The prefix of a state of one small tree, by number."""
    tree, cache = Tree(PARTS[0], messages=()), {}
    at = 0
    for part in PARTS[1:]:
        at = tree.add(at, part, [-0.5] * len(part))
    return lambda node=at: Prefix(tree, node, tree.prefix_length(node), cache)


def generate(policy, tokens, n=1, **params):
    return asyncio.run(policy.generate(tokens, SamplingParams(**params), n))


@pytest.fixture
def sent(monkeypatch):
    """The chunks of each request."""
    inputs = []
    ask = TinkerPolicy._ask

    def noted(self, prompt, *rest):
        inputs.append(prompt.chunks)
        return ask(self, prompt, *rest)

    monkeypatch.setattr(TinkerPolicy, "_ask", noted)
    return inputs


def test_a_chunk_is_made_once_and_never_empty(tokenizer, prefix_of, sent):
    policy = TinkerPolicy(Sampler(tokenizer))
    for node in (0, 3, 2, 3):
        generate(policy, prefix_of(node), max_tokens=2)
    assert [[list(chunk.tokens) for chunk in chunks] for chunks in sent] == [
        [PARTS[0]],
        [PARTS[0], PARTS[1], PARTS[3]],
        [PARTS[0], PARTS[1]],
        [PARTS[0], PARTS[1], PARTS[3]],
    ]
    assert len({id(chunk) for chunks in sent for chunk in chunks}) == 3
    assert [asked[0] for asked in policy._client.log] == [
        list(prefix_of(node)) for node in (0, 3, 2, 3)
    ]


def test_all_chunks_count_against_the_context(tokenizer, prefix_of):
    usage = Usage()
    policy = TinkerPolicy(
        Sampler(tokenizer, reply=(20,) * 9), context_length=len(TOKENS) + 2, usage=usage
    )
    assert len(generate(policy, prefix_of())[0].tokens) == 2
    assert usage.table().splitlines()[1].split() == ["after", "1", str(len(TOKENS)), "2", "0"]
    policy.context_length = len(TOKENS)
    with pytest.raises(GenerationError, match=f"a prompt of {len(TOKENS)} tokens leaves no room"):
        generate(policy, prefix_of())


def test_a_server_reads_chunks_as_one_prompt(server, prefix_of, sent):
    """The same samples, log probabilities and counts as for a list."""

    async def both():
        async with TinkerTrainer(model="tiny", base_url=server.base_url, seed=0) as trainer:
            policy = await trainer.publish_policy()
            params = SamplingParams(max_tokens=8, seed=3)
            found, counted = [], []
            for tokens in (TOKENS, prefix_of()):
                before = server.stats()["prompt_tokens"]
                found += await policy.generate(tokens, params)
                counted.append(server.stats()["prompt_tokens"] - before)
            return found, counted, trainer.usage._now["prompt"]

    (listed, chunked), counted, usage = asyncio.run(both())
    assert [len(chunks) for chunks in sent] == [1, 3]
    assert chunked.tokens == listed.tokens
    np.testing.assert_allclose(chunked.logprobs, listed.logprobs, atol=1e-5)
    assert counted == [len(TOKENS)] * 2
    assert usage == 2 * len(TOKENS)
