"""What plug-ins register: a name, a line of description, and a factory imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from focus_core.errors import PluginError

__all__ = [
    "CommandSpec",
    "ConverterSpec",
    "CriticSpec",
    "LaneSpec",
    "ObserverSpec",
    "RecipeSpec",
    "SandboxSpec",
    "SearchSpec",
    "Spec",
    "TaskSpec",
    "TrainerSpec",
]


def _tuple(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


def _flags(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


@attrs.frozen
class Spec:
    """Something a plug-in offers.

    Attributes:
        name: What the user types; unique among specs of its kind.
        description: One line.
        factory: The class or function itself, or ``"module:name"``, imported on first use. Its
            keyword parameters are the options that ``--set`` can give.
        requires: Modules that must be importable to use it.
        install: What to type if they are not, for example ``"pip install focus-adapter-x[y]"``.
        capabilities: Flags that choose behaviour and conformance tests.
    """

    name: str
    description: str
    factory: str | Callable[..., Any]
    requires: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=_tuple)
    install: str | None = attrs.field(default=None, kw_only=True)
    capabilities: frozenset[str] = attrs.field(default=frozenset(), kw_only=True, converter=_flags)

    def load(self) -> Any:
        """The factory itself, imported if it was named.

        Raises:
            PluginError: It cannot be imported.
        """
        if not isinstance(self.factory, str):
            return self.factory
        module, _, name = self.factory.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise PluginError(f"{self.name}: {self.factory} cannot be imported: {error}") from error


class TaskSpec(Spec):
    """Offers a ``Task``."""


class TrainerSpec(Spec):
    """Offers a ``Trainer``. Capabilities: ``merges-spans``, ``tree-attention``, ``resumes``.

    One that runs a loop of its own has the capability ``own-loop``, and offers an OwnLoop instead.
    """


class SearchSpec(Spec):
    """Offers a ``Search``: where to spend, for ``--search NAME``. Parameters are options."""


class RecipeSpec(Spec):
    """Offers a ``Recipe``: what an edge is worth, for ``--recipe NAME``. Parameters are options."""


class CriticSpec(Spec):
    """Offers a ``Critic``, or an object with ``predict(text)``, for ``--critic NAME``.

    It is made once for a run; one that has ``aclose`` is closed at its end.
    """


class LaneSpec(Spec):
    """Offers a ``Lane``; the factory takes no argument."""


class ConverterSpec(Spec):
    """Offers a function from one actor record to a trainer's own item; ``name`` is the target."""


class ObserverSpec(Spec):
    """Offers an object whose ``hookimpl`` methods observe a run; built anew for each run."""


class SandboxSpec(Spec):
    """Offers a coroutine function that opens a ``Sandbox``; its keyword parameters are options."""


class CommandSpec(Spec):
    """Offers ``focus NAME``: the factory is the command itself, a function annotated for Typer."""
