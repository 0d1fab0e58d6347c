"""Telling observers what happens, without letting them stop a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pluggy

from focus_core.hookspecs import Hooks

__all__ = ["Observers"]

_log = logging.getLogger("focus")


class Observers:
    """The observers of one run; each is an object with some ``focus_*`` run hooks.

    Args:
        observers: Objects with ``hookimpl`` methods, told in this order.
    """

    def __init__(self, observers: Sequence[object] = ()) -> None:
        self._manager = pluggy.PluginManager("focus")
        self._manager.add_hookspecs(Hooks)
        for observer in reversed(observers):  # pluggy calls the last registered first
            self._manager.register(observer)
        self._manager.check_pending()

    def notify(self, hook: str, event: Any) -> None:
        """Call one hook on every observer, one at a time; failures are logged."""
        for implementation in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            try:
                implementation.function(*[event][: len(implementation.argnames)])
            except Exception:
                _log.exception("observer %s failed in %s", implementation.plugin_name, hook)
