"""Who waits for a server looks whether it is there, and gives up when it has been gone too long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from focus_adapter_tinker.connection import named, unreachable
from focus_core.errors import TrainerError

__all__ = ["Attendant", "attended"]

_LOG = logging.getLogger(__name__)

_EVERY = 10.0
"""Seconds between two looks."""
_TELL = 60.0
"""Seconds between two lines to whoever waits."""


def attended(
    attendant: Attendant | None, limit: asyncio.Timeout
) -> contextlib.AbstractAsyncContextManager[None]:
    """``attendant.attending(limit)``, where somebody attends."""
    return contextlib.nullcontext() if attendant is None else attendant.attending(limit)


class Attendant:
    """Watches one server for everything that waits for it, with one look at a time.

    The SDK tries again for minutes what a server that is gone does not take, and samples without
    end; a server that answers, however slowly, may take as long as the operation's own limit.

    Args:
        url: Of the server.
        seconds: How long it may be out of reach while somebody waits.
    """

    def __init__(self, url: str, seconds: float) -> None:
        self.gone: str | None = None
        self._url = url
        self._seconds = seconds
        self._limits: set[asyncio.Timeout] = set()
        self._task: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def attending(self, limit: asyncio.Timeout) -> AsyncIterator[None]:
        """Within ``limit``, which ends early if the server is gone; ``gone`` then says so.

        Raises:
            TrainerError: It was gone before.
        """
        if self.gone is not None:
            raise TrainerError(self.gone)
        self._limits.add(limit)
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._limits.discard(limit)
            if not self._limits and (task := self._task) is not None:
                self._task = None
                task.cancel()
                await asyncio.wait([task])

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        every = min(_EVERY, self._seconds / 4)
        since = told = None
        while True:
            await asyncio.sleep(every)
            asked = loop.time()
            wrong = await unreachable(self._url)
            if wrong is None:
                since = told = None
                continue
            since = asked if since is None else since
            now = loop.time()
            if now - since >= self._seconds:
                break
            if told is None or now - told >= _TELL:
                told = now
                _LOG.warning(
                    "%s, for %.0f s; still trying (up to %g s: trainer.server_timeout)",
                    wrong,
                    now - since,
                    self._seconds,
                )
        self.gone = (
            f"{named(self._url)} has been out of reach for {self._seconds:g} s ({wrong}); when it "
            "is back, go on with --resume and the run's directory, or wait longer with "
            "--server-timeout SECONDS"
        )
        for limit in self._limits:
            if not limit.expired():
                with contextlib.suppress(RuntimeError):  # it is over, or has not begun
                    limit.reschedule(loop.time())
