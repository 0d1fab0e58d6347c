"""Continuations in flight together never see each other's environment or files."""

import asyncio
import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_core import (
    Agent,
    CollectionError,
    Collector,
    Critic,
    Generation,
    PreparedPrompt,
    Problem,
    Segments,
    Selective,
    Transition,
    Workspace,
)


class UniquePolicy:
    """Every token it says is new; ``before`` remembers what had been said when it was."""

    version = 0

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.before = {}

    def prepare(self, messages):
        return PreparedPrompt([1])

    def decode(self, tokens):
        return " ".join(map(str, tokens))

    async def generate(self, tokens, params, n=1):
        for _ in range(self.random.randrange(6)):
            await asyncio.sleep(0)
        token = len(self.before) + 2
        self.before[token] = tuple(tokens[1:])
        return [Generation([token], [-0.5], "length")]


class Witness:
    """Compares its own memory, and its files, with what was really said before each reply."""

    def __init__(self, policy, steps):
        self.policy = policy
        self.steps = steps
        self.said = ()
        self.acting = False
        self.workspace = None

    def reset(self, problem):
        self.said, self.acting = (), False
        return ({"role": "user", "content": ""},)

    async def step(self, reply):
        assert not self.acting, "two continuations act on one environment"
        self.acting = True
        (token,) = reply.tokens
        for _ in range(self.policy.random.randrange(4)):
            await asyncio.sleep(0)
        assert tuple(self.said) == self.policy.before[token], "a foreign state"
        files = tuple(int(self.workspace.read(path)) for path in self.workspace)
        assert files == self.policy.before[token], "foreign files"
        self.remember(token)
        self.workspace.write(f"{len(self.said):04d}", str(token).encode())
        for _ in range(self.policy.random.randrange(4)):
            await asyncio.sleep(0)
        self.acting = False
        return Transition(float(token % 2), done=len(self.said) >= self.steps)

    def remember(self, token):
        self.said = (*self.said, token)

    def snapshot(self):
        return self.said

    def restore(self, state):
        self.said, self.acting = state, False


class Careless(Witness):
    """Breaks the contract: mutates what other copies hold."""

    def reset(self, problem):
        super().reset(problem)
        self.said = []
        return ({"role": "user", "content": ""},)

    def remember(self, token):
        self.said.append(token)


def collect(kind, seed, concurrency, steps):
    policy = UniquePolicy(seed)
    collector = Collector(
        Agent(policy, kind(policy, steps), context=Segments(1)),
        critic=Critic.constant(0.5),
        search=Selective(budget=24, warmup=12, max_concurrency=concurrency, max_failures=1),
    )

    async def run():
        async with collector:
            return await collector.collect(Problem("?"), workspace=Workspace())

    return policy, asyncio.run(run()).prepare()


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 6))
@settings(max_examples=60)
def test_each_continuation_acts_on_its_own_environment_and_files(seed, concurrency, steps):
    policy, collection = collect(Witness, seed, concurrency, steps)
    tree = collection.tree
    for node in tree.edges():
        (token,) = tree.generated(node)[0].tolist()
        assert tuple(tree.prefix(tree.parent[node])[1:].tolist()) == policy.before[token]
    assert collection.counts["transitions"] == len(policy.before)


def test_the_witness_notices_an_environment_that_shares_its_state():
    with pytest.raises(CollectionError, match="foreign state"):
        collect(Careless, 0, 4, 4)


def test_a_file_a_fork_wrote_is_not_in_the_other():
    one = Workspace({"a": b"1"})
    two = one.fork()
    two.write("a", b"2")
    two.write("b", b"3")
    one.delete("a")
    assert list(one) == []
    assert list(two) == ["a", "b"]
    assert copy.copy(two).read("a") == b"2"
