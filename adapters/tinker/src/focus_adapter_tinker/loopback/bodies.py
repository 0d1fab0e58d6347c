"""Bodies of requests, read and checked; and refusals."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from aiohttp import web

from focus_core.errors import TrainerError, UsageError

__all__ = ["Body", "fail", "field", "read_json", "refusal"]

Body = dict[str, Any]
V = TypeVar("V")


def fail(*_: object) -> None:
    """An operation that fails on the server's side."""
    raise TrainerError("a fault was switched on")


def refusal(status: int, detail: str) -> web.Response:
    """An HTTP error, as the protocol says what is wrong."""
    return web.json_response({"detail": detail}, status=status)


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
