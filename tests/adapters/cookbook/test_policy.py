"""Completers as policies, and rendering by a chat template."""

import asyncio
import pickle

import pytest
from focus_adapter_cookbook import Chat, CompleterPolicy, TemplateRenderer
from focus_adapter_cookbook.chat import stop_tokens
from tinker_cookbook.exceptions import RendererError
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.renderers.base import ParseTermination
from tinker_cookbook.tokenizer_utils import get_tokenizer

from focus_core import (
    Agent,
    Collector,
    Critic,
    GenerationError,
    Independent,
    Policy,
    Problem,
    ReplyEnv,
    SamplingParams,
    Segments,
    UsageError,
)
from tests.adapters.cookbook.cookbook_kit import Unbounded, Uniform

CHAT = [{"role": "user", "content": "2+3"}]


def generate(policy, params, n=1, tokens=(1, 2)):
    return asyncio.run(policy.generate(tokens, params, n))


def test_a_completer_samples_with_the_turns_end_and_the_requests_stops(renderer):
    completer = Uniform([4, 6, 7])
    policy = CompleterPolicy(completer, renderer, version="step-3")
    assert isinstance(policy, Policy)
    assert policy.version == "step-3"
    found = generate(policy, SamplingParams(max_tokens=5, stop=(7,)), n=3)
    assert len(found) == 3
    for one in found:
        assert len(one.tokens) == len(one.logprobs) <= 5
        assert one.stop_reason == ("stop" if one.tokens[-1] == 7 else "length")
    eos = renderer.tokenizer.eos_token_id
    assert completer.asked == [([1, 2], sorted([eos, 7]), 5)] * 3


def test_n_samples_are_asked_for_at_a_time(renderer):
    class Together(Uniform):
        waiting = 0

        async def __call__(self, model_input, stop, *, max_tokens=None):
            self.waiting += 1
            while self.waiting < 4:  # alone, it would wait for ever
                await asyncio.sleep(0)
            return self.say(stop, max_tokens)

    policy = CompleterPolicy(Together(), renderer)

    async def run():
        return await asyncio.wait_for(
            policy.generate([1], SamplingParams(max_tokens=2), n=4), timeout=5
        )

    assert len(asyncio.run(run())) == 4


def test_one_without_max_tokens_is_cut_to_the_request(renderer):
    policy = CompleterPolicy(Unbounded([4, 6], longest=9), renderer)
    (one,) = generate(policy, SamplingParams(max_tokens=4))
    assert (len(one.tokens), len(one.logprobs), one.stop_reason) == (4, 4, "length")
    (one,) = generate(policy, SamplingParams(max_tokens=20))
    assert (len(one.tokens), one.stop_reason) == (9, "length")


@pytest.mark.parametrize("takes", [True, False])
def test_a_function_is_a_completer_too(renderer, takes):
    double, asked = Uniform([4, 6]), []

    async def bounded(model_input, stop, **more):
        asked.append(more)
        return double.say(stop, 9)

    async def plain(model_input, stop):
        return await bounded(model_input, stop)

    policy = CompleterPolicy(bounded if takes else plain, renderer)
    (one,) = generate(policy, SamplingParams(max_tokens=4))
    assert len(one.tokens) == 4
    assert asked == [{"max_tokens": 4} if takes else {}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"maybe_logprobs": None}, "returned no log probabilities"),
        ({"maybe_logprobs": [-0.1]}, "returned 2 tokens but 1 log probabilities"),
        ({"tokens": [], "maybe_logprobs": [], "stop_reason": "length"}, "returned no token"),
    ],
)
def test_what_cannot_be_trained_is_refused(renderer, change, said):
    class Odd(Uniform):
        def say(self, stop, most):
            answer = super().say([], 2)
            for name, value in change.items():
                setattr(answer, name, value)
            return answer

    with pytest.raises(GenerationError, match=said):
        generate(CompleterPolicy(Odd(), renderer), SamplingParams(max_tokens=2))


@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"top_p": 0.9}, {"top_k": 5}])
def test_sampling_that_is_the_completers_own_cannot_be_changed(renderer, params):
    policy = CompleterPolicy(Uniform(), renderer)
    with pytest.raises(UsageError, match=r"Uniform samples at temperature 1\.0"):
        generate(policy, SamplingParams(max_tokens=2, **params))
    policy.completer.temperature = 0.7
    assert generate(policy, SamplingParams(max_tokens=2, temperature=0.7))


def test_a_failing_sample_cancels_the_others_and_is_raised_bare(renderer):
    class Failing(Uniform):
        async def __call__(self, model_input, stop, *, max_tokens=None):
            self.asked.append(None)
            if len(self.asked) == 2:
                raise OSError("gone")
            await asyncio.sleep(60)

    with pytest.raises(OSError, match="gone"):
        generate(CompleterPolicy(Failing(), renderer), SamplingParams(max_tokens=2), n=3)


def test_a_tree_is_collected_with_it(renderer):
    eos = renderer.tokenizer.eos_token_id
    policy = CompleterPolicy(Uniform([*range(20, 30), eos]), renderer)

    class Length(ReplyEnv):
        async def grade(self, text):
            return len(text) / 100

    collector = Collector(
        Agent(policy, Length(policy.decode, 12), context=Segments(4)),
        critic=Critic.constant(0.5),
        search=Independent(3),
    )

    async def run():
        async with collector:
            return await collector.collect(Problem("2+3", id="p"))

    collection = asyncio.run(run())
    assert not collection.failures
    assert len(collection.returns) == 3


# Rendering --------------------------------------------------------------------------------------


def test_a_chat_template_renders_as_the_tokenizer_does(renderer, tiny):
    chat = Chat(renderer)
    tokens = list(chat.prepare(CHAT).tokens)
    wanted = get_tokenizer(tiny).apply_chat_template(CHAT, add_generation_prompt=True)
    assert tokens == list(wanted["input_ids"] if hasattr(wanted, "keys") else wanted)
    assert chat.decode(tokens) == "<|user|>2+3<|end|><|assistant|>"
    assert chat.end_tokens == {get_tokenizer(tiny).eos_token_id}
    again = pickle.loads(pickle.dumps(chat))
    assert list(again.prepare(CHAT).tokens) == tokens


def test_replies_are_read_up_to_their_end(renderer):
    said = renderer.tokenizer.encode("5", add_special_tokens=False)
    end = renderer.tokenizer.eos_token_id
    assert renderer.parse_response([*said, end]) == (
        {"role": "assistant", "content": "5"},
        ParseTermination.STOP_SEQUENCE,
    )
    assert renderer.parse_response(said)[1] is ParseTermination.MALFORMED
    assert renderer.parse_response([])[1] is ParseTermination.MALFORMED


def test_what_a_template_cannot_do_is_refused(renderer):
    with pytest.raises(RendererError, match="opens the assistant's turn"):
        renderer.build_generation_prompt(CHAT, role="user")
    with pytest.raises(RendererError, match="renders whole chats"):
        renderer.build_supervised_example([*CHAT, {"role": "assistant", "content": "5"}])

    class Bare:
        name_or_path, chat_template, eos_token_id = "bare", None, 1

    with pytest.raises(UsageError, match="'bare' has no chat template"):
        TemplateRenderer(Bare())


def test_stops_are_tokens(renderer, tiny):
    tokenizer = get_tokenizer(tiny)
    assert stop_tokens([3, 4]) == (3, 4)
    assert stop_tokens(["<|end|>"], tokenizer) == (tokenizer.eos_token_id,)
    with pytest.raises(UsageError, match="cannot be encoded without a tokenizer"):
        stop_tokens(["<|end|>"])
    with pytest.raises(UsageError, match=r"'\\n\\nUser:' is \d+ tokens"):
        Chat(get_renderer("role_colon", tokenizer))
