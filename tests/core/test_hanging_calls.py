"""A call that blocks a thread outlives neither its deadline nor Ctrl-C, and is named."""

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from focus_core import (
    Agent,
    Collector,
    Critic,
    Independent,
    Problem,
    ReplyEnv,
    ThreadExecution,
)
from focus_core.testing import CountdownEnv, RandomPolicy
from focus_core.utils import threads
from focus_core.utils.concurrency import beside
from focus_core.utils.threads import DaemonThreads, running


@pytest.fixture
def released(monkeypatch):
    """An event that is set at the end, so that no thread is left to other tests."""
    monkeypatch.setattr(threads, "GRACE", 0.1)
    event = threading.Event()
    yield event
    event.set()
    end = time.monotonic() + 5
    while running() and time.monotonic() < end:
        time.sleep(0.01)
    assert not running()


def stuck(event):
    """What hangs."""
    event.wait(60)
    return 0.5


def kinds(event):
    """A collector for each place where a plugged-in function may block a thread."""

    class Grading(ReplyEnv):
        async def grade(self, text):
            return await self.execution.run(stuck, event)

    class Connecting(CountdownEnv):
        execution = None

        async def reset(self, problem):
            await self.execution.run(stuck, event)

    def made(env, critic=0.5):
        critic = critic if isinstance(critic, Critic) else Critic.constant(critic)
        search = Independent(2, max_failures=9)
        return Collector(Agent(RandomPolicy(), env), critic=critic, search=search, deadline=0.2)

    return {
        "grade": made(Grading(RandomPolicy().decode, 4)),
        "reset": made(Connecting(2)),
        "critic": made(CountdownEnv(2), Critic.from_fn(lambda text: stuck(event))),
        "context": made(
            CountdownEnv(2), Critic.from_fn(lambda text: 0.5, context=lambda _: stuck(event))
        ),
    }


def test_the_deadline_ends_the_wait_and_names_where_it_hangs(released, caplog):
    async def collected(collector):
        began = time.monotonic()
        async with collector:
            collection = await collector.collect(Problem("5", id="p"))
        return collection, time.monotonic() - began

    async def main():
        asyncio.get_running_loop().set_default_executor(DaemonThreads())
        made = kinds(released)
        found = await asyncio.gather(*map(collected, made.values()))
        return dict(zip(made, found, strict=True))

    began = time.monotonic()
    found = asyncio.run(main())
    assert time.monotonic() - began < 20, "the loop's end waited for a thread"
    for kind, (collection, took) in found.items():
        assert took < 10, f"{kind} was waited for"
        assert collection.failures, kind
    (late, *_) = found["grade"][0].failures
    assert "took longer than 0.2 s; it was waiting for the environment; it is in stuck (" in str(
        late
    )
    assert f"{__file__}:" in str(late)
    assert "the first prompt took longer" in str(found["reset"][0].failures[0])
    said = [record.message for record in caplog.records if "left running" in record.message]
    assert any("stuck (" in line and "ProcessExecution" in line for line in said)


def test_a_late_call_says_where_it_is_and_others_are_served(released):
    async def main():
        execution = ThreadExecution(2)
        with pytest.raises(TimeoutError) as caught:
            await execution.run(stuck, released, timeout=0.05)
        assert caught.value.__notes__[0].startswith("it is in stuck (")
        assert await execution.run(divmod, 7, 2) == (3, 1)
        released.set()
        await execution.aclose()

    asyncio.run(main())


def test_what_nobody_waits_for_is_left_after_its_grace(released, caplog):
    async def main():
        asyncio.get_running_loop().set_default_executor(DaemonThreads())
        task = asyncio.create_task(beside(stuck, released, grace=0.1))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert 0.05 < time.monotonic() - began < 5
        assert await beside(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await beside(divmod, 7, 0)

    asyncio.run(main())
    assert "stuck goes on in its thread" in caplog.text


def test_an_executor_bounds_its_calls_and_drops_what_has_not_begun(released):
    executor = DaemonThreads(1)
    first = executor.submit(stuck, released)
    second = executor.submit(divmod, 7, 2)
    assert not second.done()
    released.set()
    assert (first.result(5), second.result(5)) == (0.5, (3, 1))
    released.clear()
    executor.submit(stuck, released)
    waiting = executor.submit(divmod, 7, 2)
    executor.shutdown()
    assert waiting.cancelled()


HANGS = textwrap.dedent(
    """
    import asyncio, sys, time
    from focus_core.cli import watch
    from focus_core.cli._common import run

    watch.PATIENCE = 0.05

    def grade():
        print("begun", flush=True)
        time.sleep(60)

    async def main():
        await asyncio.to_thread(grade)

    try:
        run(main())
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
)


def test_one_signal_ends_a_run_whose_thread_hangs():
    with subprocess.Popen(
        [sys.executable, "-c", HANGS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "begun\n"
        line = process.stderr.readline()
        assert line.startswith("focus: still in a thread: grade (<string>:"), line
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)  # the call would take 60
    assert out == "interrupted\n"
    assert "left running in its thread: grade (<string>:" in err
