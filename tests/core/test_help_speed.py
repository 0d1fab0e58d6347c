"""``benchmarks/help_speed.py`` runs and prints what it promises; the ratio is not tested here."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks/help_speed.py"


def test_it_prints_one_line_of_numbers():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "1"], capture_output=True, text=True, timeout=60
    )
    found = json.loads(done.stdout)
    assert list(found) == ["focus_help_s", "empty_typer_help_s", "ratio", "limit", "runs"]
    assert found["focus_help_s"] > 0.0 < found["empty_typer_help_s"]
    assert found["runs"] == 1
    assert done.returncode == (found["ratio"] > found["limit"])
