"""Faults at every await of a collection: what is kept, and what is said."""

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
    Generation,
    GenerationError,
    GradingError,
    Independent,
    Problem,
    Segments,
    Transition,
    collect_records,
)
from focus_core.lanes import export_actor, export_critic
from focus_core.tree.tree import ROOT
from tests.core.growth_kit import Environment, alive, grow, make

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
