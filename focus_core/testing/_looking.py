"""How contracts look at a subject from outside: structure of any value, and a held-up loop."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from focus_core.errors import UsageError
from focus_core.plugins.options import build, options_of
from focus_core.testing.base import require

__all__ = ["form", "longest_hold", "require_methods", "require_settable"]


def form(value: Any) -> Any:
    """What a value holds, as nested tuples, so that two values can be compared by content.

    Objects are read through their attributes, whether or not they define ``==``; functions and
    whatever has no attributes count by name only.
    """
    return _form(value, ())


def _form(value: Any, above: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return "array", str(array.dtype), array.shape, repr(array.tolist())
    if id(value) in above:
        return "itself"
    above = (*above, id(value))
    kind = type(value).__qualname__
    if isinstance(value, Mapping):
        return kind, tuple(sorted(((repr(k), _form(v, above)) for k, v in value.items()), key=str))
    if isinstance(value, Set):
        return kind, tuple(sorted((_form(item, above) for item in value), key=str))
    if isinstance(value, Sequence | bytearray | memoryview) or (
        isinstance(value, Iterable) and hasattr(value, "typecode")
    ):
        return kind, tuple(_form(item, above) for item in value)
    if callable(value) and hasattr(value, "__qualname__"):
        return "callable", value.__qualname__
    fields = _fields(value)
    return kind, tuple((name, _form(fields[name], above)) for name in sorted(fields))


def _fields(value: Any) -> dict[str, Any]:
    """Attributes by name, those in slots too."""
    slots = [
        name
        for base in type(value).__mro__
        for name in _names(vars(base).get("__slots__", ()))
        if name not in ("__weakref__", "__dict__") and hasattr(value, name)
    ]
    return {**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})}


def _names(slots: Any) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


async def longest_hold(work: Callable[[], Awaitable[Any]], *, attempts: int = 3) -> float:
    """Seconds for which some work kept the event loop from doing anything else.

    The least of a few attempts: what blocks does so each time, and a busy machine does not.
    """
    holds = []
    for _ in range(attempts):
        over = asyncio.Event()
        ticker = asyncio.create_task(_longest_gap(over))
        await asyncio.sleep(0)
        try:
            await work()
        finally:
            over.set()
            holds.append(await ticker)
    return min(holds)


async def _longest_gap(over: asyncio.Event, tick: float = 0.01) -> float:
    """How much later than asked for this was woken, at worst, until ``over``."""
    longest, last = 0.0, time.monotonic()
    while not over.is_set():
        await asyncio.sleep(tick)
        now = time.monotonic()
        longest, last = max(longest, now - last - tick), now
    return longest


def require_methods(
    subject: object,
    kind: str,
    names: Iterable[str],
    *,
    awaited: Set[str],
    either: Set[str] = frozenset(),
) -> None:
    """A subject has a protocol's methods, and the right ones are coroutines."""
    for name in names:
        method = getattr(subject, name, None)
        require(
            callable(method),
            f"{type(subject).__name__} has no method {name}(); give it one as "
            f"focus_core.{kind} describes",
        )
        is_async = inspect.iscoroutinefunction(method)
        if name in either:
            continue
        if name not in awaited:
            require(not is_async, f"{type(subject).__name__}.{name} is called, not awaited")


def require_settable(factory: Callable[..., Any], section: str) -> None:
    """``--set`` can give every option: each has a type, and its default is of that type."""

    def echo(**values: Any) -> dict[str, Any]:
        return values

    options = options_of(factory)
    echo.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [option.replace(kind=option.KEYWORD_ONLY) for option in options.values()]
    )
    echo.__annotations__ = {name: option.annotation for name, option in options.items()}
    for name, option in options.items():
        require(
            option.annotation is not Any,
            f"{section}.{name} has no type; annotate it, so that --set {section}.{name}=... is "
            "read as what it is",
        )
        text = _text(option.default)
        if text is None:
            continue
        try:
            read = build(echo, {name: text}, section)[name]
        except UsageError as error:
            read = error
        require(
            form(read) == form(option.default) or read == option.default,
            f"--set {section}.{name}={text} reads as {read!r}, not as the default "
            f"{option.default!r}; annotate it with a type that text can give",
        )


def _text(value: Any) -> str | None:
    """What a user would type for a default; ``None`` if it cannot be typed."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return str(value) or None  # nothing typed may also mean none
    if isinstance(value, list | tuple) and value:
        texts = [_text(item) for item in value]
        return ",".join(text for text in texts if text) if all(texts) else None
    return None
