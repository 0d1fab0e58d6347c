"""Public names that a package imports on first use (PEP 562), so that importing it is cheap."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy"]


def lazy(
    package: str, home: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package binds to ``__getattr__`` and ``__dir__``.

    Args:
        package: Its ``__name__``.
        home: The module of each of its public names, relative to it (``".policy"``) or absolute.
    """

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(home)
