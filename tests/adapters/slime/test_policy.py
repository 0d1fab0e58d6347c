"""Sampling through the router: exact ids and log probabilities, typed failures, bounded retries."""

import asyncio
import contextlib
import math
import time

import pytest
from focus_adapter_slime import RouterPolicy
from focus_adapter_slime import router as requests
from focus_adapter_slime.errors import AbortedError
from focus_adapter_slime.policy import read_answer

from focus_core import (
    DeadlineError,
    GenerationError,
    SamplingParams,
    StaleBatchError,
    TrainerError,
    UnknownNameError,
    UsageError,
)
from focus_core.testing import PolicyContract

CHAT = [{"role": "user", "content": "Compute 2+3."}]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Attempts follow each other without a pause."""
    monkeypatch.setattr(requests, "_PAUSE", 0.0)


@pytest.fixture
def policy_of(router):
    def make(**options):
        return RouterPolicy(router.url, router.tokenizer, **{"timeout": 30} | options)

    return make


def sample(policy, tokens=None, n=1, **params):
    """Generate and close, in an event loop of its own."""

    async def go():
        prompt = policy.prepare(CHAT).tokens if tokens is None else tokens
        try:
            return await policy.generate(prompt, SamplingParams(**{"max_tokens": 6} | params), n)
        finally:
            await policy.aclose()

    return asyncio.run(asyncio.wait_for(go(), 60))


def local(router, tokens, **params):
    """What the model behind the router samples."""
    from focus_adapter_local import LocalTrainer

    async def go():
        async with LocalTrainer(model=router.model, threads=1) as trainer:
            policy = await trainer.publish_policy()
            return (await policy.generate(tokens, SamplingParams(**params)))[0]

    return asyncio.run(go())


def test_the_wire(policy_of, router):
    policy = policy_of(seeded=True)
    (found,) = sample(policy, seed=2**40 + 3, stop=(9,), temperature=0.5, top_p=0.9, top_k=7)
    (body,) = router.requests
    assert body == {
        "input_ids": policy.prepare(CHAT).tokens,
        "return_logprob": True,
        "sampling_params": {
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 7,
            "max_new_tokens": 6,
            "stop_token_ids": sorted({*policy.end_tokens, 9}),
            "skip_special_tokens": False,
            "no_stop_trim": True,
            "spaces_between_special_tokens": False,
            "sampling_seed": (2**40 + 3) % 2**31,
        },
    }
    assert len(found.tokens) == len(found.logprobs) <= 6
    sample(policy_of(), seed=3)
    assert "sampling_seed" not in router.requests[-1]["sampling_params"], "heeded by few servers"
    assert router.requests[-1]["sampling_params"]["top_k"] == -1


def test_ids_and_log_probabilities_are_the_model_s(policy_of, router):
    policy = policy_of(seeded=True)
    prompt = policy.prepare(CHAT).tokens
    (found,) = sample(policy, prompt, seed=11, max_tokens=12)
    expected = local(router, prompt, seed=11, max_tokens=12)
    assert list(found.tokens) == [int(token) for token in expected.tokens]
    assert found.logprobs == pytest.approx(list(expected.logprobs), abs=1e-5)
    assert found.stop_reason == expected.stop_reason


def test_n_samples_are_n_requests_of_one_prompt(policy_of, router):
    found = sample(policy_of(seeded=True), n=3, seed=2**31 - 2)
    seeds = [body["sampling_params"]["sampling_seed"] for body in router.requests]
    assert sorted(seeds) == [0, 2**31 - 2, 2**31 - 1], "each its own"
    assert len(found) == len(router.requests) == 3
    assert len({tuple(body["input_ids"]) for body in router.requests}) == 1


def test_it_renders_and_decodes_with_the_tokenizer(policy_of, router):
    policy = policy_of()
    tokens = policy.prepare(CHAT).tokens
    expected = router.tokenizer.apply_chat_template(CHAT, add_generation_prompt=True)
    assert tokens == expected["input_ids"]
    assert policy.decode(tokens) == router.tokenizer.decode(tokens)
    with pytest.raises(UsageError, match="chat template refuses"):
        policy.prepare([*CHAT, {"role": "nobody", "content": "x"}])


def test_a_profile_that_does_not_fit_is_refused(policy_of):
    with pytest.raises(UnknownNameError, match="no profile 'guess'"):
        policy_of(profile="guess")
    with pytest.raises(UsageError, match=r"profile 'hermes' does not fit model .*<tool_call>"):
        policy_of(profile="hermes")


# Failures


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("missing", GenerationError, "no output_token_logprobs"),
        ("short", GenerationError, r"sampled \d+ tokens and returned \d+ log probabilities"),
        ("nan", GenerationError, "log probability 0 of .* is None"),
        ("empty", GenerationError, "without tokens"),
        ("abort", AbortedError, "broke a generation off: made to abort"),
        ("garbage", TrainerError, "no JSON"),
        ("500", TrainerError, "failed 4 times.*status 500: made to fail"),
        ("drop", TrainerError, "failed 4 times"),
        ("400", TrainerError, "failed 1 times.*status 400: made to fail"),
    ],
)
def test_each_failure_has_its_type(policy_of, router, fault, error, message):
    router.faults["all"] = fault
    with pytest.raises(error, match=message):
        sample(policy_of())
    tries = 4 if fault in ("500", "drop") else 1
    assert len(router.requests) == tries, "only what was not sampled is asked for again"


@pytest.mark.parametrize("fault", ["500", "drop"])
def test_another_attempt_may_get_through(policy_of, router, fault):
    router.faults.update({0: fault, 1: fault, 2: fault})
    assert len(sample(policy_of())) == 1
    assert len(router.requests) == 4


def test_a_late_answer_is_called_off_and_not_asked_for_again(policy_of, router):
    router.faults["all"] = "hang"
    with pytest.raises(DeadlineError, match=r"within 0\.1 s; raise focus_request_timeout"):
        sample(policy_of(timeout=0.1))
    assert len(router.requests) == 1, "a second attempt would prefer short samples"


def test_nobody_there():
    policy = RouterPolicy("http://127.0.0.1:9", Tokenizer(), retries=1)
    with pytest.raises(TrainerError, match=r"127\.0\.0\.1:9/generate failed 2 times"):
        sample(policy, [1, 2])


class Tokenizer:
    """As little as a profile asks for."""

    chat_template = "{{ messages }}"
    eos_token_id = 1
    all_special_ids = (1,)

    def apply_chat_template(self, messages, tokenize=True, **_):
        return [1, 2] if tokenize else str(messages)

    def encode(self, text, add_special_tokens):
        return [3]

    def decode(self, tokens, **_):
        return "x" * len(tokens)


@pytest.mark.parametrize(
    ("tokens", "params", "n", "message"),
    [
        ([], {}, 1, "the prompt is empty"),
        ([1] * 8, {}, 1, "no room in the model's context of 8"),
        ([1], {}, 0, "ask for at least one"),
    ],
)
def test_what_cannot_be_asked_for(policy_of, router, tokens, params, n, message):
    with pytest.raises(GenerationError, match=message):
        sample(policy_of(context_length=8), tokens, n, **params)
    assert not router.requests


def test_the_context_s_length_is_kept(policy_of, router):
    sample(policy_of(context_length=8), [1] * 5, max_tokens=100)
    assert router.requests[0]["sampling_params"]["max_new_tokens"] == 3


def test_closed_it_refuses(policy_of):
    policy = policy_of()
    sample(policy)
    with pytest.raises(TrainerError, match="closed"):
        sample(policy)


def test_an_abort_is_noticed_before_each_attempt(policy_of, router):
    router.faults["all"] = "500"
    policy = policy_of(aborting=lambda: len(router.requests) >= 2)
    with pytest.raises(AbortedError, match="called this rollout off"):
        sample(policy)
    assert len(router.requests) == 2


def meta(**changed):
    return {
        "meta_info": {
            "finish_reason": {"type": "stop"},
            "output_token_logprobs": [[-0.5, 7, None], [-0.25, 8, "x"]],
        }
        | changed
    }


def test_an_answer_without_extras_is_read():
    generation, version = read_answer(meta(), 4)
    assert (generation.tokens, generation.logprobs, version) == ([7, 8], [-0.5, -0.25], None)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "no meta_info"),
        ([], "no meta_info"),
        ({"text": "x"}, "no meta_info"),
        (meta(finish_reason=None), "stop_reason is None"),
        (meta(finish_reason={"type": "error"}), "stop_reason is 'error'"),
        (meta(output_token_logprobs=[7, 8]), "must hold"),
        (meta(output_token_logprobs=[[-0.5]]), "must hold"),
        (meta(output_token_logprobs=[[math.inf, 7]]), "finite"),
        (meta(output_token_logprobs=[[-0.5, None]]), "token ids are integers"),
        (meta(output_token_logprobs=[[-0.5, 7]] * 5), "at most 4"),
        (meta(completion_tokens=3), "sampled 3 tokens and returned 2"),
        (meta() | {"output_ids": [7, 9]}, "not the same"),
        (meta() | {"output_ids": [7, 8, 9]}, "not the same"),
    ],
)
def test_an_answer_that_cannot_be_trained_on(answer, message):
    with pytest.raises(GenerationError, match=message):
        read_answer(answer, 4)


# Weights


def test_the_version_of_the_weights_is_noted(policy_of, router):
    policy = policy_of()
    assert policy.version == "unknown"
    sample(policy, n=2)
    assert policy.version == "1"
    assert policy.weight_versions == {"1": 2}
    assert policy.straddling == 0


@pytest.mark.parametrize("straddle", ["refuse", "keep"])
def test_an_update_in_the_middle_is_refused_or_kept_and_counted(policy_of, router, straddle):
    router.faults[1] = "bump"
    policy = policy_of(straddle=straddle)

    async def go():
        prompt = policy.prepare(CHAT).tokens
        params = SamplingParams(max_tokens=2)
        try:
            await policy.generate(prompt, params)
            return await policy.generate(prompt, params)
        finally:
            await policy.aclose()

    if straddle == "keep":
        assert len(asyncio.run(go())) == 1
    else:
        with pytest.raises(StaleBatchError, match=r"began with version '1'.* is of version '2'"):
            asyncio.run(go())
    assert policy.weight_versions == {"1": 1, "2": 1}
    assert policy.straddling == 1
    assert policy.version == "1"


# Connections


def test_one_client_for_each_event_loop_closed_with_the_last_policy(policy_of, router):
    async def go():
        first, second = policy_of(), policy_of()
        prompt, params = first.prepare(CHAT).tokens, SamplingParams(max_tokens=1)
        await first.generate(prompt, params)
        await second.generate(prompt, params)
        (shared,) = requests._SHARED.values()
        assert first._router._shared is second._router._shared is shared
        await first.aclose()
        await first.aclose()
        assert not shared.client.is_closed
        await second.generate(prompt, params)
        await second.aclose()
        assert shared.client.is_closed
        assert not requests._SHARED

    asyncio.run(go())
    asyncio.run(go())


def test_requests_at_a_time_are_bounded(policy_of, router):
    router.faults["all"] = "hang"

    async def go():
        policy = policy_of(requests=2, timeout=30)
        task = asyncio.create_task(policy.generate([1], SamplingParams(max_tokens=1), 6))
        ends = time.monotonic() + 30
        while len(router.requests) < 2 and time.monotonic() < ends:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert len(router.requests) == 2
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await policy.aclose()

    asyncio.run(go())


class TestContract(PolicyContract):
    """The core's own demands on a policy."""

    samples = 256

    @pytest.fixture(autouse=True)
    def _router(self, router):
        self.router = router

    @contextlib.asynccontextmanager
    async def policy(self):
        policy = RouterPolicy(self.router.url, self.router.tokenizer, seeded=True)
        yield policy
        await policy.aclose()
