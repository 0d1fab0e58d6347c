"""The pool: limits, kills, threads, asyncio, signals, and no process left behind."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from focus_task_math import GradingPool, GradingStats, agrade, grade
from focus_task_math.grading import pool as pool_module

SLOW = r"\boxed{\sum_{k=1}^{10^{9}} \sin k^k}"  # left to math-verify, which never comes back


def children(pid):
    """Process ids of all descendants, from /proc."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                stat = Path(f"/proc/{entry}/stat").read_text()
                parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    found, grown = {pid}, True
    while grown:
        new = {child for child, parent in parents.items() if parent in found} - found
        found |= new
        grown = bool(new)
    return found - {pid}


@pytest.fixture
def nursery():
    """A pool with warm workers, and its nursery's process id."""
    before = children(os.getpid())
    with GradingPool() as pool:
        pool.grade(r"\boxed{1}", "1")
        (pid,) = [pid for pid in children(os.getpid()) - before if children(pid)]
        yield pool, pid


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone_within(pids, seconds):
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(alive, pids))


@pytest.mark.parametrize("timeout", [0.15, 0.5, 1])
def test_the_limit_is_kept_fractions_too(pool, timeout):
    start = time.monotonic()
    verdict = pool.grade(SLOW, "2", timeout)
    assert timeout <= time.monotonic() - start < timeout + 1
    assert verdict.correct is False
    assert f"not done within {timeout:g} s" in verdict.reason
    assert pool.grade(r"\boxed{2}", "2", timeout).correct is True
    assert pool.stats == GradingStats(graded=3, timed_out=1, replaced=1)


def test_a_gold_that_takes_too_long_grades_nothing(pool):
    verdict = pool.grade(r"\boxed{2}", SLOW, 0.3)
    assert verdict.correct is None
    assert "reference" in verdict.reason
    assert pool.stats == GradingStats(graded=1, not_graded=1, timed_out=1, replaced=1)


def test_a_worker_that_dies_is_replaced_and_counted(nursery):
    pool, pid = nursery
    got = []
    thread = threading.Thread(target=lambda: got.append(pool.grade(SLOW, "2", 30)))
    thread.start()
    time.sleep(0.5)
    workers = children(pid)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    assert gone_within(workers, 10)
    thread.join(10)
    assert got[0].correct is None
    assert got[0].reason == "the grading worker died"
    assert all(pool.grade(r"\boxed{2}", "2").correct for _ in range(4))
    assert pool.stats.not_graded >= 1
    assert pool.stats.replaced >= 1


def test_a_nursery_that_dies_is_replaced(nursery):
    pool, pid = nursery
    workers = children(pid)
    for worker in (*workers, pid):
        os.kill(worker, signal.SIGKILL)
    assert gone_within((*workers, pid), 10)
    assert all(pool.grade(r"\boxed{2}", "2").correct for _ in range(4))


def test_a_worker_has_its_memory_and_no_more():
    many = "+".join(f"x_{{{n}}}" for n in range(400))
    with GradingPool(workers=1, memory=1 << 20) as pool:
        assert pool.grade(rf"\boxed{{{many}}}", "2").correct is not True
        assert pool.grade(r"\boxed{2}", "2").correct is True


def test_workers_are_reused(pool):
    for _ in range(3):
        before = children(os.getpid())
        for number in range(50):
            assert pool.grade(rf"\boxed{{{number}}}", str(number)).correct is True
    assert children(os.getpid()) == before  # both had started by then
    assert pool.stats == GradingStats(graded=151)


def test_many_threads(pool):
    wrong = []

    def check(seed):
        for number in range(seed, seed + 40):
            if pool.grade(rf"\boxed{{\frac{{{number}}}{{7}}}}", f"{number}/7").correct is not True:
                wrong.append(number)

    threads = [threading.Thread(target=check, args=(40 * index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_callers_alarm_survives(pool):
    fired = []
    before = signal.signal(signal.SIGALRM, lambda *_: fired.append(time.monotonic()))
    try:
        start = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.6)
        assert pool.grade(r"\boxed{1}", "1").correct is True
        assert pool.grade(SLOW, "1", 0.2).correct is False
        while not fired and time.monotonic() < start + 3:
            time.sleep(0.05)
        assert fired
        assert 0.55 < fired[0] - start < 1.6
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_asyncio_is_never_blocked_even_by_a_cold_start():
    async def main():
        gaps, done = [], False

        async def heart():
            last = time.monotonic()
            while not done:
                await asyncio.sleep(0.01)
                gaps.append(time.monotonic() - last)
                last = time.monotonic()

        beating = asyncio.ensure_future(heart())
        with_box = [pool.agrade(rf"\boxed{{{n}}}", str(n)) for n in range(100)]
        slow = [pool.agrade(SLOW, "2", 0.2) for _ in range(4)]
        verdicts = await asyncio.gather(*with_box, *slow)
        done = True
        await beating
        return verdicts, max(gaps)

    pool = GradingPool()
    verdicts, gap = asyncio.run(main())
    pool.close()
    assert [v.correct for v in verdicts] == [True] * 100 + [False] * 4
    assert gap < 0.5


def test_cancelling_frees_the_worker():
    async def main():
        pool = GradingPool(workers=1)
        await pool.agrade(r"\boxed{1}", "1")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pool.agrade(SLOW, "2", 60), 0.3)
        start = time.monotonic()
        verdict = await pool.agrade(r"\boxed{1}", "1")
        taken = time.monotonic() - start
        waiting = asyncio.ensure_future(pool.agrade(SLOW, "2", 60))
        queued = asyncio.ensure_future(pool.agrade(SLOW, "2", 60))
        await asyncio.sleep(0.1)
        for task in (waiting, queued):
            task.cancel()
        await asyncio.gather(waiting, queued, return_exceptions=True)
        again = await pool.agrade(r"\boxed{1}", "1")
        await asyncio.to_thread(pool.close)
        return verdict, taken, again

    verdict, taken, again = asyncio.run(main())
    assert verdict.correct is True
    assert again.correct is True
    assert taken < 1


def test_closing_leaves_no_process_and_answers_who_waits():
    before = children(os.getpid())
    pool = GradingPool()
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(pool.grade(SLOW, "2", 60))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    time.sleep(2)
    started = children(os.getpid()) - before
    assert started
    pool.close()
    for thread in threads:
        thread.join(5)
    assert gone_within(started, 2)
    assert [verdict.correct for verdict in got] == [None] * 4
    with pytest.raises(RuntimeError, match="closed"):
        pool.grade(r"\boxed{1}", "1")


def test_closing_while_others_ask_leaves_nobody_waiting():
    """Whoever asks is answered or refused, whichever side of the closing they are on."""
    for _ in range(6):
        pool = GradingPool()
        answers = []

        def ask(pool=pool, answers=answers):
            try:
                answers.append(pool.grade(r"\boxed{1}", "1", 60).correct)
            except RuntimeError as error:
                answers.append(str(error))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        pool.close()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert set(answers) <= {True, None, "the grading pool is closed"}


CHILD = """
import os, sys, threading, time
from focus_task_math import grade
from focus_task_math.grading.pool import default_pool
assert grade(r"\\boxed{1}", "1").correct is True
threading.Thread(target=grade, args=(%r, "2", 60), daemon=True).start()
time.sleep(0.3)
print("ready", flush=True)
%s
"""


@pytest.mark.parametrize(
    ("ending", "status"),
    [("", 0), ("raise SystemExit(3)", 3), ("os.kill(os.getpid(), 9)", -9), ("os._exit(4)", 4)],
)
def test_workers_end_with_the_process_however_it_ends(ending, status):
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD % (SLOW, "sys.stdin.read()\n" + ending)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    workers = children(process.pid)
    assert len(workers) >= 2
    process.stdin.close()
    assert process.wait(10) == status
    process.stdout.close()
    assert gone_within(workers, 5)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_grades_with_workers_of_its_own():
    assert grade(r"\boxed{1}", "1").correct is True
    answers = multiprocessing.get_context("fork").SimpleQueue()

    def child():
        answers.put((grade(r"\boxed{1}", "1").correct, grade(r"\boxed{2}", "1").correct))
        pool_module.default_pool().close()

    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert answers.get() == (True, False)
    assert grade(r"\boxed{1}", "1").correct is True


def test_agrade_of_the_module():
    assert asyncio.run(agrade(r"\boxed{1}", "1", timeout=2)).correct is True


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "5"])
def test_a_limit_that_is_none_is_refused(timeout):
    with pytest.raises(ValueError, match="timeout"):
        grade(r"\boxed{1}", "1", timeout)


def test_a_process_that_cannot_start_is_said(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/nowhere"])
    with GradingPool() as pool:
        verdict = pool.grade(r"\boxed{1}", "1")
    assert verdict.correct is None
    assert "cannot be started" in verdict.reason


def test_the_grader_does_not_import_sympy_here():
    code = (
        "import sys; from focus_task_math import grade; assert grade(r'\\boxed{1}', '1').correct; "
        "print(sorted({'sympy', 'math_verify', 'numpy', 'focus_core'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
