"""Naming what hangs: what holds the event loop, and calls in threads."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from focus_core.utils.threads import running

__all__ = ["PATIENCE", "watching"]

PATIENCE = 5.0
"""Seconds without a turn of the loop that are worth a word; of a call in a thread, six times."""


@contextlib.contextmanager
def watching(loop: asyncio.AbstractEventLoop, out: TextIO) -> Iterator[None]:
    """Say once for each long stall where the loop's thread is, and where calls in threads hang.

    Of a call in a thread it is said again whenever it has taken twice as long.

    Args:
        loop: The running loop; this is its thread.
        out: Where to say it.
    """
    thread, over = threading.get_ident(), threading.Event()
    turned = time.monotonic()

    def turn() -> None:
        nonlocal turned
        turned = time.monotonic()
        if not over.is_set():
            loop.call_later(PATIENCE / 5, turn)

    def watch() -> None:
        told, due = 0.0, 6 * PATIENCE
        while not over.wait(PATIENCE / 5):
            slow = running(due)
            if slow:
                more = f" (and {len(slow) - 1} more)" if len(slow) > 1 else ""
                print(f"focus: still in a thread: {slow[0]}{more}", file=out, flush=True)
                due *= 2
            elif not running(6 * PATIENCE):
                due = 6 * PATIENCE
            frame = sys._current_frames().get(thread)
            if time.monotonic() - turned < PATIENCE or told == turned or frame is None:
                continue
            told = turned
            code = frame.f_code
            print(
                f"focus: nothing else has run for {PATIENCE:.0f} s because of {code.co_qualname} "
                f"({code.co_filename}:{frame.f_lineno}); blocking work belongs in a thread: "
                "await self.execution.run(function, ...)",
                file=out,
                flush=True,
            )

    turn()
    watcher = threading.Thread(target=watch, name="focus-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
