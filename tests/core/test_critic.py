"""Critics: what they are asked, when, and what of their answers is accepted."""

import asyncio
import math
import threading

import numpy as np
import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    CriticError,
    Independent,
    Problem,
    Segments,
    Selective,
    ThreadExecution,
)
from focus_core.lanes import export_critic
from focus_core.testing import CountdownEnv, RandomPolicy
from focus_core.tree.tree import ROOT, TERMINAL


def predict(critic, text="text"):
    async def run():
        execution = ThreadExecution()
        try:
            return await critic.predict(text, execution)
        finally:
            await execution.aclose()

    return asyncio.run(run())


class AsyncCall:
    async def __call__(self, text):
        return 0.25


async def coroutine(text):
    await asyncio.sleep(0)
    return 0.25


@pytest.mark.parametrize(
    "fn",
    [
        lambda text: 0.25,
        coroutine,
        AsyncCall(),
        lambda text: coroutine(text),  # a plain function that returns an awaitable
        lambda text: np.float32(0.25),
    ],
)
def test_functions_sync_and_async_predict(fn):
    assert predict(Critic.from_fn(fn)) == 0.25


def test_a_plain_function_runs_beside_the_event_loop():
    here = threading.get_ident()
    assert predict(Critic.from_fn(lambda text: float(threading.get_ident() != here))) == 1.0


@pytest.mark.parametrize(
    "bad", [None, math.nan, math.inf, -math.inf, "often", [0.5, 0.5], object()]
)
def test_a_missing_or_non_finite_prediction_is_refused(bad):
    with pytest.raises(CriticError, match="must be a finite number"):
        predict(Critic.from_fn(lambda text: bad))


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, "x"])
def test_a_constant_is_checked_when_made(bad):
    with pytest.raises(CriticError, match="finite"):
        Critic.constant(bad)
    assert predict(Critic.constant(1)) == 1.0


@pytest.fixture
def grown(collect):
    """A small tree, and everything its critic was asked."""
    asked = []

    async def fn(text):
        asked.append(text)
        return 0.5

    policy = RandomPolicy(end=0.2)
    collector = Collector(
        Agent(policy, CountdownEnv(3), system_prompt="6", context=Segments(2)),
        critic=Critic.from_fn(fn),
        search=Selective(budget=8, warmup=8, max_concurrency=2),
    )
    return asked, policy, collect(collector, Problem("5"), key=(1,)).prepare()


def test_each_unfinished_state_is_predicted_once_the_root_included(grown):
    asked, _, collection = grown
    tree = collection.tree
    unfinished = [node for node in range(len(tree)) if tree.kind[node] != TERMINAL]
    assert len(asked) == len(unfinished) < len(tree)
    assert all(math.isnan(tree.prediction[n]) for n in range(len(tree)) if n not in unfinished)


def test_the_default_context_decodes_every_token_at_the_state(grown):
    asked, policy, collection = grown
    tree = collection.tree
    assert asked[0] == policy.decode(tree.prefix(ROOT)) == "1 6 2 5 3"
    assert sorted(asked) == sorted(
        policy.decode(tree.prefix(n)) for n in range(len(tree)) if tree.kind[n] != TERMINAL
    )


def test_the_text_sent_is_the_text_saved(grown):
    asked, _, collection = grown
    for record in export_critic(collection):
        assert record.context in asked


def test_a_context_of_ones_own_sees_the_rollout_and_is_called_once_a_state(collect):
    calls = []

    def context(rollout):
        calls.append(rollout)
        return {"turns": len(rollout.turns), "said": len(rollout.tokens), "call": len(calls)}

    sent = []

    async def fn(text):
        sent.append(text)
        return 0.5

    collector = Collector(
        Agent(RandomPolicy(end=0.0), CountdownEnv(3), context=Segments(2)),
        critic=Critic.from_fn(fn, context=context),
        search=Independent(2),
    )
    collection = collect(collector).prepare()
    unfinished = sum(kind != TERMINAL for kind in collection.tree.kind)
    assert len(calls) == len(sent) == unfinished == 5
    saved = [record.context for record in export_critic(collection)]
    assert all(context in sent for context in saved)
    assert len(calls) == 5, "the saved text was not rendered again"
    assert calls[0].turns == []


def test_a_constants_contexts_are_rendered_for_its_records(collect):
    collector = Collector(
        Agent(RandomPolicy(end=0.0), CountdownEnv(2), context=Segments(1)),
        critic=Critic.constant(0.5, context=lambda rollout: f"{len(rollout.tokens)} tokens"),
        search=Independent(1),
    )
    contexts = [record.context for record in export_critic(collect(collector).prepare())]
    assert contexts == ["3 tokens", "4 tokens"]


def test_predictions_run_while_the_next_segment_is_generated(collect):
    """Each prediction waits for the next request to the policy: serial code would never end."""
    requests = 0

    async def run():
        nonlocal requests
        arrived = [asyncio.Event() for _ in range(8)]

        async def delay(tokens):
            nonlocal requests
            arrived[requests].set()
            requests += 1
            await asyncio.sleep(0)

        async def fn(text):
            await asyncio.wait_for(arrived[len(text.split()) - 3].wait(), 5)
            return 0.5

        collector = Collector(
            Agent(RandomPolicy(end=0.0, delay=delay), CountdownEnv(4), context=Segments(1)),
            critic=Critic.from_fn(fn),
            search=Independent(1),
        )
        async with collector:
            return await collector.collect(Problem("5"))

    collection = asyncio.run(run())
    assert collection.failures == []
    # state k (k tokens said) waits for request k, the one that leaves it
    assert requests == 4
