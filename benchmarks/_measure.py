"""What the benchmarks share: medians, rows with a target, and the table they print."""

from __future__ import annotations

import argparse
import json
import operator
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

_HOLDS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}


@attrs.frozen
class Row:
    """One figure.

    Attributes:
        what: What was measured.
        value: The figure, usually a ratio to a peer of the same run.
        target: What it should be, such as ``"<= 0.25"``; empty: printed for orientation.
        detail: The measurements it comes from, with their units.
    """

    what: str
    value: float
    target: str = ""
    detail: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the target holds; ``None`` without one."""
        if not self.target:
            return None
        sign, number = self.target.split()
        return bool(_HOLDS[sign](self.value, float(number)))


def seconds(work: Callable[[], Any], repeat: int = 7) -> float:
    """Median wall time of a call, after one that is not counted."""
    work()
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def ratio(
    ours: Callable[[], float], peer: Callable[[], float], repeat: int = 7
) -> tuple[float, float, float]:
    """Medians of two measurements that take turns, and the median of their ratios.

    A neighbour's load then falls on both.
    """
    pairs = [(ours(), peer()) for _ in range(repeat + 1)][1:]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )


def show(rows: Iterable[Row], title: str) -> None:
    """Print rows as they come, one a line; with ``--json`` one object a line."""
    options = argparse.ArgumentParser(description=title)
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    asked = options.parse_args()
    if not asked.json:
        print(title)
    for row in rows:
        said = json.dumps({**attrs.asdict(row), "holds": row.holds}) if asked.json else line(row)
        print(said, flush=True)


def line(row: Row) -> str:
    """A row for people."""
    verdict = {True: "holds", False: "MISSED", None: ""}[row.holds]
    return f"{row.what:58} {row.value:>9.3g}  {row.target:>9} {verdict:7} {row.detail}"


def table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table."""
    lines = ["| what | figure | target | holds | measured |", "|---|---|---|---|---|"]
    for row in rows:
        holds = {True: "yes", False: "**no**", None: ""}[row.holds]
        target = row.target.replace("<=", "≤").replace(">=", "≥").replace("==", "=")
        lines.append(f"| {row.what} | {row.value:.3g} | {target} | {holds} | {row.detail} |")
    return "\n".join(lines)
