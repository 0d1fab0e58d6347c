"""Collecting one problem, end to end, with the real search, tree, recipe and export."""

import asyncio
import json

import attrs
import numpy as np
import pytest

from focus_core import (
    ActorRecord,
    Agent,
    BestFirst,
    Collector,
    Critic,
    CriticRecord,
    Fifo,
    GroupCentered,
    Independent,
    PluginError,
    Problem,
    SamplingParams,
    Segments,
    Selective,
    TokenEntropy,
    Transition,
    UsageError,
    Workspace,
    collect_records,
)
from focus_core.collect import summarize
from focus_core.lanes import export_actor, export_critic
from focus_core.recipes import Credit
from focus_core.testing import CountdownEnv, RandomPolicy
from focus_core.tree.tree import OPEN, ROOT, TERMINAL


def collector(policy=None, env=None, **options):
    options.setdefault("critic", Critic.constant(0.5))
    options.setdefault("search", Selective(budget=12, warmup=8, max_concurrency=1))
    agent = Agent(policy or RandomPolicy(end=0.1), env or CountdownEnv(4), context=Segments(2))
    return Collector(agent, **options)


def shape(collection):
    tree = collection.tree
    return (
        list(tree.parent),
        list(tree.reward),
        [tree.prefix(node).tolist() for node in range(len(tree))],
        [tree.generated(node)[1].tolist() for node in range(len(tree))],
    )


SEARCHES = (Selective, Fifo, BestFirst, TokenEntropy)

# Reproducibility --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SEARCHES)
def test_one_at_a_time_and_with_a_key_a_tree_is_reproducible(collect, kind):
    """Whatever the policy drew before, and whatever its own seed."""
    first, second = RandomPolicy(seed=1), RandomPolicy(seed=2)
    asyncio.run(second.generate([1], SamplingParams()))
    search = kind(budget=16, max_concurrency=1)
    one = collect(collector(first, search=search), key=(7, 0, 3))
    two = collect(collector(second, search=search), key=(7, 0, 3))
    assert shape(one) == shape(two)
    assert one.counts == two.counts
    assert one.stopped == two.stopped


def test_each_part_of_the_key_matters_and_so_do_launch_and_transition(collect):
    shapes = [
        json.dumps(shape(collect(collector(RandomPolicy(seed=1)), key=key)))
        for key in ((7, 0, 3), (8, 0, 3), (7, 1, 3), (7, 0, 4), (70, 3), (7, 3, 0))
    ]
    assert len(set(shapes)) == len(shapes)
    seeds = []

    class Spy(RandomPolicy):
        async def generate(self, tokens, params, n=1):
            seeds.append(params.seed)
            return await super().generate(tokens, params, n)

    collect(collector(Spy()), key=(7, 0, 3))
    assert len(seeds) >= 20
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_without_a_key_the_policy_draws_freely(collect):
    seeds = []

    class Spy(RandomPolicy):
        async def generate(self, tokens, params, n=1):
            seeds.append(params.seed)
            return await super().generate(tokens, params, n)

    collect(collector(Spy()))
    assert set(seeds) == {None}


def test_a_seed_in_the_sampling_parameters_keys_the_tree(collect):
    def seeded(policy):
        made = collector(policy)
        made.agent.sampling = SamplingParams(seed=5)
        return made

    one = collect(seeded(RandomPolicy(seed=1)))
    two = collect(seeded(RandomPolicy(seed=2)))
    assert shape(one) == shape(two)
    assert len({tuple(p) for p in shape(one)[2]}) > 2, "one seed is not one continuation"


# Budgets and counts -----------------------------------------------------------------------------


@pytest.mark.parametrize("flight", [1, 3, 8])
def test_every_generated_transition_counts_against_the_budgets(collect, flight):
    steps = 4
    search = Selective(budget=20, warmup=10, max_concurrency=flight)
    collection = collect(collector(env=CountdownEnv(steps), search=search))
    tree, counts = collection.tree, collection.counts
    assert counts["transitions"] == len(tree) - 1
    assert counts["tokens"] == sum(len(tree.generated(n)[0]) for n in tree.edges())
    assert counts["continuations"] == len(collection.returns) == len(set(tree.launch)) - 1
    assert 30 <= counts["transitions"] <= 30 + 2 * (flight * steps - 1)
    assert collection.stopped == "the budget of 20 transitions is used"
    assert counts["truncated"] == counts["failed_continuations"] == 0


@pytest.mark.parametrize("flight", [1, 3, 8])
@pytest.mark.parametrize("kind", SEARCHES[1:])
def test_a_search_of_one_phase_uses_its_budget_and_what_was_in_flight(collect, kind, flight):
    steps = 4
    search = kind(budget=20, max_concurrency=flight)
    collection = collect(collector(RandomPolicy(end=0.0), CountdownEnv(steps), search=search))
    assert collection.stopped == "the budget of 20 transitions is used"
    assert 20 <= collection.counts["transitions"] <= 20 + flight * steps - 1
    width = [len(below) for below in collection.tree.children()]
    assert max(width) == 2


def test_warm_up_makes_every_state_binary_before_refinement(collect):
    """Enough warm-up for a full binary tree of three steps: 7 unfinished states, 14 transitions."""
    policy = RandomPolicy(end=0.0)
    search = Selective(budget=0, warmup=1000, max_concurrency=1)
    collection = collect(collector(policy, CountdownEnv(3), search=search))
    tree = collection.tree
    children = tree.children()
    assert [len(children[n]) for n in range(len(tree)) if tree.kind[n] == OPEN] == [2] * 7
    assert collection.counts["transitions"] == 14


def test_refinement_without_a_critic_is_skipped_and_says_so(collect):
    policy = RandomPolicy(end=0.0)
    made = collector(
        policy,
        NoBranches(),
        critic=None,
        recipe=GroupCentered(),
        search=Selective(budget=9, warmup=4, max_concurrency=1),
    )
    collection = collect(made).prepare()
    assert "refinement skipped" in collection.stopped
    assert export_critic(collection) == []


def test_rewards_metrics_and_rollouts(collect, scripted):
    class Measured(CountdownEnv):
        async def step(self, reply):
            transition = await super().step(reply)
            metrics = {"length": len(reply.tokens)} if not transition.done else {"end": 1}
            return attrs.evolve(transition, metrics=metrics)

    collection = collect(
        collector(
            scripted([2, 2], [1], [4, 0], [3], [1, 0]),
            Measured(4),
            search=Independent(2, max_concurrency=1),
        )
    )
    # 2 2 1 4 0 is four fifths even; 3 1 0 a third
    assert collection.returns == pytest.approx([0.8, 1 / 3])
    assert [r.tokens[2:] for r in collection.rollouts()] == [[2, 2, 1, 4, 0], [3, 1, 0]]
    assert summarize([collection], [])["env/length"] == pytest.approx(4 / 3)
    assert summarize([collection], [])["env/end"] == 1.0
    assert collection.counts["tokens"] == 8


def test_the_search_is_told_discounted_suffix_returns(collect, scripted):
    """Rewards 1, 2, 4 at gamma = 0.5: 4, then 2 + 2 = 4, then 1 + 2 = 3."""
    told = []

    class Told:
        max_concurrency = max_failures = 1
        stopped = "once"

        def start(self, tree, *, kappa, calibration):
            return self

        def next(self):
            return None if told else ROOT

        def generated(self):
            pass

        def landed(self, source, chain, returns):
            told.append((source, list(chain), returns))

    class Pays(CountdownEnv):
        async def step(self, reply):
            return Transition({2: 1.0, 4: 2.0, 6: 4.0}[reply.tokens[0]], done=reply.tokens[0] == 6)

    def policy():
        return scripted([2], [4], [6])

    collect(collector(policy(), Pays(), search=Told(), gamma=0.5))
    assert told == [(ROOT, [1, 2, 3], [3.0, 4.0, 4.0, 0.0])]
    told.clear()
    made = collector(policy(), Pays(), search=Told())
    made.agent.max_transitions = 2
    collect(made)
    assert told == [(ROOT, [1, 2], None)], "a truncated continuation has no return"


# An environment that cannot be branched ---------------------------------------------------------


class NoBranches:
    """Two replies; the reward is the share of even tokens. No snapshot, no restore."""

    def __init__(self):
        self.said = ()

    def reset(self, problem):
        self.said = ()
        return ({"role": "user", "content": str(problem.prompt)},)

    async def step(self, reply):
        self.said = (*self.said, *reply.tokens)
        await asyncio.sleep(0)
        even = sum(token % 2 == 0 for token in self.said) / len(self.said)
        return Transition(even if len(self.said) > 2 else 0.0, done=len(self.said) > 2)


def test_an_environment_without_snapshots_is_collected_unbranched(collect):
    search = Selective(budget=10, warmup=6, max_concurrency=3)
    collection = collect(collector(RandomPolicy(end=0.0), NoBranches(), search=search)).prepare()
    assert not collection.failures
    tree = collection.tree
    below = tree.children()
    assert all(len(below[node]) <= 1 for node in range(1, len(tree)))
    assert len(below[ROOT]) == collection.counts["continuations"] > 2
    assert export_actor(collection)


def test_opting_out_of_branches(collect):
    class OptsOut(CountdownEnv):
        forkable = False

        def snapshot(self):
            raise AssertionError("not asked for")

    search = Selective(budget=6, warmup=6, max_concurrency=1)
    collection = collect(collector(env=OptsOut(3), search=search))
    assert not collection.failures
    assert all(len(below) <= 1 for below in collection.tree.children()[1:])


def test_a_reset_that_differs_is_a_failure_where_it_matters(collect):
    class Restless(NoBranches):
        resets = iter(range(100))

        def reset(self, problem):
            self.said = ()
            return ({"role": "user", "content": str(next(self.resets))},)

    collection = collect(collector(RandomPolicy(end=0.0), Restless()))
    assert len(collection.failures) == 3
    failure = collection.failures[0]
    assert failure.stage == "environment"
    assert "Restless.reset gave other messages the second time" in str(failure.error)
    assert "snapshot() and restore()" in str(failure.error)


# Once -------------------------------------------------------------------------------------------


def test_a_collector_is_used_once():
    async def run():
        made = collector()
        with pytest.raises(RuntimeError, match="inside 'async with"):
            await made.collect(Problem("5"))
        async with made:
            await made.collect(Problem("5"))
            with pytest.raises(RuntimeError, match="collects once"):
                await made.collect(Problem("5"))
        with pytest.raises(RuntimeError, match="make another one"):
            await made.collect(Problem("5"))
        with pytest.raises(RuntimeError, match="used once"):
            async with made:
                pass
        with pytest.raises(RuntimeError, match="used once"):
            await collect_records(made, Problem("5"), group_index=0)

    asyncio.run(run())


def test_the_command_line_overrides_with_evolve_before_it_is_entered(collect):
    made = collector()
    other = attrs.evolve(made, search=Independent(2), gamma=0.5)
    assert len(collect(other).returns) == 2
    assert collect(made).stopped.startswith("the budget of 12")
    again = attrs.evolve(made)
    assert collect(again).counts["continuations"] > 0, "a copy is fresh"


def test_policies_and_critics_stay_open(collect):
    policy = RandomPolicy()
    collect(collector(policy))
    assert not policy.closed


def test_the_environment_given_is_never_acted_on(collect):
    env = CountdownEnv(4)
    before = dict(vars(env))
    collect(collector(env=env))
    assert vars(env) == before


def test_snapshots_are_dropped_when_the_tree_is_grown(collect):
    collection = collect(collector(), workspace=Workspace())
    assert set(collection.tree.snapshot) == {None}
    assert set(collection.tree.workspace) == {None}


# Preparing --------------------------------------------------------------------------------------


def test_preparing_twice_says_the_same(collect):
    """Such as once for a table and once more with a threshold."""

    async def fn(text):
        if len(text.split()) == 5:
            raise RuntimeError("no")
        return 0.5

    search = Selective(budget=0, warmup=4, max_concurrency=1, max_failures=99)
    collection = collect(collector(critic=Critic.from_fn(fn), search=search), key=(1,))
    collection.prepare(allow_partial=True)
    first = dict(collection.counts)
    assert first["edges_without_value"] > 0
    collection.prepare(allow_partial=True, min_abs_advantage=0.1)
    assert dict(collection.counts) == first


# collect_records --------------------------------------------------------------------------------


def records(made, problem, **options):
    return asyncio.run(collect_records(made, problem, **options))


def test_collect_records_gives_both_lanes_in_plain_form():
    actor, critic = records(collector(), Problem("5", id="p"), group_index=4)
    assert len(actor) >= 20
    json.dumps([actor, critic], allow_nan=False)
    for plain in actor:
        record = ActorRecord.from_dict(plain)
        assert record.to_dict() == plain
        assert record.metadata["group_index"] == 4
        assert record.metadata["problem"] == "p"
        assert set(record.metadata) == {"group_index", "edge", "parent", "problem"}
        assert plain["reward"] is not None
    for plain in critic:
        record = CriticRecord.from_dict(plain)
        assert record.metadata["branches"] >= 1
        assert 0.0 <= record.target <= 1.0
    assert critic[0]["metadata"]["parent"] is None
    assert len({record["metadata"]["edge"] for record in actor}) == len(actor)


def test_collect_records_drops_small_advantages_and_keeps_targets():
    class Keyed(RandomPolicy):
        """The same draws again, whatever asks."""

    everything = records(collector(Keyed(seed=3)), Problem("5"), group_index=0)
    some = records(collector(Keyed(seed=3)), Problem("5"), group_index=0, min_abs_advantage=0.1)
    assert some[1] == everything[1]
    assert some[0] == [r for r in everything[0] if abs(r["reward"]) >= 0.1]
    assert 0 < len(some[0]) < len(everything[0])


def test_each_problem_gets_its_workspace():
    seen = []

    class Reads(CountdownEnv):
        workspace = None

        async def step(self, reply):
            seen.append(self.workspace.read("name"))
            return await super().step(reply)

    records(
        collector(env=Reads(2)),
        Problem("5", id="p"),
        group_index=0,
        workspace_for=lambda problem: Workspace({"name": problem.id.encode()}),
    )
    assert set(seen) == {b"p"}


def test_values_and_tree_agree_with_the_records(collect):
    collection = collect(collector(), key=(2,)).prepare()
    tree, values = collection.tree, collection.values
    by_edge = {r.metadata["edge"]: r for r in export_actor(collection)}
    for edge in tree.edges():
        child = 0.0 if tree.kind[edge] == TERMINAL else values.refined[edge]
        expected = tree.reward[edge] + child - values.refined[tree.parent[edge]]
        assert by_edge[edge].reward == pytest.approx(expected, abs=1e-12)
    for record in export_critic(collection):
        node = record.metadata["edge"] or ROOT
        below = [
            tree.reward[c] + (0.0 if tree.kind[c] == TERMINAL else values.refined[c])
            for c in tree.children()[node]
        ]
        assert record.target == pytest.approx(np.mean(below), abs=1e-12)
        assert record.metadata["branches"] == len(below)


@pytest.mark.parametrize("critic", [len, 0.5, "text"])
def test_a_critic_that_is_none_is_refused_when_the_collector_is_made(critic):
    with pytest.raises(UsageError, match=r"wrap a function in Critic\.from_fn"):
        collector(critic=critic)


# Recipes and numbers that are none ----------------------------------------------------------------


@attrs.frozen
class Odd:
    """A recipe that answers what it is given to answer."""

    answer: object
    needs_critic = False

    def credit(self, tree, values, *, gamma):
        return self.answer(len(tree)) if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "Odd.credit returned NoneType, not a Credit"),
        (lambda size: np.zeros(size), "returned ndarray, not a Credit"),
        (lambda size: Credit(np.zeros(size - 1)), "for . nodes; it is one for each node"),
        (lambda size: Credit(np.zeros(size + 1)), "for . nodes; it is one for each node"),
        (lambda size: Credit(np.zeros((size, 1))), "one for each node"),
        (lambda size: Credit(["x"] * size), "no array"),
        (lambda size: Credit(np.zeros(size), values=np.zeros(2)), "returned values of shape"),
        (lambda size: Credit(np.zeros(size), {"tokens": 1}), "'tokens' as 1; it is the collec"),
        (lambda size: Credit(np.zeros(size), {"lost": None}), "'lost' as None; it must be an int"),
        (lambda size: Credit(np.full(size, np.inf)), "returned inf in advantages for node 0"),
    ],
)
def test_a_recipe_that_gives_no_credit_of_the_tree_is_named(collect, answer, said):
    """A credit of another length would put advantages on other edges than their own."""
    collection = collect(collector(search=Independent(2), recipe=Odd(answer)))
    with pytest.raises(PluginError, match=said):
        collection.prepare()


def test_a_recipes_numbers_may_be_a_list(collect):
    collection = collect(
        collector(search=Independent(2), recipe=Odd(lambda size: Credit([0.5] * size)))
    )
    records = export_actor(collection.prepare())
    assert {record.reward for record in records} == {0.5}


@pytest.mark.parametrize("kappa", [0.0, -1.0, float("inf"), float("nan")])
def test_kappa_is_finite_and_positive(kappa):
    """An infinite one left every state without a value, and every edge out."""
    with pytest.raises(ValueError, match="kappa"):
        collector(kappa=kappa)


@pytest.mark.parametrize("least", [-0.1, float("nan"), float("inf")])
def test_a_least_advantage_that_drops_everything_in_silence_is_refused(collect, least):
    collection = collect(collector(search=Independent(2)))
    with pytest.raises(ValueError, match=r"min_abs_advantage is .*; it must be 0 or more"):
        collection.prepare(min_abs_advantage=least)
