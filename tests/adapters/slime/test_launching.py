"""Finding Slime's programs, and running one without leaving anything of it behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from focus_adapter_slime.launching import find_checkout, model_flags, run

from focus_core import UsageError
from tests.adapters.slime.checkout_kit import checkout


@pytest.fixture
def slime(tmp_path, monkeypatch):
    folder = checkout(tmp_path / "checkout")
    monkeypatch.setenv("SLIME_RECORD", str(tmp_path / "record"))
    return folder


@pytest.fixture
def modules(monkeypatch):
    """No module of any Slime is loaded, before or after."""

    def forget():
        for name in [name for name in sys.modules if name.split(".")[0] == "slime"]:
            del sys.modules[name]

    forget()
    yield
    forget()


def gone(pid):
    """Whether a process has ended; nobody else may have reaped it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for(condition):
    while not condition():
        time.sleep(0.01)


# Where it is ----------------------------------------------------------------------------------


def test_the_checkout_is_the_package_s_own_folder(slime, modules, monkeypatch):
    monkeypatch.syspath_prepend(str(slime))
    assert find_checkout() == slime


def test_the_checkout_may_be_named(slime):
    assert find_checkout(str(slime)) == slime
    with pytest.raises(UsageError, match=r"trainer.root=.*scripts has no train.py and train_async"):
        find_checkout(str(slime / "scripts"))


def test_a_package_without_its_programs_says_what_to_name(slime, modules, monkeypatch):
    (slime / "train_async.py").unlink()
    monkeypatch.syspath_prepend(str(slime))
    with pytest.raises(UsageError, match=r"without its train.py.*--set trainer.root=DIR"):
        find_checkout()


def test_without_slime_it_says_how_to_install_it(modules, monkeypatch):
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not Path(p, "slime").exists()])
    with pytest.raises(UsageError, match="Slime is not installed; git clone"):
        find_checkout()


# A model's flags ------------------------------------------------------------------------------


def test_flags_of_a_model_come_from_its_script(slime):
    assert model_flags("small", slime) == ["--num-layers", "2", "--normalization", "RMS Norm"]
    assert model_flags("smaller", slime)[-1] == "--swiglu"
    own = str(slime / "scripts/models/small.sh")
    assert model_flags(own, None) == model_flags("small", slime)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (None, "is no script, nor one of small, smaller"),
        ("x=1", "it sets no MODEL_ARGS"),
        ("MODEL_ARGS=()", "it sets no MODEL_ARGS"),
        ("source nowhere.sh; exit 3", "nowhere.sh"),
    ],
)
def test_a_script_without_flags_is_one_error(slime, tmp_path, script, says):
    if script is not None:
        (tmp_path / "mine.sh").write_text(script)
    with pytest.raises(UsageError, match=says):
        model_flags(str(tmp_path / "mine.sh"), slime)


def test_without_a_checkout_a_name_is_not_enough():
    with pytest.raises(UsageError, match="is no script; give its path"):
        model_flags("small", None)


# Running --------------------------------------------------------------------------------------


def started(slime, mode, code=0):
    environment = {**os.environ, "SLIME_MODE": mode, "SLIME_CODE": str(code), "PYTHONPATH": "x"}
    return [sys.executable, str(slime / "train.py"), "--flag", "a b"], environment


@pytest.mark.parametrize(("mode", "code", "expected"), [("", 0, 0), ("", 7, 7), ("killed", 0, 137)])
def test_its_exit_code_is_passed_on_and_its_children_end(slime, tmp_path, mode, code, expected):
    assert run(*started(slime, mode, code)) == expected
    seen = json.loads((tmp_path / "record").read_text())
    assert seen["args"] == ["--flag", "a b"]
    wait_for(lambda: gone(seen["child"]))


RUNNER = """
import json, sys
from focus_adapter_slime.launching import run
command, environment = json.loads(sys.argv[1])
try:
    print(run(command, environment))
except KeyboardInterrupt:
    print("interrupted")
"""


def running(slime, tmp_path, mode):
    """A process that runs the program; returns it and what the program wrote down."""
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, json.dumps(started(slime, mode))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for((tmp_path / "record").exists)
    return runner, json.loads((tmp_path / "record").read_text())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_nothing_is_left_behind(slime, tmp_path, number):
    runner, seen = running(slime, tmp_path, "wait")
    runner.send_signal(number)
    out, err = runner.communicate(timeout=60)
    assert out == "interrupted\n"
    assert "stopping Slime" in err
    for pid in (seen["pid"], seen["child"]):
        wait_for(lambda pid=pid: gone(pid))


def test_a_second_signal_kills_what_ignores_the_first(slime, tmp_path):
    runner, seen = running(slime, tmp_path, "deaf")
    runner.send_signal(signal.SIGINT)
    assert "once more to end at once" in runner.stderr.readline()
    assert not gone(seen["pid"])
    runner.send_signal(signal.SIGINT)
    assert runner.communicate(timeout=60)[0] == "interrupted\n"
    for pid in (seen["pid"], seen["child"]):
        wait_for(lambda pid=pid: gone(pid))


def test_signal_handlers_are_as_before(slime):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run(*started(slime, ""))
    with pytest.raises(FileNotFoundError):
        run(["/no/such/program"], dict(os.environ))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
