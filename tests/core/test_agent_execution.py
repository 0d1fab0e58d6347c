"""Execution services: threads, and processes that can be killed."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    DeadlineError,
    Execution,
    ExecutionError,
    Independent,
    ProcessExecution,
    ThreadExecution,
    Transition,
    UsageError,
)
from focus_core.testing import CountdownEnv
from tests.core import process_kit as kit


def run(awaitable):
    return asyncio.run(asyncio.wait_for(awaitable, 60))


# Threads ----------------------------------------------------------------------------------------


def test_the_environments_execution_runs_beside_the_loop_and_is_closed(collect, scripted):
    threads = []

    class Blocking(CountdownEnv):
        execution = None

        async def step(self, reply):
            threads.append(await self.execution.run(threading.current_thread))
            return Transition(1.0, done=True)

    env = Blocking()
    collector = Collector(
        Agent(scripted([4, 0], [4, 0]), env), critic=Critic.constant(0.5), search=Independent(2)
    )
    assert not collect(collector).failures
    assert env.execution is None, "only copies are given one"
    assert threading.main_thread() not in threads
    assert not any(thread.is_alive() for thread in threads), "the collector ended what it opened"


def test_an_execution_of_ones_own_stays_open(collect, scripted):
    class Own(ThreadExecution):
        closed = False

        async def aclose(self):
            self.closed = True

    own = Own()
    collector = Collector(
        Agent(scripted([4, 0]), CountdownEnv(1), execution=own),
        critic=Critic.constant(0.5),
        search=Independent(1),
    )
    collect(collector)
    assert not own.closed


def test_a_thread_execution_is_bounded_and_ends():
    async def inside():
        execution = ThreadExecution(2)
        await execution.aclose()
        running, most = 0, 0
        lock = threading.Lock()

        def work():
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.01)
            with lock:
                running -= 1

        await asyncio.gather(*(execution.run(work) for _ in range(8)))
        await execution.aclose()
        assert most == 2
        with pytest.raises(ZeroDivisionError):
            await execution.run(divmod, 1, 0)
        await execution.aclose()

    before = threading.active_count()
    run(inside())
    assert threading.active_count() <= before
    assert isinstance(ThreadExecution(), Execution)


def test_a_threads_limit_counts_from_its_start():
    """Calls that wait for a place are not late; one that is late keeps its place."""

    async def inside():
        execution = ThreadExecution(1)
        await asyncio.gather(*(execution.run(kit.nap, 0.25, timeout=1.0) for _ in range(6)))
        release = threading.Event()
        with pytest.raises(DeadlineError, match=r"not done within 0\.05 s"):
            await execution.run(release.wait, timeout=0.05)
        waiting = asyncio.create_task(execution.run(kit.nap, 0.0, timeout=0.2))
        await asyncio.sleep(0.3)
        assert not waiting.done(), "no place is free, and its time has not begun"
        release.set()
        await waiting
        await execution.aclose()

    run(inside())


def test_a_timeout_of_the_functions_own_is_no_deadline():
    async def inside(execution):
        with pytest.raises(TimeoutError, match="the server") as caught:
            await execution.run(kit.fail, TimeoutError("the server"), timeout=30)
        assert not isinstance(caught.value, DeadlineError)
        await execution.aclose()

    run(inside(ThreadExecution()))
    run(inside(ProcessExecution()))


# Processes --------------------------------------------------------------------------------------


@pytest.fixture
def processes():
    """Run something with a ``ProcessExecution``, which must leave nothing behind."""

    def use(inside, *args, **options):
        async def whole():
            execution = ProcessExecution(*args, **options)
            try:
                return await inside(execution)
            finally:
                await execution.aclose()
                assert not execution._workers

        before = kit.descendants()
        result = run(whole())
        assert kit.descendants() == before
        return result

    return use


def test_calls_run_in_processes_that_are_reused(processes):
    async def inside(execution):
        assert isinstance(execution, Execution)
        first = await execution.run(os.getpid)
        assert await execution.run(os.getpid) == first != os.getpid()
        both = await asyncio.gather(*(execution.run(kit.nap, 0.3) for _ in range(4)))
        assert len(set(both)) == 2, "two workers, and four calls"
        return await execution.run(divmod, 7, 2)

    assert processes(inside, 2) == (3, 1)


def test_a_late_call_is_killed_with_what_it_started_and_the_next_one_works(processes, tmp_path):
    note = tmp_path / "pid"

    async def inside(execution):
        await execution.run(kit.nap, 0)
        start = time.monotonic()
        ticks = asyncio.create_task(kit.count_ticks())
        with pytest.raises(DeadlineError, match=r"not done within 2 s"):
            await execution.run(kit.hang_with_child, str(note), timeout=2.0)
        assert time.monotonic() - start < 20
        ticks.cancel()
        assert kit.ticks > 10, "the loop went on"
        assert await execution.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(DeadlineError):
            await execution.run(kit.spin)

    processes(inside, 1, 0.5)
    assert kit.gone(int(note.read_text()))


def test_a_dying_worker_fails_its_call_only(processes):
    async def inside(execution):
        with pytest.raises(ExecutionError, match=r"running kill_own died \(exit status -9\)"):
            await execution.run(kit.kill_own)
        pid = await execution.run(os.getpid)
        os.kill(pid, signal.SIGKILL)  # while idle: the next call does not notice
        await asyncio.sleep(0.1)
        again = await execution.run(os.getpid)
        assert again != pid

    processes(inside, 1)


def test_exceptions_come_back_with_where_they_were_raised(processes):
    async def inside(execution):
        with pytest.raises(KeyError, match="lost") as caught:
            await execution.run(kit.fail, KeyError("lost"))
        assert "in fail" in caught.value.__notes__[0]
        with pytest.raises(RuntimeError, match="raised Awkward: 1 and 2"):
            await execution.run(kit.awkward)
        with pytest.raises(RuntimeError, match=r"raised SystemExit\(3\)"):
            await execution.run(sys.exit, 3)
        with pytest.raises(RuntimeError, match="returned something that does not pickle"):
            await execution.run(kit.unpicklable)

    processes(inside, 1)


def test_what_cannot_be_sent_is_the_users_mistake(processes):
    async def inside(execution):
        with pytest.raises(UsageError, match=r"cannot be sent to a worker process.*top of an"):
            await execution.run(lambda: 1)
        with pytest.raises(UsageError, match="cannot be sent"):
            await execution.run(print, threading.Lock())
        function = type(kit.nap)(kit.nap.__code__, {}, "mine")
        function.__module__ = "__main__"
        with pytest.raises(UsageError, match="defined in the running script"):
            await execution.run(function)
        assert not execution._workers, "nothing was started"

    processes(inside)


def test_memory_is_limited(processes):
    async def inside(execution):
        with pytest.raises(MemoryError):
            await execution.run(bytearray, 1 << 30)

    processes(inside, 1, memory=512 << 20)


@pytest.mark.parametrize("after", [0.0, 0.02, 1.0])
def test_a_cancelled_call_is_killed_and_closing_ends_running_ones(processes, after):
    """Whether it has begun, is starting, or waits for a place."""

    async def inside(execution):
        call = asyncio.create_task(execution.run(kit.nap, 60))
        await asyncio.sleep(after)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not execution._workers
        calls = [asyncio.create_task(execution.run(kit.nap, 60)) for _ in range(2)]
        await asyncio.sleep(after)
        await execution.aclose()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, ExecutionError | RuntimeError)
        assert await execution.run(divmod, 7, 2) == (3, 1), "it opens again when used"

    processes(inside, 1)


def test_a_start_that_is_cancelled_leaves_no_process(processes, monkeypatch):
    """Cancelled when the process is there, and nothing but the start knows of it."""

    async def never(**_):
        await asyncio.sleep(60)

    async def inside(execution):
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "open_connection", never)
            call = asyncio.create_task(execution.run(kit.nap, 0))
            before = kit.descendants()
            while kit.descendants() == before:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert kit.descendants() == before
        assert await execution.run(divmod, 7, 2) == (3, 1)

    processes(inside, 1)


def test_workers_end_with_their_process(tmp_path):
    """Killed without a chance to clean up, it leaves none behind, busy or idle."""
    note = tmp_path / "pids"
    parent = kit.start_parent(note)
    try:
        deadline = time.monotonic() + 30
        while not (note.exists() and note.read_text().count("\n") == 2):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        parent.kill()
        parent.wait()
    for pid in note.read_text().split():
        deadline = time.monotonic() + 10
        while not kit.gone(int(pid)):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_limits_make_sense():
    for options in ({"max_workers": 0}, {"timeout": 0.0}, {"memory": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            ProcessExecution(**options)


# Event loops ------------------------------------------------------------------------------------


AGAIN = """
import asyncio, os
from focus_core import {kind}
execution = {kind}(1)
async def inside():
    return await asyncio.gather(*(execution.run(divmod, 7, 2) for _ in range(3)))
for _ in range(3):
    assert asyncio.run(asyncio.wait_for(inside(), 60)) == [(3, 1)] * 3
asyncio.run(execution.aclose())
try:
    while True:  # until none is left that was not waited for
        os.waitpid(-1, 0)
except ChildProcessError:
    print("done")
"""


@pytest.mark.parametrize("kind", ["ThreadExecution", "ProcessExecution"])
def test_a_service_may_be_used_in_one_event_loop_after_another(kind):
    """As a trainer that owns its loop does, with one ``asyncio.run`` a problem.

    In a process of its own: Python complains of each worker whose loop was closed under it.
    """
    code = AGAIN.format(kind=kind)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "done\n", ran.stderr


def test_a_late_call_of_an_ended_loop_costs_no_place():
    execution = ThreadExecution(1)
    release = threading.Event()

    async def late():
        with pytest.raises(DeadlineError):
            await execution.run(release.wait, timeout=0.05)

    run(late())
    release.set()  # and its place is given back to a loop that is closed
    assert run(execution.run(divmod, 7, 2)) == (3, 1)
    run(execution.aclose())


@pytest.mark.parametrize("kind", [ThreadExecution, ProcessExecution])
def test_a_service_in_use_in_another_loop_says_so(kind):
    async def inside():
        execution = kind(1)
        await execution.run(divmod, 7, 2)

        def elsewhere():
            with pytest.raises(UsageError, match=f"{kind.__name__} is in use in another event"):
                asyncio.run(execution.run(divmod, 7, 2))

        await asyncio.to_thread(elsewhere)
        assert await execution.run(divmod, 7, 2) == (3, 1)
        await execution.aclose()

    run(inside())


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(0), asyncio.CancelledError()])
def test_what_no_task_may_see_comes_back_as_an_error(error):
    """``StopIteration`` never came back at all, and ``SystemExit`` ended the program."""

    async def inside(execution):
        with pytest.raises(RuntimeError, match=type(error).__name__):
            await execution.run(kit.fail, error)
        assert await execution.run(divmod, 7, 2) == (3, 1)
        await execution.aclose()

    run(inside(ThreadExecution(1)))
    run(inside(ProcessExecution(1)))


@pytest.mark.parametrize("function", [kit.leave_a_fork_and_die, kit.leave_a_program_and_die])
def test_a_dead_worker_is_noticed_whoever_holds_its_socket(processes, function, tmp_path):
    note = tmp_path / "pid"

    async def inside(execution):
        with pytest.raises(ExecutionError, match=r"died \(exit status 7\)"):
            await asyncio.wait_for(execution.run(function, str(note)), 20)
        assert await execution.run(divmod, 7, 2) == (3, 1)

    try:
        processes(inside, 1)
    finally:
        os.kill(int(note.read_text()), signal.SIGKILL)


def test_closing_kills_every_worker_even_if_cancelled(processes):
    async def inside(execution):
        await asyncio.gather(*(execution.run(kit.nap, 0.2) for _ in range(2)))
        ended = [worker.process for worker in execution._workers]
        pids = {process.pid for process in ended}
        assert len(pids) == 2
        closing = asyncio.create_task(execution.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        deadline = time.monotonic() + 10
        while not all(kit.gone(pid) for pid in pids):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        for process in ended:  # asyncio's part: it warns of what it has not heard of
            await process.wait()

    processes(inside, 2)
