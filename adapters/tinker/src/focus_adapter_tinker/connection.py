"""Where Tinker is and who asks: checked before a run begins, and looked at while it is opened."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from focus_adapter_tinker import _sdk
from focus_core.errors import UsageError

__all__ = ["address", "check_key", "named", "trouble", "unreachable", "watched"]

_LOG = logging.getLogger(__name__)

_HOSTED = "https://tinker.thinkingmachines.dev/services/tinker-prod"
"""Where the SDK looks if nothing names another server."""

_PATIENCE = 5.0
"""Seconds until somebody who waits is told what for."""

_PROBE = 4.0
"""Seconds that a look at the server may take."""


def address(base_url: str | None) -> str:
    """Where the SDK will look: this, or ``TINKER_BASE_URL``, or Tinker itself.

    Raises:
        UsageError: It is no address of a server.
    """
    given = os.environ.get("TINKER_BASE_URL")
    name, url = ("base_url", base_url) if base_url is not None else ("TINKER_BASE_URL", given)
    if not url and name == "TINKER_BASE_URL":  # empty is unset
        return _HOSTED
    try:
        parts = urlsplit(url or "")
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no port, or an address that never closes its bracket
        good = False
    if not url or not good or not url.isprintable() or " " in url:
        raise UsageError(
            f"{name} is {_public(url or '')!r}; it must be the address of a server, with http:// "
            "or https://, for example http://127.0.0.1:8000"
        )
    return url.rstrip("/")


def _public(url: str) -> str:
    """A URL without the password that it may hold."""
    return re.sub(r"//[^/]*@", "//***@", url)


def check_key() -> None:
    """Refuse to begin without an API key that the SDK takes; it is not sent anywhere.

    Raises:
        UsageError: There is none, or it cannot be one. The key is not in the message.
    """
    instead = "or try the run without one: --dry-run"
    key, command = os.environ.get("TINKER_API_KEY"), os.environ.get("TINKER_CREDENTIAL_CMD")
    if key and not command:
        if not key.startswith(("tml-", "eyJ")):
            raise UsageError(
                "TINKER_API_KEY holds no key of Tinker's: one starts with 'tml-' (or, a token, "
                f"with 'eyJ'); set it to the key that the console shows, {instead}"
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError(
                "TINKER_API_KEY holds a space, a line's end or another character that no key has; "
                f"set it to the key alone, {instead}"
            )
    if key or command:
        return
    tinker: Any = importlib.import_module("tinker")
    try:  # a key may be stored where only the SDK knows
        resolve = importlib.import_module("tinker.lib._auth_token_provider").resolve_auth_provider
    except (ImportError, AttributeError):
        return  # another SDK: told when the session is opened
    try:
        resolve(None, False)
    except (tinker.TinkerError, OSError, ValueError) as error:
        why = "" if "api_key client option" in str(error) else f" ({_sdk.explain(error)})"
        raise UsageError(
            f"there is no API key for Tinker{why}: set TINKER_API_KEY, {instead}"
        ) from _sdk.cause(error)


async def trouble(url: str) -> str | None:
    """What is wrong with a server as seen from here; ``None`` if it answers like one of Tinker's.

    Args:
        url: As ``address`` gives it.
    """
    try:
        status = await _looked(url)
    except Exception as error:
        return f"cannot reach {_public(url)} ({_sdk.explain(error)})"
    if status == 404:
        return f"{_public(url)} knows no /api/v1/healthz (404): is that the address of Tinker?"
    return None


async def unreachable(url: str) -> str | None:
    """Why nobody answers there; ``None`` if somebody does, whatever it is."""
    try:
        status = await _looked(url)
    except Exception as error:
        return f"cannot reach {_public(url)} ({_sdk.explain(error)})"
    # What stands before a server answers for one that is gone.
    return f"{_public(url)} is not served ({status})" if status in (502, 503, 504) else None


async def _looked(url: str) -> int:
    """The status of a look at the server."""
    import httpx

    def look() -> int:
        return int(httpx.get(f"{url}/api/v1/healthz", timeout=_PROBE).status_code)

    return await _sdk.in_thread(look, _PROBE + 1)


@contextlib.asynccontextmanager
async def watched(url: str, model: str, seconds: float) -> AsyncIterator[None]:
    """While a session is opened: one line that says what is waited for, if it takes long.

    Args:
        url: Of the server.
        model: Name of the model.
        seconds: Longest wait.
    """

    async def tell() -> None:
        await asyncio.sleep(_PATIENCE)
        wrong = await trouble(url)
        said = wrong or f"{_public(url)} answers, and does not give {model!r} yet"
        _LOG.warning("%s; still trying (up to %g s)", said, seconds)

    task = asyncio.create_task(tell())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def named(url: str) -> str:
    """Tinker, for messages: by its address unless it is the hosted one."""
    return "Tinker" if url == _HOSTED else f"Tinker at {_public(url)}"
