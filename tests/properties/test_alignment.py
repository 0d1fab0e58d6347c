"""From what a policy was asked and answered to what a trainer reads, token for token.

The policy logs every request and answer. Its answers carry tokens that no other answer carries and
log probabilities drawn at random, so a token, mask or log probability one place off cannot pass.
"""

import asyncio
import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from focus_core import (
    ActorRecord,
    Agent,
    Collector,
    Critic,
    Generation,
    PreparedPrompt,
    Problem,
    Segments,
    Selective,
    Transition,
)
from focus_core.lanes import export_actor, export_critic, export_merged

ROLES = {"system": 1, "user": 2, "assistant": 3, "tool": 4}
END = 0
DRIFT = 10**8


class LoggingPolicy:
    """Renders chats in one of three ways.

    ``extends``: every prompt continues the tokens before it. ``forgets``: only the last messages
    are shown, as when a template drops old reasoning. ``drifts``: an assistant's words are encoded
    into other tokens than were sampled, as a tokenizer may.
    """

    version = 0
    end_tokens = frozenset({END})

    def __init__(self, seed, rendering):
        self.random = random.Random(seed)
        self.rendering = rendering
        self.log = []
        self.next_token = 100

    def prepare(self, messages):
        if self.rendering == "forgets" and len(messages) > 4:
            messages = [messages[0], *messages[-2:]]
        tokens = []
        for message in messages:
            words = [int(word) for word in message["content"].split()]
            if message["role"] == "assistant" and self.rendering == "drifts":
                words = [word % DRIFT + DRIFT for word in words]
            tokens += [ROLES[message["role"]], *words]
            if message["role"] == "assistant":
                tokens.append(END)
        return PreparedPrompt([*tokens, ROLES["assistant"]])

    def decode(self, tokens):
        return " ".join(map(str, tokens))

    async def generate(self, tokens, params, n=1):
        prefix = tuple(tokens)
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)
        length = self.random.randint(0, params.max_tokens)
        said = list(range(self.next_token, self.next_token + length))
        self.next_token += length
        stop = bool(said) and self.random.random() < 0.4
        if stop:
            said[-1] = END
        logprobs = [float(np.float32(-self.random.random() - 1e-3)) for _ in said]
        self.log.append((prefix, tuple(said), tuple(logprobs)))
        return [Generation(said, logprobs, "stop" if stop else "length")]


class Talk:
    """An environment that answers, continues, ends or cuts, as what was said decides."""

    def __init__(self, seed):
        self.seed = seed
        self.said = ()

    def reset(self, problem):
        self.said = ()
        return [{"role": "user", "content": problem.prompt}]

    async def step(self, reply):
        self.said = (*self.said, reply.tokens)
        draw = random.Random(f"{self.seed}{self.said}")
        for _ in range(draw.randrange(3)):
            await asyncio.sleep(0)
        if draw.random() < 0.2 or len(self.said) > 8:
            return Transition(draw.choice([0.0, 1.0, 0.5]), done=True)
        if draw.random() < 0.05:
            return Transition(truncated=True)
        if reply.stop_reason == "stop" or draw.random() < 0.2:
            role = draw.choice(["tool", "user"])
            words = " ".join(str(draw.randrange(10, 90)) for _ in range(draw.randrange(4)))
            return Transition(draw.choice([0.0, 0.1]), messages=[{"role": role, "content": words}])
        return Transition()

    def snapshot(self):
        return self.said

    def restore(self, state):
        self.said = state


def grow(seed, rendering, concurrency):
    policy = LoggingPolicy(seed, rendering)
    agent = Agent(policy, Talk(seed), system_prompt="7 8", context=Segments(3), max_transitions=12)
    collector = Collector(
        agent,
        critic=Critic.constant(0.3),
        search=Selective(budget=20, warmup=12, max_concurrency=concurrency),
        gamma=0.9,
    )

    async def collect():
        async with collector:
            return await collector.collect(Problem("21 22", id="p"))

    collection = asyncio.run(collect())
    assert not collection.failures, collection.failures[0]
    return policy, collection.prepare()


def per_token(records):
    """(what the policy had seen, token, log probability, advantage) of each trained token."""
    return Counter(
        (
            tuple(record.tokens[:at].tolist()),
            int(record.tokens[at]),
            float(record.logprobs[at]),
            float(record.advantages[at]),
        )
        for record in records
        for at in np.flatnonzero(record.loss_mask)
    )


arguments = given(
    st.integers(0, 10**6), st.sampled_from(["extends", "forgets", "drifts"]), st.integers(1, 8)
)


@arguments
@settings(max_examples=60)
def test_every_exported_token_was_sampled_once_after_exactly_what_the_policy_was_sent(
    seed, rendering, concurrency
):
    policy, collection = grow(seed, rendering, concurrency)
    records = export_actor(collection)
    exported = Counter()
    for record in records:
        (span,) = record.spans
        assert span.stop == len(record.tokens)
        tokens, logprobs = record.tokens.tolist(), record.logprobs.tolist()
        exported[
            tuple(tokens[: span.start]), tuple(tokens[span.start :]), tuple(logprobs[span.start :])
        ] += 1
        assert not any(logprobs[: span.start])
        assert record.loss_mask.tolist() == [0] * span.start + [1] * (span.stop - span.start)
        assert record.reward == collection.advantages[span.edge] == span.advantage
    assert exported == Counter(entry for entry in policy.log if entry[1])
    fresh = sum(collection.tree.fresh) - 1
    event(f"{rendering}: fresh sequences {fresh > 0}")
    assert rendering != "extends" or not fresh


@arguments
@settings(max_examples=40)
def test_merged_records_train_the_same_tokens_in_the_fewest_sequences(seed, rendering, concurrency):
    _, collection = grow(seed, rendering, concurrency)
    edges, merged = export_actor(collection), export_merged(collection)
    assert per_token(merged) == per_token(edges)
    extended = {
        above.metadata["edge"]
        for edge in edges
        for above in edges
        if above.metadata["edge"] in collection.tree.path(edge.metadata["edge"])[:-1]
        and edge.tokens[: len(above.tokens)].tolist() == above.tokens.tolist()
    }
    assert len(merged) == len(edges) - len(extended)
    event(f"merging saves {len(edges) > len(merged)}")


@arguments
@settings(max_examples=30)
def test_both_forms_say_the_same_after_json(seed, rendering, concurrency):
    _, collection = grow(seed, rendering, concurrency)
    for record in [*export_actor(collection), *export_merged(collection)]:
        plain = json.loads(json.dumps(record.to_dict(), allow_nan=False))
        again = ActorRecord.from_dict(plain)
        assert again == record
        assert again.spans == record.spans
        assert again.tokens.dtype == np.int32
        assert again.logprobs.dtype == np.float32
        np.testing.assert_array_equal(again.logprobs, record.logprobs)
        np.testing.assert_array_equal(again.advantages, record.advantages)


@given(st.integers(0, 10**6), st.sampled_from(["extends", "forgets", "drifts"]))
@settings(max_examples=30)
def test_turns_are_what_was_sent_and_what_was_sampled(seed, rendering):
    """``Rollout.turns``: a grader that joins prefix and tokens reads the policy's own sequence."""
    policy, collection = grow(seed, rendering, 2)
    first_requests = {(prefix, said) for prefix, said, _ in policy.log}
    for rollout in collection.rollouts():
        assert rollout.turns
        for turn in rollout.turns:
            assert len(turn.tokens) == len(turn.logprobs)
            asked = [
                said
                for prefix, said in first_requests
                if prefix == tuple(turn.prefix) and tuple(turn.tokens)[: len(said)] == said
            ]
            assert asked, "the turn's first segment was sampled after its prefix"
        last = rollout.turns[-1]
        assert last.prefix + last.tokens == rollout.tokens


def test_critic_records_say_what_the_policy_saw():
    policy, collection = grow(3, "extends", 1)
    sent = {policy.decode(prefix) for prefix, _, _ in policy.log}
    records = export_critic(collection)
    assert records
    for record in records:
        assert record.context in sent
        assert math.isfinite(record.target)
    assert records[0].context == "1 7 8 2 21 22 3"


def test_one_place_off_would_be_seen():
    """The log's own discrimination: shifting one log probability breaks the equality above."""
    policy, collection = grow(3, "extends", 1)
    record = max(export_actor(collection), key=lambda record: record.trained_tokens)
    (span,) = record.spans
    assert record.trained_tokens >= 2
    rolled = np.roll(record.logprobs[span.start :], 1).tolist()
    entry = (
        tuple(record.tokens[: span.start].tolist()),
        tuple(record.tokens[span.start :].tolist()),
    )
    assert (*entry, tuple(rolled)) not in policy.log
    assert (*entry, tuple(record.logprobs[span.start :].tolist())) in policy.log
    with pytest.raises(StopIteration):
        next(e for e in policy.log if e[1] == entry[1] and e[0] != entry[0])
