"""The README's Python blocks run, in order, as one program."""

import sys

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
