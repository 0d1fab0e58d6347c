"""An execution service whose calls can be killed: one process for each call that runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from focus_core.env._worker import LENGTH, STARTED
from focus_core.env.execution import bounded, left_loop
from focus_core.errors import DeadlineError, ExecutionError, UsageError

__all__ = ["ProcessExecution"]

T = TypeVar("T")

START_SECONDS = 60.0
"""How long a worker may take to start and to import the function; no part of any call's limit."""

# The child finds modules where this process does, however its path came about.
_CHILD = (
    "import sys; sys.path[:] = {path!r}; "
    "from focus_core.env._worker import main; main({fd}, {memory})"
)


@attrs.define(eq=False)
class _Worker:
    """One process and the two directions of its socket."""

    process: Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    killed: bool = False

    @classmethod
    async def start(cls, memory: int | None) -> _Worker:
        ours, theirs = socket.socketpair()
        process: Process | None = None
        try:
            with theirs:
                path = [entry for entry in sys.path if isinstance(entry, str)]
                code = _CHILD.format(path=path, fd=theirs.fileno(), memory=memory)
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    code,
                    pass_fds=[theirs.fileno()],
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    start_new_session=True,  # its own group: killed whole, deaf to Ctrl-C
                )
            ours.setblocking(False)
            return cls(process, *await asyncio.open_connection(sock=ours))
        except BaseException:  # cancelled, for one: nobody else knows of the process
            ours.close()
            if process is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            raise

    async def send(self, payload: bytes) -> None:
        """Hand over a call; returns when the worker has the function and starts it."""
        self.writer.write(LENGTH.pack(len(payload)) + payload)
        await self.writer.drain()
        if await self.reader.readexactly(1) != STARTED:
            raise ConnectionResetError("the worker speaks another language")

    async def answer(self) -> Any:
        """What the call came to; a worker that dies ends the wait, whoever else has its socket."""
        reading = asyncio.create_task(self._read())
        ended = asyncio.create_task(self.process.wait())
        try:
            await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():  # what it wrote before it died is there already
                await asyncio.wait({reading}, timeout=1.0)
            if not reading.done():
                raise ConnectionResetError("the worker ended without an answer")
            return reading.result()
        finally:
            for task in (reading, ended):
                task.cancel()
            await asyncio.wait({reading, ended})

    async def _read(self) -> Any:
        (length,) = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
        return pickle.loads(await self.reader.readexactly(length))

    def kill(self) -> None:
        """Kill it, with whatever it started."""
        if not self.killed:  # once, as the id may be another's after the process was waited for
            self.killed = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it, with whatever it started, and wait until it is gone."""
        self.kill()
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()
        await self.process.wait()


@attrs.define(eq=False)
class ProcessExecution:
    """Runs functions in worker processes that are killed when a call takes too long.

    Workers are fresh interpreters (never a fork of the trainer's process), start when needed and
    are reused. The function is sent by name, so it must live in an importable module, and its
    arguments and result must pickle. A worker ends with this process, whatever becomes of it.
    It is a limit, not a sandbox: the function has the rights of this process. One event loop at a
    time; closed before its loop ends, it leaves nothing to warn of.

    Args:
        max_workers: Most calls at a time; more wait.
        timeout: Limit of each call, in seconds, where the caller gives none.
        memory: Address space of a worker, in bytes; ``None``: unlimited.
    """

    max_workers: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    timeout: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.gt(0))
    )
    memory: int | None = attrs.field(
        default=None, kw_only=True, validator=attrs.validators.optional(attrs.validators.gt(0))
    )
    _places: asyncio.Semaphore | None = attrs.field(default=None, init=False)
    _idle: list[_Worker] = attrs.field(factory=list, init=False)
    _workers: set[_Worker] = attrs.field(factory=set, init=False)
    _loop: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)

    async def run(self, function: Callable[..., T], *args: Any, timeout: float | None = None) -> T:
        """Run in a worker process.

        Raises:
            DeadlineError: It took longer than the limit; its process was killed.
            ExecutionError: Its process died.
            UsageError: The function or its arguments cannot be sent to another process, or the
                service is in use in another event loop.
        """
        payload = _packed(function, args)
        if left_loop(self, self._loop):
            self._abandon()
        self._loop = asyncio.get_running_loop()
        if self._places is None:
            self._places = asyncio.Semaphore(self.max_workers)
        places = self._places
        async with places:
            worker = await self._started(payload, places)
            try:
                limit = self.timeout if timeout is None else timeout
                worked, result = await bounded(worker.answer(), limit)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                await self._end(worker)
                code = worker.process.returncode
                raise ExecutionError(
                    f"the process running {_name(function)} died (exit status {code})"
                ) from error
            except BaseException:  # too late, or cancelled
                await self._end(worker)
                raise
            self._idle.append(worker)
        if worked:
            return result  # type: ignore[no-any-return]  # what the function returned
        raise result

    async def aclose(self) -> None:
        """Kill all workers: running calls fail with ``ExecutionError``, waiting ones as closed."""
        if left_loop(self, self._loop):
            self._abandon()
        self._places = None
        self._idle.clear()
        workers = list(self._workers)
        for worker in workers:  # all of them, even if the wait below is cancelled
            worker.kill()
        for worker in workers:
            await self._end(worker)

    def _abandon(self) -> None:
        """Kill workers of an event loop that has ended, in which nothing of them can be awaited."""
        for worker in self._workers:
            worker.kill()
        self._places = None
        self._idle.clear()
        self._workers.clear()

    async def _started(self, payload: bytes, places: asyncio.Semaphore) -> _Worker:
        """A worker that runs the call; one that died while idle is replaced."""
        while self._places is places:
            reused = bool(self._idle)
            worker = self._idle.pop() if reused else await _Worker.start(self.memory)
            self._workers.add(worker)
            if self._places is not places:  # closed while it started
                await self._end(worker)
                break
            try:
                await bounded(worker.send(payload), START_SECONDS)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                await self._end(worker)
                if not reused and self._places is places:
                    raise OSError(
                        f"a worker process ended at once (exit status {worker.process.returncode})"
                    ) from error
            except DeadlineError as error:
                await self._end(worker)
                raise OSError(f"a worker process did not start in {START_SECONDS:g} s") from error
            except BaseException:
                await self._end(worker)
                raise
            else:
                return worker
        raise RuntimeError("the service was closed before the call began")

    async def _end(self, worker: _Worker) -> None:
        self._workers.discard(worker)
        await worker.end()


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _packed(function: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    remedy = "give a function at the top of an importable module, and arguments that pickle"
    for each in (function, *args):
        if callable(each) and getattr(each, "__module__", None) == "__main__":
            raise UsageError(
                f"{_name(each)} is defined in the running script, which a worker process "
                f"cannot import; {remedy}"
            )
    try:
        return pickle.dumps((function, args))
    except Exception as error:  # pickle raises PicklingError, AttributeError, TypeError, ...
        raise UsageError(
            f"{_name(function)} cannot be sent to a worker process: {error}; {remedy}"
        ) from error
