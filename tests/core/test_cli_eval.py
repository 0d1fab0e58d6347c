"""``focus eval``: accuracy with an interval."""

import json
import sys

import pytest

from tests.core.cli_kit import fake_distribution, invoke

BASE = ("eval", "--task", "countdown", "--trainer", "fake")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return fake_distribution(tmp_path_factory.mktemp("site"))


@pytest.fixture(autouse=True)
def here(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(installed), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_line_with_the_interval():
    done = invoke(*BASE)
    assert done.code == 0, done.err
    (line,) = done.out.splitlines()
    assert line.startswith("mean return on 3 problems: 0."), "shares of even tokens"
    assert "n=3" in line
    assert " to " in line


def test_json_is_one_object():
    done = invoke(*BASE, "--rollouts", 4, "--json")
    (found,) = [json.loads(line) for line in done.out.splitlines()]
    assert list(found) == [
        "accuracy",
        "mean_return",
        "low",
        "high",
        "interval",
        "problems",
        "rollouts",
        "unfinished",
        "failed",
        "tokens",
    ]
    assert (found["problems"], found["rollouts"]) == (3, 12)
    assert found["interval"] == "normal, by problem"
    assert found["failed"] == found["unfinished"] == 0
    assert found["accuracy"] is None, "shares of even tokens are no outcomes"
    assert found["low"] < found["mean_return"] < found["high"]


def test_problems_and_their_limit(here):
    (here / "some.txt").write_text("1 2 3 1 2")
    for more, count in ((), 3), (("--problems", "some.txt"), 5), (("--problems", 7), 7):
        done = invoke(*BASE, *more, "--json")
        assert json.loads(done.out)["rollouts"] == count
        limited = invoke(*BASE, *more, "--limit", 2, "--json")
        assert json.loads(limited.out)["rollouts"] == 2


def test_a_run_directory_stands_for_its_newest_checkpoint(here):
    train = ("train", "--task", "countdown", "--trainer", "fake", "--steps", 2, "--run-dir", "run")
    assert invoke(*train).code == 0
    by_run = invoke(*BASE, "--checkpoint", "run", "--json", "--rollouts", 8)
    by_file = invoke(
        *BASE, "--checkpoint", "run/checkpoints/step-000002.json", "--json", "--rollouts", 8
    )
    assert by_run.code == 0, by_run.err
    assert by_run.out == by_file.out


def test_failed_rollouts_are_counted_and_in_no_mean():
    done = invoke(*BASE, "--problems", 3, "--set", "task.bug_in=c1", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["rollouts"], found["failed"]) == (2, 1)
    assert (
        "failed (first: environment at state 0: KeyError"
        in invoke(*BASE, "--problems", 3, "--set", "task.bug_in=c1").out
    )


def test_nothing_but_failures_is_a_failure(here):
    done = invoke(*BASE, "--problems", 1, "--set", "task.bug_in=c0", "--json")
    assert done.code == 1
    assert json.loads(done.out)["accuracy"] is None


def test_no_problems_is_a_usage_error(here):
    (here / "empty.txt").write_text("")
    done = invoke(*BASE, "--problems", "empty.txt")
    assert done.code == 2
    assert "empty.txt holds no problems" in done.err


def test_a_single_other_return_has_no_interval_and_valid_json():
    done = invoke(*BASE, "--limit", 1, "--json", "--set", "task.steps=1")
    row = json.loads(done.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert row["rollouts"] == 1
