"""What policies, environments and searches may get wrong, and that no record shows it."""

import math
import re
import sys

import attrs
import numpy as np
import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    Folding,
    Generation,
    GenerationError,
    Independent,
    PluginError,
    PreparedPrompt,
    Segments,
    Transition,
)
from focus_core.lanes import export_actor, export_merged
from focus_core.testing import CountdownEnv
from tests.core.growth_kit import Policy, grow, make

# Token ids --------------------------------------------------------------------------------------

NO_TOKENS = [2**31, -1, 1.7, math.nan, "5", None, [5], 2**70]


@pytest.mark.parametrize("token", NO_TOKENS)
def test_a_token_that_is_none_fails_its_continuation_and_moves_no_other(token):
    """Every other edge keeps the tokens and log probabilities that were sampled."""

    class Broken(Policy):
        def __init__(self):
            super().__init__()
            self.said = []

        async def generate(self, tokens, params, n=1):
            (sampled,) = await super().generate(tokens, params, n)
            own = [-1.0 - len(self.said)]
            self.said.append((list(tokens), list(sampled.tokens), own))
            if len(self.said) == 5:
                return [Generation([token], own, "length")]
            return [attrs.evolve(sampled, logprobs=own)]

    policy = Broken()
    collector = make()
    collector.agent.policy = policy
    collection = grow(collector)
    (failure,) = collection.failures
    assert isinstance(failure.error, GenerationError)
    assert "token ids are integers from 0 to 2**31 - 1" in str(failure.error)
    assert failure.stage == "generation"
    collection.prepare(allow_partial=True)
    for export in (export_actor, export_merged):
        spans = [
            (
                record.tokens[: span.start].tolist(),
                record.tokens[span.start : span.stop].tolist(),
                record.logprobs[span.start : span.stop].tolist(),
            )
            for record in export(collection)
            for span in record.spans
        ]
        assert sorted(spans) == sorted(policy.said[:3] + policy.said[5:])


@pytest.mark.parametrize("token", NO_TOKENS)
@pytest.mark.parametrize("at", [1, 2])
def test_a_prompt_that_holds_no_tokens_is_a_failure(collect, scripted, token, at):
    class Template(scripted):
        prompts_made = 0

        def prepare(self, messages):
            self.prompts_made += 1
            return PreparedPrompt([token]) if self.prompts_made == at else super().prepare(messages)

    class Chat(CountdownEnv):
        async def step(self, reply):
            return Transition(messages=[{"role": "user", "content": "5"}])

    agent = Agent(Template([4, 0], [4, 0]), Chat(), max_transitions=2)
    collection = collect(Collector(agent, critic=Critic.constant(0.5), search=Independent(1)))
    (failure,) = collection.failures
    assert isinstance(failure.error, GenerationError)
    assert "Template.prepare gave" in str(failure.error)


def test_integers_of_other_libraries_are_token_ids(collect, scripted):
    policy = scripted(Generation(np.array([4, 0]), np.array([-0.5, -0.25]), "stop"))
    collection = collect(
        Collector(
            Agent(policy, CountdownEnv(1)), critic=Critic.constant(0.5), search=Independent(1)
        )
    )
    assert not collection.failures
    assert collection.tree.generated(1)[0].tolist() == [4, 0]


def test_a_log_probability_beyond_float32_is_refused(collect, scripted):
    policy = scripted(Generation([4], [-1e39], "stop"))
    collection = collect(
        Collector(
            Agent(policy, CountdownEnv(1)), critic=Critic.constant(0.5), search=Independent(1)
        )
    )
    assert "-1e+39" in str(collection.failures[0])


def test_a_policy_that_changes_its_argument_changes_no_prompt(collect, scripted):
    class Greedy(scripted):
        async def generate(self, tokens, params, n=1):
            (said,) = await super().generate(tokens, params, n)
            tokens += said.tokens  # in place
            return [said]

    policy = Greedy([4], [5], [6])
    agent = Agent(policy, CountdownEnv(3), context=Segments(1))
    collection = collect(Collector(agent, critic=Critic.constant(0.5), search=Independent(1)))
    assert policy.prompts == [[5, 3], [5, 3, 4], [5, 3, 4, 5]]
    assert collection.tree.prefix(3).tolist() == [5, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "Answers.generate returned NoneType, not a list of Generations"),
        (Generation([4], [-0.5], "stop"), "returned Generation, not a list of Generations"),
        ([], "returned 0 generations for n=1"),
        ([None], "returned NoneType without tokens, not a Generation"),
        ([{"tokens": [4]}], "returned dict without tokens"),
        ([Generation(None, [-0.5], "stop")], "returned Generation without tokens"),
        ([Generation([4], None, "stop")], "no log probabilities"),
    ],
)
def test_what_is_no_generation_is_said(collect, scripted, answer, said):
    class Answers(scripted):
        async def generate(self, tokens, params, n=1):
            return answer

    agent = Agent(Answers(), CountdownEnv(1))
    collection = collect(Collector(agent, critic=Critic.constant(0.5), search=Independent(1)))
    (failure,) = collection.failures
    assert isinstance(failure.error, GenerationError)
    assert said in str(failure)


def test_an_end_without_a_token_is_one(collect, scripted):
    policy = scripted(Generation([], [], "stop"))
    env = CountdownEnv(1)
    env.step = no_reward
    collection = collect(
        Collector(Agent(policy, env), critic=Critic.constant(0.5), search=Independent(1))
    )
    assert collection.returns == [0.0]
    assert export_actor(collection.prepare()) == [], "nothing was said, and nothing is trained"


async def no_reward(reply):
    return Transition(done=True)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("generate", "Policy.generate is not async; write 'async def generate'"),
        ("prepare", "Policy.prepare is async; make it a plain function"),
    ],
)
def test_a_policys_methods_are_as_the_protocol_says(collect, scripted, method, said):
    async def prepare(self, messages):
        raise AssertionError("never run")

    def generate(self, tokens, params, n=1):
        return []

    methods = {"generate": generate, "prepare": prepare}
    policy = type("Policy", (scripted,), {method: methods[method]})()
    agent = Agent(policy, CountdownEnv(1))
    collection = collect(Collector(agent, critic=Critic.constant(0.5), search=Independent(1)))
    assert said in str(collection.failures[0])


@pytest.mark.parametrize("prompt", [None, [1, 2], PreparedPrompt(None)])
def test_what_is_no_prompt_is_said(collect, scripted, prompt):
    policy = type("Policy", (scripted,), {"prepare": lambda self, messages: prompt})([4, 0])
    agent = Agent(policy, CountdownEnv(1))
    collection = collect(Collector(agent, critic=Critic.constant(0.5), search=Independent(1)))
    assert "not a PreparedPrompt with tokens" in str(collection.failures[0])


# Environments and critics -----------------------------------------------------------------------


def collect_one(collect, scripted, env, **options):
    options.setdefault("critic", Critic.constant(0.5))
    agent = Agent(scripted([4], [0], [4], [0]), env, context=Segments(1))
    return collect(Collector(agent, search=Independent(1), **options))


@pytest.mark.parametrize("method", ["reset", "snapshot", "restore", "step"])
def test_a_library_that_exits_fails_its_continuation_and_not_the_program(collect, scripted, method):
    """``sys.exit(0)`` in a grader would end the training, as if it had gone well."""
    env = type("Exits", (CountdownEnv,), {method: lambda self, *_: sys.exit(0)})(2)
    (failure,) = collect_one(collect, scripted, env).failures
    assert isinstance(failure.error, RuntimeError)
    assert "SystemExit(0)" in str(failure.error)
    assert isinstance(failure.error.__cause__, SystemExit)


def test_a_critic_that_exits_fails_its_prediction(collect, scripted):
    async def fn(text):
        sys.exit(0)

    collection = collect_one(collect, scripted, CountdownEnv(2), critic=Critic.from_fn(fn))
    assert {failure.stage for failure in collection.failures} == {"prediction"}
    assert "SystemExit(0)" in str(collection.failures[0])


def test_a_critics_context_that_exits_fails_its_prediction(collect, scripted):
    critic = Critic.from_fn(lambda text: 0.5, context=lambda rollout: sys.exit(0))
    collection = collect_one(collect, scripted, CountdownEnv(2), critic=critic)
    assert {failure.stage for failure in collection.failures} == {"prediction"}
    assert "SystemExit(0)" in str(collection.failures[0])


async def wrong(self, *args):
    raise AssertionError("never run")


@pytest.mark.parametrize("method", ["snapshot", "restore"])
def test_async_where_nobody_waits_is_said(collect, scripted, method):
    """A ``restore`` that never ran would let a branch go on from somewhere else."""
    env = type("Async", (CountdownEnv,), {method: wrong})(2)
    (failure,) = collect_one(collect, scripted, env).failures
    assert f"Async.{method} is async; make it a plain function" in str(failure)


def test_an_async_folded_is_said(collect, scripted):
    class Async(CountdownEnv):
        folded = wrong

        async def step(self, reply):
            return Transition(messages=[{"role": "user", "content": "5"}])

    folding = Folding(max_turns=1, summarize=lambda chat: "7", resume="8")
    agent = Agent(scripted([0], [0]), Async(), context=folding, max_transitions=2)
    collection = collect(Collector(agent, critic=Critic.constant(0.5), search=Independent(1)))
    assert "Async.folded is async; make it a plain function" in str(collection.failures[0])


@pytest.mark.parametrize("messages", ["hello", b"hello", {"role": "user", "content": "5"}])
@pytest.mark.parametrize("method", ["reset", "step"])
def test_messages_that_would_be_taken_apart_are_refused(collect, scripted, method, messages):
    class Odd(CountdownEnv):
        def reset(self, problem):
            return messages if method == "reset" else super().reset(problem)

        async def step(self, reply):
            return Transition(messages=messages)

    (failure,) = collect_one(collect, scripted, Odd()).failures
    assert f"Odd.{method} gave the messages {messages!r}; they are a list" in str(failure)


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", None, 10**400])
def test_a_metric_that_is_no_number_is_refused(collect, scripted, value):
    class Measured(CountdownEnv):
        async def step(self, reply):
            return Transition(1.0, done=True, metrics={"speed": value})

    (failure,) = collect_one(collect, scripted, Measured()).failures
    assert "Measured.step returned the metric 'speed' as " in str(failure)


# Searches ---------------------------------------------------------------------------------------


@attrs.frozen
class Wild:
    """Launches from the states it is given, in order."""

    states: tuple
    max_concurrency: int = 1
    max_failures: int = 9
    stopped = "done"

    def start(self, tree, *, kappa, calibration):
        left = list(self.states)
        frontier = attrs.make_class("Frontier", [])()
        frontier.stopped = "done"
        frontier.next = lambda: left.pop(0) if left else None
        frontier.generated = lambda: None
        frontier.landed = lambda *_: None
        frontier.failed = lambda source: None
        return frontier


@pytest.mark.parametrize("state", [3, 99, -1, 1.0, "0"])
def test_a_search_that_launches_from_no_branching_point_is_named(state):
    """State 3 is terminal: its environment would begin again, behind a finished reply."""
    said = re.escape(f"Wild launched from {state!r}, which is no unfinished state")
    with pytest.raises(PluginError, match=said):
        grow(make(search=Wild((0, state, 1))))
    assert not grow(make(search=Wild((0, 2, 1)))).failures
