"""``focus train --record`` and ``--replay``, on a fake task and fake trainers."""

import json
import sys

import pytest

from tests.core.cli_kit import distribution, fake_distribution, invoke

TRAIN = ("train", "--task", "countdown", "--trainer", "fake", "--json")
REPLAY = ("train", "--replay", "rec", "--json")

OTHER = """
    from focus_core import TrainerSpec, hookimpl
    from focus_core.testing import RecordingTrainer

    class Edges(RecordingTrainer):
        capabilities = frozenset()

        def __init__(self, *, rate: float = 1.0) -> None:
            super().__init__()
            self.rate = rate

        async def update(self, batch):
            edges = [item["metadata"]["edge"] for item in batch.items]
            assert not any("spans" in item["metadata"] for item in batch.items)
            return {"rate": self.rate, "edges": len(edges)}

    @hookimpl
    def focus_trainers():
        return [TrainerSpec("edges", "one record per edge", Edges)]
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = fake_distribution(tmp_path_factory.mktemp("site"))
    return distribution(folder, "t-edges", points={"edges": "t_edges"}, t_edges=OTHER)


@pytest.fixture(autouse=True)
def here(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(installed), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake,t-edges")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reports(done):
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def critic_records(run):
    return [path.read_text() for path in sorted((run / "critic-targets").iterdir())]


def test_a_replay_reports_and_delivers_what_the_run_did(here):
    live = reports(invoke(*TRAIN, "--steps", 3, "--run-dir", "run", "--record", "rec", "--seed", 5))
    assert sorted(path.name for path in (here / "rec").iterdir()) == [
        "batch-000000.npz",
        "batch-000001.npz",
        "batch-000002.npz",
        "recording.json",
    ]
    again = reports(invoke(*REPLAY, "--run-dir", "again"))
    assert again == live
    assert (here / "again/metrics.jsonl").read_bytes() == (here / "run/metrics.jsonl").read_bytes()
    assert critic_records(here / "again") == critic_records(here / "run")
    config = json.loads((here / "again/config.json").read_text())
    assert (config["trainer"], config["seed"], config["record"]) == ("fake", 5, None)


def test_a_recording_has_a_directory_of_its_own(here):
    done = invoke(*TRAIN, "--run-dir", "run", "--record", "./run")
    assert done.code == 2
    assert "is the run's own directory; name another" in done.err
    assert not (here / "run").exists()


def test_another_trainer_is_given_its_own_form_and_options(here):
    live = reports(
        invoke(*TRAIN, "--steps", 2, "--record", "rec", "--set", "trainer.learning_rate=0.5")
    )
    again = reports(invoke(*REPLAY, "--trainer", "edges", "--set", "trainer.rate=3"))
    steps = ("batch", "behavior_step", "learner_step", "policy_lag")
    assert [[r[name] for name in steps] for r in again] == [[r[n] for n in steps] for r in live]
    for ours, theirs in zip(again, live, strict=True):
        assert ours["metrics"]["rate"] == 3
        assert ours["metrics"]["edges"] == ours["metrics"]["actor_records"]
        assert ours["metrics"]["actor_records"] > theirs["metrics"]["actor_records"]
        assert ours["metrics"]["trained_tokens"] == theirs["metrics"]["trained_tokens"]


def test_fewer_steps_and_evaluations(here):
    invoke(*TRAIN, "--steps", 3, "--record", "rec")
    done = invoke(*REPLAY, "--steps", 2, "--eval-every", 1, "--run-dir", "again")
    assert [r["batch"] for r in reports(done)] == [0, 1]
    evaluations = (here / "again/evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["learner_step"] for line in evaluations] == [0, 1, 2]


def test_a_resumed_run_goes_on_with_its_recording(here):
    invoke(*TRAIN, "--steps", 5, "--run-dir", "whole", "--record", "whole/rec")
    invoke(*TRAIN, "--steps", 5, "--run-dir", "run", "--record", "rec", "--save-every", 2)
    state = json.loads((here / "run/state.json").read_text())
    checkpoint = here / "run/checkpoints/step-000002.json"
    progress = {"batch": 2, "learner_step": 2, "sampled_tokens": 0}
    (here / "run/state.json").write_text(
        json.dumps({"progress": progress, "reference": str(checkpoint)})
    )
    assert state["progress"]["batch"] == 5
    done = invoke("train", "--resume", "run", "--json")
    assert [r["batch"] for r in reports(done)] == [2, 3, 4]
    assert "batch-000002.npz, batch-000003.npz, batch-000004.npz" in done.err
    lags = [r["policy_lag"] for r in reports(invoke(*REPLAY))]
    assert lags == [0, 1, 0, 1, 1]


def test_a_replay_is_resumed_too(here):
    live = reports(invoke(*TRAIN, "--steps", 4, "--record", "rec"))
    first = reports(invoke(*REPLAY, "--steps", 2, "--run-dir", "again"))
    done = invoke("train", "--resume", "again", "--steps", 2, "--json")
    assert first + reports(done) == live
    done = invoke("train", "--resume", "again", "--steps", 1)
    assert done.code == 2
    assert "holds 0 batches from batch 4 on" in done.err
    done = invoke("train", "--resume", "again", "--problems", "5", "--steps", 1)
    assert "--problems says how to collect" in done.err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--task", "countdown"), "--task says how to collect"),
        (("--problems", "4"), "--problems says how to collect"),
        (("--search", "independent"), "--search says how to collect"),
        (("--recipe", "group"), "--recipe says how to collect"),
        (("--async-depth", "0"), "--async-depth says how to collect"),
        (("--problems-per-step", "2"), "--problems-per-step says how to collect"),
        (("--deadline", "3"), "--deadline says how to collect"),
        (("--allow-partial",), "--allow-partial says how to collect"),
        (("--failure-rate", "1"), "--failure-rate says how to collect"),
        (("--max-tokens", "9"), "--max-tokens says how to collect"),
        (("--min-abs-advantage", "1"), "--min-abs-advantage says how to collect"),
        (("--record", "again"), "--record says how to collect"),
        (("--set", "task.steps=1"), "--set task.steps says how to collect"),
        (("--set", "search.budget=1"), "--set search.budget says how to collect"),
        (("--steps", "3"), "holds 2 batches"),
        (("--resume", "run"), "leave --replay out"),
    ],
)
def test_what_a_replay_could_only_ignore_is_refused(here, option, said):
    invoke(*TRAIN, "--steps", 2, "--run-dir", "run", "--record", "rec")
    before = sorted(here.rglob("*"))
    done = invoke(*REPLAY, *option)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--record", "rec"), "holds another run's recording"),
        (("--record", "file"), "cannot be written"),
        (("--replay", "run"), "no such file; give a directory that focus train --record wrote"),
        (("--replay", "empty"), "no batch is recorded"),
        (("--resume", "run", "--record", "rec"), "leave --record out"),
    ],
)
def test_a_wrong_directory_is_one_line(here, arguments, said):
    invoke(*TRAIN, "--steps", 2, "--run-dir", "run", "--record", "rec")
    (here / "file").write_text("mine")
    (here / "empty").mkdir()
    (here / "empty/recording.json").write_text((here / "rec/recording.json").read_text())
    task = TRAIN if arguments[0] == "--record" else ("train",)
    done = invoke(*task, *arguments)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_a_damaged_batch_stops_a_replay_with_its_name(here):
    invoke(*TRAIN, "--steps", 2, "--record", "rec")
    path = here / "rec/batch-000001.npz"
    path.write_bytes(path.read_bytes()[:-9])
    done = invoke(*REPLAY)
    assert done.code == 2
    assert "batch-000001.npz: not a recorded batch: File is not a zip file" in done.err
    assert "Traceback" not in done.err


def test_a_replay_needs_its_task_only_to_evaluate(here, monkeypatch):
    invoke(*TRAIN, "--steps", 2, "--record", "rec")
    monkeypatch.setenv("FOCUS_PLUGINS", "t-edges")
    assert len(reports(invoke(*REPLAY, "--trainer", "edges"))) == 2
    done = invoke(*REPLAY, "--trainer", "edges", "--eval-every", 1)
    assert done.code == 2
    assert "no task 'countdown'" in done.err
