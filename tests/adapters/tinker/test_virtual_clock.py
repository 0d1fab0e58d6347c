"""The schedule in time: sampling and training take known times, on a clock that jumps."""

import asyncio
import gc
import selectors
import threading
import time

import attrs
import pytest
from focus_adapter_tinker import train

from focus_core import Agent, Collector, Critic, Independent, SamplingParams, Segments
from tests.adapters.tinker.sdk_kit import PROBLEMS, Future, Length, Training, collector_for

HELD = 0.05
"""Most seconds that one callback may compute on the loop."""


class Jumping(selectors.DefaultSelector):
    """Does not wait for time to pass, only for threads."""

    now = 0.0
    in_threads = 0

    def __init__(self):
        super().__init__()
        self.before = set(threading.enumerate())  # an earlier test's are not waited for

    def select(self, timeout=None):
        # Asked first: a thread that is done by now has woken the loop already.
        new = set(threading.enumerate()) - self.before
        busy = self.in_threads or any(thread.name == "focus-tinker" for thread in new)
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if busy or timeout is None:
            return super().select(0.01)
        self.now += timeout
        return ready


class Loop(asyncio.SelectorEventLoop):
    """Tells the time of its selector, and how many calls are in threads."""

    def __init__(self):
        self.clock = Jumping()
        super().__init__(self.clock)

    def time(self):
        return self.clock.now

    def run_in_executor(self, executor, func, *args):
        self.clock.in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._came_back)
        return future

    def _came_back(self, _):
        self.clock.in_threads -= 1


def on_virtual_clock(main):
    """Run a coroutine; its result, and the time that it took."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(main), runner.get_loop().time()


@pytest.fixture
def held(monkeypatch):
    """Seconds that each callback computed, which the machine's other work does not lengthen.

    Python's collector, which runs in whatever thread allocates, is off meanwhile.
    """
    run, seconds = asyncio.Handle._run, []

    def timed(handle):
        began = time.thread_time()
        run(handle)
        seconds.append(time.thread_time() - began)

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    gc.disable()
    yield seconds
    gc.enable()


# A tree is one continuation of two segments, one after the other.
SAMPLE, STEPS = 10.0, 6
COLLECT = 2 * SAMPLE


@attrs.define(eq=False)
class Blocking(Training):
    """Notes which thread makes the call that blocks, and answers in another."""

    blocked: set = attrs.field(factory=set)
    reply: tuple = (20, 21, 22)

    def save_weights_and_get_sampling_client(self):
        self.blocked.add(threading.current_thread())
        sampler = super().save_weights_and_get_sampling_client()
        sampler.reply = self.reply
        return sampler

    def submit(self, name, seconds, result):
        async def work():
            await asyncio.sleep(seconds)
            return await asyncio.to_thread(result)

        return Future(asyncio.ensure_future(work()))


@pytest.mark.parametrize("training", [5.0, 20.0, 55.0])
@pytest.mark.parametrize("depth", [0, 1])
def test_wall_time_is_the_ideal_schedule_s(tokenizer, held, depth, training):
    client = Blocking(tokenizer, seconds=training, sampling_seconds=SAMPLE)
    reports, took = on_virtual_clock(
        train(
            client,
            model="m",
            problems=PROBLEMS,
            collector_for=lambda *both: collector_for(*both, search=Independent(1)),
            steps=STEPS,
            learning_rate=1e-5,
            async_depth=depth,
        )
    )
    ideal = (
        STEPS * (COLLECT + training)
        if depth == 0
        else COLLECT + (STEPS - 1) * max(COLLECT, training) + training
    )
    assert took == pytest.approx(ideal, rel=0.02)
    assert len(reports) == STEPS
    assert max(held) < HELD
    assert threading.current_thread() not in client.blocked


LONG, REPLIES = 32768, 32


def test_a_batch_of_a_million_tokens_does_not_hold_the_loop(tokenizer, held):
    """Checked, kept, credited, converted, sent and looked at: nothing of it for 50 ms at once."""

    def collector(policy, problem):
        env = Length(policy.decode, max_tokens=LONG)
        sampling = SamplingParams(max_tokens=LONG)
        agent = Agent(policy, env, context=Segments(LONG), sampling=sampling)
        return Collector(agent, critic=Critic.constant(0.3), search=Independent(REPLIES))

    client = Blocking(
        tokenizer,
        seconds=5.0,
        sampling_seconds=SAMPLE,
        reply=tuple(20 + 7 * place % 40 for place in range(LONG)),
    )
    reports, took = on_virtual_clock(
        train(
            client,
            model="m",
            problems=PROBLEMS[:1],
            collector_for=collector,
            steps=2,
            learning_rate=1e-5,
        )
    )
    assert [report.metrics["trained_tokens"] for report in reports] == [LONG * REPLIES] * 2
    assert took == pytest.approx(2 * SAMPLE + 5.0, rel=0.02)
    assert max(held) < HELD
