"""Wall time of ``focus --help`` against the smallest Typer program's, medians of interleaved runs.

    python benchmarks/help_speed.py [runs]

Prints one JSON line; exits 1 if the ratio is above 1.2.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

LIMIT = 1.2
EMPTY = """
import typer
app = typer.Typer(name="empty", help="Nothing.", add_completion=False)
@app.command()
def one() -> None:
    "Do nothing."
@app.command()
def two() -> None:
    "Do nothing."
app()
"""
PROGRAMS = {
    "focus": [sys.executable, "-c", "from focus_core.cli import main; main()", "--help"],
    "empty": [sys.executable, "-c", EMPTY, "--help"],
}


def main(runs: int) -> int:
    """Measure; returns the exit status."""
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for round_ in range(runs + 1):
        for name, command in PROGRAMS.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if round_:  # the first round fills the caches
                seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratio = medians["focus"] / medians["empty"]
    print(
        json.dumps(
            {
                "focus_help_s": round(medians["focus"], 4),
                "empty_typer_help_s": round(medians["empty"], 4),
                "ratio": round(ratio, 3),
                "limit": LIMIT,
                "runs": runs,
            }
        )
    )
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
