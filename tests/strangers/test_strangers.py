"""Distributions of strangers: public names only, installed with pip, run by the command line."""

import ast
import csv
import json
import shutil

import pytest

import focus_core
from focus_core import testing
from tests.strangers.strangers_kit import DISTRIBUTIONS, KINDS
from tests.strangers.venv_kit import focus_of, fresh_environment, pip_install


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment in which the strangers are installed."""
    folder = tmp_path_factory.mktemp("strangers")
    sources = [
        shutil.copytree(each, folder / each.name, ignore=shutil.ignore_patterns("__pycache__"))
        for each in DISTRIBUTIONS
    ]
    python = fresh_environment(folder / "venv")
    pip_install(python, *sources)
    return python


@pytest.fixture(scope="module")
def run(python, tmp_path_factory):
    """A run of the strangers' task, trainer, lane and observer."""
    folder = tmp_path_factory.mktemp("run")
    done = focus_of(
        python,
        *("train", "--task", "codewords", "--trainer", "tabular", "--run-dir", "run"),
        *("--steps", "30", "--eval-every", "15", "--eval-source", "all", "--json"),
        cwd=folder,
        PYTHONWARNINGS="error",
    )
    assert done.code == 0, done.err
    return folder / "run", [json.loads(line) for line in done.out.splitlines()]


def test_there_is_one_of_each_kind():
    assert {folder.name for folder in DISTRIBUTIONS} == {name for name, _ in KINDS.values()}


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=lambda f: f.name)
def test_only_public_names_are_used(folder):
    own = next(folder.glob("src/*")).name
    seen = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not [n.name for n in node.names if n.name.startswith("focus_core.")]
            if isinstance(node, ast.ImportFrom) and not node.module.startswith(own):
                public = {"focus_core": focus_core, "focus_core.testing": testing}
                if node.module.split(".")[0] == "focus_core":
                    assert {name.name for name in node.names} <= set(public[node.module].__all__)
                    seen |= {name.name for name in node.names}
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                private = node.attr.startswith("_") and not node.attr.startswith("__")
                assert not private or node.value.id in ("self", "cls"), ast.unparse(node)
    assert "hookimpl" in seen


def test_the_strangers_are_listed(python, tmp_path):
    listed = focus_of(python, "plugins", "--json", cwd=tmp_path)
    rows = [json.loads(line) for line in listed.out.splitlines()]
    named = {(row["kind"], row["name"]): row.get("distribution") for row in rows}
    for kind, (distribution, name) in KINDS.items():
        if kind != "policy":
            assert named[kind, name] == f"{distribution} 0.3.0"
    assert not [row for row in rows if row["kind"] == "broken"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, name) for kind, (_, name) in KINDS.items()),
        ("lane", "outcomes"),
        ("observer", "trace"),
    ],
)
def test_focus_check_finds_nothing(python, kind, name, tmp_path):
    done = focus_of(python, "check", kind, name, cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    assert "FAILED" not in done.out
    assert not list(tmp_path.iterdir()), "the check left files behind"


def test_the_policy_learns_the_task(run):
    _, reports = run
    returns = [report["metrics"]["return_mean"] for report in reports]
    assert len(returns) == 30
    assert sum(returns[-5:]) / 5 > 0.3
    assert sum(returns[:5]) / 5 < 0.1
    assert reports[0]["metrics"]["ratio_mean"] == pytest.approx(1.0, abs=1e-6)
    assert [report["policy_lag"] for report in reports] == [0] + [1] * 29
    assert reports[-1]["metrics"]["env/right_letters"] > reports[0]["metrics"]["env/right_letters"]


def test_the_lanes_are_kept_in_the_runs_directory(run):
    directory, reports = run
    assert sorted(path.name for path in (directory / "lanes").iterdir()) == [
        "outcomes",
        "preferences",
    ]
    outcomes = [
        json.loads(line)
        for path in sorted((directory / "lanes" / "outcomes").iterdir())
        for line in path.read_text().splitlines()
    ]
    assert len(outcomes) == 30 * 12
    for report, at in zip(reports, range(0, len(outcomes), 12), strict=True):
        returns = [value for record in outcomes[at : at + 12] for value in record["returns"]]
        assert sum(returns) / len(returns) == pytest.approx(report["metrics"]["return_mean"])


def test_preferences_say_which_batch_they_come_from(run):
    directory, _ = run
    files = sorted((directory / "lanes" / "preferences").iterdir())
    batches = []
    for path in files:
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            assert record["lane"] == "preferences"
            assert record["margin"] > 0
            assert set(record["metadata"]["training"]) == {
                "batch",
                "problem",
                "behavior_step",
                "learner_step",
            }
        batches.append({record["metadata"]["training"]["batch"] for record in records})
    assert batches == [{batch} for batch in range(30)]


def test_the_observer_saw_every_step(run):
    directory, reports = run
    header, *rows, last = csv.reader((directory / "steps.csv").read_text().splitlines())
    assert header[0] == "batch"
    assert [int(row[0]) for row in rows] == list(range(30))
    assert [float(row[3]) for row in rows] == [r["metrics"]["return_mean"] for r in reports]
    assert last == ["success"]


def test_an_observer_of_everything_is_told_in_order(run):
    directory, _ = run
    trace = (directory / "trace.txt").read_text().splitlines()
    assert trace[:3] == ["started 30", "published 0 version 0", "evaluated 0"]
    assert trace[-2:] == ["step 29", "finished success"]
    assert [line for line in trace if line.startswith("step")] == [f"step {i}" for i in range(30)]
    assert [line for line in trace if line.startswith("eval")] == [
        f"evaluated {step}" for step in (0, 15, 30)
    ]
    for batch in range(30):
        collected = trace.index(f"collected {batch} at {max(0, batch - 1)}")
        update, step = trace.index(f"update {batch}"), trace.index(f"step {batch}")
        lanes = ("outcomes", "preferences", "critic")
        delivered = [trace.index(f"delivered {batch} {lane}") for lane in lanes]
        assert collected < update < min(delivered) <= max(delivered) < step


def test_one_lane_can_be_chosen(python, tmp_path):
    done = focus_of(
        python,
        *("train", "--task", "codewords", "--trainer", "tabular", "--run-dir", "run"),
        *("--steps", "1", "--lane", "outcomes"),
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    assert [path.name for path in (tmp_path / "run" / "lanes").iterdir()] == ["outcomes"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["lanes"] == ["outcomes"]


def test_a_resumed_run_goes_on_with_lane_and_observer(python, run, tmp_path):
    directory = shutil.copytree(run[0], tmp_path / "run")
    state = json.loads((directory / "state.json").read_text())
    assert state["progress"]["batch"] == state["progress"]["learner_step"] == 30
    state["progress"] |= {"batch": 20, "learner_step": 20}  # as if killed before the last save
    state["reference"] = state["reference"].replace("step-000030", "step-000020")
    (directory / "state.json").write_text(json.dumps(state))
    done = focus_of(python, "train", "--resume", "run", "--steps", "2", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert [json.loads(line)["batch"] for line in done.out.splitlines()] == [20, 21]
    assert len(list((directory / "lanes" / "preferences").iterdir())) == 22
    assert len((directory / "steps.csv").read_text().splitlines()) == 35


@pytest.mark.parametrize(
    ("lane", "said"),
    [("preference", "did you mean preferences"), ("critic", "every run has this lane")],
)
def test_a_wrong_lane_stops_before_the_run(python, tmp_path, lane, said):
    done = focus_of(
        python,
        *("train", "--task", "codewords", "--trainer", "tabular", "--lane", lane),
        cwd=tmp_path,
    )
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
