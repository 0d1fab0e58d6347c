"""A recorded run of the embedded trainer, replayed in another process: the same, to the bit."""

import json

import pytest

from tests.core.cli_kit import invoke
from tests.end_to_end.test_local_runs import focus, lines_of, reports

SMALL = ["--set", "search.budget=8", "--set", "search.warmup=4", "--problems-per-step", "2"]
WEIGHTS = ("adapter_model.safetensors", "optimizer.safetensors")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three updates at asynchronous depth 1, recorded."""
    folder = tmp_path_factory.mktemp("recorded")
    done = focus(
        *("train", "--task", "arithmetic", "--model", "tiny", "--steps", "3", "--json", *SMALL),
        *("--set", "trainer.threads=1", "--learning-rate", "1e-3", "--seed", "7"),
        *("--run-dir", "run", "--record", "recording"),
        cwd=folder,
    )
    assert [line["policy_lag"] for line in reports(done)] == [0, 1, 1]
    return folder, reports(done)


@pytest.fixture
def here(run, monkeypatch):
    """``focus`` in this process, in the run's folder; its reports."""
    monkeypatch.chdir(run[0])

    def type_in(*arguments):
        done = invoke(*arguments)
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    return type_in


def weights(run, step=3):
    folder = run / "checkpoints" / f"step-{step:06d}"
    return [(folder / name).read_bytes() for name in WEIGHTS]


def test_the_same_weights_and_reports(run):
    folder, live = run
    again = reports(
        focus("train", "--replay", "recording", "--run-dir", "again", "--json", cwd=folder)
    )
    assert again == live
    assert all(line["metrics"]["loss"] for line in again)
    assert weights(folder / "again") == weights(folder / "run")
    assert lines_of(folder / "again" / "metrics.jsonl") == live


def test_the_same_weights_after_an_interruption(run, here):
    folder, live = run
    here("train", "--replay", "recording", "--steps", "2", "--run-dir", "parts", "--json")
    last = here("train", "--resume", "parts", "--steps", "1", "--json")
    assert last == live[2:]
    assert weights(folder / "parts") == weights(folder / "run")


def test_other_options_train_other_weights_from_the_same_tokens(run, here):
    folder, live = run
    arguments = ["train", "--replay", "recording", "--run-dir", "faster", "--json"]
    again = here(*arguments, "--learning-rate", "1e-2")
    assert weights(folder / "faster") != weights(folder / "run")
    for ours, theirs in zip(again, live, strict=True):
        for name in ("trained_tokens", "sampled_tokens", "actor_records", "return_mean"):
            assert ours["metrics"][name] == theirs["metrics"][name]
    assert again[0]["metrics"]["loss"] == live[0]["metrics"]["loss"]
    assert again[2]["metrics"]["logprob_gap"] > live[2]["metrics"]["logprob_gap"]


def test_lag_zero_of_another_run_is_not_mistaken_for_the_learners_own(here, tmp_path, monkeypatch):
    """At depth 0 every batch has lag 0; with another learning rate the ratio is not 1."""
    monkeypatch.chdir(tmp_path)
    here(
        *("train", "--task", "arithmetic", "--steps", "2", *SMALL, "--async-depth", "0", "--json"),
        *("--record", "recording", "--run-dir", "run", "--learning-rate", "1e-3"),
        *("--set", "trainer.threads=1"),
    )
    again = here("train", "--replay", "recording", "--learning-rate", "3e-2", "--json")
    assert [line["policy_lag"] for line in again] == [0, 0]
    assert again[1]["metrics"]["logprob_gap_max"] > 1e-3, "an update of its own would refuse this"


def test_items_of_the_recording_are_those_the_learner_read(run, here):
    _, live = run
    items = here("export", "recording", "--to", "local", "--merge")
    assert len(items) == sum(line["metrics"]["actor_records"] for line in live)
    assert sum(sum(item["mask"]) for item in items) == sum(
        line["metrics"]["trained_tokens"] for line in live
    )
