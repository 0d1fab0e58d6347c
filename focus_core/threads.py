"""Work in threads that does not outlive whoever awaits it, and saying what was being done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

__all__ = ["in_thread", "noted"]


@contextlib.contextmanager
def noted(doing: str) -> Iterator[None]:
    """Say in an extension's error what was being done."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while {doing}")
        raise


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run in a thread; if cancelled, wait for the thread, so that it does not outlive the run."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(work)
    finally:
        await asyncio.gather(work, return_exceptions=True)
