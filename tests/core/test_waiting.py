"""Waiting: nobody leaves before what they wait for, and the first error comes out bare."""

import asyncio
import concurrent.futures
import threading

import pytest

from focus_core.utils.concurrency import all_of, doing, finish, in_thread


@pytest.mark.parametrize("cancels", [1, 2, 5])
def test_a_thread_does_not_outlive_who_waits_however_often_cancelled(cancels):
    go, over, called_off = threading.Event(), threading.Event(), []

    def work():
        go.wait(30)
        over.set()

    async def main():
        task = asyncio.create_task(
            finish(asyncio.to_thread(work), lambda: called_off.append(1)), name="waits"
        )
        for _ in range(cancels):
            await asyncio.sleep(0.01)
            task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert over.is_set()

    asyncio.run(main())
    assert len(called_off) == cancels


def test_a_call_off_that_fails_does_not_end_the_wait():
    go, over = threading.Event(), threading.Event()

    def work():
        go.wait(30)
        over.set()

    def call_off():
        raise RuntimeError("cannot")

    async def main():
        task = asyncio.create_task(finish(asyncio.to_thread(work), call_off))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert over.is_set()
        assert caught.value.__notes__ == ["calling it off failed: RuntimeError('cannot')"]

    asyncio.run(main())


def test_a_threads_answer_or_error_comes_back():
    assert asyncio.run(in_thread(divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(divmod, 7, 0))


@pytest.mark.parametrize(
    "error",
    [StopIteration, concurrent.futures.CancelledError, asyncio.CancelledError, SystemExit],
)
def test_what_no_task_may_raise_comes_back_as_another_error(error):
    def work():
        raise error

    async def main():
        with pytest.raises(RuntimeError, match=error.__name__):
            await in_thread(work)
        return "goes on"

    assert asyncio.run(main()) == "goes on"


def test_the_first_error_cancels_the_rest_and_waits_for_them():
    ended = []

    async def fails():
        await asyncio.sleep(0)
        raise OSError("gone") from KeyError("cause")

    async def hangs():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(1)

    async def main():
        await all_of([hangs(), fails(), hangs()])

    with pytest.raises(OSError, match="gone") as caught:
        asyncio.run(main())
    assert isinstance(caught.value.__cause__, KeyError)
    assert ended == [1, 1]


def test_results_are_in_order():
    async def after(seconds, value):
        await asyncio.sleep(seconds)
        return value

    async def main():
        return await all_of(after(0.02 - i / 100, i) for i in range(3))

    assert asyncio.run(main()) == [0, 1, 2]


def test_a_note_says_what_was_done():
    with pytest.raises(OSError, match="gone") as caught, doing("saving the state"):
        raise OSError("gone")
    assert caught.value.__notes__ == ["while saving the state"]
