"""A replay's updates beside those of the live run that recorded it, while other processes work.

torch's threads wait for each other at the end of every operation. If they wait by spinning, a
replay, whose threads are no more than the cores, loses whole turns of the scheduler to its
neighbours.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from _measure import Row, ratio, show

from focus_core import hookimpl
from focus_core.plugins.events import StepFinished
from focus_core.plugins.manager import load
from focus_core.run.start import opened

LIVE = {"task": "arithmetic", "trainer": "local", "steps": 4, "problems_per_step": 2}
SEARCH = {"budget": "8", "warmup": "4"}


class Clock:
    """Takes the time of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @hookimpl
    def focus_step_finished(self, event: StepFinished) -> None:
        """One more."""
        self.seconds.append(event.seconds)


def steps(kind: str, folder: Path) -> float:
    """Median seconds of a step, after the first, which warms up; in this process."""
    recording, clock = str(folder / "recording"), Clock()
    asked = {"replay": recording, "settings": {}}
    if kind == "live":
        asked = {**LIVE, "record": recording, "settings": {"search": SEARCH}}
    asked["save_every"] = 100
    with (
        tempfile.TemporaryDirectory() as place,
        opened(load(), asked, run_dir=Path(place, "run"), say=lambda line: None) as ready,
    ):
        asyncio.run(ready.train([clock]))
    return statistics.median(clock.seconds[1:-1])


def measured(kind: str, folder: Path) -> float:
    """The same in a process of its own, with as many threads as it takes by itself."""
    free = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run(
        [sys.executable, __file__, kind, str(folder)],
        env=free,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout))


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Other processes that work meanwhile."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def beside(count: int, target: str) -> Row:
    """A replay's seconds to those of the run before it."""
    with neighbours(count), tempfile.TemporaryDirectory() as made:
        runs = itertools.count()

        def live() -> float:
            return measured("live", Path(made, str(next(runs))))

        def replay() -> float:
            return measured("replay", max(Path(made).iterdir(), key=lambda path: int(path.name)))

        peer, ours, share = ratio(live, replay, repeat=2)
    return Row(
        f"replay / live, seconds a step, beside {count} busy processes",
        1 / share,
        target,
        f"{ours:.2f} s, {peer:.2f} s",
    )


def rows() -> Iterator[Row]:
    """Beside as many busy processes as there are cores, and beside none of ours."""
    yield beside(os.cpu_count() or 1, "<= 1.5")
    yield beside(0, "")


if __name__ == "__main__":
    if sys.argv[1:2] in (["live"], ["replay"]):
        print(steps(sys.argv[1], Path(sys.argv[2])))
    else:
        show(rows(), "Updates of a replay beside those of the run that recorded it")
