"""Grading throughput: the pool of two processes beside math-verify in this process, and in two.

    python benchmarks/grading.py

Answers to MATH problems, right and wrong, each in a whole solution; one input in a hundred answers
with an exponent tower. The pool grades all of them. math-verify gets the same inputs less the
towers, which it does not come back from: in this process, and shared out by hand to two plain
processes that do nothing else. No input is graded twice; all processes are warm.
"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from _measure import Row, show
from focus_task_math.grading.answers import find_answer, find_gold
from focus_task_math.grading.judge import judge
from focus_task_math.grading.pool import GradingPool

DATA = Path(__file__).parents[2] / "shared/data/math500-a.jsonl"
ROUNDS, LIMIT = 5, 2.0
TOWERS = [r"9^{9^{9^{9}}}", r"9^{9^{9^{9^{9}}}}", r"2^{3^{4^{5^{6}}}}", r"7^{8^{9^{10}}} + 1"]
ENDLESS = r"The sum is \boxed{\sum_{k=1}^{10^{9}} \sin k^k}."
Input = tuple[str, str]
"""A completion and the reference answer."""


def inputs() -> list[list[Input]]:
    """Rounds of (completion, reference): each problem's own solution and three others'."""
    if not DATA.exists():
        sys.exit(f"{DATA} is missing; put lines with 'solution' and 'answer' there")
    lines = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    size = len(lines)
    graded = [
        [(lines[(at + shift) % size]["solution"], line["answer"]) for shift in (0, 1, 7, 31)]
        for at, line in enumerate(lines)
    ]
    return [
        [each for answers in graded[round_::ROUNDS] for each in answers] for round_ in range(ROUNDS)
    ]


def with_towers(plain: Sequence[Input]) -> list[Input]:
    """One in a hundred more, in between."""
    mixed = list(plain)
    for index in range(max(1, len(plain) // 100)):
        tower = rf"So it is \boxed{{{TOWERS[index % len(TOWERS)]}}}."
        mixed.insert(index * 100 + 50, (tower, plain[index * 100][1]))
    return mixed


def math_verify_seconds(some: Sequence[Input]) -> float:
    """Grade with math-verify, here."""
    from math_verify import parse, verify

    start = time.perf_counter()
    for completion, reference in some:
        verify(parse(f"${reference}$"), parse(completion))
    return time.perf_counter() - start


def judge_seconds(some: Sequence[Input]) -> float:
    """Grade with the pool's own grader, here."""
    start = time.perf_counter()
    for completion, reference in some:
        judge(find_gold(reference), find_answer(completion).text)
    return time.perf_counter() - start


def plain_process(part: int) -> None:
    """What a plain process does: every other problem of the round that is asked for."""
    logging.disable()
    rounds = inputs()
    math_verify_seconds(warming())
    print("ready", flush=True)
    for line in sys.stdin:
        some = rounds[int(line)]
        mine = [each for at, each in enumerate(some) if at // 4 % 2 == part]
        print(math_verify_seconds(mine), flush=True)


def warming() -> list[Input]:
    """Inputs that are not measured."""
    return [(rf"It is \boxed{{\frac{{{n}}}{{7}} + \sqrt{{x}}}}.", "1") for n in range(20)]


class Plain:
    """Two such processes."""

    def __enter__(self) -> Plain:
        """Start them, and wait until they are warm."""
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, str(part)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for part in (0, 1)
        ]
        self.answers()
        return self

    def answers(self) -> None:
        """One line from each."""
        for process in self.processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                sys.exit("a plain grading process ended")

    def seconds(self, round_: int) -> float:
        """Both at a time, until the slower one is through."""
        start = time.perf_counter()
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{round_}\n")
            process.stdin.flush()
        self.answers()
        return time.perf_counter() - start

    def __exit__(self, *exc_info: object) -> None:
        """End them."""
        for process in self.processes:
            process.kill()
            process.communicate()


async def verdicts(pool: GradingPool, some: Sequence[Input], at_a_time: int) -> tuple[float, float]:
    """Seconds for all of them, and for the slowest, from when it is asked for."""
    room, slowest = asyncio.Semaphore(at_a_time), 0.0

    async def one(completion: str, reference: str) -> None:
        nonlocal slowest
        async with room:
            start = time.perf_counter()
            await pool.agrade(completion, reference, LIMIT)
            slowest = max(slowest, time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(one(*each) for each in some))
    return time.perf_counter() - start, slowest


def rows() -> Iterator[Row]:
    """The rows of the table."""
    logging.disable()  # math-verify's word on what it cannot read
    math_verify_seconds(warming())
    judge_seconds(warming())
    ours, own, one, two = [], [], [], []
    with GradingPool(2) as pool, Plain() as plain:
        asyncio.run(verdicts(pool, warming(), 64))
        for round_, some in enumerate(inputs()):
            mixed = with_towers(some)
            ours.append(len(mixed) / asyncio.run(verdicts(pool, mixed, 64))[0])
            own.append(len(mixed) / judge_seconds(mixed))
            two.append(len(some) / plain.seconds(round_))
            one.append(len(some) / math_verify_seconds(some))
        # No more at a time than there are workers: a verdict's limit starts when one is free.
        hard = [(ENDLESS, "2"), *with_towers(inputs()[0][:40]), (ENDLESS, "3")]
        slowest = asyncio.run(verdicts(pool, hard, 2))[1]
        late = pool.stats.timed_out
    for what, target, some, peer in (
        ("grading speed-up / that of two math-verify processes", ">= 0.8", ours, two),
        ("pool of two, 1% towers / math-verify in this process", "", ours, one),
        ("math-verify in two processes / in this one", "", two, one),
        ("pool of two / its grader in this process", "", ours, own),
    ):
        yield Row(
            what,
            statistics.median(a / b for a, b in zip(some, peer, strict=True)),
            target,
            f"{statistics.median(some):.0f} / {statistics.median(peer):.0f} a second",
        )
    yield Row(
        "slowest verdict, seconds",
        slowest,
        f"<= {LIMIT + 1:g}",
        f"limit {LIMIT:g} s; {late} verdicts were too late",
    )


if __name__ == "__main__":
    if sys.argv[1:] in (["0"], ["1"]):
        plain_process(int(sys.argv[1]))
    else:
        show(rows(), "Grading: verdicts a second, beside math-verify")
