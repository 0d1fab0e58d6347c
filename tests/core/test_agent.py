"""Agents, environments and contexts, one transition at a time."""

import asyncio
import math

import numpy as np
import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    Env,
    Generation,
    GenerationError,
    Independent,
    Policy,
    PreparedPrompt,
    Problem,
    Reply,
    ReplyEnv,
    SamplingParams,
    Segments,
    Transition,
    Turns,
)
from focus_core.testing import CountdownEnv, RandomPolicy


def run(awaitable):
    return asyncio.run(awaitable)


# Saying -----------------------------------------------------------------------------------------


def test_a_segment_bounds_the_request_and_sampling_bounds_the_segment(scripted):
    policy = scripted([1], [1], [1])
    for segment, most, expected in ((256, 1024, 256), (256, 100, 100), (3, 100, 3)):
        agent = Agent(
            policy,
            CountdownEnv(),
            context=Segments(segment),
            sampling=SamplingParams(max_tokens=most, temperature=0.7, top_p=0.9, stop=[5]),
        )
        run(agent.say([1, 2], 11))
        params = policy.params[-1]
        assert params.max_tokens == expected
        assert (params.temperature, params.top_p, params.stop) == (0.7, 0.9, (5,))
        assert params.seed == 11


def test_the_context_length_leaves_room_or_refuses(scripted):
    policy = scripted([1], [1])
    policy.context_length = 10
    agent = Agent(policy, CountdownEnv(), context=Segments(4))
    assert [agent.room(n) for n in (0, 6, 7, 9, 10, 11)] == [4, 4, 3, 1, 0, 0]
    run(agent.say([1] * 9, None))
    assert policy.params[-1].max_tokens == 1
    for length in (10, 99):
        with pytest.raises(GenerationError, match=f"{length} tokens leave no room.*10"):
            run(agent.say([1] * length, None))
    assert len(policy.prompts) == 1, "nothing was asked"
    policy.context_length = None
    assert agent.room(10**6) == 4


def test_a_turn_is_one_transition(collect, scripted):
    policy = scripted([4, 4, 4, 4, 0], [6, 0])
    collection, only = rollout(policy, Conversation("8"), collect, context=Turns(5))
    assert [params.max_tokens for params in policy.params] == [5, 5]
    assert collection.counts["transitions"] == len(only.turns) == 2
    assert Turns().transition_tokens(SamplingParams(max_tokens=7)) == 7


def test_a_turn_longer_than_its_limit_goes_on_if_the_environment_lets_it(collect, scripted):
    policy = scripted([4, 4], [4, 0])
    _, only = rollout(policy, Conversation(), collect, context=Turns(2))
    assert policy.prompts == [[5, 3], [5, 3, 4, 4]]
    assert [turn.tokens for turn in only.turns] == [[4, 4, 4, 0]]


def answer(tokens=(1, 2), logprobs=(-0.5, -0.5), stop="length"):
    return Generation(tokens, logprobs, stop)


@pytest.mark.parametrize(
    ("generation", "match"),
    [
        (answer(logprobs=None), "no log probabilities"),
        (answer(logprobs=()), "2 tokens but 0 log probabilities"),
        (answer(logprobs=(-0.5,)), "2 tokens but 1 log probabilities"),
        (answer(logprobs=(-0.5, -0.5, -0.5)), "2 tokens but 3"),
        (answer(logprobs=(-0.5, math.nan)), "log probability 1 of 2 is nan"),
        (answer(logprobs=(-math.inf, -0.5)), "log probability 0 of 2 is -inf"),
        (answer(logprobs=(math.inf, -0.5)), "log probability 0 of 2 is inf"),
        (answer(logprobs=(-0.5, None)), "log probability 1 of 2 is None"),
        (answer(logprobs=(-0.5, 0.3)), "not above 0"),
        (answer(tokens=(1,) * 9, logprobs=(-0.5,) * 9), "9 tokens where at most 8"),
        (answer(stop="eos"), "stop_reason is 'eos'"),
        (answer(stop=None), "stop_reason is None"),
    ],
)
def test_an_answer_that_cannot_be_trained_on_is_refused(scripted, generation, match):
    agent = Agent(scripted(generation), CountdownEnv(), context=Segments(8))
    with pytest.raises(GenerationError, match=match):
        run(agent.say([1], None))


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_generations_is_refused(scripted, count):
    policy = scripted()

    async def generate(tokens, params, n=1):
        return [answer()] * count

    policy.generate = generate
    with pytest.raises(GenerationError, match=f"{count} generations"):
        run(Agent(policy, CountdownEnv()).say([1], None))


def test_a_log_probability_a_rounding_above_zero_passes(scripted):
    generation = answer(logprobs=(0.0, np.float32(1e-7)))
    spoken = run(Agent(scripted(generation), CountdownEnv()).say([1], None))
    assert spoken.logprobs.tolist() == [0.0, np.float32(1e-7)]


# Acting -----------------------------------------------------------------------------------------


class Answers:
    """Answers every reply alike."""

    def __init__(self, transition):
        self.transition = transition
        self.replies = []

    def reset(self, problem):
        return ()

    async def step(self, reply):
        self.replies.append(reply)
        return self.transition


def act(transition, scripted):
    env = Answers(transition)
    return env, run(Agent(scripted(), env).act(env, Generation([4, 0], [-0.5, -0.5], "stop")))


def test_the_environment_reads_ids_text_and_reason(scripted):
    env, transition = act(Transition(0.5, done=True), scripted)
    assert env.replies == [Reply((4, 0), "4 0", "stop")]
    assert transition == Transition(0.5, done=True)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, np.float64("nan")])
def test_a_reward_that_is_no_finite_number_is_refused(scripted, reward):
    with pytest.raises(ValueError, match=r"Answers\.step returned reward"):
        act(Transition(reward, done=True), scripted)


@pytest.mark.parametrize("reward", [None, "often", "1.0", "nan", b"1", [1.0]])
def test_a_reward_that_is_no_number_is_refused(scripted, reward):
    with pytest.raises((TypeError, ValueError)):
        act(Transition(reward, done=True), scripted)


def test_what_must_be_async_is_said_and_reset_may_be_either(scripted):
    class Mixed:
        async def reset(self, problem):
            return [{"role": "user", "content": problem.prompt}]

        def step(self, reply):
            return Transition()

    agent = Agent(scripted(), Mixed())
    assert run(agent.first_messages(agent.env, Problem("1"))) == ({"role": "user", "content": "1"},)
    with pytest.raises(TypeError, match=r"Mixed\.step is not async; write 'async def step'"):
        run(agent.act(agent.env, Generation([4], [-0.5], "length")))

    class Grader(ReplyEnv):
        def grade(self, text):
            return 1.0

    env = Grader(str, 1)
    env.reset(Problem("1"))
    with pytest.raises(TypeError, match=r"Grader\.grade is not async; write 'async def grade'"):
        run(env.step(Reply((4,), "4", "stop")))


@pytest.mark.parametrize("reward", [True, 1, 1.0, np.float32(1.0), np.int64(1)])
def test_rewards_become_floats(scripted, reward):
    _, transition = act(Transition(reward, done=True), scripted)
    assert transition.reward == 1.0
    assert isinstance(transition.reward, int | float)
    assert not isinstance(transition.reward, bool)


def test_contradictions_are_refused(scripted):
    with pytest.raises(ValueError, match="both done and truncated"):
        act(Transition(done=True, truncated=True), scripted)
    with pytest.raises(TypeError, match=r"step returned NoneType, not a focus_core\.Transition"):
        act(None, scripted)


# Turns ------------------------------------------------------------------------------------------


def test_the_system_prompt_comes_first(scripted):
    env = CountdownEnv()
    problem = Problem("7")
    user = {"role": "user", "content": "7"}
    assert run(Agent(scripted(), env).first_messages(env, problem)) == (user,)
    assert run(Agent(scripted(), env, system_prompt="6").first_messages(env, problem)) == (
        {"role": "system", "content": "6"},
        user,
    )


def test_there_is_one_system_message(scripted):
    """The agent's prompt comes before what the environment's own says; templates take one."""
    chat = [{"role": "system", "content": "7", "name": "x"}, {"role": "user", "content": "8"}]
    env = ReplyEnv(RandomPolicy().decode, max_tokens=10)
    assert run(Agent(scripted(), env, system_prompt="6").first_messages(env, Problem(chat))) == (
        {"role": "system", "content": "6\n\n7", "name": "x"},
        chat[1],
    )
    chat[0] = {"role": "system", "content": [{"type": "text", "text": "7"}]}
    assert run(Agent(scripted(), env, system_prompt="6").first_messages(env, Problem(chat))) == (
        {"role": "system", "content": "6"},
        *chat,
    )


@pytest.mark.parametrize("said", [[4, 5], [4, 5, 0]])
def test_the_stop_token_is_once_in_the_next_prompt(scripted, said):
    """Behaviour case t04: kept if sampled, added by the template if not, never twice."""
    agent = Agent(scripted(), CountdownEnv())
    chat, tokens = agent.next_prompt(
        ({"role": "user", "content": "7"},),
        said,
        Transition(messages=[{"role": "tool", "content": "8"}]),
    )
    assert chat == (
        {"role": "user", "content": "7"},
        {"role": "assistant", "content": "4 5"},
        {"role": "tool", "content": "8"},
    )
    assert tokens == [7, 3, 4, 5, 0, 8, 3]


class Conversation:
    """Asks one more thing whenever a turn ends; over after some turns."""

    def __init__(self, *questions):
        self.questions = questions
        self.asked = 0

    def reset(self, problem):
        self.asked = 0
        return ({"role": "user", "content": str(problem.prompt)},)

    async def step(self, reply):
        if reply.stop_reason == "length":
            return Transition()
        if self.asked == len(self.questions):
            return Transition(1.0, done=True)
        question = self.questions[self.asked]
        self.asked += 1
        return Transition(messages=[{"role": "tool", "content": question}])

    def snapshot(self):
        return self.asked

    def restore(self, state):
        self.asked = state


def rollout(policy, env, collect, **options):
    collector = Collector(
        Agent(policy, env, **options), critic=Critic.constant(0.5), search=Independent(1)
    )
    collection = collect(collector).prepare()
    (only,) = collection.rollouts()
    return collection, only


def test_a_turn_of_segments_goes_on_token_for_token_and_messages_start_another(collect, scripted):
    policy = scripted([4], [4, 0], [6], [6, 0])
    collection, only = rollout(policy, Conversation("8"), collect, context=Segments(2))
    assert policy.prompts == [
        [5, 3],
        [5, 3, 4],
        [5, 3, 4, 4, 0, 8, 3],
        [5, 3, 4, 4, 0, 8, 3, 6],
    ]
    assert only.messages[-1] == {"role": "tool", "content": "8"}
    assert [(turn.prefix, turn.tokens) for turn in only.turns] == [
        ([5, 3], [4, 4, 0]),
        ([5, 3, 4, 4, 0, 8, 3], [6, 6, 0]),
    ]
    assert only.turns[0].logprobs == [-0.5] * 3
    assert only.reward == 1.0
    assert only.done
    assert not any(collection.tree.fresh[1:])


def test_a_prompt_that_does_not_continue_starts_a_fresh_sequence(collect, scripted):
    """The template drops what came before the last message, as some drop old reasoning."""
    policy = scripted([4, 0], [6, 0])
    render = policy.prepare
    policy.prepare = lambda messages: render(messages[-1:])
    collection, only = rollout(policy, Conversation("8"), collect)
    assert policy.prompts == [[5, 3], [8, 3]]
    assert list(collection.tree.fresh) == [1, 1, 0]
    assert [(turn.prefix, turn.tokens) for turn in only.turns] == [
        ([5, 3], [4, 0]),
        ([8, 3], [6, 0]),
    ]
    assert only.tokens == [8, 3, 6, 0]


def test_a_prompt_that_cuts_what_was_sampled_is_fresh_too(collect, scripted):
    policy = scripted([4, 0], [6, 0])
    render = policy.prepare
    policy.prepare = lambda messages: PreparedPrompt(render(messages).tokens[:3])
    _, only = rollout(policy, Conversation("8"), collect)
    assert policy.prompts == [[5, 3], [5, 3, 4]]
    assert only.turns[1].prefix == [5, 3, 4]


def test_an_answer_that_renders_to_nothing_still_ends_the_turn(collect, scripted):
    """A completion-style policy joins contents; an empty message adds no token."""
    policy = scripted([4], [6], [9, 0])
    policy.prepare = lambda messages: PreparedPrompt(
        [int(word) for message in messages for word in message["content"].split()]
    )

    class Interrupting(Conversation):
        async def step(self, reply):
            return await super().step(Reply(reply.tokens, reply.text, "stop"))

    _, only = rollout(policy, Interrupting("", ""), collect)
    assert policy.prompts == [[5], [5, 4], [5, 4, 6]]
    assert [(turn.prefix, turn.tokens) for turn in only.turns] == [
        ([5], [4]),
        ([5, 4], [6]),
        ([5, 4, 6], [9, 0]),
    ]
    assert [message["content"] for message in only.messages] == ["5", "4", "", "6", ""]


def test_messages_with_the_last_transition_are_ignored(collect, scripted):
    class Farewell(CountdownEnv):
        async def step(self, reply):
            return Transition(1.0, done=True, messages=[{"role": "user", "content": "9"}])

    _, only = rollout(scripted([4, 0]), Farewell(), collect)
    assert only.tokens == [5, 3, 4, 0]


def test_a_character_cut_between_segments_is_graded_whole(collect):
    """Behaviour case t03: ids are kept and joined; segments are never decoded one by one."""
    text = "漢字"
    units = list(text.encode())

    class Bytes:
        version = 0

        def __init__(self):
            self.left = list(units)

        def prepare(self, messages):
            return PreparedPrompt([1])

        def decode(self, tokens):
            return bytes(tokens).decode(errors="replace")

        async def generate(self, tokens, params, n=1):
            said = [self.left.pop(0)]
            return [Generation(said, [-0.5], "length" if self.left else "stop")]

    class Exact(ReplyEnv):
        async def grade(self, said):
            return float(said == text)

    policy = Bytes()
    env = Exact(policy.decode, max_tokens=100)
    _, only = rollout(policy, env, collect, context=Segments(1))
    assert only.reward == 1.0
    assert only.turns[0].tokens == units


# Limits -----------------------------------------------------------------------------------------


def test_the_agents_limit_cuts_at_a_state_the_critic_values(collect, scripted):
    collection = collect(
        Collector(
            Agent(scripted([4], [4], [4]), CountdownEnv(9), max_transitions=3),
            critic=Critic.constant(0.25),
            search=Independent(1),
        )
    ).prepare()
    assert collection.counts["truncated"] == 1
    assert collection.counts["transitions"] == 3
    assert collection.rollouts() == []
    assert collection.tree.prediction[3] == 0.25
    assert collection.values.refined[3] == 0.25


@pytest.mark.parametrize(
    ("reply", "segment", "limit"),
    [(2048, 24, 64 * 86), (80, 16, 320), (80, 256, 80), (1, 1, 64), (300, 256, 300)],
)
def test_the_limit_follows_from_what_a_reply_may_have(scripted, reply, segment, limit):
    agent = Agent(scripted(), ReplyEnv(str, reply), context=Segments(segment))
    assert agent.transition_limit == limit
    agent.max_transitions = 5
    assert agent.transition_limit == 5


def test_without_a_limit_of_the_environment_sampling_says_how_long_a_reply_is(scripted):
    sampling = SamplingParams(max_tokens=100)
    agent = Agent(scripted(), CountdownEnv(), context=Segments(10), sampling=sampling)
    assert agent.transition_limit == 640
    agent.context = Turns(50)
    assert agent.transition_limit == 128


@pytest.mark.parametrize("said", [1, 3])
def test_no_limit_ends_a_reply_that_max_tokens_allows(collect, said):
    """Not even where the policy says less in a request than it was allowed."""

    class Terse(RandomPolicy):
        async def generate(self, tokens, params, n=1):
            return [Generation([4] * said, [-1.0] * said, "length")] * n

    class Long(ReplyEnv):
        async def grade(self, text):
            return 1.0

    policy = Terse()
    agent = Agent(policy, Long(policy.decode, 300), context=Segments(3))
    collector = Collector(agent, critic=Critic.constant(0.5), search=Independent(1))
    collection = collect(collector)
    assert collection.counts["truncated"] == 0
    assert collection.counts["transitions"] == 300 // said
    assert collection.returns == [1.0]


def test_a_full_context_cuts_as_well(collect, scripted):
    policy = scripted([4, 4], [4])
    policy.context_length = 5
    collection = collect(
        Collector(
            Agent(policy, CountdownEnv(9), context=Segments(2)),
            critic=Critic.constant(0.25),
            search=Independent(1),
        )
    ).prepare()
    assert [params.max_tokens for params in policy.params] == [2, 1]
    assert collection.counts["truncated"] == 1
    assert not collection.failures


def test_a_prompt_that_fills_the_context_is_a_failure(collect, scripted):
    policy = scripted()
    policy.context_length = 2
    collection = collect(
        Collector(Agent(policy, CountdownEnv()), critic=Critic.constant(0.5), search=Independent(1))
    )
    (failure,) = collection.failures
    assert failure.stage == "generation"
    assert "leave no room" in str(failure.error)


# Contracts --------------------------------------------------------------------------------------


def test_what_can_be_branched(scripted):
    class Bare:
        def reset(self, problem):
            return ()

        async def step(self, reply):
            return Transition(done=True)

    class OptsOut(CountdownEnv):
        forkable = False

    assert Agent(scripted(), CountdownEnv()).forkable
    assert not Agent(scripted(), Bare()).forkable
    assert not Agent(scripted(), OptsOut()).forkable
    assert isinstance(Bare(), Env)


def test_the_doubles_hold_their_protocols(scripted):
    assert isinstance(RandomPolicy(), Policy)
    assert isinstance(scripted(), Policy)
    assert isinstance(CountdownEnv(), Env)


def test_the_random_policy_is_exact():
    policy = RandomPolicy(4, end=0.4)
    params = SamplingParams(max_tokens=6, seed=3)
    (one,) = run(policy.generate([1], params))
    (same,) = run(policy.generate([9, 9], params))
    assert one == same
    for token, logprob in zip(one.tokens, one.logprobs, strict=True):
        assert math.exp(logprob) == pytest.approx(0.4 if token == 0 else 0.2)
    assert one.stop_reason == ("stop" if one.tokens[-1] == 0 else "length")


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_tokens", 0), ("temperature", -1.0), ("top_p", 0.0), ("top_p", 1.1), ("top_k", -1)],
)
def test_sampling_numbers_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        SamplingParams(**{name: value})
    with pytest.raises(ValueError, match="tokens"):
        Segments(0)
    with pytest.raises(ValueError, match="max_tokens"):
        Turns(0)
