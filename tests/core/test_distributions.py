"""The monorepo's own order: requirements complete, versions in lockstep, folders not importable."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT, *sorted(ROOT.glob("adapters/*")), *sorted(ROOT.glob("tasks/*"))]
PROJECTS = {
    folder: tomllib.loads((folder / "pyproject.toml").read_text())["project"] for folder in FOLDERS
}


def test_requirements_dev_installs_every_distribution():
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    editable = {re.sub(r"\[.*\]", "", line[3:]) for line in lines if line.startswith("-e ")}
    expected = {"./" + str(f.relative_to(ROOT)) if f != ROOT else "." for f in FOLDERS}
    assert editable == expected


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_distribution_is_in_order(folder):
    project = PROJECTS[folder]
    assert project["version"] == PROJECTS[ROOT]["version"]
    assert project["requires-python"] == ">=3.11"
    if folder != ROOT:
        kind = {"adapters": "adapter", "tasks": "task"}[folder.parent.name]
        assert project["name"] == f"focus-{kind}-{folder.name}"
        assert "focus-core>=0.1,<0.2" in project["dependencies"]
        assert project["entry-points"]["focus"]
        assert list(folder.glob("src/*/py.typed"))
        assert (folder / "README.md").is_file()


def test_folders_are_not_importable(tmp_path):
    script = (
        "import importlib.util, sys\n"
        "for name in ('adapters', 'tasks', 'tests', 'docs', 'benchmarks', 'scripts'):\n"
        "    spec = importlib.util.find_spec(name)\n"
        "    print(*(spec.submodule_search_locations or ()) if spec else ())\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert str(ROOT) not in found.stdout


def test_core_lists_every_package():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = sorted(
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in ROOT.glob("focus_core/**/__init__.py")
    )
    assert sorted(listed) == found
