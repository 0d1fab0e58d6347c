"""``focus new``: what it writes where, and what it refuses, on one line."""

import errno
import os
import sys
from pathlib import Path

import pytest

from tests.core.cli_kit import fake_distribution, invoke


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    """A folder to write in, and the fake plug-ins beside it."""
    (tmp_path / "site").mkdir()
    fake_distribution(tmp_path / "site")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.setenv("FOCUS_PLUGINS", "focus-fake")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "checked"),
    [
        ("adapter", "trainer"),
        *((kind, kind) for kind in ("task", "search", "recipe", "critic", "lane", "observer")),
    ],
)
def test_it_writes_a_distribution_and_says_what_is_next(site, kind, checked):
    done = invoke("new", kind, "word-golf")
    assert done.code == 0
    folder = site / f"focus-{kind}-word-golf"
    package = folder / "src" / f"focus_{kind}_word_golf"
    assert {path.name for path in folder.iterdir()} == {
        "README.md",
        "pyproject.toml",
        "src",
        "tests",
    }
    assert {"__init__.py", "plugin.py", "py.typed"} < {path.name for path in package.iterdir()}
    tests = [path.name for path in (folder / "tests").iterdir()]
    assert tests == [f"test_focus_{kind}_word_golf.py"]
    assert not [p for p in folder.rglob("*") if p.is_file() and "{{" in p.read_text()]
    assert done.out.splitlines()[1:] == [
        f"  pip install -e {folder.name}",
        f"  focus check {checked} word-golf",
        *(["  focus check policy word-golf"] if kind == "adapter" else []),
        f"  python -m pytest {folder.name}",
    ]


def test_it_writes_where_it_is_told(site):
    (site / "empty").mkdir()
    assert invoke("new", "lane", "best", "--directory", "empty").code == 0
    assert (site / "empty" / "pyproject.toml").is_file()
    assert not (site / "focus-lane-best").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("trainer", "x"), "choose task, adapter, search, recipe, critic, lane, observer"),
        (("taks", "x"), "did you mean task"),
        (("task", "Word_Golf"), "lower-case letters"),
        (("task", "a--b"), "single hyphens"),
        (("task", "../up"), "cannot be a name"),
        (("task", "x" * 25), "24 characters"),
        (("task", "focus-task-x"), "leave the prefix out"),
        (("task", "countdown"), "a task 'countdown' is installed already"),
        (("lane", "actor"), "a lane 'actor' is installed already"),
        (("task", "ok", "--directory", "site"), "exists already"),
        (("task", "ok", "--directory", "site/focus_fake.py"), "exists already"),
        (("task", "ok", "--directory", "site/focus_fake.py/below"), "cannot be written"),
    ],
)
def test_what_it_refuses(site, arguments, said):
    before = sorted(site.rglob("*.py"))
    done = invoke("new", *arguments)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert sorted(site.rglob("*.py")) == before


@pytest.mark.parametrize("exists", [False, True])
def test_a_full_disk_leaves_nothing_half_written(site, monkeypatch, exists):
    write = Path.write_text

    def full(path, *args, **kwargs):
        if path.name == "plugin.py":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, *args, **kwargs)

    if exists:
        (site / "there").mkdir()
    monkeypatch.setattr(Path, "write_text", full)
    done = invoke("new", "task", "golf", "--directory", "there")
    assert done.code == 2
    assert "there cannot be written: No space left" in done.err
    assert (site / "there").exists() == exists
    monkeypatch.undo()
    monkeypatch.chdir(site)
    monkeypatch.setattr(sys, "path", [str(site / "site"), *sys.path])
    assert invoke("new", "task", "golf", "--directory", "there").code == 0
