"""Faults at every await of a collection: what is kept, what is said, and that no task is left."""

import asyncio
import math
import pickle
import traceback

import pytest

from focus_core import (
    Agent,
    CollectionError,
    Collector,
    Critic,
    CriticError,
    DeadlineError,
    Generation,
    GenerationError,
    GradingError,
    Independent,
    Problem,
    Segments,
    Selective,
    Transition,
    collect_records,
)
from focus_core.export import export_actor, export_critic
from focus_core.testing import CountdownEnv, RandomPolicy
from focus_core.tree.tree import ROOT, TERMINAL

NEVER = 3600


class Faulty:
    """Counts calls, and at the chosen ones raises, hangs or answers something else."""

    def __init__(self, faults):
        self.faults = faults
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        fault = self.faults.get(self.calls)
        if isinstance(fault, BaseException):
            raise fault
        if fault is not None:
            await asyncio.sleep(fault)


class Policy(RandomPolicy):
    def __init__(self, faults=None, **options):
        super().__init__(**{"end": 0.0, "seed": 1, **options})
        self.fault = Faulty(faults or {})

    async def generate(self, tokens, params, n=1):
        await self.fault()
        return await super().generate(tokens, params, n)


class Environment(CountdownEnv):
    fault = None

    async def step(self, reply):
        if self.fault is not None:
            await self.fault()
        return await super().step(reply)


def make(*, generation=None, step=None, prediction=None, steps=3, **options):
    """A collector with faults at the given calls of each kind."""
    env = Environment(steps)
    env.fault = Faulty(step or {})
    asked = Faulty(prediction or {})

    async def fn(text):
        await asked()
        return 0.5

    options.setdefault("search", Independent(3, max_concurrency=1))
    agent = Agent(Policy(generation), env, context=Segments(1))
    return Collector(agent, critic=Critic.from_fn(fn), **options)


def grow(collector, **options):
    """Collect, and hold that nothing this started still runs."""

    async def run():
        before = asyncio.all_tasks()
        async with collector:
            collection = await collector.collect(Problem("5", id="p"), **options)
            assert asyncio.all_tasks() == before, "tasks are left"
        return collection

    return asyncio.run(asyncio.wait_for(run(), 5))


def alive(collection):
    return [list(collection.tree.launch)[edge] for edge in collection.tree.edges()]


# One fault at each await ------------------------------------------------------------------------

# three rollouts of three steps, one at a time: calls 1-3, 4-6 and 7-9


@pytest.mark.parametrize(
    ("where", "stage"), [("generation", "generation"), ("step", "environment")]
)
@pytest.mark.parametrize("call", [1, 4, 5, 6, 9])
def test_a_failed_continuation_is_removed_whole_and_the_others_stay(where, stage, call):
    error = RuntimeError("broken")
    collection = grow(make(**{where: {call: error}}))
    (failure,) = collection.failures
    assert failure.error is error
    assert failure.stage == stage
    launch = (call - 1) // 3
    assert failure.launch == launch
    assert failure.state == {1: ROOT, 4: ROOT, 5: 4, 6: 5, 9: 8}[call], "the state acted from"
    assert set(alive(collection)) == {0, 1, 2} - {launch}
    assert len(collection.returns) == 2
    generated = 6 + (call - 1) % 3 + (where == "step")
    assert collection.counts["transitions"] == generated, "of failed continuations too"
    assert collection.counts["failed_continuations"] == 1
    assert collection.counts["continuations"] == 2


@pytest.mark.parametrize("call", [1, 2, 3, 5])
def test_a_failed_prediction_keeps_the_continuation_and_loses_the_state(call):
    error = RuntimeError("critic down")
    collection = grow(make(prediction={call: error}))
    (failure,) = collection.failures
    assert (failure.stage, failure.error) == ("prediction", error)
    assert math.isnan(collection.tree.prediction[failure.state])
    assert (failure.state == ROOT) == (call == 1)
    assert failure.launch == (-1 if call == 1 else collection.tree.launch[failure.state])
    assert len(collection.returns) == 3
    assert collection.counts["failed_predictions"] == 1
    assert collection.counts["failed_continuations"] == 0
    collection.prepare(allow_partial=True)
    lost = failure.state
    exported = {record.metadata["edge"] for record in export_actor(collection)}
    tree = collection.tree
    assert exported == {e for e in tree.edges() if lost not in (e, tree.parent[e])}
    contexts = {record.metadata["edge"] for record in export_critic(collection)}
    assert (None if lost == ROOT else lost) not in contexts
    left_out = len(list(tree.edges())) - len(exported)
    assert collection.counts["edges_without_value"] == left_out
    if lost != ROOT:
        (root, *_) = export_critic(collection)
        assert root.metadata["branches"] == 3 - (tree.parent[lost] == ROOT)


@pytest.mark.parametrize("bad", [math.nan, None, math.inf])
def test_a_prediction_that_is_no_number_is_a_failure_and_no_zero(bad):
    collector = make()
    answers = iter([0.5, bad])
    collector.critic = Critic.from_fn(lambda text: next(answers, 0.5))
    collection = grow(collector)
    (failure,) = collection.failures
    assert isinstance(failure.error, CriticError)
    assert math.isnan(collection.tree.prediction[failure.state])


def test_a_critic_cancelled_from_inside_is_a_failure_and_no_silence():
    """As a client does whose own scope was cancelled."""
    collection = grow(make(prediction={2: asyncio.CancelledError()}))
    (failure,) = collection.failures
    assert (failure.stage, type(failure.error)) == ("prediction", CriticError)
    assert isinstance(failure.error.__cause__, asyncio.CancelledError)


@pytest.mark.parametrize("where", ["generation", "step"])
def test_a_cancellation_from_inside_fails_only_its_continuation(where):
    collection = grow(make(**{where: {1: asyncio.CancelledError("lost connection")}}))
    (failure,) = collection.failures
    assert "lost connection" in str(failure)
    assert collection.counts["continuations"] == 2


def test_a_context_that_raises_is_a_prediction_failure():
    def context(rollout):
        if rollout.turns:
            raise KeyError("turns")
        return "root"

    collector = make(search=Independent(1))
    collector.critic = Critic.from_fn(lambda text: 0.5, context=context)
    collection = grow(collector)
    assert [failure.stage for failure in collection.failures] == ["prediction"] * 2


@pytest.mark.parametrize(
    "generation",
    [
        Generation([1], None, "length"),
        Generation([1], [], "length"),
        Generation([1], [math.nan], "length"),
        Generation([1], [-math.inf], "length"),
        Generation([1], [None], "length"),
    ],
)
def test_log_probabilities_missing_short_or_not_finite_fail_the_continuation(generation, scripted):
    agent = Agent(scripted([2], generation, [2, 0]), Environment(3), context=Segments(2))
    collection = grow(
        Collector(agent, critic=Critic.constant(0.5), search=Independent(2, max_concurrency=1))
    )
    (failure,) = collection.failures
    assert isinstance(failure.error, GenerationError)
    assert failure.stage == "generation"
    assert alive(collection) == [1]


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_fails_the_continuation(reward, scripted):
    class Bad(Environment):
        async def step(self, reply):
            return Transition(reward if reply.tokens[0] == 2 else 1.0, done=True)

    agent = Agent(scripted([2, 0], [4, 0]), Bad())
    collection = grow(
        Collector(agent, critic=Critic.constant(0.5), search=Independent(2, max_concurrency=1))
    )
    (failure,) = collection.failures
    assert failure.stage == "environment"
    assert "Bad.step returned reward" in str(failure.error)
    assert collection.returns == [1.0]


@pytest.mark.parametrize("method", ["snapshot", "restore"])
def test_snapshots_that_raise_fail_the_continuation(method):
    class Bad(Environment):
        def snapshot(self):
            if method == "snapshot" and self.left == 1:
                raise OSError("disk full")
            return super().snapshot()

        def restore(self, state):
            if method == "restore":
                raise OSError("disk full")
            super().restore(state)

    collector = make(search=Independent(2))
    collector.agent.env = Bad(3)
    collection = grow(collector)
    assert [(f.stage, str(f.error)) for f in collection.failures] == [
        ("environment", "disk full")
    ] * 2
    assert alive(collection) == []


def test_a_template_that_raises_on_an_answer_fails_the_continuation(scripted):
    class Asks(Environment):
        async def step(self, reply):
            return Transition(messages=[{"role": "user", "content": "not a number"}])

    agent = Agent(scripted([4, 0]), Asks())
    collection = grow(
        Collector(agent, critic=Critic.constant(0.5), search=Independent(1)),
    )
    (failure,) = collection.failures
    assert isinstance(failure.error, ValueError)
    assert alive(collection) == []


@pytest.mark.parametrize("method", ["reset", "prepare"])
def test_a_root_that_cannot_be_made_is_one_failure_and_says_so(method):
    collector = make()

    def broken(*arguments):
        raise ValueError("no such problem")

    owner = collector.agent.env if method == "reset" else collector.agent.policy
    setattr(owner, method, broken)
    collection = grow(collector)
    (failure,) = collection.failures
    assert (failure.stage, failure.state, failure.launch) == ("environment", ROOT, -1)
    assert collection.counts["transitions"] == 0
    assert collection.stopped
    with pytest.raises(CollectionError, match="no such problem"):
        collection.prepare()
    collection.prepare(allow_partial=True)
    assert export_actor(collection) == export_critic(collection) == []


# Deadlines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["generation", "step"])
def test_a_continuation_that_hangs_ends_at_its_deadline(where):
    collection = grow(make(**{where: {5: NEVER}}, deadline=0.05))
    (failure,) = collection.failures
    assert isinstance(failure.error, DeadlineError)
    assert isinstance(failure.error, TimeoutError)
    assert failure.stage == "deadline"
    assert failure.launch == 1
    assert "0.05 s" in str(failure.error)
    assert isinstance(failure.error.__cause__, TimeoutError)
    assert set(alive(collection)) == {0, 2}


def test_the_deadline_includes_predictions():
    collection = grow(make(prediction={2: NEVER}, deadline=0.05))
    (failure,) = collection.failures
    assert failure.stage == "deadline"
    assert set(alive(collection)) == {1, 2}


def test_a_root_prediction_that_hangs_ends_with_its_own_deadline():
    """It belongs to no continuation: they wait for it and land without it."""
    collection = grow(make(prediction={1: NEVER}, deadline=0.05))
    (failure,) = collection.failures
    assert failure.stage == "prediction"
    assert isinstance(failure.error, DeadlineError)
    assert collection.counts["continuations"] == 3
    assert math.isnan(collection.tree.prediction[ROOT])


def test_fail_fast_does_not_wait_for_the_root_prediction():
    collection = grow(make(prediction={1: NEVER}, generation={1: OSError("gone")}), fail_fast=True)
    assert [failure.stage for failure in collection.failures] == ["generation"]


def test_an_environments_own_timeout_is_not_the_deadline():
    collection = grow(make(step={2: TimeoutError("sandbox")}, deadline=10.0))
    (failure,) = collection.failures
    assert failure.stage == "environment"
    assert type(failure.error) is TimeoutError


# Limits -----------------------------------------------------------------------------------------


def test_max_failures_ends_the_collection():
    faults = {call: RuntimeError(str(call)) for call in range(1, 99)}
    collection = grow(make(generation=faults, search=Selective(max_concurrency=1)))
    assert [str(f.error) for f in collection.failures] == ["1", "2", "3"]
    assert collection.stopped == "stopped after 3 failures"
    again = make(generation=faults, search=Selective(max_concurrency=1, max_failures=1))
    assert len(grow(again).failures) == 1


def test_what_runs_when_too_much_failed_still_lands():
    faults = {call: RuntimeError("x") for call in (1, 2, 3)}
    collection = grow(
        make(generation=faults, search=Selective(budget=50, warmup=50, max_concurrency=5))
    )
    assert len(collection.failures) == 3
    assert collection.stopped == "stopped after 3 failures"
    assert collection.counts["continuations"] == len(collection.returns)


def test_predictions_count_as_failures():
    faults = {call: RuntimeError("x") for call in range(1, 99)}
    collection = grow(make(prediction=faults, search=Independent(9, max_concurrency=1)))
    assert collection.stopped == "stopped after 3 failures"
    assert collection.counts["continuations"] == 1


def test_fail_fast_stops_at_the_first_and_cancels_the_rest():
    collector = make(generation={1: NEVER, 2: NEVER, 3: OSError("x")}, search=Independent(3))
    collection = grow(collector, fail_fast=True)
    assert len(collection.failures) == 1
    assert collection.stopped == "stopped after 1 failures"
    assert alive(collection) == []
    assert collection.counts["continuations"] == 0


def test_a_failure_is_no_reward_of_zero():
    """GroupCentered over three rollouts, one of which the grader could not grade."""
    collection = grow(make(step={9: GradingError("down")}))
    assert len(collection.returns) == 2
    collection.prepare(allow_partial=True)
    assert collection.values.branches[ROOT] == 2


# What is said -----------------------------------------------------------------------------------


def test_without_allow_partial_the_first_failure_is_the_cause():
    first, second = OSError("first"), OSError("second")
    collection = grow(make(generation={1: first, 2: second}))
    with pytest.raises(CollectionError) as caught:
        collection.prepare()
    assert caught.value.__cause__ is first
    assert [failure.error for failure in caught.value.failures] == [first, second]
    assert str(caught.value) == ("problem 'p': 2 failed; generation at state 0: OSError: first")
    assert "OSError: first" in "".join(traceback.format_exception(caught.value))
    assert pickle.loads(pickle.dumps(caught.value)).failures[1].launch == 1


def test_collect_records_raises_at_the_first_failure_or_keeps_the_rest():
    error = GradingError("down")

    def records(**options):
        collector = make(step={4: error})
        calls.append(collector.agent.env.fault)
        return asyncio.run(collect_records(collector, Problem("5"), group_index=0, **options))

    calls = []
    with pytest.raises(CollectionError) as caught:
        records()
    assert caught.value.__cause__ is error
    assert calls[0].calls == 4, "nothing was collected for a tree that is thrown away"
    actor, critic = records(allow_partial=True)
    assert len(actor) == 6
    assert critic[0]["metadata"]["branches"] == 2


def test_a_failure_with_everything_failed_and_partial_allowed_is_empty():
    faults = {call: RuntimeError("x") for call in range(1, 99)}
    collection = grow(make(generation=faults)).prepare(allow_partial=True)
    assert export_actor(collection) == []
    assert export_critic(collection) == []


# Cancellation -----------------------------------------------------------------------------------


class Slow(Environment):
    """Takes its time to be cancelled, as a sandbox does."""

    ended = None

    async def step(self, reply):
        try:
            await asyncio.sleep(NEVER)
        finally:
            await asyncio.sleep(0.02)
            self.ended.append(reply)


@pytest.mark.parametrize("hang", ["generation", "step", "prediction", "root", "slow"])
def test_cancelling_the_collection_leaves_no_task(hang):
    everything = dict.fromkeys(range(2, 99), NEVER)
    faults = {"root": {"prediction": {1: NEVER}}, "slow": {}}.get(hang, {hang: everything})
    collector = make(**faults, search=Selective(max_concurrency=4))
    ended = []
    if hang == "slow":
        collector.agent.env = Slow(3)
        collector.agent.env.ended = ended

    async def run():
        before = asyncio.all_tasks()
        async with collector:
            task = asyncio.create_task(collector.collect(Problem("5")))
            await asyncio.sleep(0.03)
            assert len(asyncio.all_tasks()) > len(before) + 1, "it runs"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.all_tasks() == before
        if hang == "slow":
            assert len(ended) == 2, "both were awaited to their end"

    asyncio.run(asyncio.wait_for(run(), 5))


def test_a_critic_that_is_slow_to_be_cancelled_is_awaited():
    ended = []

    async def fn(text):
        try:
            await asyncio.sleep(NEVER if len(text.split()) > 3 else 0)
        finally:
            await asyncio.sleep(0.02)
            ended.append(text)
        return 0.5

    collector = make(generation={3: OSError("gone")}, search=Independent(1))
    collector.critic = Critic.from_fn(fn)
    collection = grow(collector)
    assert len(collection.failures) == 1
    assert len(ended) == 2, "the root's, and the one under way"


def test_a_search_that_breaks_is_no_failed_rollout():
    """The core's or a plug-in's mistake is raised, and what ran is cancelled and awaited."""

    class Broken:
        max_concurrency, max_failures = 3, 3
        stopped = ""

        def start(self, tree, *, kappa, calibration):
            return self

        def next(self):
            return ROOT

        def generated(self):
            pass

        def landed(self, source, chain, returns):
            raise ZeroDivisionError("search")

        def failed(self, source):
            pass

    async def run():
        before = asyncio.all_tasks()
        collector = make(search=Broken(), generation={1: NEVER})
        async with collector:
            with pytest.raises(ZeroDivisionError):
                await collector.collect(Problem("5"))
            assert asyncio.all_tasks() == before

    asyncio.run(asyncio.wait_for(run(), 5))


def test_partial_values_by_hand(scripted):
    """
    Three rollouts of one and two steps, kappa = 1, v = 0.5; the second fails at its second step,
    the third's only state has no prediction:

    root -- 1 (0.5) -- outcome 1 (tokens 2 0, all even)
         |- removed
         \\- 4 (none) -- outcome 1/2 (tokens 1 0)
    """
    policy = scripted([2], [0], [2], OSError("gone"), [1], [0])
    predictions = iter([0.5, 0.5, 0.5, None])

    async def fn(text):
        return next(predictions)

    collector = Collector(
        Agent(policy, CountdownEnv(3), context=Segments(1)),
        critic=Critic.from_fn(fn),
        search=Independent(3, max_concurrency=1, max_failures=9),
    )
    collection = grow(collector).prepare(allow_partial=True)
    assert [failure.stage for failure in collection.failures] == ["generation", "prediction"]
    tree, values = collection.tree, collection.values
    assert list(tree.alive) == [1, 1, 1, 0, 1, 1]
    assert [tree.kind[n] == TERMINAL for n in (2, 5)] == [True, True]
    # V~(1) = (0.5 + 1)/2 = 0.75; root: one branch, q = 0.75; V~ = (0.5 + 0.75)/2 = 0.625
    assert values.refined[[0, 1]].tolist() == pytest.approx([0.625, 0.75], abs=1e-12)
    assert [record.metadata["edge"] for record in export_actor(collection)] == [1, 2]
    assert [record.reward for record in export_actor(collection)] == pytest.approx(
        [0.125, 0.25], abs=1e-12
    )
    assert [(r.target, r.metadata["branches"]) for r in export_critic(collection)] == [
        (0.75, 1),
        (1.0, 1),
    ]
    assert collection.counts["failed_continuations"] == 1
    assert collection.counts["failed_predictions"] == 1
    assert collection.counts["edges_without_value"] == 2
    assert collection.counts["transitions"] == 5
