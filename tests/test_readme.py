"""The README's Python blocks run, in order, as one program."""

import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 3
    scope = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), scope)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["0", "0"], ["1", "1"], ["2", "1"]]
    assert len(eval(lines[3])) == 2
    assert list((tmp_path / "critic-targets").iterdir())
    assert "torch" in sys.modules  # the embedded trainer really ran
