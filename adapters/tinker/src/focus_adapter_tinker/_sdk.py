"""How the installed SDK is called: what differs between its versions 0.25 and 0.38 is here.

Up to 0.37 training operations are submitted by ``*_async`` methods, which return a future, and
whatever makes a client blocks. In 0.38 the plain methods return futures of everything and the
``*_async`` ones are deprecated. Nothing here retries: the SDK submits again what was not received.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import logging
import os
import re
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from focus_core.errors import FocusError, TrainerError

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

__all__ = [
    "call",
    "cause",
    "context_length",
    "explain",
    "in_thread",
    "mask_logs",
    "masked",
    "resolved",
    "sample",
    "settled",
    "silence",
    "within",
]


def _submitter(client: Any, name: str) -> Callable[..., Any]:
    """The method that submits an operation without a warning."""
    mask_logs()
    later = getattr(client, f"{name}_async", None)
    if later is None or hasattr(later, "__deprecated__"):
        return getattr(client, name)  # type: ignore[no-any-return]
    return later  # type: ignore[no-any-return]


async def settled(answer: Any) -> Any:
    """The result of what a submission returned: awaited until nothing is left to await."""
    while True:
        if hasattr(answer, "result_async"):
            answer = await answer.result_async()
        elif inspect.isawaitable(answer):
            answer = await answer
        else:
            return answer


async def call(client: Any, name: str, *args: Any, **options: Any) -> Any:
    """Submit a training operation and wait for its result.

    Cancelling this cancels the operation's future, which the SDK up to 0.37 does not survive if it
    is still queued: callers shield it, or use the client no more.
    """
    return await settled(_submitter(client, name)(*args, **options))


async def sample(client: Any, prompt: Any, n: int, params: Any) -> Any:
    """One sampling request; cancelling it tells the server to stop."""
    answer = _submitter(client, "sample")(prompt=prompt, num_samples=n, sampling_params=params)
    if hasattr(answer, "result_async") or inspect.isawaitable(answer):
        return await settled(answer)
    return await asyncio.wrap_future(answer)


def resolved(made: Any) -> Any:
    """In a thread: the client itself, where its maker returns a future of it."""
    return made.result() if hasattr(type(made), "result_async") else made


def context_length(service: Any, model: str, **where: Any) -> int | None:
    """In a thread: most tokens a model takes, if the server says so.

    Args:
        service: A ``tinker.ServiceClient``.
        model: Its base model.
        where: ``base_url`` and ``api_key``, as the service was given.
    """
    ask = service.get_server_capabilities
    try:
        if hasattr(ask, "__deprecated__"):
            rest: Any = importlib.import_module("tinker")  # older ones have no such name
            ask = rest.RestClient(**where).get_server_capabilities
        for each in resolved(ask()).supported_models:
            if each.model_name == model:
                return getattr(each, "max_context_length", None)
    except Exception as error:  # it is a convenience: the server will refuse what is too long
        _LOG.warning("the context length of %s is not known: %s", model, explain(error))
    return None


async def in_thread(function: Callable[[], T], seconds: float) -> T:
    """Run a blocking call of the SDK in a thread of its own, for at most so long.

    The thread is left behind when the time is up or the caller is cancelled; it ends when the SDK
    gives up or the process ends.

    Raises:
        TimeoutError: It took longer.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(settle: Callable[[Any], None], outcome: Any) -> None:
        def unless_left() -> None:
            if not future.done():
                settle(outcome)

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(unless_left)

    def run() -> None:
        try:
            value = function()
        except BaseException as error:
            tell(future.set_exception, error)
        else:
            tell(future.set_result, value)

    threading.Thread(target=run, name="focus-tinker", daemon=True).start()
    async with asyncio.timeout(seconds):
        return await future


class NoAnswerError(TrainerError):
    """Tinker did not answer in time; what was asked may still happen."""


@contextlib.asynccontextmanager
async def within(
    limit: float | asyncio.Timeout, doing: str, attendant: Any = None
) -> AsyncIterator[None]:
    """Turn whatever the SDK raises, and a timeout, into a ``TrainerError`` on one line.

    Args:
        limit: Longest wait in seconds, or what ends it.
        doing: Begins the message, such as ``"saving the state failed"``.
        attendant: Looks whether the server is still there.

    Raises:
        NoAnswerError: No answer in time.
        TrainerError: Anything else.
    """
    until = limit if isinstance(limit, asyncio.Timeout) else asyncio.timeout(limit)
    try:
        watch = attendant.attending(until) if attendant else contextlib.nullcontext()
        async with until, watch:
            yield
    except FocusError:
        raise
    except Exception as error:
        if isinstance(error, TimeoutError) and until.expired():
            waited = "in time" if until is limit else f"within {limit:g} s"
            gone = attendant.gone if attendant else None
            raise NoAnswerError(f"{doing}: {gone or f'no answer {waited}'}") from cause(error)
        raise TrainerError(f"{doing}: {explain(error)}") from cause(error)


def silence(service: Any) -> None:
    """Stop what the SDK does for a session by itself, such as its heartbeats."""
    holder = getattr(service, "_session_holder", None) or getattr(service, "holder", None)
    close = getattr(holder, "close", None)
    if close is not None:
        close()


_KEY = re.compile(r"(?<![A-Za-z0-9])(?:tml-(?!renderers\b)[\w.~+/=-]{5,}|eyJ[\w.~+/=-]{8,})")
"""What looks like an API key or a token; ``tml-renderers`` is a package that the SDK speaks of."""


def masked(text: str) -> str:
    """A text in which no key can be read: neither the environment's nor anything like one."""
    key = os.environ.get("TINKER_API_KEY")
    return _KEY.sub("***", text.replace(key, "***") if key else text)


def mask_logs() -> None:
    """Have the SDK's own log lines masked, which quote what a server answered, and asyncio's.

    A task of the SDK's whose error nobody read is asyncio's to report.

    A filter works on the very loggers that it is added to, so all that there are by now get it.
    Every request asks for that, and nearly none finds new ones.
    """
    global _looked_over
    names = list(logging.root.manager.loggerDict)
    if len(names) == _looked_over:
        return
    for name in names:
        if name in ("tinker", "asyncio") or name.startswith("tinker."):
            logging.getLogger(name).addFilter(_masks)
    _looked_over = len(names)


_looked_over = 0
"""Loggers that there were when all were looked over; none ever goes."""


def _masks(record: logging.LogRecord) -> bool:
    said = record.getMessage()
    if (without := masked(said)) != said:
        record.msg, record.args = without, ()
    if record.exc_info and record.exc_info[1] is not None and cause(record.exc_info[1]) is None:
        record.exc_text = masked("".join(traceback.format_exception(record.exc_info[1])))
        record.exc_info = None
    return True


def explain(error: BaseException) -> str:
    """An error of the SDK on one line, for messages and logs.

    It is never empty, and shows neither the API key of the environment nor anything that looks
    like one; a server may repeat the key that it was sent.
    """
    said = " ".join(str(error).split())
    return masked(f"{type(error).__name__}: {said}" if said else type(error).__name__)


def cause(error: BaseException) -> BaseException | None:
    """What to chain an error to: its cause, but for one whose traceback would show a key."""
    text = "".join(traceback.format_exception(error))
    return error if masked(text) == text else None
