"""Many problems in flight in one process: what a transition costs, and how late the loop is.

    python benchmarks/problems.py

Each problem's tree has 16 transitions of 256 tokens; a policy that shares prefixes answers after a
random while, from one to three seconds for the thousand, as a server that writes 128 tokens a
second would. (A policy that answers faster than a thousand trees can be grown keeps the loop busy
all the time; then it is late by what has to be done.) All trees grow at the same time, and land
with their records exported and converted for Tinker in worker threads.
"""

from __future__ import annotations

import asyncio
import random
import resource
import statistics
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from _measure import Row, show
from focus_adapter_tinker import to_datum
from overlap import Climb, Latent

from focus_core import (
    Agent,
    Collector,
    Critic,
    Generation,
    Problem,
    SamplingParams,
    Segments,
    Selective,
)
from focus_core.lanes import export_merged
from focus_core.utils.concurrency import all_of, in_thread

TRANSITIONS, SEGMENT = 16, 256
EVERY = 0.005
"""Seconds between two looks at the clock."""


@attrs.define
class Server(Latent):
    """Answers after a while that is drawn for each request, ``seconds`` on average."""

    draw: random.Random = attrs.field(factory=lambda: random.Random(0))

    async def generate(
        self, tokens: Sequence[int], params: SamplingParams, n: int = 1
    ) -> list[Generation]:
        """After a while."""
        await asyncio.sleep(self.seconds * (0.5 + self.draw.random()))
        self.asked += n
        return [self.said[(self.asked + i) % len(self.said)] for i in range(n)]


@attrs.define
class Flight:
    """What one run of so many problems took.

    Attributes:
        cpu: Microseconds of the process's CPU time a transition.
        late: Seconds the loop was late, at each look at the clock.
        busy: Seconds of CPU time that its thread had spent since the look before.
        wall: Seconds in all.
    """

    cpu: float
    late: list[float]
    busy: list[float]
    wall: float


def p99(seconds: Sequence[float]) -> float:
    """The 99th percentile, in milliseconds."""
    return statistics.quantiles(seconds, n=100)[98] * 1e3


async def one(policy: Any, problem: Problem) -> int:
    """Collect, export and convert one problem's tree; its transitions."""
    search = Selective(budget=TRANSITIONS * 2 // 3, warmup=TRANSITIONS // 3, max_concurrency=4)
    agent = Agent(policy, Climb(), context=Segments(SEGMENT))
    async with Collector(agent, critic=Critic.constant(0.4), search=search) as collector:
        collection = await collector.collect(problem)

    def finish() -> int:
        return len([to_datum(record) for record in export_merged(collection.prepare())])

    await in_thread(finish)
    return collection.counts["transitions"]


async def flight(problems: int, seconds: float) -> Flight:
    """All of them at once, with a clock that looks how late it is woken."""
    late: list[float] = []
    busy: list[float] = []

    async def clock() -> None:
        while True:
            due, spent = time.perf_counter() + EVERY, time.thread_time()
            await asyncio.sleep(EVERY)
            late.append(time.perf_counter() - due)
            busy.append(time.thread_time() - spent)

    policy = Server(seconds)
    ticking = asyncio.create_task(clock())
    began, cpu = time.perf_counter(), time.process_time()
    try:
        counts = await all_of(one(policy, Problem("play", id=f"p{i}")) for i in range(problems))
    finally:
        ticking.cancel()
        await asyncio.wait([ticking])
    cpu, wall = time.process_time() - cpu, time.perf_counter() - began
    return Flight(cpu / sum(counts) * 1e6, late, busy, wall)


def peak(problems: int, seconds: float) -> int:
    """Most bytes that Python and numpy held, above what they hold before."""
    tracemalloc.start()
    asyncio.run(flight(problems, seconds))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def rows() -> Iterator[Row]:
    """The rows of the table."""
    asyncio.run(flight(20, 0.0))  # imports, caches
    # The same requests a second from both: a thousand problems ask ten times as many, and wait ten
    # times as long.
    few = [asyncio.run(flight(100, 0.2)) for _ in range(2)]
    many = asyncio.run(flight(1000, 2.0))
    few += [asyncio.run(flight(100, 0.2)) for _ in range(2)]
    cpu = statistics.median(f.cpu for f in few)
    yield Row(
        "CPU time a transition, 1,000 problems in flight / 100",
        many.cpu / cpu,
        "<= 1.3",
        f"{many.cpu:.0f} / {cpu:.0f} us; {many.wall:.1f} / {few[0].wall:.1f} s",
    )
    yield Row(
        "the loop is late, p99, ms, 1,000 problems in flight",
        p99(many.late),
        "<= 20",
        f"median {statistics.median(many.late) * 1e3:.2f} ms; with 100: {p99(few[0].late):.1f}",
    )
    yield Row(
        "CPU time of the loop's thread between two looks, p99, ms",
        p99(many.busy),
        "<= 20",
        "without what the machine's other work adds to the row above",
    )
    held = {count: peak(count, 0.0005 * count) for count in (100, 1000)}
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Row(
        "peak memory a problem in flight, 1,000 / 100",
        held[1000] / held[100] / 10,
        "",
        f"{held[1000] / 2**20:.0f} / {held[100] / 2**20:.0f} MiB; process {resident:.0f} MiB",
    )


if __name__ == "__main__":
    show(rows(), "Problems: many in flight in one process")
