"""The trainer ``tinker`` through the real SDK, against the loopback: contracts, options, runs."""

import asyncio
import json
import math

import attrs
import pytest
from focus_adapter_tinker import TinkerTrainer
from focus_adapter_tinker import trainer as trainer_module

from focus_core import (
    Batch,
    DataError,
    GenerationError,
    OffPolicyError,
    Problem,
    SamplingParams,
    TrainerError,
    UsageError,
    run_schedule,
)
from focus_core.run.recording import Recording
from focus_core.testing import PolicyContract, TrainerContract
from tests.adapters.tinker.sdk_kit import (
    ENDS_SESSIONS,
    Sampler,
    Training,
    answer,
    collector_for,
    record,
)
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
        ({"update_timeout": math.inf}, "update_timeout is inf"),
        ({"learning_rate": math.inf}, "learning_rate is inf"),
        ({"eps": math.nan}, "eps is nan"),
        ({"weight_decay": math.inf}, "weight_decay is inf"),
        ({"logprob_tolerance": math.nan}, "logprob_tolerance is nan"),
        ({"context_length": 0}, "context_length is 0"),
        *(
            ({f"price_{kind}": price}, f"price_{kind} is {price!r}; .* finite number")
            for kind in ("prompt", "sampled", "trained")
            for price in (-0.1, math.nan, math.inf, 10**400)
        ),
    ],
)
def test_a_wrong_option_is_told_at_once(options, message):
    with pytest.raises(UsageError, match=message):
        TinkerTrainer(**{"model": "m", **options})


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

    with pytest.raises(
        TrainerError,
        match=r"^Tinker at http://127\.0\.0\.1:9 does not open 'm': no answer within 0\.5 s; "
        r"cannot reach http://127\.0\.0\.1:9 \(ConnectError: ",
    ):
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


@pytest.mark.parametrize("depth", [0, 1])
def test_groups_that_teach_nothing_are_dropped_counted_and_never_an_error(
    server, tmp_path, monkeypatch, depth
):
    """Two groups of eight a batch: one of them degenerate, then both, then one again."""
    monkeypatch.setenv("TINKER_BASE_URL", server.base_url)
    sums = [
        ("Compute 1+8+8-6. Box the answer.", "16"),
        *[("What is 1+1?", "what no policy says")] * 3,
    ]
    problems = tmp_path / "problems.jsonl"
    lines = [json.dumps({"problem": text, "answer": answer}) for text, answer in sums]
    problems.write_text("\n".join(lines))
    done = invoke(
        *("train", "--task", "math", "--trainer", "tinker", "--model", "m", "--steps", 3),
        *("--problems", problems, "--order", "sequential", "--problems-per-step", 2),
        *("--recipe", "group", "--set", "group_size=8", "--set", "task.segment_tokens=16"),
        *("--seed", 0, "--async-depth", depth, "--json"),
        *("--run-dir", tmp_path / "run", "--record", tmp_path / "record"),
    )
    assert done.code == 0, done
    reports = [json.loads(line) for line in done.out.splitlines()]
    assert [r["metrics"]["continuations"] for r in reports] == [16, 16, 16]
    assert [r["metrics"]["degenerate_groups"] for r in reports] == [1, 2, 1]
    assert [r["learner_step"] for r in reports] == [0, 1, 1], "a batch of nothing is no update"
    nothing = "no generated token has an advantage"
    assert [r["metrics"].get("skipped") for r in reports] == [None, nothing, None]
    assert ["loss" in r["metrics"] for r in reports] == [True, False, True]
    recording = Recording.open(tmp_path / "record")
    for index, report in enumerate(reports):
        trees = recording.read(index).trees
        assert [bool(tree) for tree in trees] == [index != 1, False], "the other group's are left"
        trained = [sum(r.trained_tokens for r in tree) for tree in trees]
        assert report["metrics"].get("trained_tokens", 0) == sum(trained)
        assert all(r.has_signal for tree in trees for r in tree)


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
    assert [int(rows[str(report["batch"])][2]) for report in reports] == [
        report["metrics"]["sampled_tokens"] for report in reports
    ], "the table counts each batch as its report does"
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
        *(
            (
                {"date": "d", "models": {"m": {"prompt": price, "sampled": 1, "trained": 1}}},
                "the prices of 'm'",
            )
            for price in (-1, True, math.nan, math.inf, 10**400, None)
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


LACKS = "the cost is without {} tokens, whose price was not given ({})"


@pytest.mark.parametrize(
    ("options", "dated", "says"),
    [
        ({}, True, "prices of 2026-11-01"),
        ({"price_trained": 7.5}, True, "prices of 2026-11-01; but trainer.price_trained=7.5"),
        (
            {"price_prompt": 0, "price_trained": 2},
            True,
            "prices of 2026-11-01; but trainer.price_prompt=0, trainer.price_trained=2",
        ),
        (
            {"price_sampled": 0.4},
            False,
            "prices trainer.price_sampled=0.4; "
            + LACKS.format("prompt and trained", "trainer.price_prompt, trainer.price_trained"),
        ),
        (
            {"price_prompt": 1, "price_sampled": 2, "price_trained": 3},
            False,
            "prices trainer.price_prompt=1, trainer.price_sampled=2, trainer.price_trained=3",
        ),
    ],
)
def test_the_table_says_whose_prices_and_which_are_missing(tmp_path, options, dated, says):
    if dated:
        path = tmp_path / "prices.json"
        model = {"prompt": 1.0, "sampled": 2.0, "trained": 3.0}
        path.write_text(json.dumps({"date": "2026-11-01", "models": {"m": model}}))
        options = {**options, "prices": str(path)}
    trainer = TinkerTrainer(model="m", **options)
    trainer.usage.count(requests=1, sampled=1_000_000)
    assert trainer.summary().splitlines()[-1] == says
    assert trainer.usage.prices.cost({"sampled": 10**6}) == options.get("price_sampled", 2.0)


# What is counted


def test_what_failed_after_an_answer_is_counted(tokenizer):
    """It was asked for and answered, so it is paid for."""
    from focus_adapter_tinker import TinkerPolicy
    from focus_adapter_tinker.client_trainer import ClientTrainer
    from focus_adapter_tinker.usage import Usage

    def counts(usage):
        return {name: number for name, number in usage._now.items() if number}

    async def update(**fault):
        trainer = ClientTrainer(client=Training(tokenizer, **fault), model="m")
        items = trainer.convert([record()])
        with pytest.raises(TrainerError):
            await trainer.update(
                Batch(index=0, behavior_step=0, learner_step=0, actor=[record()], items=items)
            )
        return counts(trainer.usage)

    async def publish(profile, **fault):
        trainer = ClientTrainer(client=Training(tokenizer, **fault), model="m", profile=profile)
        with pytest.raises((TrainerError, UsageError)):
            await trainer.publish_policy()
        return counts(trainer.usage)

    async def sample(answered):
        sampler = Sampler(tokenizer, answer=lambda *_: answered)
        policy = TinkerPolicy(sampler, model="m", usage=Usage())
        with pytest.raises(GenerationError):
            await policy.generate([1, 2], SamplingParams(max_tokens=4))
        return counts(policy._usage)

    boom = ValueError("boom")
    assert asyncio.run(update(fail={"forward_backward": boom})) == {}
    assert asyncio.run(update(fail={"optim_step": boom})) == {"requests": 1, "trained": 3}
    assert asyncio.run(update(metrics={"loss:sum": math.nan})) == {"requests": 1, "trained": 3}
    assert asyncio.run(publish("token_chunk", fail={"snapshot": boom})) == {}
    assert asyncio.run(publish("hermes")) == {"requests": 1}
    asked = {"requests": 1, "samples": 1, "prompt": 2}
    assert asyncio.run(sample(answer(([5, 6], None, "stop")))) == {**asked, "sampled": 2}
    assert asyncio.run(sample(answer())) == asked


def test_a_publish_that_fails_leaves_the_counts_of_the_run_right(trainer_of, server):
    """The table after a failure holds what the server was asked for, and no more."""
    names = {"prompt": "prompt_tokens", "sampled": "sampled_tokens", "trained": "trained_tokens"}
    before = server.stats()
    trainer = trainer_of(price_sampled=1.0)
    server.inject("save_weights_for_sampler:2=fail")
    try:
        with pytest.raises(TrainerError, match="publishing the policy of step 1 failed"):
            run(trainer, steps=3, async_depth=0)  # else a request that is cut short may be done
    finally:
        server.heal()
    after = server.stats()
    total = trainer.usage.table().splitlines()[-2].replace(",", "").split()
    assert total[0] == "total"
    for place, name in enumerate(names.values(), 2):
        assert int(total[place]) == after[name] - before[name]


def test_a_dry_run_says_what_stood_in_for_the_model(tmp_path, monkeypatch):
    """Its context is the tiny model's, whatever name it is given, and prompts are held to it."""
    monkeypatch.delenv("TINKER_API_KEY")
    trainer = TinkerTrainer(model="some/other-model", dry_run=True, seed=0)

    async def main():
        async with trainer:
            return (await trainer.publish_policy()).context_length

    assert asyncio.run(main()) == 1024
    first = trainer.summary().splitlines()[0]
    assert first == (
        "dry run: nothing was sent to Tinker; 'tiny' stood in, which takes 1,024 tokens"
    )


def test_a_run_that_fails_says_what_it_saved(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TINKER_BASE_URL", server.base_url)
    common = ("train", "--task", "arithmetic", "--trainer", "tinker", "--model", "m", *SMALL)

    def failing(position, name, *more):
        server.inject(f"optim_step:{position}=fail")
        try:
            done = invoke(*common, "--steps", 3, "--run-dir", tmp_path / name, *more)
        finally:
            server.heal()
        assert (done.code, done.crashed) == (1, False)
        return done.out, done.err

    out, err = failing(1, "none")
    assert "saved" not in out
    assert "(no state was saved to go on from)" in err
    out, err = failing(2, "lost")
    assert out.endswith("nothing was saved (batches done: 1); --save-every N saves after every N\n")
    assert "(no state was saved to go on from)" in err
    out, err = failing(2, "kept", "--save-every", 1)
    assert f"go on with: focus train --resume {tmp_path}/kept\n" in out
    assert "(the newest state to go on from is tinker://" in err


def test_only_a_trainer_that_can_makes_a_dry_run(tmp_path):
    done = invoke("train", "--task", "arithmetic", "--dry-run")
    assert (done.code, done.err) == (
        2,
        "focus: trainer 'local' has no dry run; leave --dry-run out\n",
    )
    done = invoke("train", "--resume", tmp_path, "--dry-run")
    assert done.code == 2
    assert "--dry-run would change the run" in done.err
