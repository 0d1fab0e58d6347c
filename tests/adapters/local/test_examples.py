"""``docs/examples/local_math``: the program as its readers run it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("focus_task_math")
EXAMPLES = Path(__file__).parents[3] / "docs/examples"


def test_it_trains_on_the_tinker_example_s_task(tmp_path):
    (tmp_path / "problems.jsonl").write_text('{"problem": "Compute 2+3.", "answer": "5"}\n')
    path = [str(EXAMPLES / "tinker_math"), os.environ.get("PYTHONPATH")]
    done = subprocess.run(
        [
            *(sys.executable, EXAMPLES / "local_math/train_local.py", "--steps", "1"),
            *("--problem-file", "problems.jsonl", "--learning-rate", "1e-4"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (report,) = map(json.loads, done.stdout.splitlines())
    assert report["policy_lag"] == 0
    assert report["metrics"]["ratio_mean"] == pytest.approx(1.0, abs=1e-3)
    assert len(list((tmp_path / "critic-targets").iterdir())) == 1
