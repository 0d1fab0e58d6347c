"""The environment of one reply: segments, limits, branches and grades."""

import asyncio

import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    GradingError,
    Independent,
    Problem,
    Reply,
    ReplyEnv,
    Transition,
)
from focus_core.testing import RandomPolicy


class Length(ReplyEnv):
    async def grade(self, text):
        return float(len(text.split()))


def steps(env, *replies):
    async def inside():
        return [await env.step(Reply(tokens, "", reason)) for tokens, reason in replies]

    return asyncio.run(inside())


def test_a_reply_env_grades_once_when_the_reply_is_over():
    env = Length(RandomPolicy().decode, max_tokens=10)
    env.reset(Problem("?"))
    first, second = steps(env, ((1, 2), "length"), ((3, 0), "stop"))
    assert first == Transition()
    assert second == Transition(4.0, done=True, metrics={"finished": 1.0})


def test_a_reply_env_grades_an_unfinished_reply_at_its_limit():
    env = Length(RandomPolicy().decode, max_tokens=3)
    env.reset(Problem("?"))
    first, second = steps(env, ((1, 2), "length"), ((3,), "length"))
    assert not first.done
    assert second == Transition(3.0, done=True, metrics={"finished": 0.0})


def test_a_reply_env_branches():
    env = Length(RandomPolicy().decode, max_tokens=10)
    env.reset(Problem("?"))
    steps(env, ((1, 2), "length"))
    state = env.snapshot()
    assert steps(env, ((3, 3, 0), "stop"))[0].reward == 5.0
    env.restore(state)
    assert steps(env, ((0,), "stop"))[0].reward == 3.0
    env.reset(Problem("?"))
    assert steps(env, ((0,), "stop"))[0].reward == 1.0


def test_a_reply_env_takes_text_or_messages():
    env = Length(RandomPolicy().decode, max_tokens=10)
    assert env.reset(Problem("hi")) == ({"role": "user", "content": "hi"},)
    chat = [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]
    assert env.reset(Problem(chat)) == tuple(chat)
    with pytest.raises(NotImplementedError):
        asyncio.run(ReplyEnv(str, 3).grade("x"))


def test_grading_errors_fail_the_rollout(collect, scripted):
    class Broken(ReplyEnv):
        async def grade(self, text):
            raise GradingError("the grader is down")

    policy = scripted([4, 0])
    collection = collect(
        Collector(
            Agent(policy, Broken(policy.decode, 5)),
            critic=Critic.constant(0.5),
            search=Independent(1),
        ),
        Problem("5"),
    )
    (failure,) = collection.failures
    assert isinstance(failure.error, GradingError)
    assert collection.returns == []
