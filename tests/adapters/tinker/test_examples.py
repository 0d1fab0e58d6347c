"""``docs/examples/tinker_math``: the programs as their readers run them, against the loopback."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import focus_adapter_local
import pytest

from tests.adapters.tinker.sdk_kit import ENDS_SESSIONS
from tests.core.test_vllm_critic import Pooling

pytest.importorskip("focus_task_math")
EXAMPLE = Path(__file__).parents[3] / "docs/examples/tinker_math"
STRICT = (
    *("-W", "error"),
    *("-W", "ignore:unclosed transport:ResourceWarning"),
    *("-W", "ignore:unclosed <socket:ResourceWarning"),
)
"""Every warning is an error, but for the sockets that the SDK leaves to the garbage collector."""


@pytest.fixture
def start(server, tmp_path):
    """Start one of the programs in an empty folder with a file of problems."""
    (tmp_path / "problems.jsonl").write_text(
        '{"problem": "Compute 2+3.", "solution": "It is \\\\boxed{5}.", "id": "a"}\n'
        '{"problem": "Solve 3x + 7 = 22.", "solution": "x is \\\\boxed{5}."}\n'
    )

    def begin(program, *args, **changed):
        environment = {**os.environ, "TINKER_BASE_URL": server.base_url, **changed}
        return subprocess.Popen(
            [
                *(sys.executable, *STRICT, EXAMPLE / program),
                *("--model", "some/model", "--problem-file", "problems.jsonl", *map(str, args)),
            ],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


@pytest.fixture
def type_in(start):
    """Run one of the programs to its end; its output lines."""

    def run(program, *args):
        process = start(program, *args)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        return out.splitlines()

    return run


def reports(lines):
    return [json.loads(line) for line in lines if line.startswith("{")]


def saved(lines):
    (line,) = [line for line in lines if line.startswith("Training checkpoint: ")]
    return line.removeprefix("Training checkpoint: ")


@pytest.mark.parametrize(
    ("depth", "lags"), [(1, [0, 1, 1]), pytest.param(0, [0, 0, 0], marks=pytest.mark.long)]
)
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


def statuses(server):
    return list(server.stats()["sessions"].values())


@pytest.fixture
def healed(server):
    yield server
    server.heal()


def but_warnings(err):
    """Lines besides the warnings of batches without any reward: the tiny policy solves nothing."""
    warned = re.compile(r"batch \d+: no rollout got any reward")
    return [line for line in err.splitlines() if not warned.match(line)]


def test_a_failure_is_one_line_and_the_session_ends_errored(start, healed):
    healed.inject("forward_backward:1=fail")
    process = start("train_tinker.py", "--steps", 2)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert reports(out.splitlines()) == []
    (line,) = but_warnings(err)
    assert re.match(r"error: TrainerError: the update of step 0 on batch 0 failed: ", line)
    assert "(no state was saved to go on from)" in line
    if ENDS_SESSIONS:
        assert statuses(healed)[-1] == "errored"


def test_an_interrupted_program_ends_its_session_so(start, server):
    process = start("train_tinker.py", "--steps", 1000)
    assert json.loads(process.stdout.readline())["batch"] == 0
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, but_warnings(err)) == (130, ["interrupted"])
    if ENDS_SESSIONS:
        assert statuses(server)[-1] == "interrupted"


@pytest.mark.skipif(not ENDS_SESSIONS, reason="this SDK has no ServiceClient.close")
def test_a_server_that_does_not_listen_holds_no_program_up(start, healed, tmp_path):
    """The end of the session is waited for, but not for ever."""
    healed.inject("finish:1-=timeout")
    impatient = tmp_path / "impatient.py"
    impatient.write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(EXAMPLE)!r})\nimport math_quickstart\n"
        "assert math_quickstart.close.__defaults__ == (10,)\n"
        "math_quickstart.close.__defaults__ = (0.5,)\n"
        f"runpy.run_path({str(EXAMPLE / 'train_tinker.py')!r}, run_name='__main__')\n"
    )
    process = start(impatient, "--steps", 1)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert out.splitlines()[-1].startswith("Critic targets: ")
    assert but_warnings(err) == ["the session was not ended: no answer within 0.5 s"]


@pytest.mark.parametrize(
    ("args", "changed", "says"),
    [
        ((), {"TINKER_API_KEY": ""}, "error: TinkerError: .*api_key"),
        ((), {"TINKER_API_KEY": "hush"}, "error: TinkerError: .*'tml-' prefix"),
        (("--resume-from", "nowhere"), {}, "error: .*nowhere"),
        (("--resume-from", "tinker://no/weights/x"), {}, "error: .*no state was saved"),
        (("--problem-file", "missing.jsonl"), {}, "error: DataError: missing.jsonl"),
    ],
)
def test_a_mistake_is_one_line(start, tmp_path, args, changed, says):
    process = start("train_tinker.py", *args, HOME=str(tmp_path), **changed)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "Traceback" not in err
    assert re.match(says, err.splitlines()[-1]), err
    assert "hush" not in err
