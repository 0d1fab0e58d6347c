"""What policies and environments may do with what they give and get, and nothing is lost."""

import asyncio
import pickle

import attrs
import numpy as np
import pytest

from focus_core import Agent, Generation, GenerationError, Reply, SamplingParams, Segments
from focus_core.testing import CountdownEnv, RandomPolicy


class Scripted(RandomPolicy):
    """Gives the answer it is told to; keeps its parameters."""

    def __init__(self, answer):
        super().__init__()
        self.answer, self.params = answer, []

    async def generate(self, tokens, params, n=1):
        self.params.append(params)
        return [self.answer]


def test_a_policy_may_use_its_buffers_for_the_next_answer():
    tokens, logprobs = np.array([3, 4], np.int32), np.array([-1, -2], np.float32)
    agent = Agent(Scripted(Generation(tokens, logprobs, "length")), CountdownEnv())
    spoken = asyncio.run(agent.say([1], None))
    tokens[:], logprobs[:] = 9, -9
    assert spoken.tokens.tolist() == [3, 4]
    assert spoken.logprobs.tolist() == [-1, -2]


@pytest.mark.parametrize("kind", [bytes, bytearray, range, tuple])
def test_tokens_may_be_any_sequence_of_ids(kind):
    tokens = kind(8) if kind is range else kind([7, 0, 0, 255, 1, 2, 3, 4])
    agent = Agent(Scripted(Generation(tokens, [-1.0] * 8, "length")), CountdownEnv())
    assert asyncio.run(agent.say([1], None)).tokens.tolist() == list(tokens)


@pytest.mark.parametrize("logprobs", [["-1"], [None], np.array([[-1.0]], np.float32), [b"-1"]])
def test_a_log_probability_is_a_number(logprobs):
    agent = Agent(Scripted(Generation([1], logprobs, "length")), CountdownEnv())
    with pytest.raises(GenerationError, match="log probability 0 of 1 is"):
        asyncio.run(agent.say([1], None))


def test_other_sampling_holds_from_the_next_request_on():
    policy = Scripted(Generation([1], [-1.0], "stop"))
    agent = Agent(policy, CountdownEnv(), context=Segments(2))
    asyncio.run(agent.say([1], None))
    agent.sampling = SamplingParams(temperature=0.5)
    asyncio.run(agent.say([1], None))
    assert [params.temperature for params in policy.params] == [1.0, 0.5]


@pytest.mark.parametrize("tokens", [[1.5], [-1], [2**31], "12"])
def test_an_environments_own_prompt_holds_token_ids(tokens):
    agent = Agent(RandomPolicy(), CountdownEnv())
    with pytest.raises(GenerationError, match="the environment's last message gave"):
        agent.first_prompt([{"role": "user", "content": "", "tokens": tokens}])


class Unsendable:
    """A policy that no other process can be given."""

    def __init__(self):
        self.calls = 0

    def decode(self, tokens):
        self.calls += 1
        return "-".join(map(str, tokens))

    def __reduce__(self):
        raise TypeError("cannot pickle a policy")


def test_a_reply_goes_to_another_process_with_its_text():
    policy = Unsendable()
    reply = pickle.loads(pickle.dumps(Reply((1, 2), policy.decode, "stop")))
    assert (reply.tokens, reply.text, reply.stop_reason) == ((1, 2), "1-2", "stop")
    assert policy.calls == 1


def test_a_replys_text_is_made_once_and_can_be_replaced():
    policy = Unsendable()
    reply = Reply((1, 2), policy.decode, "stop")
    assert policy.calls == 0
    assert [reply.text, reply.text] == ["1-2"] * 2
    assert policy.calls == 1
    assert attrs.evolve(reply, text="other").text == "other"
    assert reply == Reply((1, 2), "1-2", "stop")
