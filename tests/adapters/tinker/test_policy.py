"""Sampling: one request, exact tokens and log probabilities, and a profile proved beforehand."""

import asyncio
import copy
import math

import pytest
from focus_adapter_tinker import TinkerPolicy
from focus_adapter_tinker.usage import Usage

from focus_core import (
    DeadlineError,
    GenerationError,
    SamplingParams,
    TrainerError,
    UnknownNameError,
    UsageError,
)
from focus_core.policy import COLLECTING
from tests.adapters.tinker.sdk_kit import Sampler, answer

CHAT = [{"role": "user", "content": "Compute 2+3."}]


@pytest.fixture
def policy(tokenizer):
    return TinkerPolicy(Sampler(tokenizer), model="m")


def generate(policy, n=1, tokens=(1, 2), **params):
    return asyncio.run(policy.generate(tokens, SamplingParams(**params), n))


def test_all_samples_are_asked_for_in_one_request(policy, tokenizer):
    found = generate(policy, n=3, max_tokens=2, seed=7, temperature=0.5, top_p=0.9, stop=(9,))
    ((prompt, n, params),) = policy._client.log
    assert (prompt, n) == ([1, 2], 3)
    asked = (params.max_tokens, params.seed, params.temperature, params.top_p, params.top_k)
    assert asked == (2, 7, 0.5, 0.9, -1)
    assert params.stop == sorted({tokenizer.eos_token_id, 9}), "naming some turns off the others"
    assert [(g.tokens, g.logprobs, g.stop_reason) for g in found] == [
        ([20, 21], [-0.5, -0.5], "length")
    ] * 3


def test_it_renders_and_decodes_with_the_sampler_s_tokenizer(policy, tokenizer):
    tokens = policy.prepare(CHAT).tokens
    assert tokens == tokenizer.apply_chat_template(CHAT, add_generation_prompt=True)["input_ids"]
    assert policy.decode(tokens) == tokenizer.decode(tokens)


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        (([20, 21], None, "length"), "no log probabilities"),
        (([20, 21], [-0.5], "length"), "2 tokens but 1 log"),
        (([20], [None], "stop"), "log probability 0 of 1 is None"),
        (([20], [-math.inf], "stop"), "finite"),
        (([20], [math.nan], "stop"), "finite"),
        (([20], [0.5], "stop"), "not above 0"),
        (([20] * 4, [-0.5] * 4, "length"), "at most 3"),
        (([], None, "stop"), "without tokens"),
        (([20], [-0.5], "error"), "must be 'stop' or 'length'"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(policy, sequence, message):
    policy._client.answer = lambda *_: answer(sequence)
    with pytest.raises(GenerationError, match=message):
        generate(policy, max_tokens=3)


def test_a_wrong_number_of_samples_is_refused(policy):
    policy._client.answer = lambda *_: answer(([20], [-0.5], "stop"))
    with pytest.raises(GenerationError, match="returned 1 sequences, 2 were asked for"):
        generate(policy, n=2)


def test_the_context_s_length_is_kept(tokenizer):
    policy = TinkerPolicy(Sampler(tokenizer, reply=(20,) * 9), context_length=8)
    assert len(generate(policy, tokens=range(6))[0].tokens) == 2
    with pytest.raises(GenerationError, match="no room in the model's context of 8"):
        generate(policy, tokens=range(8))
    with pytest.raises(GenerationError, match="empty"):
        generate(policy, tokens=())


def test_a_request_without_an_answer_is_called_off(tokenizer):
    policy = TinkerPolicy(Sampler(tokenizer, seconds=3600), timeout=0.02)
    with pytest.raises(DeadlineError, match=r"within 0\.02 s"):
        generate(policy)


def test_an_error_of_the_sdk_is_told_on_one_line_without_the_key(tokenizer, monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-very-secret")

    def fails(*_):
        raise RuntimeError("sent tml-very-secret\nand failed")

    policy = TinkerPolicy(Sampler(tokenizer, answer=fails))
    with pytest.raises(TrainerError, match=r"sampling failed: RuntimeError: sent \*\*\* and"):
        generate(policy)


def test_closed_it_refuses(policy):
    asyncio.run(policy.aclose())
    with pytest.raises(TrainerError, match="closed"):
        generate(policy)


def test_what_was_asked_for_is_counted(tokenizer):
    usage = Usage()
    policy = TinkerPolicy(Sampler(tokenizer), usage=usage)
    generate(policy, n=2, tokens=(1, 2, 3))
    assert usage.table().splitlines()[1].split() == ["after", "1", "3", "6", "0"]


def test_a_row_is_of_the_batch_that_asked_however_far_the_learner_is(tokenizer):
    usage = Usage()
    policy = TinkerPolicy(Sampler(tokenizer), usage=usage)

    async def collect(batch, n):
        COLLECTING.set(batch)
        await policy.generate((1, 2, 3), SamplingParams(max_tokens=3), n)

    async def main():
        await asyncio.gather(collect(0, 1), collect(1, 2))
        usage.close_row(0)
        await asyncio.gather(collect(2, 3), collect(3, 4))
        usage.close_row(2)  # batch 1 was skipped

    asyncio.run(main())
    rows = [line.split() for line in usage.table().splitlines()[1:-1]]
    assert [(row[0], row[3]) for row in rows] == [
        ("0", "3"),
        ("1", "6"),
        ("2", "9"),
        ("3", "12"),
        ("total", "30"),
    ]


# Profiles


def with_tokens(tokenizer, *tokens, template=None):
    """The tokenizer, with more single tokens."""
    other = copy.deepcopy(tokenizer)
    other.add_tokens(list(tokens))
    if template is not None:
        other.chat_template = template
    return other


@pytest.mark.parametrize("profile", [None, "token_chunk", "token-chunk", "chat"])
def test_profiles_without_tools_fit_the_tiny_model(tokenizer, profile):
    policy = TinkerPolicy(Sampler(tokenizer), model="m", profile=profile)
    assert policy.end_tokens == {tokenizer.eos_token_id}


@pytest.mark.parametrize("profile", ["hermes", "qwen-xml", "qwen_xml"])
def test_tool_dialects_need_their_tags_as_one_token_each(tokenizer, profile):
    with pytest.raises(UsageError, match=r"profile.*does not fit model 'm'.*<tool_call> as"):
        TinkerPolicy(Sampler(tokenizer), model="m", profile=profile)
    fitting = with_tokens(tokenizer, "<tool_call>", "</tool_call>")
    TinkerPolicy(Sampler(fitting), model="m", profile=profile)


def test_thinking_that_the_template_writes_must_be_one_token_each(tokenizer):
    template = "<think></think>" + tokenizer.chat_template
    with pytest.raises(UsageError, match="<think> as"):
        TinkerPolicy(Sampler(with_tokens(tokenizer, template=template)), model="m")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no user may speak') }}", "no user may speak"),
        ("{% for m in messages %}{{ m.x.y }}{% endfor %}", "refuses the messages"),
        ("", "refuses the messages|renders a message to no token"),
    ],
)
def test_a_template_that_does_not_render_is_told_before_sampling(tokenizer, template, message):
    broken = with_tokens(tokenizer, template=template)
    broken.chat_template = template
    with pytest.raises(UsageError, match=message):
        TinkerPolicy(Sampler(broken), model="m")


def test_a_turn_also_ends_where_the_template_ends_it(tokenizer):
    other = copy.deepcopy(tokenizer)
    other.add_special_tokens({"additional_special_tokens": ["<|done|>"]})
    other.chat_template = (
        "{% for m in messages %}{{ m.role }} {{ m.content }}<|done|>{% endfor %}"
        "{% if add_generation_prompt %}assistant {% endif %}"
    )
    policy = TinkerPolicy(Sampler(other), model="m")
    assert policy.end_tokens == {
        tokenizer.eos_token_id,
        other.convert_tokens_to_ids("<|done|>"),
    }


def test_an_unknown_profile_is_a_usage_error(tokenizer):
    with pytest.raises(UnknownNameError, match="no profile 'hermez'; there are chat, hermes"):
        TinkerPolicy(Sampler(tokenizer), profile="hermez")


def test_a_tokenizer_that_cannot_be_loaded_is_told(tokenizer):
    class Gone(Sampler):
        def get_tokenizer(self):
            raise OSError("no such model on the hub")

    with pytest.raises(TrainerError, match="tokenizer of model 'm' cannot be loaded: OSError"):
        TinkerPolicy(Gone(tokenizer), model="m")
