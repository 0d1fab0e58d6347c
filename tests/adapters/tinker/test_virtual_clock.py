"""The schedule in time: sampling and training take known times, on a clock that jumps."""

import asyncio
import selectors
import time

import pytest
from focus_adapter_tinker import train

from focus_core import Independent
from tests.adapters.tinker.sdk_kit import PROBLEMS, Training, collector_for


def _clocks():
    return time.thread_time(), time.perf_counter()


class Jumping(selectors.DefaultSelector):
    """Does not wait for time to pass, only for threads; remembers how long code held the loop.

    In seconds of this thread's own, which the machine's other work does not lengthen, and of the
    clock on the wall, which also sees calls that block.
    """

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.computed = self.held = 0.0
        self._left = None

    def select(self, timeout=None):
        if self._left is not None:
            computed, held = _clocks()
            self.computed = max(self.computed, computed - self._left[0])
            self.held = max(self.held, held - self._left[1])
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            ready = super().select(0.05 if timeout is not None else None)
            if not ready:
                self.now += timeout
        self._left = _clocks()
        return ready


def on_virtual_clock(main):
    """Run a coroutine; its result, and the selector with the time that it took."""
    selector = Jumping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now
    try:
        return loop.run_until_complete(main), selector
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


# A tree is one continuation of two segments, one after the other.
SAMPLE, STEPS = 10.0, 6
COLLECT = 2 * SAMPLE


@pytest.mark.parametrize("training", [5.0, 20.0, 55.0])
@pytest.mark.parametrize("depth", [0, 1])
def test_wall_time_is_the_ideal_schedule_s(tokenizer, depth, training):
    client = Training(tokenizer, seconds=training, sampling_seconds=SAMPLE)
    reports, clock = on_virtual_clock(
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
    assert clock.now == pytest.approx(ideal, rel=0.02)
    assert len(reports) == STEPS
    assert clock.computed < 0.05
    assert clock.held < 0.5  # a call that blocks would take seconds
