"""The cookbook's own loop trains a FOCUS task on the real SDK, through the loopback."""

import asyncio
import json
import logging
import warnings

import pytest

pytest.importorskip("aiohttp", reason="the loopback needs it")
pytest.importorskip("focus_adapter_tinker", reason="the loopback is in focus-adapter-tinker")

from focus_adapter_cookbook import FocusDatasetBuilder
from focus_adapter_tinker.loopback import Loopback
from focus_task_arithmetic import ArithmeticTask
from tinker_cookbook.rl import train

from tests.adapters.sessions_kit import ending_sessions


@pytest.fixture(scope="module")
def server():
    with Loopback(model="tiny", threads=1, seed=0) as running:
        yield running


@pytest.fixture
def calm(monkeypatch):
    """A key of the form the SDK wants; loggers left as they were, and no session open."""
    monkeypatch.setenv("TINKER_API_KEY", "tml-loopback")
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with ending_sessions():
        yield
    for handler in [h for h in root.handlers if h not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


@pytest.mark.parametrize("mode", ["sync", "async", "stream"])
def test_three_steps_on_arithmetic(server, calm, tiny, tmp_path, mode):
    groups = 3
    task = {"task": "arithmetic", "options": {"segment_tokens": "40", "max_tokens": "40"}}
    builder = FocusDatasetBuilder(
        **({"task": ArithmeticTask(segment_tokens=40)} if mode == "stream" else task),
        model_name_for_tokenizer=tiny,
        batch_size=groups,
        group_size=2,
        eval_problems=2,
    )
    config = train.Config(
        learning_rate=1e-4,
        dataset_builder=builder,
        model_name=tiny,
        recipe_name="focus",
        max_tokens=40,
        log_path=str(tmp_path / "log"),
        eval_every=0,
        save_every=0,
        max_steps=3,
        lora_rank=4,
        loss_fn="ppo",
        base_url=server.base_url,
        # Nothing is too old, as the cookbook does not sample again what it discards at the end.
        async_config=train.AsyncConfig(max_steps_off_policy=3, groups_per_batch=groups)
        if mode == "async"
        else None,
        stream_minibatch_config=train.StreamMinibatchConfig(
            groups_per_batch=groups, num_minibatches=groups
        )
        if mode == "stream"
        else None,
    )
    before = server.stats()["routes"].get("optim_step", 0)
    with warnings.catch_warnings():  # not ours to mend
        warnings.simplefilter("ignore")
        asyncio.run(train.main(config))
    assert server.stats()["routes"]["optim_step"] - before == 3
    lines = (tmp_path / "log" / "metrics.jsonl").read_text().splitlines()
    steps = [row for row in map(json.loads, lines) if "env/all/reward/total" in row]
    assert len(steps) == 3
    assert abs(steps[0]["optim/kl_sample_train_v1"]) < 1e-3, "sampler and learner agree"
    for row in steps:
        assert row["env/all/total_episodes"] == 2 * groups
        assert 0.0 <= row["env/all/reward/total"] <= 1.0
