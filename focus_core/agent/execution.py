"""Where an environment's blocking or sandboxed work runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, runtime_checkable

import attrs

__all__ = ["Execution", "ThreadExecution"]

T = TypeVar("T")


@runtime_checkable
class Execution(Protocol):
    """A service that runs blocking work beside the event loop.

    An environment with an attribute ``execution`` finds its agent's service there.
    """

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Run ``function(*args)`` and await its result."""
        ...

    async def aclose(self) -> None:
        """Finish what runs and free the service."""
        ...


@attrs.define
class ThreadExecution:
    """A bounded thread pool, started when first used.

    Args:
        max_workers: Most calls at a time; more wait.
    """

    max_workers: int = attrs.field(default=8, validator=attrs.validators.ge(1))
    _pool: ThreadPoolExecutor | None = attrs.field(default=None, init=False)

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Run in a worker thread."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.max_workers, thread_name_prefix="focus-env")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    async def aclose(self) -> None:
        """Wait for running calls, drop waiting ones, end the threads."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await asyncio.to_thread(pool.shutdown, wait=True, cancel_futures=True)
