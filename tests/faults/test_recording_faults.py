"""A recording whose run is interrupted or killed, and two runs that want one directory."""

import json
import signal
import subprocess
import time

import pytest

from focus_core.run.recording import Recording
from tests.core.cli_kit import command, environment, fake_distribution, focus
from tests.faults.test_interrupt import interrupted, marks

TRAIN = ("train", "--task", "countdown", "--trainer", "fake", "--set", "trainer.mark=mark")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return fake_distribution(tmp_path_factory.mktemp("site"))


def reported(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("updates", [1, 2, 4])
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL], ids=lambda s: s.name)
def test_what_an_interrupted_run_trained_is_replayed(installed, tmp_path, updates, by):
    """And at most one batch more: the one that was being trained."""
    done = interrupted(
        installed,
        tmp_path,
        *(*TRAIN, "--steps", 1000, "--run-dir", "run", "--record", "rec", "--save-every", 1),
        *("--set", "trainer.seconds=0.05"),
        when=lambda: marks(tmp_path).count("update") > updates,
        by=by,
    )
    assert done.code == (130 if by == signal.SIGINT else -by), done
    live = reported(tmp_path / "run/metrics.jsonl")
    recorded = len(Recording.open(tmp_path / "rec"))
    assert recorded - len(live) in (0, 1)
    assert len(live) >= updates
    done = focus(installed, "train", "--replay", "rec", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    again = [json.loads(line) for line in done.out.splitlines()]
    assert len(again) == recorded
    assert again[: len(live)] == live

    assert by == signal.SIGKILL or not list((tmp_path / "rec").glob(".*"))

    done = focus(installed, "train", "--resume", "run", "--steps", 2, "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    live = reported(tmp_path / "run/metrics.jsonl")
    done = focus(installed, "train", "--replay", "rec", "--json", cwd=tmp_path)
    again = [json.loads(line) for line in done.out.splitlines()]
    assert len(again) == live[-1]["batch"] + 1
    assert [again[report["batch"]] for report in live] == live


def test_two_processes_do_not_record_into_one_directory(installed, tmp_path):
    arguments = (*TRAIN, "--steps", 3, "--record", "rec", "--set", "trainer.seconds=60")
    first = subprocess.Popen(
        command(*arguments),
        env=environment(installed),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "rec/recording.json").exists():
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        second = focus(installed, *arguments, cwd=tmp_path)
        assert second.code == 2
        assert "another run is recording into it" in second.err
    finally:
        first.kill()
        first.communicate()


def test_a_second_run_in_one_directory_changes_nothing_there(installed, tmp_path):
    """Not even before the first has reported anything."""
    arguments = (*TRAIN, "--steps", 3, "--run-dir", "run", "--set", "trainer.seconds=60")
    first = subprocess.Popen(
        command(*arguments),
        env=environment(installed),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 30
        while "update" not in marks(tmp_path):
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        before = (tmp_path / "run/config.json").read_bytes()
        second = focus(installed, *arguments, "--seed", 7, cwd=tmp_path)
        assert second.code == 2
        assert "is being written by another process" in second.err
        assert (tmp_path / "run/config.json").read_bytes() == before
    finally:
        first.kill()
        first.communicate()
