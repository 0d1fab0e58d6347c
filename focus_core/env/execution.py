"""Where an environment's blocking or sandboxed work runs."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import attrs

from focus_core.errors import DeadlineError, UsageError
from focus_core.utils.concurrency import finish, sendable
from focus_core.utils.threads import Call, Threads, say_left

__all__ = ["Execution", "ThreadExecution", "bounded", "call", "is_async", "left_loop"]

T = TypeVar("T")


@runtime_checkable
class Execution(Protocol):
    """A service that runs blocking work beside the event loop.

    An environment with an attribute ``execution`` finds its agent's service there.
    """

    async def run(self, function: Callable[..., T], *args: Any, timeout: float | None = None) -> T:
        """Run ``function(*args)`` and await its result.

        Args:
            function: What to run.
            args: Its arguments.
            timeout: Limit in seconds, from when the function starts; waiting for a free place
                does not count.

        Raises:
            DeadlineError: It took longer than ``timeout``.
        """
        ...

    async def aclose(self) -> None:
        """Free the service; nothing of it runs afterwards."""
        ...


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine: an async function, or an object with such a call."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # looked at, not called
    )


async def call(execution: Execution, function: Callable[..., Any], *args: Any) -> Any:
    """Call a user's function: an async one here, a plain one in the service; await what it gives.

    Args:
        execution: Runs plain functions.
        function: Sync or async.
        args: Its arguments.
    """
    made = function(*args) if is_async(function) else await execution.run(function, *args)
    return await made if inspect.isawaitable(made) else made


async def bounded(awaitable: Awaitable[T], timeout: float | None) -> T:
    """Await something for at most so many seconds.

    Raises:
        DeadlineError: It took longer. A ``TimeoutError`` of its own passes as it is.
    """
    try:
        async with asyncio.timeout(timeout) as limit:
            return await awaitable
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise DeadlineError(f"not done within {timeout:g} s") from error


def left_loop(service: object, before: asyncio.AbstractEventLoop | None) -> bool:
    """Whether a service is now used in another event loop than before, which has ended.

    Raises:
        UsageError: The other loop still runs.
    """
    if before is None or before is asyncio.get_running_loop():
        return False
    if before.is_running():
        raise UsageError(
            f"this {type(service).__name__} is in use in another event loop; make one for each"
        )
    return True


@attrs.define
class ThreadExecution:
    """A bounded pool of daemon threads, started when first used.

    A thread cannot be stopped: a call that exceeds its limit, or whose caller is cancelled, is no
    longer waited for, but goes on and keeps its place until it returns; it keeps neither the run
    nor the process from ending. Work that may hang belongs in a ``ProcessExecution``. One event
    loop at a time; one loop after another is fine.

    Args:
        max_workers: Most calls at a time; more wait.
    """

    max_workers: int = attrs.field(default=8, validator=attrs.validators.ge(1))
    _threads: Threads | None = attrs.field(default=None, init=False)
    _waiting: set[asyncio.Future[Any]] = attrs.field(factory=set, init=False)
    _places: asyncio.Semaphore | None = attrs.field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)

    async def run(self, function: Callable[..., T], *args: Any, timeout: float | None = None) -> T:
        """Run in a worker thread; notes of an error that ends the wait say where the call hangs.

        Raises:
            RuntimeError: The function raised ``SystemExit``, ``StopIteration`` or the like, which
                is its own affair.
            UsageError: The service is in use in another event loop.
        """
        loop = asyncio.get_running_loop()
        if left_loop(self, self._loop) and self._threads is not None:
            self._threads.close(0.0)
            self._threads = None
        self._loop = loop
        if self._threads is None or self._places is None:
            self._threads, self._waiting = Threads(), set()
            self._places = asyncio.Semaphore(self.max_workers)
        threads, places = self._threads, self._places
        await places.acquire()
        try:
            call: Call = threads.start(sendable, function, *args)
        except BaseException:
            places.release()
            raise

        def leave(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(places.release)

        call.future.add_done_callback(leave)
        waiting = asyncio.wrap_future(call.future)
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        try:
            return await bounded(waiting, timeout)
        except (asyncio.CancelledError, DeadlineError) as error:
            if not call.future.done():
                error.add_note(f"it is in {call}")
            raise

    async def aclose(self) -> None:
        """Wait for running calls, but not for those that were given up; end the threads.

        What goes on is logged.
        """
        threads, self._threads = self._threads, None
        if threads is None:
            return
        if self._waiting:
            await finish(asyncio.wait(self._waiting))
        say_left(await finish(asyncio.to_thread(threads.close)))
