"""Continuations that leave one state at once, and ask for their first tokens in one request."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import attrs

from focus_core.agent.agent import Spoken
from focus_core.utils.concurrency import finish

__all__ = ["Opening", "open_together"]

Ask = Callable[[int], Coroutine[Any, Any, list[Spoken]]]


@attrs.define(eq=False)
class Opening:
    """The request; made by the first continuation that asks, and shared by all.

    Attributes:
        launches: The continuations that share it. Which sample is whose, and the seed, depend on
            these only, and not on who asks first.
    """

    launches: Sequence[int]
    _task: asyncio.Task[list[Spoken]] | None = None
    _waiting: int = 0

    async def take(self, launch: int, ask: Ask) -> Spoken:
        """One continuation's share; the last who gives up waiting calls the request off.

        Args:
            launch: The continuation.
            ask: Makes the request for so many samples.

        Raises:
            Exception: Whatever the request raised, for everyone who shares it.
        """
        if self._task is None:
            self._task = asyncio.create_task(_asked(ask, len(self.launches)))
        task = self._task
        self._waiting += 1
        try:
            await asyncio.wait({task})  # whose cancellation leaves the request to the others
        finally:
            self._waiting -= 1
            if not (self._waiting or task.done()):
                self._task = None  # of whoever comes later
                task.cancel()
                await finish(asyncio.gather(task, return_exceptions=True), task.cancel)
        return task.result()[self.launches.index(launch)]


async def _asked(ask: Ask, n: int) -> list[Spoken]:
    try:
        return await ask(n)
    except SystemExit as error:  # of a task, it would end the program past every handler
        raise RuntimeError(f"the code raised {error!r}") from error


class _Launched(Protocol):
    launch: int
    source: int
    opening: Opening | None


def open_together(launched: Sequence[_Launched]) -> None:
    """Give those that leave one state an opening to share."""
    by_source: defaultdict[int, list[_Launched]] = defaultdict(list)
    for each in launched:
        by_source[each.source].append(each)
    for together in by_source.values():
        if len(together) > 1:
            opening = Opening([each.launch for each in together])
            for each in together:
                each.opening = opening
