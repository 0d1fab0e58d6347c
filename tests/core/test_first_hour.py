"""What somebody meets in the first hour: help that is whole, a line while a model loads."""

import asyncio
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from focus_core import TaskDefaults
from focus_core.cli import app
from focus_core.run import entering
from tests.core.cli_kit import environment, fake_distribution, invoke

ROOT = Path(__file__).parents[2]
COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_cuts_nothing_at_80_columns(monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    done = invoke(*[name] * (name is not None), "--help")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    assert "\u2026" not in done.out
    said = " ".join(done.out.split())
    if name is None:
        for each, command in COMMANDS.items():
            assert f"{each} {' '.join(command.help.split(chr(10) * 2)[0].split())}" in said
        assert not re.search(r"\w\.\.\.", said)
        return
    for option in COMMANDS[name].params:
        for spelling in [*option.opts, *option.secondary_opts]:
            assert option.param_type_name == "argument" or spelling in said
        assert re.sub(r"\s", "", option.help or "") in re.sub(r"\s", "", done.out)


class Slow:
    """A trainer that takes its time to load."""

    model = "big"

    def __init__(self, seconds):
        self.seconds = seconds

    async def __aenter__(self):
        await asyncio.sleep(self.seconds)
        if self.seconds < 0:
            raise OSError("no")
        return self

    async def __aexit__(self, *error):
        await asyncio.sleep(self.seconds)


@pytest.mark.parametrize(("seconds", "lines"), [(0.05, 1), (0.0, 0)])
def test_a_model_that_loads_says_so_once(monkeypatch, capsys, seconds, lines):
    monkeypatch.setattr(entering, "PATIENCE", 0.01)

    async def main():
        async with entering.entered(Slow(seconds), "local") as trainer:
            assert trainer.model == "big"
            await asyncio.sleep(0.03)

    asyncio.run(main())
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "loading the model big for the trainer local ...\n" * lines


@pytest.mark.parametrize("command", ["train", "collect", "eval"])
def test_every_command_that_loads_a_model_says_so(tmp_path, monkeypatch, command):
    monkeypatch.setattr(sys, "path", [str(fake_distribution(tmp_path)), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(entering, "PATIENCE", 0)
    more = {"train": ("--steps", 1), "collect": ("--output", "out"), "eval": ()}[command]
    trainer = importlib.import_module("focus_fake").Fake
    enter = trainer.__aenter__

    async def slowly(self):
        await asyncio.sleep(0.02)
        return await enter(self)

    monkeypatch.setattr(trainer, "__aenter__", slowly)
    done = invoke(command, "--task", "countdown", "--trainer", "fake", *more)
    assert done.code == 0, done
    assert done.err.count("loading the trainer fake ...\n") == 1


def test_a_task_without_problems_passes_nothing(tmp_path, monkeypatch):
    fake_distribution(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake")
    fake = importlib.import_module("focus_fake")
    monkeypatch.setattr(fake.Countdown, "defaults", TaskDefaults())
    done = invoke("check", "task", "countdown")
    assert (done.code, done.out) == (2, "")
    assert "has no problems of its own" in done.err
    assert "give --problems SOURCE" in done.err
    assert invoke("check", "task", "countdown", "--problems", "3").code == 0


def test_installing_ends_with_the_next_step(tmp_path):
    """Of an installation that is there already; a script that goes on by itself says nothing."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/install", "requirements-dev.txt", "constraints.txt", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "tasks/one").mkdir(parents=True)
    (tmp_path / "tasks/one/pyproject.toml").write_text("")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    asked = subprocess.run(
        "cat scripts/install requirements-dev.txt constraints.txt pyproject.toml "
        "./*/*/pyproject.toml | cksum >.venv/installed",
        shell=True,
        cwd=tmp_path,
        check=True,
    )
    assert asked.returncode == 0

    def install(**more):
        env = {**environment(tmp_path), **os.environ, "PYTHON": sys.executable, **more}
        return subprocess.run(
            ["bash", "scripts/install"], cwd=tmp_path, env=env, capture_output=True, text=True
        )

    done = install(GOES_ON="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("installed into .venv. Next: source .venv/")
    assert "focus collect --task arithmetic --output first-tree" in done.stdout
    assert install(GOES_ON="1").stdout == ""
