"""One optimizer step: what is sent, in which order, what is reported, and what failing says."""

import asyncio
import math

import numpy as np
import pytest
from focus_adapter_tinker import PPO_CLIP, update_actor
from focus_adapter_tinker import update as update_module
from focus_adapter_tinker.losses import check_loss
from focus_adapter_tinker.update import LostUpdate, Optimization

from focus_core import OffPolicyError, RecordError, TrainerError, UsageError
from tests.adapters.tinker.sdk_kit import Training, merged, record

WHOLE = ["forward_backward sent", "forward_backward done", "optim_step sent", "optim_step done"]


def update(client, records, **options):
    return asyncio.run(update_actor(client, records, **{"learning_rate": 1e-4, **options}))


def test_gradients_are_awaited_before_the_step_is_sent_and_the_step_before_returning():
    client = Training()
    update(client, [record()])
    assert client.log == WHOLE


def test_the_defaults_are_ppo_with_the_paper_s_clip():
    client = Training()
    update(client, [record().to_dict()], learning_rate=3e-5)
    ((loss, config, data),) = client.losses
    assert (loss, config) == ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2})
    assert len(data) == 1
    assert client.adam[0].learning_rate == 3e-5
    with pytest.raises(TypeError):
        PPO_CLIP["clip_low_threshold"] = 0.0


@pytest.mark.parametrize("loss", ["importance_sampling", "cross_entropy"])
def test_a_loss_without_bounds_is_sent_none(loss):
    client = Training()
    update(client, [record()], loss_fn=loss)
    assert client.losses[0][:2] == (loss, None)


@pytest.mark.parametrize(
    ("loss", "config", "message"),
    [
        ("dro", PPO_CLIP, "quadratic"),
        ("pppo", PPO_CLIP, "choose one of"),
        ("ppo", {"clip": 0.2}, "does not know 'clip'"),
        ("ppo", {"clip_low_threshold": 0.2, "clip_high_threshold": 0.2}, "bounds on the ratio"),
        ("ppo", {"clip_low_threshold": np.ones(1)}, "plain, finite number"),
        ("ppo", {"clip_high_threshold": math.inf}, "plain, finite number"),
        ("cispo", {"clip_high_threshold": True}, "plain, finite number"),
        ("importance_sampling", {"beta": 1.0}, "takes no configuration"),
    ],
)
def test_a_wrong_loss_is_told_before_anything_is_sent(loss, config, message):
    client = Training()
    with pytest.raises(UsageError, match=message):
        update(client, [record()], loss_fn=loss, loss_fn_config=config)
    assert client.log == []


def test_whole_numbers_in_a_configuration_are_sent_as_fractions():
    found = check_loss("cispo", {"clip_low_threshold": 0, "clip_high_threshold": 2})
    assert found == {"clip_low_threshold": 0.0, "clip_high_threshold": 2.0}
    assert {type(value) for value in found.values()} == {float}


def test_metrics_are_ours_and_tinker_s():
    client = Training(gap=math.log(1.5), metrics={"loss:sum": 2.0, "odd": math.nan, "n": 3})
    found = update(client, [record(), merged()])
    gap = math.log(1.5)
    assert found == pytest.approx(
        {
            "loss:sum": 2.0,
            "n": 3.0,
            "loss": 2.0,
            "trained_tokens": 4.0,
            "ratio_mean": 1.5,
            "ratio_max_deviation": 0.5,
            "clip_fraction": 1.0,
            "logprob_gap": gap,
            "logprob_gap_max": gap,
            "kl": 0.5 - gap,
        },
        rel=1e-5,
    )


@pytest.mark.parametrize(
    ("records", "message"),
    [([], "no token is trained"), ([{"schema": 2}], "schema"), ([{}], "schema")],
)
def test_nothing_to_train_is_refused(records, message):
    client = Training()
    with pytest.raises(RecordError, match=message):
        update(client, records)
    assert client.log == []


@pytest.mark.parametrize(
    ("faults", "sent", "says"),
    [
        ({"fail": {"forward_backward": ValueError("boom")}}, WHOLE[:1], "may have been computed"),
        ({"outputs": lambda data: []}, WHOLE[:2], "no optimizer step was sent"),
        ({"metrics": {"loss:sum": math.nan}}, WHOLE[:2], "the loss is nan"),
        ({"fail": {"optim_step": ValueError("boom")}}, WHOLE[:3], "may have been applied"),
    ],
)
def test_a_failure_says_what_may_have_been_applied_and_is_not_retried(faults, sent, says):
    client = Training(**faults)
    with pytest.raises(TrainerError, match=says) as caught:
        update(client, [record()])
    assert client.log == sent
    assert "not retried" in str(caught.value)
    assert "\n" not in str(caught.value)


def step(client, records, *, on_policy, **options):
    from focus_adapter_tinker import to_datum

    how = Optimization(adam={"learning_rate": 1e-4}, **options)
    datums = [to_datum(each) for each in records]
    return how.finished(
        lambda limit: how.step(client, records, datums, limit, name="step 3", on_policy=on_policy)
    )


def test_on_policy_the_ratio_must_be_one_and_the_step_is_not_made():
    client = Training(gap=-1.0)
    with pytest.raises(OffPolicyError, match=r"step 3.*mean .learner - behaviour. is 1 nats"):
        asyncio.run(step(client, [record()], on_policy=True))
    assert client.log == WHOLE[:2]
    asyncio.run(step(Training(gap=-1.0), [record()], on_policy=False))
    asyncio.run(step(Training(gap=0.05), [record()], on_policy=True))


def test_an_update_without_an_answer_is_given_up_in_time():
    client = Training(fail={"optim_step": lambda: asyncio.sleep(3600)})
    with pytest.raises(LostUpdate, match="no answer in time; its optimizer step was sent"):
        asyncio.run(step(client, [record()], on_policy=False, timeout=0.05))


def test_a_cancelled_update_is_finished_first():
    async def main():
        go_on = asyncio.Event()
        client = Training(fail={"forward_backward": go_on.wait})
        task = asyncio.ensure_future(update_actor(client, [record()], learning_rate=1e-4))
        while not client.log:
            await asyncio.sleep(0.001)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.001)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return client.log

    assert asyncio.run(main()) == WHOLE


def test_a_cancelled_update_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(update_module, "CANCEL_GRACE", 0.05)

    async def main():
        client = Training(fail={"forward_backward": lambda: asyncio.sleep(3600)})
        task = asyncio.ensure_future(update_actor(client, [record()], learning_rate=1e-4))
        while not client.log:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)

    asyncio.run(main())
