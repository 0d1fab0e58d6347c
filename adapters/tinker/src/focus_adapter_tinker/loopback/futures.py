"""What was asked for and is being computed: results by request id, each computed once."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import attrs

from focus_adapter_tinker.loopback.faults import Fault
from focus_core.errors import FocusError, GenerationError, RecordError, UsageError

__all__ = ["PROTOBUF", "Answer", "Futures", "Pending", "json_answer"]

PROTOBUF = "application/x-protobuf"
_KEPT = 4096
"""Results that can be retrieved again; older ones are gone (410), as on the real service."""


@attrs.frozen
class Answer:
    """A result as it goes over the wire."""

    body: bytes
    content_type: str = "application/json"


def json_answer(**content: Any) -> Answer:
    """A result in JSON."""
    return Answer(json.dumps(content).encode())


@attrs.define(eq=False)
class Pending:
    """A request that was taken up.

    Attributes:
        request_id: Names it to the client.
        route: What was asked for.
        task: Computes the answer; never raises.
        fault: What strikes its retrieval.
    """

    request_id: str
    route: str
    task: asyncio.Task[Answer]
    fault: Fault | None = None


class Futures:
    """Takes requests up, once however often a client repeats one."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Pending] = OrderedDict()
        self._by_key: dict[Hashable, str] = {}

    @property
    def pending(self) -> int:
        """Requests still being computed."""
        return sum(not each.task.done() for each in self._by_id.values())

    def known(self, key: Hashable) -> str | None:
        """The id under which a request was taken up before."""
        return self._by_key.get(key)

    def take_up(
        self,
        key: Hashable,
        route: str,
        work: Callable[[], Awaitable[Answer]],
        *,
        slow: float = 0.0,
        retrieval_fault: Fault | None = None,
    ) -> str:
        """Start computing a request that is not ``known``.

        Args:
            key: What makes it the same request when it is repeated.
            route: What was asked for.
            work: Computes the answer.
            slow: Seconds to hold the answer back.
            retrieval_fault: Strikes when the result is retrieved.

        Returns:
            Its id.
        """
        request_id = f"{route}-{uuid.uuid4().hex}"
        task = asyncio.create_task(_answered(work, slow), name=request_id)
        self._by_key[key] = request_id
        self._by_id[request_id] = Pending(request_id, route, task, retrieval_fault)
        while len(self._by_id) > _KEPT and next(iter(self._by_id.values())).task.done():
            self._by_id.popitem(last=False)
        return request_id

    def find(self, request_id: str) -> Pending | None:
        """The request of this id, unless it is unknown or long done."""
        return self._by_id.get(request_id)

    async def close(self) -> None:
        """Cancel what is still being computed."""
        tasks = [each.task for each in self._by_id.values() if not each.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answered(work: Callable[[], Awaitable[Answer]], slow: float) -> Answer:
    """The answer, or what went wrong as the protocol says it."""
    try:
        answer = await work()
    except FocusError as error:
        theirs = isinstance(error, UsageError | RecordError | GenerationError)
        answer = json_answer(error=str(error), category="user" if theirs else "server")
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        answer = json_answer(error=f"{type(error).__name__}: {error}", category="server")
    if slow:
        await asyncio.sleep(slow)
    return answer
