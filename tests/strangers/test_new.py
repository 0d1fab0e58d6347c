"""What ``focus new`` writes works as it is: installed, checked, tested, typed, formatted."""

import subprocess
import sys

import pytest

from tests.core.cli_kit import environment
from tests.strangers.strangers_kit import HERE
from tests.strangers.venv_kit import ROOT, focus_of, fresh_environment, pip_install

KINDS = {
    "adapter": "trainer",
    **{kind: kind for kind in ("task", "search", "recipe", "critic", "lane", "observer")},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a distribution of each kind, installed in an environment of its own."""
    folder = tmp_path_factory.mktemp("new")
    python = fresh_environment(folder / "venv")
    for kind in KINDS:
        done = focus_of(python, "new", kind, "agent", cwd=folder)
        assert done.code == 0, done.err
    pip_install(python, *folder.glob("focus-*"))
    return folder, python


def succeeds(*command, cwd, **more):
    done = subprocess.run(
        [str(part) for part in command],
        env=environment(ROOT, FOCUS_PLUGINS="", **more),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("kind", "name"), [*((c, "agent") for c in KINDS.values()), ("policy", "agent")]
)
def test_it_passes_its_check(made, kind, name):
    folder, python = made
    done = focus_of(python, "check", kind, name, cwd=folder)
    assert done.code == 0, done.out + done.err


def test_it_passes_its_own_tests(made):
    """In one process, as each takes longer to start than to run."""
    folder, python = made
    pytest = (python, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--import-mode=importlib")
    said = succeeds(*pytest, *folder.glob("focus-*"), cwd=folder)
    for name in (
        "TestAgentTask",
        "TestTrainer",
        "TestPolicy",
        "TestAgentSearch",
        "TestAgentRecipe",
        "TestAgentCritic",
        "TestAgentLane",
        "TestAgentObserver",
    ):
        assert f"{name}::" in said


def test_together_they_train(made):
    folder, python = made
    arguments = ["--task", "agent", "--trainer", "agent", "--steps", "3", "--run-dir", "run"]
    arguments += ["--search", "agent", "--recipe", "agent", "--critic", "agent"]
    done = focus_of(python, "train", *arguments, cwd=folder, PYTHONWARNINGS="error")
    assert done.code == 0, done.err
    assert len(list((folder / "run" / "lanes" / "agent").iterdir())) == 3
    log = (folder / "run" / "agent.log").read_text().splitlines()
    assert len(log) == 5
    assert log[-1] == "success after 3 updates"


def test_a_recording_replays_and_exports(made):
    """With another learning rate, so that the replaying learner is not the one that sampled."""
    folder, python = made
    for line in (
        "train --task agent --trainer agent --steps 2 --async-depth 0 --record recording",
        "train --replay recording --learning-rate 0.1",
        "export recording --to agent --output items.jsonl",
    ):
        done = focus_of(python, *line.split(), cwd=folder)
        assert done.code == 0, done.err
    assert '"before"' in (folder / "items.jsonl").read_text()


@pytest.mark.parametrize("name", ["a", "word-golf", "abcdefghij-klmnopqrst-wx"])
def test_style_is_clean_whatever_the_name(made, tmp_path, name):
    """Lines get longer with a name, and imports sort by it."""
    _, python = made
    ruff = (sys.executable, "-m", "ruff")
    for kind in KINDS:
        assert focus_of(python, "new", kind, name, cwd=tmp_path).code == 0
        distribution = tmp_path / f"focus-{kind}-{name}"
        succeeds(*ruff, "format", "--no-cache", "--check", ".", cwd=distribution)
        succeeds(*ruff, "check", "--no-cache", ".", cwd=distribution)


def test_types_are_clean(made):
    """The strangers' too, as nothing else reads their annotations."""
    folder, _ = made
    sources = [path.parent for path in folder.glob("focus-*-agent/src/*/__init__.py")]
    assert len(sources) == len(KINDS)
    sources += [path.parent for path in HERE.glob("focus-*/src/*/__init__.py")]
    mypy = (sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder / "mypy")
    succeeds(*mypy, *sources, cwd=folder)
