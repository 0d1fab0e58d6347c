"""How long anything holds the event loop's thread, in CPU time of its own.

Seconds of the thread's own clock: the machine's other work, and threads that hold the
interpreter's lock meanwhile, do not count. Collecting garbage does not count either: its cost is
that of every object in the process, whoever made it, at a moment that nobody chose.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Iterator

import attrs

MOST = 0.010
"""Seconds: the longest that anything of ours may hold the loop."""


@attrs.define
class Held:
    """What was seen.

    Attributes:
        longest: Seconds of the longest callback.
        what: That callback.
        callbacks: How many ran.
    """

    longest: float = 0.0
    what: str = ""
    callbacks: int = 0


def _task_of(handle: asyncio.Handle) -> asyncio.Task[object] | None:
    """The task whose step it was, which says where it waits now."""
    task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    return task if isinstance(task, asyncio.Task) else None


@contextlib.contextmanager
def watched() -> Iterator[Held]:
    """Time every callback of this thread's event loops: a task's step, a timer, a wake-up."""
    held, collecting = Held(), [0.0, 0.0]  # seconds collecting garbage, and since when
    plain = asyncio.events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        before, start = collecting[0], time.thread_time()
        plain(handle)
        taken = time.thread_time() - start - (collecting[0] - before)
        held.callbacks += 1
        if taken > held.longest:
            held.longest, held.what = taken, repr(_task_of(handle) or handle)

    def garbage(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            collecting[1] = time.thread_time()
        else:
            collecting[0] += time.thread_time() - collecting[1]

    asyncio.events.Handle._run = timed  # type: ignore[method-assign]
    gc.callbacks.append(garbage)
    try:
        yield held
    finally:
        gc.callbacks.remove(garbage)
        asyncio.events.Handle._run = plain  # type: ignore[method-assign]
