"""Verdicts from processes that can be killed, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import math
import os
import queue
import socket
import threading
import time
import weakref
from concurrent.futures import Future

import attrs

from focus_task_math.grading.answers import find_answer, find_gold
from focus_task_math.grading.nursery import Nursery
from focus_task_math.grading.tokens import LONGEST
from focus_task_math.grading.verdict import GradingStats, Verdict

__all__ = ["GradingPool", "agrade", "default_pool", "grade"]

DEFAULT_TIMEOUT = 5.0
SLICE_SECONDS = 0.05
"""How often a waiting thread looks whether anyone still wants the verdict."""
VERDICTS_PER_WORKER = 5000
"""A worker is renewed after so many, as sympy's caches grow."""


@attrs.define(eq=False)
class _Job:
    """A verdict asked for; ``completion`` is ``None`` to only read the gold."""

    gold: str
    completion: str | None
    timeout: float
    future: Future[Verdict] = attrs.field(factory=Future)
    abandoned: bool = False


class _NoWorkerError(Exception):
    """The grading process cannot be started."""


@attrs.define(eq=False)
class _Worker:
    pid: int
    channel: socket.socket
    verdicts: int = 0
    unread: bytes = b""

    def is_gone(self) -> bool:
        """Whether it has died while idle: an idle worker has nothing to say."""
        self.channel.setblocking(False)
        try:
            self.channel.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True


class GradingPool:
    """Grades in worker processes, with a hard limit for each verdict.

    Workers start when first needed and are reused. A verdict that takes longer than its limit
    kills its worker; a worker that dies is replaced. Usable from any thread and under asyncio; no
    signal is used in this process. Use it as a context manager, or ``close`` it; what is left open
    closes at interpreter exit, and if this process dies the workers end by themselves.

    Args:
        workers: Verdicts at a time; by default 2, or 1 on a machine with one core.
        memory: Address space of a worker, in bytes. An answer that needs more is wrong, or not
            graded where that kills the worker.
    """

    def __init__(self, workers: int | None = None, memory: int = 2 << 30) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self._size = workers or min(2, os.cpu_count() or 1)
        self._memory = memory
        self._closed = False
        self._fresh()
        _pools.add(self)

    def _fresh(self) -> None:
        """Forget threads and processes, without touching them."""
        self._lock = threading.Lock()  # held for moments only: the event loop may want it
        self._nursery_lock = threading.Lock()  # held while a process starts
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._nursery: Nursery | None = None
        self._stats = GradingStats()

    def forget(self) -> None:
        """Start over in a forked child: threads are gone there, and workers are the parent's."""
        if self._nursery is not None:
            self._nursery.forget()
        self._fresh()

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._closed

    @property
    def stats(self) -> GradingStats:
        """What has been graded so far."""
        return self._stats

    def grade(self, completion: str, gold: str, timeout: float = DEFAULT_TIMEOUT) -> Verdict:
        """Grade a completion; blocks this thread.

        Args:
            completion: What the policy said.
            gold: A reference solution (its last closed box counts) or a bare answer.
            timeout: Limit in seconds, from the moment a worker is free.

        Raises:
            ValueError: ``timeout`` is not a positive number.
            RuntimeError: The pool is closed.
        """
        return self._wait(self._submit(gold, completion, timeout))

    async def agrade(self, completion: str, gold: str, timeout: float = DEFAULT_TIMEOUT) -> Verdict:
        """Grade a completion without blocking the event loop; otherwise as ``grade``.

        Cancelling it frees the worker within a tenth of a second.
        """
        job = self._submit(gold, completion, timeout)
        try:
            return await asyncio.wrap_future(job.future)
        finally:
            job.abandoned = True

    def check_gold(self, gold: str, timeout: float = DEFAULT_TIMEOUT) -> Verdict:
        """Whether a reference can be read as written: ``correct`` is True, else None."""
        return self._wait(self._submit(gold, None, timeout))

    def close(self) -> None:
        """End the workers; verdicts still being waited for come out as not graded."""
        with self._lock:
            self._closed = True
            threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._jobs.get_nowait()
                if job is not None and job.future.set_running_or_notify_cancel():
                    job.future.set_result(Verdict(None, "the grading pool was closed"))
        with self._nursery_lock:
            if self._nursery is not None:
                self._nursery.close()
                self._nursery = None

    def __enter__(self) -> GradingPool:
        """Give the pool itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        self.close()

    # -- this side of the queue

    def _submit(self, gold: str, completion: str | None, timeout: float) -> _Job:
        if not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        job = _Job(gold, completion, float(timeout))
        with self._lock:
            if self._closed:
                raise RuntimeError("the grading pool is closed")
            while len(self._threads) < self._size:
                name = f"grading-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._jobs.put(job)  # under the lock: close() drains what came before it
        return job

    @staticmethod
    def _wait(job: _Job) -> Verdict:
        try:
            return job.future.result()
        finally:
            job.abandoned = True

    # -- the other side: one thread for each worker

    def _run(self) -> None:
        worker: _Worker | None = None
        while (job := self._jobs.get()) is not None:
            if job.abandoned or not job.future.set_running_or_notify_cancel():
                continue
            try:
                if worker is not None and worker.is_gone():
                    self._discard(worker)
                    worker = None
                    self._count(replaced=True)
                worker = worker or self._spawn()
                verdict, kept = self._serve(worker, job)
                if not kept or worker.verdicts >= VERDICTS_PER_WORKER:
                    self._discard(worker)
                    worker = None
                self._count(replaced=not kept)
            except _NoWorkerError as error:
                verdict = Verdict(None, str(error))
            except BaseException as error:  # a fault here must not leave the caller waiting
                if worker is not None:
                    self._discard(worker)
                    worker = None
                job.future.set_exception(error)
                continue
            if not job.abandoned:
                self._count(graded=verdict.correct is not None, not_graded=verdict.correct is None)
            job.future.set_result(verdict)
        if worker is not None:
            self._discard(worker)

    def _count(self, **events: bool) -> None:
        with self._lock:
            self._stats = attrs.evolve(
                self._stats,
                **{
                    name: getattr(self._stats, name) + 1
                    for name, happened in events.items()
                    if happened
                },
            )

    def _serve(self, worker: _Worker, job: _Job) -> tuple[Verdict, bool]:
        """A verdict, and whether the worker is still good."""
        answer = reason = None
        if job.completion is not None:
            found = find_answer(job.completion)
            answer, reason = found.text, found.reason
        deadline = time.monotonic() + job.timeout
        gold_read = False
        worker.verdicts += 1
        try:
            # One character too many is as unreadable as a million.
            gold = find_gold(job.gold)[: LONGEST + 1]
            request = [gold, answer and answer[: LONGEST + 1], job.timeout]
            worker.channel.settimeout(SLICE_SECONDS)  # it is idle, so it reads at once
            worker.channel.sendall(json.dumps(request).encode() + b"\n")
            while True:
                reply = self._reply(worker, job, deadline)
                if reply is not None:
                    break
                gold_read = True
        except TimeoutError:
            if job.abandoned or self._closed:
                return Verdict(None, "the grading pool was closed", answer), False
            self._count(timed_out=True)
            taken = f"not done within {job.timeout:g} s"
            if gold_read:
                return Verdict(False, f"the answer was {taken}", answer), False
            return Verdict(None, f"reading the reference answer was {taken}", answer), False
        except OSError:
            return Verdict(None, "the grading worker died", answer), False
        correct, why = bool(reply[0]) if reply[0] is not None else None, str(reply[1])
        if correct and answer is None and job.completion is not None:
            correct, why = False, str(reason)  # readable gold, but nothing to compare
        return Verdict(correct, why, answer), True

    def _reply(self, worker: _Worker, job: _Job, deadline: float) -> list[object] | None:
        """The next line from a worker.

        Raises:
            TimeoutError: None came before the deadline, or nobody waits for it any more.
            OSError: The worker is gone.
        """
        while b"\n" not in worker.unread:
            left = deadline - time.monotonic()
            if left <= 0 or job.abandoned or self._closed:
                raise TimeoutError
            worker.channel.settimeout(min(left, SLICE_SECONDS))
            with contextlib.suppress(TimeoutError):
                received = worker.channel.recv(1 << 16)
                if not received:
                    raise ConnectionResetError("closed by the worker")
                worker.unread += received
        line, _, worker.unread = worker.unread.partition(b"\n")
        reply: list[object] | None = json.loads(line)
        return reply

    def _spawn(self) -> _Worker:
        with self._nursery_lock:
            if self._closed:
                raise _NoWorkerError("the grading pool was closed")
            if self._nursery is not None:
                try:
                    return _Worker(*self._nursery.spawn())
                except OSError:  # it has been killed
                    self._nursery.close()
                    self._nursery = None
            try:
                self._nursery = Nursery(self._memory)
                return _Worker(*self._nursery.spawn())
            except OSError as error:
                raise _NoWorkerError(f"the grading process cannot be started: {error}") from error

    def _discard(self, worker: _Worker) -> None:
        worker.channel.close()
        with self._nursery_lock:
            if self._nursery is not None:
                self._nursery.kill(worker.pid)


_pools: weakref.WeakSet[GradingPool] = weakref.WeakSet()
_default: GradingPool | None = None
_default_lock = threading.Lock()


def default_pool() -> GradingPool:
    """The pool that ``grade`` and ``agrade`` share; made anew if it was closed."""
    global _default
    with _default_lock:
        if _default is None or _default.closed:
            _default = GradingPool()
        return _default


def grade(completion: str, gold: str, timeout: float = DEFAULT_TIMEOUT) -> Verdict:
    """Grade a completion in the shared pool; see ``GradingPool.grade``."""
    return default_pool().grade(completion, gold, timeout)


async def agrade(completion: str, gold: str, timeout: float = DEFAULT_TIMEOUT) -> Verdict:
    """Grade a completion in the shared pool without blocking; see ``GradingPool.agrade``."""
    return await default_pool().agrade(completion, gold, timeout)


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _forked() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    for pool in list(_pools):
        pool.forget()


os.register_at_fork(after_in_child=_forked)
