"""The README's Python blocks run, in order, as one program; its MATH command has its problems."""

import itertools
import re
import shlex
import sys

from focus_core.plugins.manager import load
from focus_core.run.config import RunConfig, parse_settings
from focus_core.run.prepare import prepare
from tests.docs.docs_kit import ROOT, blocks, run_python


def test_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "readme"}
    python = [block for block in blocks(ROOT / "README.md") if block.language == "python"]
    assert len(python) == 3
    lines = "".join(run_python(block, scope) for block in python).splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["0", "0"], ["1", "1"], ["2", "1"]]
    assert len(eval(lines[3])) == 2
    assert list((tmp_path / "critic-targets").iterdir())
    assert "torch" in sys.modules  # the embedded trainer really ran


def test_the_math_command_has_its_problems(monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "README.md").read_text().replace("\\\n", "")
    (line,) = re.findall(r"^.venv/bin/(focus train --task math .*)$", text, re.MULTILINE)
    words = shlex.split(line)
    pairs = list(itertools.pairwise(words))
    settings = [value for word, value in pairs if word == "--set"]
    problems = dict(pairs)["--problems"]
    config = RunConfig(task="math", problems=problems, settings=parse_settings(settings))
    assert len(prepare(load(), config, {}).problems) >= 10
