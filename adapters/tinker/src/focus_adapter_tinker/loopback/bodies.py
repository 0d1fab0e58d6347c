"""Bodies of requests, and responses that are not results: refusals, and none at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web

from focus_adapter_tinker.loopback.faults import Fault
from focus_core.errors import TrainerError, UsageError

__all__ = ["Body", "Handler", "fail", "field", "hang_up", "read_json", "refusal", "told"]

Body = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
V = TypeVar("V")


async def told(handler: Handler, request: web.Request) -> web.StreamResponse:
    """The handler's response; a mistake of the client's as the protocol says it."""
    try:
        return await handler(request)
    except UsageError as error:
        return refusal(400, str(error))
    except web.HTTPException as error:
        return refusal(error.status, error.text or error.reason)


def fail(*_: object) -> None:
    """An operation that fails on the server's side."""
    raise TrainerError("a fault was switched on")


def refusal(status: int, detail: str) -> web.Response:
    """An HTTP error, as the protocol says what is wrong."""
    return web.json_response({"detail": detail}, status=status)


async def hang_up(request: web.Request, fault: Fault) -> web.StreamResponse:
    """Close the connection unanswered, at once or when the fault has lasted, or was healed."""
    loop = asyncio.get_running_loop()
    after = fault.seconds if fault.kind == "timeout" else 0.0
    end = None if after is None else loop.time() + after
    while (transport := request.transport) is not None and not transport.is_closing():
        if fault.healed or (end is not None and loop.time() >= end):
            transport.abort()
            break
        await asyncio.sleep(0.02 if end is None else min(0.02, max(end - loop.time(), 0)))
    return web.Response(status=500)  # to a connection that is closed


async def read_json(request: web.Request) -> Body:
    """The body of a request.

    Raises:
        UsageError: It is no JSON object.
    """
    try:
        body = json.loads(await request.read())
    except ValueError as error:
        raise UsageError(f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise UsageError("the body is no JSON object")
    return body


def field(body: Body, name: str, kind: type[V]) -> V:
    """A field of a body.

    Raises:
        UsageError: It is missing, or of another type.
    """
    value = body.get(name)
    if not isinstance(value, kind):
        raise UsageError(f"{name} is {value!r}; it must be of type {kind.__name__}")
    return value
