"""``docs/examples/tinker_math``: the programs as their readers run them, against the loopback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import focus_adapter_local
import pytest

from tests.adapters.tinker.sdk_kit import ENDS_SESSIONS
from tests.core.test_vllm_critic import Pooling

pytest.importorskip("focus_task_math")
EXAMPLE = Path(__file__).parents[3] / "docs/examples/tinker_math"


@pytest.fixture
def type_in(server, tmp_path):
    """Run one of the programs in an empty folder with a file of problems; its output lines."""
    (tmp_path / "problems.jsonl").write_text(
        '{"problem": "Compute 2+3.", "solution": "It is \\\\boxed{5}.", "id": "a"}\n'
        '{"problem": "Solve 3x + 7 = 22.", "solution": "x is \\\\boxed{5}."}\n'
    )
    environment = {**os.environ, "TINKER_BASE_URL": server.base_url}

    def run(program, *args):
        done = subprocess.run(
            [
                *(sys.executable, "-W", "error", EXAMPLE / program),
                *("--model", "some/model", "--problem-file", "problems.jsonl", *map(str, args)),
            ],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def reports(lines):
    return [json.loads(line) for line in lines if line.startswith("{")]


def saved(lines):
    (line,) = [line for line in lines if line.startswith("Training checkpoint: ")]
    return line.removeprefix("Training checkpoint: ")


@pytest.mark.parametrize(("depth", "lags"), [(1, [0, 1, 1]), (0, [0, 0, 0])])
def test_the_launch_trains_saves_and_resumes(type_in, tmp_path, server, depth, lags):
    lines = type_in("train_tinker.py", "--steps", 3, "--async-depth", depth)
    assert [report["policy_lag"] for report in reports(lines)] == lags
    assert len(list((tmp_path / "critic-targets").iterdir())) == 3
    assert lines[-1] == "Critic targets: critic-targets"
    state = saved(lines)
    assert state.endswith("/after-3-updates")
    more = type_in("train_tinker.py", "--steps", 1, "--resume-from", state, "--critic-output", "b")
    (report,) = reports(more)
    assert report["metrics"]["ratio_mean"] == pytest.approx(1.0, abs=1e-3)
    if ENDS_SESSIONS:
        assert list(server.stats()["sessions"].values())[-2:] == ["success", "success"]


def test_the_variant_asks_the_value_model(type_in, tmp_path):
    with Pooling(pooled=lambda text: [[0.0], [0.25]]) as critic:
        lines = type_in(
            *("train_tinker_vllm.py", "--steps", 1),
            *("--critic-url", critic.url, "--critic-model", "value"),
        )
    assert len(reports(lines)) == 1
    asked = {text for request in critic.requests for text in request["input"]}
    (file,) = (tmp_path / "critic-targets").iterdir()
    told = {json.loads(line)["context"] for line in file.read_text().splitlines()}
    assert told <= asked, "the text that was sent is the text that is saved"


def test_the_quick_start_tries_every_problem(type_in):
    lines = type_in("math_quickstart.py", "--model", f"{focus_adapter_local.__path__[0]}/tiny")
    assert len(lines) == 2
    assert lines[0].startswith("a ")
