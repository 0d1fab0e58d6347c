"""The same update in three forms: records, our datums, the local trainer's items; in float64."""

import asyncio
import hashlib
import math

import numpy as np
import pytest
from focus_adapter_local import to_item
from focus_adapter_tinker import to_datum
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_core import (
    Agent,
    Collector,
    Critic,
    PreparedPrompt,
    Problem,
    Segments,
    Selective,
    Transition,
)
from focus_core.export import export_actor, export_merged
from focus_core.testing import CountdownEnv, RandomPolicy


def learner(prefix, token):
    """Some log probability of a token after a prefix, the same whoever asks."""
    digest = hashlib.blake2b(repr((list(prefix), token)).encode(), digest_size=8).digest()
    return -3.0 * int.from_bytes(digest, "big") / 2**64


def ppo(p, q, advantage):
    """What one token loses; Schulman et al. 2017, equation 7."""
    ratio = math.exp(p - q)
    return -min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)


def of_arrays(inputs, targets, logprobs, advantages, mask):
    """Loss, and weight of each trained token by its prefix and place, of shifted arrays."""
    loss, weights = 0.0, {}
    for at, trained in enumerate(mask):
        if trained:
            prefix = tuple(int(t) for t in inputs[: at + 1])
            p, q = learner(prefix, int(targets[at])), float(logprobs[at])
            loss += ppo(p, q, float(advantages[at]))
            weights[prefix, int(targets[at]), q] = float(advantages[at])
    return loss, weights


def of_datums(records):
    found = []
    for record in records:
        datum = to_datum(record)
        columns = {name: column.to_numpy() for name, column in datum.loss_fn_inputs.items()}
        outside = record.loss_mask[1:] == 0
        assert not columns["advantages"][outside].any()
        assert not columns["logprobs"][outside].any()
        found.append(
            of_arrays(
                datum.model_input.to_ints(),
                columns["target_tokens"],
                columns["logprobs"],
                columns["advantages"],
                record.loss_mask[1:],
            )
        )
    return summed(found)


def of_items(records):
    items = [to_item(record) for record in records]
    names = ("input_tokens", "target_tokens", "logprobs", "advantages", "mask")
    return summed([of_arrays(*(getattr(item, name) for name in names)) for item in items])


def summed(found):
    weights = [pair for _, some in found for pair in some.items()]
    return sum(loss for loss, _ in found), sorted(weights)


class Rewriting(RandomPolicy):
    """Renders a longer chat otherwise from the start, so that no prompt extends another."""

    def prepare(self, messages):
        return PreparedPrompt([len(messages), *super().prepare(messages).tokens])


class Talk(CountdownEnv):
    """Answers every unfinished turn."""

    async def step(self, reply):
        transition = await super().step(reply)
        if transition.done:
            return transition
        return Transition(messages=({"role": "user", "content": "9"},))


def collected(seed, segment, steps, budget, end, rewritten):
    """A random tree, of one sequence or of contexts that do not extend each other."""
    policy = (Rewriting if rewritten else RandomPolicy)(vocabulary=12, end=end, seed=seed)
    env = (Talk if rewritten else CountdownEnv)(steps)
    agent = Agent(policy, env, context=Segments(segment))
    search = Selective(budget=budget, warmup=budget, max_concurrency=2)

    async def collect():
        async with Collector(agent, critic=Critic.constant(0.4), search=search) as collector:
            return await collector.collect(Problem("7 8 9"), key=(seed,))

    return asyncio.run(collect()).prepare()


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    segment=st.integers(1, 4),
    steps=st.integers(1, 4),
    budget=st.integers(1, 8),
    end=st.sampled_from([0.0, 0.3, 0.9]),
    rewritten=st.booleans(),
)
def test_random_trees_train_alike_in_every_form(seed, segment, steps, budget, end, rewritten):
    collection = collected(seed, segment, steps, budget, end, rewritten)
    single, merged = export_actor(collection), export_merged(collection)
    loss, weights = of_datums(single)
    for form in (of_datums(merged), of_items(single), of_items(merged)):
        assert form[0] == pytest.approx(loss, rel=1e-6, abs=1e-6)
        assert [key for key, _ in form[1]] == [key for key, _ in weights]
        np.testing.assert_allclose(
            [w for _, w in form[1]], [w for _, w in weights], rtol=1e-6, atol=1e-6
        )
    assert len(weights) <= sum(record.trained_tokens for record in single)
