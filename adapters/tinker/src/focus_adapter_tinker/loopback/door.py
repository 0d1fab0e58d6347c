"""The door that every request comes through: who may come in, counting, and where faults strike.

A page in a browser of this machine can send requests here, under any name that it has resolve to
127.0.0.1; so ``Host`` and, where there is one, ``Origin`` must be a name of this machine itself.

Besides the protocol's routes there are, for tests and dry runs, ``GET /loopback/stats``,
``POST /loopback/faults`` (``{"faults": ["asample:3=429", ...]}``) and ``DELETE /loopback/faults``.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from focus_adapter_tinker.loopback.bodies import field, read_json, refusal
from focus_adapter_tinker.loopback.faults import Fault, Faults
from focus_adapter_tinker.loopback.stats import Stats
from focus_core.errors import UsageError

__all__ = ["FAULT", "Door", "hang_up"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

FAULT: web.RequestKey[Fault | None] = web.RequestKey("fault")
"""What strikes a request, for its handler."""


class Door:
    """Counts requests, and lets faults strike.

    Args:
        stats: Where they are counted.
        faults: Which are on.
        more: What else the statistics say.
        key: What ``X-API-Key`` has to be; ``None`` takes any, or none.
    """

    def __init__(
        self,
        stats: Stats,
        faults: Faults,
        more: Callable[[], dict[str, Any]],
        key: str | None = None,
    ) -> None:
        self._key = key
        self._stats = stats
        self._faults = faults
        self._more = more

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Those that control the door."""
        router.add_get("/loopback/stats", self._told_stats)
        router.add_post("/loopback/faults", self._add_faults)
        router.add_delete("/loopback/faults", self._clear_faults)

    @web.middleware
    async def let_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count, let faults strike, and tell the client of its mistakes."""
        if (why := self._stranger(request)) is not None:
            return refusal(403, why)
        route = request.match_info.route.name
        if route is None:
            return await _told(handler, request)
        self._stats.request(route)
        fault = self._faults.strike(route)
        request[FAULT] = fault
        if fault is not None and fault.status is not None:
            return refusal(fault.status, f"fault {fault.spec}")
        if fault is not None and fault.kind == "echo":
            key = request.headers.get("X-API-Key")
            return refusal(403, f"fault {fault.spec}: the key {key} may not do this")
        if fault is not None and fault.kind == "drop":
            return await hang_up(request, fault)
        response = await _told(handler, request)
        if fault is not None and fault.kind in ("lost", "timeout"):
            return await hang_up(request, fault)
        return response

    def _stranger(self, request: web.Request) -> str | None:
        """Why a request may not come in; ``None`` if it may."""
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if not _is_local(f"//{host}"):
            return f"the Host {host!r} is no name of this machine; ask 127.0.0.1 or localhost"
        if origin is not None and not _is_local(origin):
            return f"pages of {origin!r} may not use this server; only those of this machine may"
        given = request.headers.get("X-API-Key", "")
        if self._key is not None and not hmac.compare_digest(given.encode(), self._key.encode()):
            return "this server has a key of its own, and X-API-Key is not that"
        return None

    async def _told_stats(self, request: web.Request) -> web.Response:
        faults = {fault.spec: fault.struck for fault in self._faults.active}
        return web.json_response({**self._stats.as_dict(), "faults": faults, **self._more()})

    async def _add_faults(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        self._faults.add([str(spec) for spec in field(body, "faults", list)])
        return web.json_response({})

    async def _clear_faults(self, request: web.Request) -> web.Response:
        self._faults.clear()
        return web.json_response({})


def _is_local(url: str) -> bool:
    """Whether a URL names this machine to itself."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _told(handler: Handler, request: web.Request) -> web.StreamResponse:
    """The handler's response; a mistake of the client's as the protocol says it."""
    try:
        return await handler(request)
    except UsageError as error:
        return refusal(400, str(error))
    except web.HTTPException as error:
        return refusal(error.status, error.text or error.reason)


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
