"""Telling observers what happens, without letting them stop a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pluggy

from focus_core.errors import PluginError
from focus_core.hookspecs import new_manager

__all__ = ["Observers"]

_log = logging.getLogger("focus")


class Observers:
    """The observers of one run; each is an object with some ``focus_*`` run hooks.

    Args:
        observers: Objects with ``hookimpl`` methods, told in this order.
        required: More of them, told first: the run's own records. A failing one stops the run.

    Raises:
        PluginError: A method is no hook, or its parameters do not fit.
    """

    def __init__(
        self, observers: Sequence[object] = (), *, required: Sequence[object] = ()
    ) -> None:
        self._manager = new_manager()
        self._required = tuple(required)
        self._failed: set[str] = set()
        for observer in reversed((*required, *observers)):  # pluggy calls the last one first
            try:
                self._manager.register(observer)
                self._manager.check_pending()
            except (ValueError, pluggy.PluginValidationError) as error:
                raise PluginError(f"observer {_name(observer)}: {error}") from error

    def notify(self, hook: str, event: Any) -> None:
        """Call one hook on every observer, one at a time.

        A failing one is logged, the first time with its traceback, unless it is required.

        Raises:
            Exception: What a required observer raised.
        """
        for implementation in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            name = _name(implementation.plugin)
            self._manager.trace(hook, name)
            try:
                implementation.function(*[event][: len(implementation.argnames)])
            except Exception as error:
                if implementation.plugin in self._required:
                    raise
                known = name in self._failed
                self._failed.add(name)
                _log.error("observer %s failed in %s: %r", name, hook, error, exc_info=not known)


def _name(observer: object) -> str:
    return type(observer).__qualname__
