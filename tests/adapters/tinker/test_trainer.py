"""The trainer ``tinker`` through the real SDK, against the loopback: contracts, options, runs."""

import asyncio
import json

import attrs
import pytest
from focus_adapter_tinker import TinkerTrainer
from focus_adapter_tinker import trainer as trainer_module

from focus_core import (
    Batch,
    DataError,
    OffPolicyError,
    Problem,
    TrainerError,
    UsageError,
    run_schedule,
)
from focus_core.testing import PolicyContract, TrainerContract
from tests.adapters.tinker.sdk_kit import ENDS_SESSIONS, Training, collector_for, record
from tests.core.cli_kit import invoke


@pytest.fixture
def trainer_of(server):
    def make(**options):
        return TinkerTrainer(**{"model": "tiny", "base_url": server.base_url, "seed": 0, **options})

    return make


@pytest.mark.usefixtures("server")
class TestTrainer(TrainerContract):
    @pytest.fixture(autouse=True)
    def _server(self, server):
        self.base_url = server.base_url

    def subject(self, **options):
        options.pop("checkpoint_dir", None)
        return TinkerTrainer(
            model="tiny", base_url=self.base_url, seed=0, lora_rank=8, learning_rate=1e-3, **options
        )


def test_a_trainer_without_a_seed_keeps_the_contract_of_merging(server):
    """Each begins with an adapter of its own; what is compared begins at one saved state."""

    class Seedless(TrainerContract):
        def subject(self, **options):
            options.pop("checkpoint_dir", None)
            return TinkerTrainer(
                model="tiny", base_url=server.base_url, learning_rate=1e-3, **options
            )

    Seedless().test_merged_records_train_as_single_ones()


@pytest.mark.usefixtures("server")
class TestPolicy(PolicyContract):
    @pytest.fixture(autouse=True)
    def _server(self, server):
        self.base_url = server.base_url

    def subject(self):
        return TinkerTrainer(model="tiny", base_url=self.base_url, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": ""}, "--model NAME"),
        ({"loss": "dro"}, "quadratic term"),
        ({"clip_low_threshold": 0.2, "clip_high_threshold": 0.2}, "bounds on the ratio"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"beta1": 1.0}, "beta1 is 1.0"),
        ({"grad_clip_norm": -1.0}, "grad_clip_norm"),
        ({"checkpoint_ttl": 60}, "an hour"),
        ({"update_timeout": 0.0}, "update_timeout"),
    ],
)
def test_a_wrong_option_is_told_at_once(options, message):
    with pytest.raises(UsageError, match=message):
        TinkerTrainer(**{"model": "m", **options})


def test_without_a_key_the_user_is_told_what_to_set(monkeypatch, tmp_path):
    monkeypatch.delenv("TINKER_API_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))

    async def main():
        async with TinkerTrainer(model="m", base_url="http://127.0.0.1:9"):
            pass

    with pytest.raises(UsageError, match=r"set TINKER_API_KEY, or try .* --dry-run"):
        asyncio.run(main())


def test_options_reach_tinker(trainer_of):
    async def main():
        trainer = trainer_of(
            lora_rank=4, grad_clip_norm=0.5, weight_decay=0.1, eps=1e-8, context_length=64
        )
        async with trainer:
            info = await asyncio.to_thread(trainer._inner.client.get_info)
            policy = await trainer.publish_policy()
            assert policy.context_length == 64
            assert trainer._inner.how.adam == {
                "learning_rate": 1e-4,
                "beta1": 0.9,
                "beta2": 0.95,
                "eps": 1e-8,
                "weight_decay": 0.1,
                "grad_clip_norm": 0.5,
            }
            return info.lora_rank

    assert asyncio.run(main()) == 4


def test_the_context_s_length_is_asked_for(trainer_of):
    async def main():
        async with trainer_of() as trainer:
            return (await trainer.publish_policy()).context_length

    assert asyncio.run(main()) == 1024


@pytest.mark.skipif(not ENDS_SESSIONS, reason="this SDK has no ServiceClient.close")
@pytest.mark.parametrize("status", ["success", "errored", "interrupted"])
def test_the_session_ends_with_how_the_run_went(trainer_of, server, status):
    before = set(server.stats()["sessions"])

    async def main():
        async with trainer_of() as trainer:
            await trainer.close(status)

    asyncio.run(main())
    sessions = server.stats()["sessions"]
    (new,) = set(sessions) - before
    assert sessions[new] == status


def test_a_server_that_is_gone_is_told_on_one_line(monkeypatch):
    """In time, although the SDK holds its locks while it tries for five minutes."""
    monkeypatch.setattr(trainer_module, "_CLOSING", 0.2)

    async def main():
        trainer = TinkerTrainer(model="m", base_url="http://127.0.0.1:9", update_timeout=0.5)
        async with trainer:
            pass

    with pytest.raises(TrainerError, match=r"Tinker does not open 'm': no answer within 0\.5 s"):
        asyncio.run(main())


def run(trainer, steps=2, **options):
    async def main():
        async with trainer:
            return await run_schedule(
                trainer, [Problem("Compute 2+3.")], collector_for, steps=steps, seed=0, **options
            )

    return asyncio.run(main())


@pytest.mark.parametrize("loss", ["ppo", "importance_sampling", "cispo", "cross_entropy"])
def test_every_loss_trains(trainer_of, loss):
    reports = run(trainer_of(loss=loss))
    assert [r.policy_lag for r in reports] == [0, 1]
    assert all("loss" in r.metrics for r in reports)
    assert reports[0].metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-3)


def test_after_a_failed_update_none_is_sent_and_after_a_lost_one_nothing(tokenizer):
    from focus_adapter_tinker.client_trainer import ClientTrainer
    from focus_adapter_tinker.update import Optimization

    def batch(trainer, index):
        items = trainer.convert([record()])
        return Batch(
            index=index, behavior_step=index, learner_step=index, actor=[record()], items=items
        )

    async def spoilt():
        client = Training(tokenizer, gap=2.0)
        trainer = ClientTrainer(client=client, model="m")
        with pytest.raises(OffPolicyError):
            await trainer.update(batch(trainer, 0))
        with pytest.raises(TrainerError, match="may hold gradients of one that failed"):
            await trainer.update(batch(trainer, 0))
        assert client.log.count("forward_backward sent") == 1
        assert (await trainer.publish_policy()).version == 0  # the weights are what they were

    async def lost():
        client = Training(tokenizer, fail={"optim_step": lambda: asyncio.sleep(3600)})
        trainer = ClientTrainer(client=client, model="m", how=Optimization(timeout=0.05))
        with pytest.raises(TrainerError, match="no answer in time"):
            await trainer.update(batch(trainer, 0))
        for what in (trainer.publish_policy(), trainer.save_state("x")):
            with pytest.raises(TrainerError, match="training client waits"):
                await what

    asyncio.run(spoilt())
    asyncio.run(lost())


def test_a_saved_state_says_how_long_it_is_kept(tokenizer):
    from focus_adapter_tinker.client_trainer import ClientTrainer

    trainer = ClientTrainer(client=Training(tokenizer), model="m", checkpoint_ttl=7200)
    assert asyncio.run(trainer.save_state("s")) == "tinker://run/weights/s?ttl=7200"


# The command line


SMALL = ("--set", "search.budget=2", "--set", "search.warmup=2", "--set", "task.segment_tokens=8")


def test_a_run_resumes_from_what_tinker_keeps(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TINKER_BASE_URL", server.base_url)
    common = ("--task", "arithmetic", "--trainer", "tinker", "--model", "some/model", *SMALL)
    done = invoke("train", *common, "--steps", 2, "--run-dir", tmp_path / "run", "--json")
    assert done.code == 0, done
    assert [json.loads(line)["policy_lag"] for line in done.out.splitlines()] == [0, 1]
    state = json.loads((tmp_path / "run/state.json").read_text())
    assert state["reference"].startswith("tinker://")
    done = invoke("train", "--resume", tmp_path / "run", "--steps", 1, "--json")
    assert done.code == 0, done
    (report,) = map(json.loads, done.out.splitlines())
    assert (report["batch"], report["learner_step"]) == (2, 2)


def test_group_rollouts_drop_and_count_what_teaches_nothing(server, tmp_path, monkeypatch):
    """A policy that never answers right: every group is degenerate, every batch is skipped."""
    monkeypatch.setenv("TINKER_BASE_URL", server.base_url)
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"problem": "What is 1+1?", "answer": "no policy says this"}\n')
    done = invoke(
        *("train", "--task", "math", "--trainer", "tinker", "--model", "m", "--steps", 2),
        *("--problems", problems, "--recipe", "group", "--set", "group_size=3", "--json"),
        *("--set", "task.segment_tokens=16", "--run-dir", tmp_path / "run"),
    )
    assert done.code == 0, done
    for line in done.out.splitlines():
        metrics = json.loads(line)["metrics"]
        assert metrics["degenerate_groups"] == 1
        assert metrics["continuations"] == 3
        assert metrics["skipped"] == "no generated token has an advantage"


def test_a_dry_run_needs_no_key_keeps_nothing_and_counts(tmp_path, monkeypatch):
    monkeypatch.delenv("TINKER_API_KEY")
    monkeypatch.chdir(tmp_path)
    prices = tmp_path / "prices.json"
    model = {"prompt": 1.0, "sampled": 2.0, "trained": 3.0}
    prices.write_text(json.dumps({"date": "2026-11-01", "models": {"some/model": model}}))
    done = invoke(
        *("train", "--task", "arithmetic", "--trainer", "tinker", "--model", "some/model"),
        *("--steps", 2, "--dry-run", "--set", f"trainer.prices={prices}", *SMALL, "--json"),
    )
    assert done.code == 0, done
    reports = [json.loads(line) for line in done.out.splitlines()]
    table = done.err[done.err.index("dry run: nothing was sent to Tinker") :].splitlines()
    assert table[-1] == "prices of 2026-11-01"
    rows = {line.split()[0]: line.replace(",", "").split()[1:] for line in table[2:-1]}
    assert list(rows) == ["0", "1", "after", "total"]
    _, prompt, sampled, trained, cost = map(float, rows["total"])
    assert sampled == sum(report["metrics"]["sampled_tokens"] for report in reports)
    assert cost == pytest.approx((prompt + 2 * sampled + 3 * trained) / 1e6, abs=1e-4)
    assert sum(report["metrics"]["cost_usd"] for report in reports) == pytest.approx(cost, abs=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prices.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("{", "no JSON"),
        ({"models": {}}, "no date"),
        ({"date": "2026-11-01", "models": {}}, "no price of 'm'"),
        ({"date": "2026-11-01", "models": {"m": {"prompt": 1}}}, "the prices of 'm'"),
        (
            {"date": "d", "models": {"m": {"prompt": -1, "sampled": 1, "trained": 1}}},
            "the prices of 'm'",
        ),
    ],
)
def test_a_price_file_that_cannot_be_used_is_told(tmp_path, content, message):
    path = tmp_path / "prices.json"
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError, match=message):
        TinkerTrainer(model="m", prices=str(path))


def test_prices_may_be_given_one_by_one():
    trainer = TinkerTrainer(model="m", price_sampled=2.0)
    assert attrs.asdict(trainer.usage.prices)["sampled"] == 2.0
    assert trainer.usage.prices.cost({"sampled": 500_000, "prompt": 7}) == 1.0


def test_only_a_trainer_that_can_makes_a_dry_run(tmp_path):
    done = invoke("train", "--task", "arithmetic", "--dry-run")
    assert (done.code, done.err) == (
        2,
        "focus: trainer 'local' has no dry run; leave --dry-run out\n",
    )
    done = invoke("train", "--resume", tmp_path, "--dry-run")
    assert done.code == 2
    assert "--dry-run would change the run" in done.err
