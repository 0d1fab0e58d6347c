"""The SDK against the loopback: sampling, learning, saving, resuming."""

import asyncio

import numpy as np
import pytest

from focus_core import ActorRecord, Batch, Span
from tests.adapters.tinker.loopback.loopback_kit import (
    PROMPT,
    call,
    datum,
    forwarded,
    learned,
    sample,
    score,
    settle,
    snapshot,
    step,
)

LOSSES = ("ppo", "importance_sampling", "cispo", "cross_entropy")


def test_samples_have_the_log_probabilities_the_learner_gives_them(client):
    training = client.train()
    sequences = sample(snapshot(training), n=3, max_tokens=12)
    assert len(sequences) == 3
    assert len({tuple(each.tokens) for each in sequences}) > 1
    data = [datum(tokens=each.tokens, logprobs=each.logprobs) for each in sequences]
    _, logprobs = learned(training, data)
    for each, learner in zip(sequences, logprobs, strict=True):
        np.testing.assert_allclose(learner[len(PROMPT) - 1 :], each.logprobs, atol=1e-3)


def test_prompt_scores_are_those_of_the_samples(client):
    sampler = snapshot(client.train())
    (sequence,) = sample(sampler, max_tokens=8)
    scores = score(sampler, [*PROMPT, *sequence.tokens])
    assert scores[0] is None
    np.testing.assert_allclose(scores[len(PROMPT) :], sequence.logprobs, atol=1e-3)


def test_log_probabilities_ignore_temperature(client):
    sampler = snapshot(client.train())
    (sequence,) = sample(sampler, max_tokens=8, temperature=0.3, top_k=5)
    scores = score(sampler, [*PROMPT, *sequence.tokens])
    np.testing.assert_allclose(scores[len(PROMPT) :], sequence.logprobs, atol=1e-3)


def test_stops_end_a_sample(client):
    sampler = snapshot(client.train())
    tokenizer = sampler.get_tokenizer()
    (whole,) = sample(sampler, max_tokens=8, seed=3, stop=[])
    assert (len(whole.tokens), whole.stop_reason) == (8, "length")
    (cut,) = sample(sampler, max_tokens=8, seed=3, stop=[whole.tokens[2]])
    end = list(whole.tokens).index(whole.tokens[2])
    assert (list(cut.tokens), cut.stop_reason) == (list(whole.tokens[: end + 1]), "stop")
    text = tokenizer.decode(whole.tokens[1:3])
    (cut,) = sample(sampler, max_tokens=8, seed=3, stop=[text])
    assert text in tokenizer.decode(cut.tokens)
    assert text not in tokenizer.decode(cut.tokens[:-1])
    assert len(cut.logprobs) == len(cut.tokens) < 8


def test_a_seed_gives_the_same_samples(client):
    sampler = snapshot(client.train())
    one, two = (sample(sampler, n=2, seed=11, max_tokens=10) for _ in range(2))
    assert [each.tokens for each in one] == [each.tokens for each in two]


@pytest.mark.parametrize("loss", LOSSES)
def test_an_update_is_the_local_trainers(client, loss):
    training = client.train(rank=4, seed=7)
    sequences = sample(snapshot(training), n=4, max_tokens=7)
    advantages = [1.0, -0.5, 0.25, 2.0]
    pairs = list(zip(sequences, advantages, strict=True))
    data = [
        datum(loss, tokens=each.tokens, logprobs=each.logprobs, advantage=advantage)
        for each, advantage in pairs
    ]
    total, _ = learned(training, data, loss)
    step(training, learning_rate=1e-2)
    theirs = forwarded(training, data, loss)
    metrics, ours = asyncio.run(_updated_locally(loss, pairs))
    assert total == pytest.approx(metrics["loss"], abs=1e-5 * abs(metrics["loss"]))
    for mine, logprobs in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(logprobs[len(PROMPT) - 1 :], mine, atol=1e-5)


async def _updated_locally(loss, pairs):
    from focus_adapter_local import LocalTrainer

    records = [
        ActorRecord(
            tokens=[*PROMPT, *each.tokens],
            logprobs=[*[0.0] * len(PROMPT), *each.logprobs],
            spans=(Span(len(PROMPT), len(PROMPT) + len(each.tokens), advantage),),
        )
        for each, advantage in pairs
    ]
    options = {"lora_rank": 4, "lora_alpha": 32.0, "seed": 7, "eps": 1e-6, "threads": 1}
    async with LocalTrainer(loss=loss, learning_rate=1e-2, device="cpu", **options) as trainer:
        items = trainer.convert(records)
        batch = Batch(index=0, behavior_step=0, learner_step=0, actor=records, items=items)
        return await trainer.update(batch), await trainer.forward_logprobs(items)


def test_gradients_add_up_until_the_optimizer_step(client):
    one, two = client.train(seed=5), client.train(seed=5)
    data = [datum(tokens=(3, 4)), datum(tokens=(7, 8, 9), advantage=-1.0)]
    learned(one, data)
    for each in data:
        learned(two, [each])
    step(one), step(two)
    assert step_gap(one, two, data) < 1e-5


def step_gap(one, two, data):
    pairs = zip(forwarded(one, data), forwarded(two, data), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def test_a_forward_pass_leaves_no_gradient(client):
    one, two = client.train(seed=5), client.train(seed=5)
    learned(one, [datum()])
    learned(two, [datum()])
    forwarded(two, [datum(tokens=(9, 9, 9))])
    step(one), step(two)
    assert step_gap(one, two, [datum()]) == 0


def test_chunks_that_arrive_out_of_order_are_done_in_order(client):
    training, whole = client.train(seed=5), client.train(seed=5)
    holder = training.holder
    chunked = {"fwdbwd_max_chunk_len": 2}
    data = [datum(tokens=(3 + i, 4 + i), advantage=1.0 + i) for i in range(7)]
    _, expected = learned(whole, data)
    holder._client_config = holder._client_config.model_copy(update=chunked)
    _, logprobs = learned(training, data)
    for mine, theirs in zip(logprobs, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    step(training), step(whole)
    assert step_gap(training, whole, data) < 1e-5


def test_the_optimizers_settings_are_applied(client):
    base, still, clipped = client.train(), client.train(), client.train()
    for each in (base, still, clipped):
        learned(each, [datum()])
    metrics = step(base).metrics
    step(still, learning_rate=0.0)
    step(clipped, grad_clip_norm=1e-9, eps=1.0)
    untouched = forwarded(client.train(), [datum()])
    assert metrics["grad_norm"] > 0
    assert np.abs(forwarded(base, [datum()])[0] - untouched[0]).max() > 1e-3
    for each in (still, clipped):
        np.testing.assert_allclose(forwarded(each, [datum()])[0], untouched[0], atol=1e-5)


def test_a_new_sampler_has_the_new_weights_and_the_old_keeps_its_own(client):
    training = client.train()
    old = snapshot(training)
    whole = [*PROMPT, 3, 4, 5]
    before = score(old, whole)
    learned(training, [datum(tokens=(3, 4, 5))])
    step(training)
    new = snapshot(training)
    assert sum(score(new, whole)[len(PROMPT) :]) > sum(before[len(PROMPT) :]) + 0.1
    assert score(old, whole) == before
    np.testing.assert_allclose(
        score(new, whole)[1:], forwarded(training, [datum(tokens=(3, 4, 5))])[0], atol=1e-3
    )


def test_the_oldest_snapshots_are_forgotten(client):
    import tinker

    training = client.train()
    named = client.sampler(settle(training.save_weights_for_sampler("named")).path)
    first, *_, last = [snapshot(training) for _ in range(18)]
    with pytest.raises(tinker.NotFoundError, match="long past"):
        sample(first)
    assert len(sample(last)[0].tokens) == len(sample(named)[0].tokens) == 6


def test_what_a_finished_session_had_is_gone(client, server):
    if not hasattr(client.service, "close"):
        pytest.skip("this SDK does not finish sessions")
    model = client.train().model_id
    client.close("success")
    status, answer = call(server, "/api/v1/get_info", {"model_id": model})
    assert (status, "has finished" in answer["detail"]) == (410, True)


def test_saved_weights_can_be_sampled_by_path(client):
    training = client.train()
    learned(training, [datum()])
    step(training)
    path = settle(training.save_weights_for_sampler("final")).path
    assert path.startswith("tinker://")
    whole = [*PROMPT, 3, 4, 5]
    assert score(client.sampler(path), whole) == score(snapshot(training), whole)


def test_the_base_model_can_be_sampled(client):
    base = settle(client.service.create_sampling_client(base_model="tiny"))
    whole = [*PROMPT, 3, 4, 5]
    fresh = snapshot(client.train())  # an adapter changes nothing before its first update
    np.testing.assert_allclose(score(base, whole)[1:], score(fresh, whole)[1:], atol=1e-5)


def test_resuming_continues_with_the_optimizer(client):
    training = client.train(rank=3)
    learned(training, [datum()])
    step(training)
    path = settle(training.save_state("after-one")).path
    resumed = client.resume(path)
    weights_only = settle(client.service.create_training_client_from_state(path))
    for each in (training, resumed, weights_only):
        assert settle(each.get_info()).lora_rank == 3
        learned(each, [datum(tokens=(8, 2), advantage=0.1)])
        step(each)
    assert step_gap(training, resumed, [datum()]) == 0
    assert step_gap(training, weights_only, [datum()]) > 1e-3


def test_a_name_is_saved_once_unless_told_otherwise(client):
    from tinker import RequestFailedError

    training = client.train()
    settle(training.save_state("same"))
    with pytest.raises(RequestFailedError, match=r"already .*same"):
        settle(training.save_state("same"))
    with pytest.raises(RequestFailedError, match="plain file name"):
        settle(training.save_state("../outside"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ([datum()], "dro"), "no loss 'dro'"),
        (lambda: ([datum(mask=np.ones(9, np.float32))], "ppo"), "datum 0 has .*mask"),
        (lambda: ([datum(tokens=(9999,))], "ppo"), "9999"),
        (lambda: ([datum(), datum(logprobs=[-np.inf] * 3)], "ppo"), "item 1 .*finite"),
    ],
)
def test_a_mistake_fails_the_result_and_leaves_the_gradient(client, make, message):
    from tinker import RequestFailedError
    from tinker.types import RequestErrorCategory

    training, clean = client.train(), client.train()
    for each in (training, clean):
        learned(each, [datum()])
    with pytest.raises(RequestFailedError, match=message) as caught:
        learned(training, *make())
    assert caught.value.category is RequestErrorCategory.User
    step(training), step(clean)
    assert step_gap(training, clean, [datum()]) == 0


def test_a_step_without_a_gradient_is_refused(client):
    from tinker import RequestFailedError

    with pytest.raises(RequestFailedError, match="no gradient"):
        step(client.train())


def test_a_prompt_that_does_not_fit_is_refused(client):
    from tinker import RequestFailedError

    with pytest.raises(RequestFailedError, match="no room"):
        sample(snapshot(client.train()), prompt=[1] * 5000)


def test_statistics_count_tokens_by_step(client, server):
    before = server.stats()
    training = client.train()
    sequences = sample(snapshot(training), n=2, max_tokens=5)
    learned(training, [datum(tokens=(3, 4, 5))])
    step(training)
    after = server.stats()
    sampled = sum(len(each.tokens) for each in sequences)
    share = after["steps"][-1]
    assert len(after["steps"]) == len(before["steps"]) + 1
    assert share["trained_tokens"] == len(PROMPT) + 3 - 1
    assert after["sampled_tokens"] - before["sampled_tokens"] == sampled
    assert after["prompt_tokens"] - before["prompt_tokens"] == len(PROMPT)
    assert after["routes"]["asample"] == before["routes"].get("asample", 0) + 1
    assert after["pending"] == 0


def test_how_a_session_ended_is_known(client, server):
    if not hasattr(client.service, "close"):
        pytest.skip("this SDK does not finish sessions")
    session = client.train().model_id.split(":")[0]
    assert server.stats()["sessions"][session] is None
    client.close("interrupted")
    assert server.stats()["sessions"][session] == "interrupted"
