"""Continuations that leave a state at once, by policies that sample them in one request."""

import asyncio
import gc
import weakref

import pytest

from focus_core import Agent, Collector, Critic, Independent, Prefix, Problem, Segments, Selective
from focus_core.collect.shared_requests import Opening
from focus_core.errors import UsageError
from focus_core.lanes import export_actor
from focus_core.testing import CountdownEnv, RandomPolicy


class Together(RandomPolicy):
    """Keeps what was asked: tokens, how many samples, and the seed."""

    samples_together = "seeded"
    fail = None

    def __init__(self, **options):
        super().__init__(**{"end": 0.0, "seed": 1, **options})
        self.asked, self.shared, self.caches = [], [], []

    async def generate(self, tokens, params, n=1):
        self.asked.append((list(tokens), n, params.seed))
        if self.fail is not None and n > 1:
            await asyncio.sleep(0)
            raise self.fail
        return await super().generate(tokens, params, n)


def collect(policy, search, key=None, env=None, **options):
    async def run():
        before = asyncio.all_tasks()
        agent = Agent(policy, env or CountdownEnv(3), context=Segments(2))
        async with Collector(agent, critic=Critic.constant(0.5), search=search, **options) as each:
            collection = await each.collect(Problem("5 6 7", id="p"), key=key)
        assert asyncio.all_tasks() == before, "tasks are left"
        return collection

    return asyncio.run(asyncio.wait_for(run(), 20))


def test_a_policy_that_says_neither_seeded_nor_unseeded_is_refused():
    policy = Together()
    policy.samples_together = True
    with pytest.raises(UsageError, match="samples_together is True"):
        collect(policy, Independent(2))


def test_a_group_is_one_request_and_then_each_goes_its_own_way():
    policy = Together()
    collection = collect(policy, Independent(4))
    assert [n for _, n, _ in policy.asked] == [4, *[1] * 8]
    assert collection.counts["continuations"] == 4
    assert collection.counts["transitions"] == 12
    roots = [node for node in collection.tree.edges() if collection.tree.parent[node] == 0]
    said = [tuple(collection.tree.generated(node)[0].tolist()) for node in roots]
    assert len(set(said)) > 1, "each continuation has a sample of its own"


@pytest.mark.parametrize(("together", "seeded"), [("seeded", True), ("unseeded", False)])
def test_only_a_policy_whose_samples_differ_gets_a_seed_with_them(together, seeded):
    policy = Together()
    policy.samples_together = together
    collect(policy, Independent(3), key=(1, 2))
    assert [seed is not None for _, n, seed in policy.asked if n > 1] == [seeded]
    assert all(seed is not None for _, n, seed in policy.asked if n == 1)


def test_other_policies_are_asked_one_by_one():
    policy = Together()
    policy.samples_together = None
    collect(policy, Independent(4))
    assert {n for _, n, _ in policy.asked} == {1}


def test_a_tree_grows_the_same_budget_either_way():
    """Selective search never has two launches from one state in refinement, but in warm-up."""
    search = Selective(budget=30, warmup=12, max_concurrency=4)
    policy = Together()
    collection = collect(policy, search)
    assert sum(n for _, n, _ in policy.asked) == collection.counts["transitions"]
    assert max(n for _, n, _ in policy.asked) == 2
    for record in export_actor(collection.prepare()):
        assert record.trained_tokens == 2


def test_a_request_that_fails_fails_everyone_who_shared_it():
    policy = Together()
    policy.fail = OSError("the server is gone")
    collection = collect(policy, Independent(3, max_failures=5))
    assert [failure.stage for failure in collection.failures] == ["generation"] * 3
    assert all(failure.error is policy.fail for failure in collection.failures)


def test_a_library_that_exits_fails_the_continuations_and_not_the_program():
    policy = Together()
    policy.fail = SystemExit(3)
    collection = collect(policy, Independent(3, max_failures=5))
    assert [failure.stage for failure in collection.failures] == ["generation"] * 3
    assert all("SystemExit(3)" in str(failure) for failure in collection.failures)


@pytest.mark.parametrize("waits", [[0, 3, 6], [6, 3, 0], [3, 0, 6]])
def test_a_seeded_tree_does_not_depend_on_who_asks_first(waits):
    """Environments that cannot be forked are reset for each continuation, which takes its time."""

    class Slow(CountdownEnv):
        forkable = False
        turn = -1

        async def reset(self, problem):
            Slow.turn += 1
            for _ in range(waits[Slow.turn - 1] if Slow.turn else 0):
                await asyncio.sleep(0)
            return super().reset(problem)

    tree = collect(Together(), Independent(3), key=(7,), env=Slow(2)).tree
    said = sorted(
        (tree.launch[node], tree.depth[node], *tree.generated(node)[0]) for node in tree.edges()
    )
    Slow.turn, waits = -1, [0, 0, 0]
    tree = collect(Together(), Independent(3), key=(7,), env=Slow(2)).tree
    assert said == sorted(
        (tree.launch[node], tree.depth[node], *tree.generated(node)[0]) for node in tree.edges()
    )


def test_who_asks_after_all_others_gave_up_is_answered():
    answers = ["mine", "yours"]
    began, ended = [], []

    async def ask(n):
        began.append(n)
        try:
            await asyncio.sleep(0 if len(began) > 1 else 3600)
        finally:
            ended.append(n)
        return answers

    async def main():
        opening = Opening([4, 9])
        first = asyncio.create_task(opening.take(4, ask))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert ended == [2], "the request is over when the last who waited has left"
        return await opening.take(9, ask)

    assert asyncio.run(main()) == "yours"


def test_a_deadline_calls_the_request_off():
    policy = Together(delay=lambda tokens: asyncio.sleep(3600))
    collection = collect(policy, Independent(3, max_failures=5), deadline=0.05)
    assert [failure.stage for failure in collection.failures] == ["deadline"] * 3


class Sharing(Together):
    takes_prefix = True

    async def generate(self, tokens, params, n=1):
        assert isinstance(tokens, Prefix)
        parts = [part.tolist() for _, part in tokens.chunks()]
        assert [token for part in parts for token in part] == list(tokens)
        made = [tokens.cache.setdefault(node, object()) for node, _ in tokens.chunks()]
        self.shared.append(made)
        self.caches.append(tokens.cache)
        return await super().generate(tokens, params, n)


def test_requests_of_a_tree_share_the_parts_of_their_prefixes():
    policy = Sharing()
    collect(policy, Selective(budget=8, warmup=6, max_concurrency=1))
    first = policy.shared[0][0]
    assert all(made[0] is first for made in policy.shared), "the prompt is made once"
    assert any(len(made) > 2 for made in policy.shared)
    assert all(cache is policy.caches[0] for cache in policy.caches)
    assert not policy.caches[0], "nothing is kept when the tree is grown"


def test_a_policy_is_asked_the_same_with_and_without_prefixes():
    plain, sharing = Together(), Sharing()
    search = Selective(budget=12, warmup=8, max_concurrency=2)
    trees = [collect(policy, search, key=(3,)).tree for policy in (plain, sharing)]
    assert plain.asked == sharing.asked
    assert [trees[0].prefix(n).tolist() for n in range(len(trees[0]))] == [
        trees[1].prefix(n).tolist() for n in range(len(trees[1]))
    ]


def test_a_prefix_reads_like_a_list():
    seen = []

    class Looks(Sharing):
        async def generate(self, tokens, params, n=1):
            seen.append((tokens, tokens.tolist()))
            return await super().generate(tokens, params, n)

    collect(Looks(), Independent(1))
    for prefix, tokens in seen:
        assert (len(prefix), list(prefix), prefix[0], prefix[-2:]) == (
            len(tokens),
            tokens,
            tokens[0],
            tokens[-2:],
        )
        assert prefix == tokens
        assert prefix != tokens[:-1]
        assert repr(prefix) == f"Prefix({tokens})"


@pytest.mark.parametrize("together", ["seeded", None])
def test_a_grown_tree_is_freed_with_its_collection(together):
    """Not when the collector of cycles comes by: batches of trees would pile up until then."""
    policy = Sharing()
    policy.samples_together = together
    gc.collect()
    gc.disable()
    try:
        collection = collect(policy, Independent(3))
        tree = weakref.ref(collection.tree)
        policy.shared.clear()
        del collection
        assert tree() is None
    finally:
        gc.enable()
