"""The run directory: what it writes, what it refuses, what it makes of odd numbers."""

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_core import DataError, StepReport, UnknownNameError, UsageError
from focus_core.run.config import RunConfig, parse_settings
from focus_core.run.directory import RunDirectory
from focus_core.schedule.progress import Progress
from focus_core.utils.plain_json import to_json

CONFIG = RunConfig(task="countdown", trainer="fake", settings={"task": {"steps": "3"}})


@pytest.fixture
def made(tmp_path):
    return RunDirectory.create(tmp_path / "deep" / "run", CONFIG)


def report(batch, **metrics):
    return StepReport(batch, 0, batch, batch, metrics)


def test_it_holds_what_was_asked_for(made):
    assert made.config() == attrs.asdict(CONFIG)
    assert RunConfig(**made.config()) == CONFIG


def test_a_saved_state_is_read_back(made):
    progress = Progress(batch=4, learner_step=3, sampled_tokens=99)
    made.saved("checkpoints/step-000003", progress)
    assert made.state() == (progress, "checkpoints/step-000003")
    made.saved("another", Progress(batch=5, learner_step=4, sampled_tokens=120))
    assert RunDirectory.open(made.path).state()[1] == "another"


def test_a_run_that_was_moved_finds_its_checkpoints(made, tmp_path):
    made.saved(str(made.path / "checkpoints/step-000003"), Progress(batch=3, learner_step=3))
    made.saved(str(made.path.resolve() / "checkpoints/step-000003"), Progress(batch=3))
    made.path.rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert RunDirectory.open(moved).state()[1] == str(moved / "checkpoints/step-000003")


def test_reports_are_whole_lines_in_order(made):
    for batch in range(3):
        made.report(report(batch, loss=np.float32(0.5), bad=math.nan, worse=-math.inf))
    lines = (made.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["batch"] for line in lines] == [0, 1, 2]
    assert json.loads(lines[0])["metrics"] == {"loss": 0.5, "bad": None, "worse": None}
    assert list(json.loads(lines[0])) == [
        "batch",
        "behavior_step",
        "learner_step",
        "policy_lag",
        "metrics",
    ]


def test_appending_from_threads_never_mixes_lines(made):
    def write(start):
        for batch in range(start, start + 50):
            made.report(report(batch, text="x" * 2000))

    threads = [threading.Thread(target=write, args=(1000 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (made.path / "metrics.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["batch"] for line in lines) == sorted(
        1000 * k + i for k in range(4) for i in range(50)
    )


def test_evaluations_are_kept(made):
    made.evaluation(3, {"eval/greedy": 0.5, "eval/greedy_low": -math.inf})
    assert json.loads((made.path / "evaluations.jsonl").read_text()) == {
        "learner_step": 3,
        "eval/greedy": 0.5,
        "eval/greedy_low": None,
    }


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.jsonl", "state.json"])
def test_a_directory_in_which_a_run_made_something_is_refused(made, name):
    (made.path / name).write_text("{}")
    with pytest.raises(UsageError, match="holds a run already"):
        RunDirectory.create(made.path, CONFIG)


def test_a_directory_whose_run_never_began_is_used_again(made):
    RunDirectory.create(made.path, attrs.evolve(CONFIG, seed=7))
    assert made.config()["seed"] == 7


def test_a_directory_with_other_files_is_used(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    RunDirectory.create(tmp_path, CONFIG)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_write_that_fails_leaves_the_old_state(made, monkeypatch):
    made.saved("good", Progress(batch=1, learner_step=1))

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        made.saved("bad", Progress(batch=2, learner_step=2))
    assert made.state()[1] == "good"
    assert sorted(p.name for p in made.path.iterdir()) == ["config.json", "state.json"]


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"3", b"null", b"\xff\xfe", "folder"])
@pytest.mark.parametrize("name", ["config.json", "state.json"])
def test_a_damaged_file_is_named_with_a_remedy(made, name, content):
    made.saved("good", Progress(batch=1, learner_step=1))
    path = made.path / name
    path.unlink()
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        RunDirectory.open(made.path)
    assert caught.value.path == path
    assert caught.value.remedy


# JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (np.float32(1.5), 1.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.float64("nan"), None),
        (math.inf, None),
        (True, True),
        (None, None),
        ("é\ud835", "é\ud835"),
        ((1, [2.0, (math.nan,)]), [1, [2.0, [None]]]),
        ({1: {"a": np.float32(2)}}, {"1": {"a": 2.0}}),
        (Path("a"), "a"),
        (np.array([1.0, 2.0]), [1.0, 2.0]),
        ({3}, "{3}"),
        (2**80, 2**80),
    ],
    ids=repr,
)
def test_json_types(value, form):
    found = to_json(value)
    assert found == form
    assert type(found) is type(form)
    json.dumps(found, allow_nan=False)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@given(anything)
def test_anything_becomes_valid_json(value):
    json.loads(json.dumps(to_json(value), allow_nan=False))


# Settings -------------------------------------------------------------------------------------


def test_settings_by_section():
    assert parse_settings(
        ["task.steps=3", "search.budget = 4", "task.name=a=b", "trainer.x=", "task.steps=5"]
    ) == {
        "task": {"steps": "5", "name": "a=b"},
        "search": {"budget": " 4"},
        "trainer": {"x": ""},
    }


@pytest.mark.parametrize("pair", ["", "task", "task.steps", "=", ".=", "task.=3", "steps=3"])
def test_a_pair_that_is_none_is_refused(pair):
    with pytest.raises(UsageError, match=r"SECTION\.NAME=VALUE"):
        parse_settings([pair])


def test_an_unknown_section_lists_the_known():
    with pytest.raises(
        UnknownNameError, match=r"did you mean search.*task, search, recipe, critic, trainer"
    ):
        parse_settings(["serch.budget=3"])


# Rewinding ------------------------------------------------------------------------------------


def run_of(directory, batches):
    """Reports, evaluations and critic files of so many batches; a checkpoint after two."""
    sink = directory.critic_sink()
    for batch in range(batches):
        directory.report(report(batch))
        directory.evaluation(batch + 1, {})
        sink([{"metadata": {"training": {"batch": batch}}}])
    directory.saved("reference", Progress(batch=2, learner_step=2))


def numbers(path, key):
    return [json.loads(line)[key] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_rewinding_drops_what_came_after_the_checkpoint(tmp_path, elsewhere):
    critic = tmp_path / "critic" if elsewhere else None
    config = RunConfig(task="t", critic_output=critic and str(critic))
    directory = RunDirectory.create(tmp_path / "run", config)
    run_of(directory, 4)
    other = RunDirectory.create(tmp_path / "other", attrs.evolve(config, run_id="other"))
    run_of(other, 4)
    before = set(directory.critic_targets.iterdir())
    assert len(directory.rewind()) == 4
    assert numbers(directory.path / "metrics.jsonl", "batch") == [0, 1]
    assert numbers(directory.path / "evaluations.jsonl", "learner_step") == [1]
    assert len(before - set(directory.critic_targets.iterdir())) == 2
    assert len(list(other.critic_targets.iterdir())) == (6 if elsewhere else 4)
    assert directory.rewind() == []


def test_a_line_cut_short_by_a_crash_goes(made):
    run_of(made, 2)
    with (made.path / "metrics.jsonl").open("a") as file:
        file.write('{"batch": 1, "metr')
    assert made.rewind() == ["metrics.jsonl", "evaluations.jsonl"]
    assert numbers(made.path / "metrics.jsonl", "batch") == [0, 1]


def test_a_line_in_between_that_cannot_be_read_is_named(made):
    run_of(made, 3)
    path = made.path / "metrics.jsonl"
    path.write_text("{}\nnonsense\n" + path.read_text())
    before = path.read_text()
    with pytest.raises(DataError, match=r"metrics\.jsonl:2: cannot be read; mend or remove"):
        made.rewind()
    assert path.read_text() == before


def test_one_process_at_a_time_writes_to_a_run(made):
    with made.locked():
        code = (
            "import sys; from pathlib import Path; from focus_core.run.directory import *\n"
            "with RunDirectory(Path(sys.argv[1])).locked(): print('mine')"
        )
        held = subprocess.run(
            [sys.executable, "-c", code, made.path], capture_output=True, text=True
        )
        assert held.stdout == ""
        assert "is being written by another process" in held.stderr
        with pytest.raises(UsageError, match="another process"), made.locked():
            raise AssertionError
    free = subprocess.run([sys.executable, "-c", code, made.path], capture_output=True, text=True)
    assert free.stdout == "mine\n"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("steps", bad) for bad in ("5", 0, 1.5, True, None)),
        *(("epochs", bad) for bad in ("5", 0)),
        *((name, 3) for name in ("task", "trainer", "problems", "order", "record", "replay")),
        *((name, None) for name in ("task", "trainer", "order", "seed", "run_id", "failure_rate")),
        *(("async_depth", bad) for bad in ("1", 2, True)),
        *(("lanes", bad) for bad in ("abc", 3, [3])),
        *(("settings", bad) for bad in ([], {"trainer": 3})),
        *(("deadline", bad) for bad in ("x", 0, math.nan, math.inf)),
        ("failure_rate", 1.5),
        ("merge", "yes"),
        ("save_every", 0),
        ("run_id", "../*"),
        ("no_such_field", 1),
    ],
)
def test_a_configuration_that_was_edited_wrongly_is_named(made, field, value):
    path = made.path / "config.json"
    path.write_text(json.dumps({**made.config(), field: value}))
    with pytest.raises(DataError, match=rf"config\.json: not a run's configuration: .*{field}"):
        made.config()


@pytest.mark.parametrize(
    "state",
    [
        {"reference": None},
        {"reference": 3},
        {"progress": []},
        *({"progress": {"batch": bad}} for bad in ("3", -1, 1.5, True, None)),
        {"progress": {"learner_step": "x"}},
        {"progress": {"step": 1}},
    ],
)
def test_a_state_that_was_edited_wrongly_is_named(made, state):
    whole = {"reference": "step-3", "progress": {"batch": 3}, "inside": False}
    (made.path / "state.json").write_text(json.dumps({**whole, **state}))
    with pytest.raises(DataError, match=r"state\.json: not a run's state: "):
        made.state()
