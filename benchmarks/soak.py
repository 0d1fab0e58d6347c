"""Two thousand trees through ``focus collect`` with a stub policy: what is left of them in memory.

    python benchmarks/soak.py

The command runs in this process, with a task and a trainer of this file's: resident memory is read
as each tree begins, and tasks, threads and child processes are counted in the event loop when the
trainer is closed. Trees ask a text critic in a thread; each hundredth grades in a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import os
import random
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from _measure import Row, show

from focus_core import (
    Agent,
    Collector,
    Critic,
    Problem,
    ProcessExecution,
    Reply,
    Segments,
    Selective,
    TaskDefaults,
    TaskSpec,
    TrainerSpec,
    Transition,
    hookimpl,
)
from focus_core.testing import RandomPolicy, RecordingTrainer

TREES, FIRST = 2000, 500


@attrs.define
class Seen:
    """What was measured.

    Attributes:
        resident: Bytes in memory when the tree with this number began.
        tasks: Left at the end, as are ``threads`` and ``processes``.
        begun: Trees.
        started: Trees with a process of their own.
    """

    resident: dict[int, int] = attrs.field(factory=dict)
    tasks: int = -1
    threads: int = -1
    processes: int = -1
    begun: int = 0
    started: int = 0


SEEN = Seen()


def resident() -> int:
    """Bytes of this process that are in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def children() -> int:
    """Processes that this one started and that are there still, ended or not."""
    lists = Path("/proc/self/task").glob("*/children")
    return sum(len(path.read_text().split()) for path in lists)


class Gamble:
    """Ends at random, and pays at random."""

    def __init__(self, seed: int, execution: ProcessExecution | None) -> None:
        self.draw, self.apart, self.taken = random.Random(seed), execution, 0

    def reset(self, problem: Problem) -> Sequence[Any]:
        """One message."""
        self.taken = 0
        return ({"role": "user", "content": "1 2 3"},)

    async def step(self, reply: Reply) -> Transition:
        """Draw; the grade may come from a process."""
        self.taken += 1
        if self.taken < 8 and self.draw.random() < 7 / 8:
            return Transition()
        if self.apart is not None:
            return Transition(float(await self.apart.run(len, reply.text) % 2), done=True)
        return Transition(self.draw.random(), done=True)

    def snapshot(self) -> int:
        """The count."""
        return self.taken

    def restore(self, state: int) -> None:
        """The count."""
        self.taken = state

    async def aclose(self) -> None:
        """End the processes."""
        if self.apart is not None:
            await self.apart.aclose()


class Task:
    """As many problems as asked for."""

    name = "soak"
    defaults = TaskDefaults(source=str(TREES))

    def problems(self, source: Any) -> list[Problem]:
        """Numbered."""
        return [Problem("soak", id=f"p{i}") for i in range(int(source))]

    def collector_for(self, policy: Any, problem: Problem) -> Collector:
        """Look at the memory now and then; 16 transitions."""
        SEEN.begun = place = SEEN.begun + 1
        if place % FIRST == 0 or place == 1:
            SEEN.resident[place] = resident()
        apart = ProcessExecution(max_workers=1) if place % 100 == 0 else None
        SEEN.started += apart is not None
        agent = Agent(policy, Gamble(place, apart), context=Segments(16))
        search = Selective(budget=11, warmup=5, max_concurrency=4)
        critic = Critic.from_fn(lambda text: len(text) % 11 / 10)
        return Collector(agent, critic=critic, search=search)

    def validate(self) -> None:
        """Nothing to prove."""


class Stub(RecordingTrainer):
    """Counts what is left when it is closed."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(policy=lambda step: RandomPolicy(16, end=0.001, seed=seed))

    async def __aexit__(self, *error: Any) -> None:
        """In the event loop of the command, which has nothing more to do."""
        SEEN.tasks = len(asyncio.all_tasks()) - 1  # this one
        SEEN.processes = children()
        await super().__aexit__(*error)


@hookimpl
def focus_tasks() -> list[TaskSpec]:
    """The task ``soak``."""
    return [TaskSpec("soak", "collect for long", Task)]


@hookimpl
def focus_trainers() -> list[TrainerSpec]:
    """The trainer ``stub``."""
    return [TrainerSpec("stub", "learns nothing", Stub)]


def installed(folder: Path) -> None:
    """Make this module a plug-in, the only one."""
    info = folder / "focus_soak-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: focus-soak\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[focus]\nsoak = soak\n")
    sys.path.insert(0, str(folder))
    os.environ["FOCUS_PLUGINS"] = "focus-soak"


def collected(folder: Path) -> int:
    """Run the command; the number of trees that it wrote."""
    import typer

    from focus_core.cli import app

    out = folder / "out"
    args = ["collect", "--task", "soak", "--trainer", "stub", "--merge", "--output", str(out)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        typer.main.get_command(app).main(
            [*args, "--count", str(TREES), "--json"], prog_name="focus", standalone_mode=False
        )
    return len(list(out.glob("tree-*.json")))


def rows() -> Iterator[Row]:
    """The rows of the table."""
    with tempfile.TemporaryDirectory() as name:
        installed(Path(name))
        before = threading.active_count()
        trees = collected(Path(name))
    SEEN.threads = threading.active_count() - before
    at = SEEN.resident
    yield Row("trees collected", trees, f"== {TREES}", f"{SEEN.started} with a process")
    yield Row(
        f"resident memory after {TREES:,} trees / after {FIRST}",
        at[TREES] / at[FIRST],
        "<= 1.05",
        " / ".join(f"{at[place] / 2**20:.1f}" for place in (TREES, FIRST)) + " MiB; "
        f"first tree {at[1] / 2**20:.1f} MiB",
    )
    yield Row("tasks left", SEEN.tasks, "== 0")
    yield Row("child processes left", SEEN.processes, "== 0")
    yield Row("threads left", SEEN.threads, "== 0")


if __name__ == "__main__":
    import soak  # the plug-in, which is not this ``__main__``

    show(soak.rows(), "Soak: 2,000 trees through focus collect")
