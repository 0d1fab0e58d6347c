"""``train``: the schedule around a training client that the caller opened."""

import asyncio
import copy
import pickle
import threading
from dataclasses import asdict

import pytest
from focus_adapter_tinker import StepReport, train

from focus_core import (
    CollectionError,
    JsonlDirectory,
    OffPolicyError,
    TrainerError,
    UsageError,
)
from tests.adapters.tinker.sdk_kit import PROBLEMS, Training, answer, collector_for


def run(client, **options):
    defaults = {"model": "m", "problems": PROBLEMS, "collector_for": collector_for, "steps": 3}
    return asyncio.run(train(client, **{**defaults, "learning_rate": 1e-5, **options}))


@pytest.mark.parametrize(("depth", "lags"), [(1, [0, 1, 1]), (0, [0, 0, 0])])
def test_lags_reports_and_critic_files(tokenizer, tmp_path, depth, lags):
    client, seen = Training(tokenizer), []
    reports = run(
        client,
        async_depth=depth,
        critic_sink=JsonlDirectory(tmp_path / "critic"),
        on_step=seen.append,
        profile="token_chunk",
    )
    assert [report.policy_lag for report in reports] == lags
    assert seen == reports
    assert all(type(report) is StepReport for report in reports)
    assert len(list((tmp_path / "critic").iterdir())) == 3
    assert client.log == [
        line
        for _ in range(3)
        for name in ("forward_backward", "optim_step")
        for line in (f"{name} sent", f"{name} done")
    ]
    assert len(client.samplers) == (2 if depth else 3), "none is made that nothing samples"


def test_reports_are_plain_values(tokenizer):
    (report,) = run(Training(tokenizer), steps=1)
    assert copy.deepcopy(report) == pickle.loads(pickle.dumps(report)) == report
    assert asdict(report)["metrics"]["loss"] == 1.5


def test_a_batch_s_behaviour_is_that_of_the_sampler_it_came_from(tokenizer):
    """Batch 2 is sampled by the policy of step 1, and says so."""
    client = Training(tokenizer)
    reports = run(client)
    assert [r.behavior_step for r in reports] == [0, 0, 1]
    assert [sampler.version for sampler in client.samplers] == [0, 1]
    assert all(sampler.log for sampler in client.samplers)


def test_the_snapshot_is_made_in_another_thread(tokenizer):
    threads = []

    class Watched(Training):
        def save_weights_and_get_sampling_client(self):
            threads.append(threading.current_thread())
            return super().save_weights_and_get_sampling_client()

    run(Watched(tokenizer))
    assert threading.main_thread() not in threads
    assert len(threads) == 2


def test_records_of_a_path_are_merged_only_where_the_loss_allows(tokenizer):
    sizes = {}
    for loss in ("ppo", "gspo"):
        client = Training(tokenizer)
        run(client, steps=1, loss_fn=loss)
        sizes[loss] = len(client.losses[0][2])
    assert sizes["ppo"] < sizes["gspo"]


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ({"fail": {"snapshot": OSError("no room")}}, TrainerError, "policy of step 0 failed"),
        (
            {"fail": {"optim_step": RuntimeError("boom")}},
            TrainerError,
            "the update of step 0 on batch 0 failed.*may have been applied",
        ),
        ({"gap": 3.0}, OffPolicyError, "the update of step 0 on batch 0"),
    ],
)
def test_a_failure_names_the_step_and_leaves_nothing_running(tokenizer, fault, error, message):
    async def main():
        with pytest.raises(error, match=message):
            await train(
                Training(tokenizer, **fault),
                model="m",
                problems=PROBLEMS,
                collector_for=collector_for,
                steps=3,
                learning_rate=1e-5,
            )
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert asyncio.run(main()) == []


def test_after_an_error_no_further_gradient_is_sent(tokenizer):
    client = Training(tokenizer, fail={"optim_step": RuntimeError("boom")})
    with pytest.raises(TrainerError):
        run(client)
    assert client.log.count("forward_backward sent") == 1


def test_a_sample_that_cannot_be_trained_on_ends_the_run_or_is_left_out(tokenizer):
    class Sometimes(Training):
        def save_weights_and_get_sampling_client(self):
            sampler = super().save_weights_and_get_sampling_client()
            asked = []

            def respond(prompt, n, params):
                asked.append(prompt)
                bad = len(asked) == 2
                return answer(([20, 21, 22], None if bad else [-0.5] * 3, "length"))

            sampler.answer = respond
            return sampler

    with pytest.raises(CollectionError, match="no log probabilities"):
        run(Sometimes(tokenizer), steps=1)
    # One of a few continuations is more than a run accepts without being told to.
    with pytest.raises(CollectionError, match="continuations failed"):
        run(Sometimes(tokenizer), steps=1, allow_partial=True)


def test_a_wrong_loss_or_profile_is_told_before_anything_is_sampled(tokenizer):
    for wrong in ({"loss_fn": "dro"}, {"profile": "hermes"}, {"profile": "x"}):
        client = Training(tokenizer)
        with pytest.raises(UsageError):
            run(client, **wrong)
        assert not any(sampler.log for sampler in client.samplers)
        assert client.log == []


def test_an_interrupted_run_finishes_the_update_it_sent(tokenizer):
    async def main():
        go_on = asyncio.Event()
        client = Training(tokenizer, fail={"forward_backward": go_on.wait})
        task = asyncio.ensure_future(
            train(
                client,
                model="m",
                problems=PROBLEMS,
                collector_for=collector_for,
                steps=3,
                learning_rate=1e-5,
            )
        )
        while not client.log:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.01)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        others = asyncio.all_tasks() - {asyncio.current_task()}
        return client.log, others

    log, others = asyncio.run(main())
    assert log[-1] == "optim_step done"
    assert log.count("optim_step done") == 1
    assert others == set()
