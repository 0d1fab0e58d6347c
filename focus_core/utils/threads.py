"""Calls in daemon threads: one that hangs is named, and keeps neither the run nor the process."""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

__all__ = ["GRACE", "Call", "DaemonThreads", "Threads", "name_of", "running", "say_left"]

GRACE = 1.0
"""Seconds for which a call that nobody waits for any more may still come to its end."""

_PLUMBING = (threading.__file__, str(Path(__file__).parents[1]))
"""Code that runs what somebody else wrote."""
_RUNNING: set[Call] = set()
_log = logging.getLogger("focus")


def name_of(function: Any, args: tuple[Any, ...]) -> str:
    """Of what is called in the end: functions that call others take them as arguments."""
    while isinstance(function, functools.partial):
        function, args = function.func, (*function.args, *args)
    name = getattr(function, "__qualname__", type(function).__name__)
    inner = next((place for place, arg in enumerate(args) if callable(arg)), None)
    return name if inner is None else name_of(args[inner], args[inner + 1 :])


class Call:
    """A call in a thread; its string says where it is, and since when it runs.

    Attributes:
        future: What it comes to. Cancelling it stops nothing.
        began: When it was handed over, by ``time.monotonic``.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.future: Future[Any] = Future()
        self.future.set_running_or_notify_cancel()
        self.began = time.monotonic()
        self._function: Callable[..., Any] | None = function
        self._args = args
        self._name = name_of(function, args)
        self._thread: int | None = None

    def run(self, free: Callable[[], None]) -> None:
        """Run it here; ``free`` is called just before anybody learns that it is over."""
        function, args = self._function, self._args
        assert function is not None  # a call runs once
        self._function, self._args = None, ()
        self._thread = threading.get_ident()
        try:
            result, error = function(*args), None
        except BaseException as raised:  # whoever waits judges it
            result, error = None, raised
        del function, args
        _RUNNING.discard(self)
        free()  # first, so that whoever hears of it finds a free thread
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def __str__(self) -> str:
        where = self._name
        frame = sys._current_frames().get(self._thread) if self._thread else None
        while frame is not None and self in _RUNNING:  # from the inside out: the outermost counts
            code = frame.f_code
            if not code.co_filename.startswith(_PLUMBING):
                where = f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})"
            frame = frame.f_back
        return f"{where}, for {time.monotonic() - self.began:.0f} s"


def running(longer: float = 0.0) -> Sequence[Call]:
    """The calls of this process that have run for so many seconds, the oldest first."""
    end = time.monotonic() - longer
    return sorted((c for c in tuple(_RUNNING) if c.began <= end), key=lambda call: call.began)


def say_left(calls: Sequence[Call]) -> None:
    """Log what goes on although nobody waits for it."""
    for call in calls:
        _log.warning(
            "left running in its thread: %s; a thread cannot be stopped, it ends when the call "
            "returns or with the program (what may hang belongs in a ProcessExecution)",
            call,
        )


class _Worker(threading.Thread):
    def __init__(self, owner: Threads) -> None:
        super().__init__(name="focus-call", daemon=True)
        self.inbox: SimpleQueue[Call | None] = SimpleQueue()
        self.call: Call | None = None
        self._owner = owner

    def run(self) -> None:
        while (call := self.inbox.get()) is not None:
            call.run(self._free)
            del call

    def _free(self) -> None:
        self.call = None
        self._owner._freed(self)


class Threads:
    """Daemon threads, as many as calls run at a time; started when needed, and used again."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._workers: set[_Worker] = set()
        self._closed = False

    def start(self, function: Callable[..., Any], *args: Any) -> Call:
        """Begin a call."""
        call = Call(function, args)
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(self)
            worker.start()
            self._workers.add(worker)
        worker.call = call
        _RUNNING.add(call)
        worker.inbox.put(call)
        return call

    def close(self, grace: float | None = None) -> Sequence[Call]:
        """End the threads, once their calls are over; the calls that are not by then."""
        self._closed = True
        self._end_idle()
        calls = [call for worker in tuple(self._workers) if (call := worker.call) is not None]
        left = wait(
            [call.future for call in calls], timeout=GRACE if grace is None else grace
        ).not_done
        for worker in tuple(self._workers):
            if worker.call is None:
                worker.join(GRACE)
        return [call for call in calls if call.future in left]

    def _freed(self, worker: _Worker) -> None:
        self._idle.append(worker)
        if self._closed:
            self._end_idle()

    def _end_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().inbox.put(None)
            except IndexError:  # another thread took the last one
                return


class DaemonThreads(ThreadPoolExecutor):
    """An executor for ``asyncio.to_thread`` that leaves behind what hangs, and says so."""

    def __init__(self, max_workers: int = 32) -> None:
        super().__init__(max_workers)
        self._threads_of_ours = Threads()
        self._free = max_workers
        self._guard = threading.Lock()
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Begin a call, or let it wait until another one is over."""
        future: Future[Any] = Future()
        with self._guard:
            self._queue.append((future, functools.partial(function, *args, **options)))
        self._begin()
        return future

    def _begin(self) -> None:
        while True:
            with self._guard:
                if not (self._queue and self._free):
                    return
                future, function = self._queue.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                self._free -= 1
            call = self._threads_of_ours.start(function)
            call.future.add_done_callback(functools.partial(self._over, future))

    def _over(self, future: Future[Any], done: Future[Any]) -> None:
        with self._guard:
            self._free += 1
        if (error := done.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(done.result())
        self._begin()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Drop what has not begun, and give the rest a moment; whatever the arguments say."""
        with self._guard:
            dropped, self._queue = self._queue, deque()
        for future, _ in dropped:
            future.cancel()
        say_left(self._threads_of_ours.close())
