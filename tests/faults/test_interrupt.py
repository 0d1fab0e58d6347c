"""Real signals to a real process: it stops at once, cleans up, and leaves whole files."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from focus_core.run.directory import RunDirectory
from focus_core.schedule.progress import Progress
from tests.core.cli_kit import Outcome, command, environment, fake_distribution, invoke

TASK = ("--task", "countdown", "--trainer", "fake", "--set", "trainer.mark=mark")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return fake_distribution(tmp_path_factory.mktemp("site"))


def interrupted(installed, cwd, *args, when, by):
    """Start a command, send it a signal when ``when()`` is true, return how it ended and how soon.

    It must be over in 20 seconds.
    """
    process = subprocess.Popen(
        command(*args),
        env=environment(installed),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not when():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(by)
        out, err = process.communicate(timeout=20)
        return Outcome(process.returncode, out, err)
    finally:
        process.kill()
        process.wait()


def marks(cwd):
    path = cwd / "mark"
    return path.read_text().split("\n") if path.exists() else []


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def check_files(folder):
    """Every file is whole, and no temporary one is left."""
    for path in folder.rglob("*"):
        if path.is_file():
            assert not path.name.startswith("."), f"{path} was left"
            text = path.read_text()
            if path.suffix == ".jsonl":
                assert text.endswith("\n")
                assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
            elif path.suffix == ".json":
                json.loads(text)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
@pytest.mark.parametrize("during", ["collect", "update"])
def test_training_stops_at_once_and_cleans_up(installed, tmp_path, during, by):
    slow = {"collect": "task.seconds=60", "update": "trainer.seconds=60"}[during]
    done = interrupted(
        installed,
        tmp_path,
        *("train", *TASK, "--steps", 5, "--run-dir", "run", "--set", "trainer.child=true"),
        *("--set", "task.mark=mark", "--set", slow),
        when=lambda: during in marks(tmp_path),
        by=by,
    )
    assert done.code == 130, done
    assert not done.crashed, done.err
    assert done.err.splitlines()[-1] == "interrupted"
    said = marks(tmp_path)
    assert said[-2:] == ["close interrupted", ""], "the trainer was closed, with the status"
    (child,) = [int(line.split()[1]) for line in said if line.startswith("child")]
    assert not alive(child), "a child process was left"
    check_files(tmp_path)
    assert not (tmp_path / "run/metrics.jsonl").exists(), "no step was counted"
    assert RunDirectory(tmp_path / "run").state() == (Progress(), None), "nothing was saved"


def test_interrupted_while_the_trainer_opens_it_says_so(installed, tmp_path):
    done = interrupted(
        installed,
        tmp_path,
        *("train", *TASK, "--run-dir", "run", "--set", "trainer.opening=60"),
        when=lambda: "opening" in marks(tmp_path),
        by=signal.SIGINT,
    )
    assert done.code == 130, done
    assert done.err.splitlines()[-1] == "interrupted"
    assert done.out.splitlines()[-1] == "interrupted after 0 updates"


@pytest.mark.parametrize("seconds", [0.0, 0.07, 0.15, 0.29])
def test_interrupted_at_some_moment_the_run_resumes_with_nothing_lost(
    installed, tmp_path, monkeypatch, seconds
):
    monkeypatch.chdir(tmp_path)
    start = []

    def when():
        if "open" in marks(tmp_path):
            start.append(time.monotonic())
            return time.monotonic() - start[0] >= seconds
        return False

    run = tmp_path / "run"
    done = interrupted(
        installed,
        tmp_path,
        *("train", *TASK, "--steps", 1000, "--run-dir", run, "--save-every", 1, "--eval-every", 3),
        *("--set", "trainer.seconds=0.005", "--json"),
        when=when,
        by=signal.SIGINT,
    )
    assert done.code == 130, done
    assert not done.crashed, done.err
    check_files(tmp_path)
    reports = [json.loads(line) for line in done.out.splitlines()]
    assert [r["batch"] for r in reports] == list(range(len(reports)))
    metrics = run / "metrics.jsonl"
    written = metrics.read_text().splitlines() if metrics.exists() else []
    assert [json.loads(line)["batch"] for line in written] == list(range(len(written)))
    assert len(written) - len(reports) in (0, 1), "told and written, but for the last"
    if RunDirectory(run).state()[1] is None:
        assert not written
        return
    state = json.loads((run / "state.json").read_text())
    saved = state["progress"]["batch"]
    assert len(written) - saved in (0, 1), "a step may be reported and not saved, not the reverse"
    updates = json.loads((run / state["reference"]).read_text())["updates"]
    assert updates == state["progress"]["learner_step"]
    monkeypatch.setattr(sys, "path", [str(installed), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake")
    again = invoke("train", "--resume", run, "--steps", 2, "--json")
    assert again.code == 0, again.err
    assert [json.loads(line)["batch"] for line in again.out.splitlines()] == [saved, saved + 1]
    delivered = [
        {
            json.loads(line)["metadata"]["training"]["batch"]
            for line in path.read_text().splitlines()
        }
        for path in sorted((run / "critic-targets").iterdir())
    ]
    assert all(len(batches) == 1 for batches in delivered)
    seen = [batch for batches in delivered for batch in batches]
    assert set(seen) >= set(range(saved + 2)), "a batch's critic records are missing"
    assert len(seen) - len(set(seen)) <= 1


@pytest.mark.parametrize("name", ["collect", "eval"])
def test_other_commands_stop_at_once_too(installed, tmp_path, name):
    args = {"collect": ("--output", "out", "--count", 4), "eval": ()}[name]
    done = interrupted(
        installed,
        tmp_path,
        *(name, *TASK, *args, "--set", "task.seconds=60", "--set", "task.mark=mark"),
        when=lambda: "collect" in marks(tmp_path),
        by=signal.SIGINT,
    )
    assert done.code == 130, done
    assert done.out == ""
    assert done.err.splitlines()[-1] == "interrupted"
    assert any(line.startswith("close") for line in marks(tmp_path))
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["mark"]
