"""Continuations that leave one state at once, and ask for their first tokens in one request."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import attrs

from focus_core.agent.agent import Spoken

__all__ = ["Opening", "open_together"]


@attrs.define(eq=False)
class Opening:
    """The request; made by the first continuation that asks, and shared by all.

    Attributes:
        n: How many continuations share it.
    """

    n: int
    _task: asyncio.Task[list[Spoken]] | None = None
    _waiting: int = 0
    _taken: int = 0

    async def take(self, ask: Callable[[int], Coroutine[Any, Any, list[Spoken]]]) -> Spoken:
        """One continuation's share.

        Args:
            ask: Makes the request for ``n``; called once.

        Raises:
            Exception: Whatever the request raised, for everyone who shares it.
        """
        if self._task is None:
            self._task = asyncio.create_task(ask(self.n))
        self._waiting += 1
        try:
            await asyncio.wait({self._task})  # whose cancellation leaves the request to the others
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._task.cancel()
        self._taken += 1
        return self._task.result()[self._taken - 1]

    async def aclose(self) -> None:
        """Wait for a request that was called off."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class _Launched(Protocol):
    source: int
    opening: Opening | None


def open_together(launched: Sequence[_Launched]) -> list[Opening]:
    """Give those that leave one state an opening to share; returns the openings."""
    by_source: defaultdict[int, list[_Launched]] = defaultdict(list)
    for each in launched:
        by_source[each.source].append(each)
    openings = []
    for together in by_source.values():
        if len(together) > 1:
            openings.append(Opening(len(together)))
            for each in together:
                each.opening = openings[-1]
    return openings
