"""Requests to Slime's router: one client for each event loop, few and bounded retries."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import httpx

from focus_adapter_slime.errors import AbortedError
from focus_core.errors import DeadlineError, TrainerError

__all__ = ["Router"]

_BUSY = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Statuses of a request that another attempt may get through: nothing was sampled."""
_PAUSE = 0.25
"""Seconds before the second attempt; twice as long before each further one."""


@attrs.define(eq=False)
class _Shared:
    """An event loop's connections, for as long as a router there is open."""

    client: httpx.AsyncClient
    places: asyncio.Semaphore
    users: int = 0


_SHARED: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = weakref.WeakKeyDictionary()


@attrs.define(eq=False)
class Router:
    """Slime's router, or one that answers alike.

    Args:
        url: Without a path, such as ``http://10.0.0.1:3000``.
        timeout: Seconds an answer may take.
        retries: Attempts after the first.
        requests: Most requests at a time of all routers in one event loop; the first one's holds.
        headers: Sent with every request.
        aborting: Whether the rollout is being called off; asked before every attempt.
    """

    url: str
    timeout: float = attrs.field(default=600.0, kw_only=True)
    retries: int = attrs.field(default=3, kw_only=True)
    requests: int = attrs.field(default=512, kw_only=True)
    headers: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    aborting: Callable[[], bool] = attrs.field(default=lambda: False, kw_only=True)
    _shared: _Shared | None = attrs.field(default=None, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def _open(self) -> _Shared:
        if self._closed:
            raise TrainerError("this router's policy was closed; sample a new one")
        if self._shared is None:
            loop = asyncio.get_running_loop()
            if loop not in _SHARED:
                limits = httpx.Limits(max_connections=None, max_keepalive_connections=self.requests)
                # No proxy of the environment's: the router is on the cluster's own network.
                client = httpx.AsyncClient(limits=limits, timeout=None, trust_env=False)
                _SHARED[loop] = _Shared(client, asyncio.Semaphore(self.requests))
            self._shared = _SHARED[loop]
            self._shared.users += 1
        return self._shared

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer to one request, as JSON.

        Busy servers and lost connections are tried again. A late answer is not: asking again
        would replace long samples by short ones.

        Raises:
            AbortedError: The rollout is being called off.
            DeadlineError: No answer in time.
            TrainerError: The router refused, or still failed at the last attempt.
        """
        shared = self._open()
        async with shared.places:
            for attempt in range(self.retries + 1):
                if self.aborting():
                    raise AbortedError("Slime called this rollout off")
                if attempt:
                    await asyncio.sleep(_PAUSE * 2 ** (attempt - 1))
                try:
                    async with asyncio.timeout(self.timeout) as limit:
                        answer = await shared.client.post(
                            self.url + path, json=body, headers=dict(self.headers)
                        )
                except TimeoutError as error:
                    if not limit.expired():
                        raise
                    raise DeadlineError(
                        f"the router {self.url} gave no answer within {self.timeout:g} s; raise "
                        "focus_request_timeout, or ask for fewer tokens"
                    ) from error
                except httpx.TransportError as error:
                    said: Exception = error
                else:
                    if answer.is_success:
                        return _json(answer, self.url)
                    said = TrainerError(f"status {answer.status_code}: {_short(answer.text)}")
                    if answer.status_code not in _BUSY:
                        break
            raise TrainerError(
                f"the router {self.url}{path} failed {attempt + 1} times, the last time with "
                f"{type(said).__name__}: {said}"
            ) from said

    async def aclose(self) -> None:
        """Ask no more; the last one in an event loop closes its connections."""
        self._closed = True
        shared, self._shared = self._shared, None
        if shared is None:
            return
        shared.users -= 1
        if not shared.users:
            loop = asyncio.get_running_loop()
            if _SHARED.get(loop) is shared:
                del _SHARED[loop]
            await shared.client.aclose()


def _json(answer: httpx.Response, url: str) -> Any:
    try:
        return answer.json()
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise TrainerError(
            f"the router {url} answered what is no JSON: {_short(answer.text)}"
        ) from error


def _short(text: str) -> str:
    return " ".join(text.split())[:200] or "(nothing)"
