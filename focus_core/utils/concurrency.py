"""Waiting for tasks and threads so that none outlives the one who waits."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from focus_core.utils.threads import name_of

T = TypeVar("T")

__all__ = ["all_of", "awaited", "beside", "doing", "finish", "in_thread", "sendable"]

_log = logging.getLogger("focus")


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Say in an extension's error what was being done."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while {what}")
        raise


async def all_of(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run side by side; the first error cancels the rest, waits for them, and is raised bare."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in tasks]


async def awaited(made: Any, what: str) -> Any:
    """Await what an extension's method gave.

    Raises:
        TypeError: It is not async; names it.
    """
    if not inspect.isawaitable(made):
        raise TypeError(f"{what} is not async; write 'async def {what.rpartition('.')[2]}'")
    return await made


async def finish(work: Awaitable[T], on_cancel: Callable[[], object] | None = None) -> T:
    """Await something a thread does; if cancelled, however often, leave only when it is over.

    Args:
        work: What to wait for.
        on_cancel: Calls it off; the thread may still take its time.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
            if on_cancel is not None:
                try:
                    on_cancel()
                except Exception as failure:  # the wait goes on whatever it does
                    error.add_note(f"calling it off failed: {failure!r}")
    if cancelled is not None:
        task.exception()  # retrieved: the cancellation is what the caller hears of
        raise cancelled
    return task.result()


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run in a thread, which does not outlive the call.

    Raises:
        RuntimeError: The function raised what ``sendable`` replaces.
    """
    return await finish(asyncio.to_thread(sendable, function, *args))


async def beside(function: Callable[..., T], *args: Any, grace: float = 1.0) -> T:
    """Run what may hang in a thread: once cancelled, it is left after ``grace`` seconds, and said.

    Raises:
        RuntimeError: The function raised what ``sendable`` replaces.
    """
    task = asyncio.ensure_future(asyncio.to_thread(sendable, function, *args))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as cancelled:
        await finish(asyncio.wait([task], timeout=grace))
        if not task.done():
            task.cancel()
            name = name_of(function, args)
            _log.warning("%s goes on in its thread, which cannot be stopped", name)
            cancelled.add_note(f"{name} goes on in its thread")
        elif not task.cancelled():
            task.exception()  # retrieved: the cancellation is what the caller hears of
        raise


def sendable(function: Callable[..., T], *args: Any) -> T:
    """Call in a thread, and raise only what reaches the task that waits as it is.

    A future cannot hold ``StopIteration``: whoever waits for it would do so for ever.
    ``SystemExit`` would end the program past every handler, and a cancellation is a lie.

    Raises:
        RuntimeError: The function raised one of these.
    """
    try:
        return function(*args)
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration | CancelledError):
            raise
        raise RuntimeError(f"the function raised {error!r}") from error
