"""Finding plug-ins: the entry-point group ``focus``, and look-up by name.

``FOCUS_PLUGINS=a,b`` loads only those entry points or distributions; ``FOCUS_TRACE=1`` prints each
hook call to stderr.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, cast

import attrs
import pluggy

from focus_core.errors import PluginError, UnknownNameError, UsageError
from focus_core.hookspecs import Hooks, new_manager
from focus_core.plugins import builtin
from focus_core.plugins.options import build, closest
from focus_core.plugins.specs import (
    CommandSpec,
    ConverterSpec,
    CriticSpec,
    LaneSpec,
    ObserverSpec,
    RecipeSpec,
    SandboxSpec,
    SearchSpec,
    Spec,
    TaskSpec,
    TrainerSpec,
)
from focus_core.trainer import Trainer

__all__ = ["BrokenPlugin", "Plugins", "load"]

GROUP = "focus"
OURS = frozenset(
    f"focus-{name}"
    for name in (
        *("adapter-local", "adapter-tinker", "adapter-cookbook", "adapter-slime"),
        *("task-arithmetic", "task-math"),
    )
)
"""Distributions of this project: what to install is said of no other."""
_KINDS: Mapping[str, tuple[type[Spec], str]] = {
    "task": (TaskSpec, "focus-task-{}"),
    "trainer": (TrainerSpec, "focus-adapter-{}"),
    "search": (SearchSpec, "focus-search-{}"),
    "recipe": (RecipeSpec, "focus-recipe-{}"),
    "critic": (CriticSpec, "focus-critic-{}"),
    "lane": (LaneSpec, "focus-lane-{}"),
    "converter": (ConverterSpec, "focus-adapter-{}"),
    "observer": (ObserverSpec, "focus-observer-{}"),
    "sandbox": (SandboxSpec, "focus-adapter-{}"),
    "command": (CommandSpec, "focus-adapter-{}"),
}


@attrs.frozen
class BrokenPlugin:
    """A plug-in that could not be imported; the others work.

    Attributes:
        name: Its entry point.
        distribution: The distribution it came with, and its version.
        error: What went wrong, on one line.
    """

    name: str
    distribution: str
    error: str

    def __str__(self) -> str:
        """One line with a remedy."""
        return (
            f"plug-in {self.name!r} of {self.distribution} does not load: {self.error}; upgrade or "
            "uninstall that distribution, or mend it if it is yours"
        )


class Plugins:
    """What is installed. ``load()`` makes one.

    Attributes:
        broken: Plug-ins that did not load.
    """

    def __init__(self) -> None:
        self.manager = new_manager()
        self.broken: list[BrokenPlugin] = []
        self._owners: dict[str, str] = {}
        self._specs: dict[str, Mapping[str, tuple[Spec, str]]] = {}
        self.register(builtin, "focus-core")

    def register(self, plugin: object, name: str, owner: str | None = None) -> None:
        """Add a plug-in under a name of its own.

        Raises:
            PluginError: A hook implementation does not fit its spec.
        """
        try:
            self.manager.register(plugin, name)
            self.manager.check_pending()
            if not self.manager.get_hookcallers(plugin):
                raise ValueError(
                    f"{plugin!r} has no hooks; name a module with @hookimpl functions, such as "
                    "focus_tasks"
                )
        except (ValueError, pluggy.PluginValidationError) as error:
            if self.manager.get_plugin(name) is plugin and name not in self._owners:
                self.manager.unregister(name=name)
            raise PluginError(f"plug-in {name!r}: {error}{_meant(str(error))}") from error
        self._owners[name] = owner or name

    def specs(self, kind: str) -> Mapping[str, tuple[Spec, str]]:
        """Every spec of a kind (``"task"``, ``"trainer"``, ...) with its distribution, by name.

        Raises:
            PluginError: Two plug-ins use one name, or a hook returned something else than specs.
        """
        if kind not in self._specs:
            self._specs[kind] = self._collect(kind)
        return self._specs[kind]

    def _collect(self, kind: str) -> dict[str, tuple[Spec, str]]:
        kinds, found = _several(kind), dict[str, tuple[Spec, str]]()
        for implementation in getattr(self.manager.hook, f"focus_{kinds}").get_hookimpls():
            owner = self._owners[implementation.plugin_name]
            self.manager.trace(f"focus_{kinds}", owner)
            try:
                specs = list(implementation.function())
            except Exception as error:
                raise PluginError(f"{owner}: focus_{kinds}: {_one_line(error)}") from error
            wanted, _ = _KINDS[kind]
            for spec in specs:
                if not isinstance(spec, wanted):
                    raise PluginError(
                        f"{owner}: focus_{kinds} returned a {type(spec).__name__}, "
                        f"not a {wanted.__name__}"
                    )
                if kind == "command" and spec.name in builtin.COMMANDS:
                    raise PluginError(
                        f"{owner} offers command {spec.name!r}, which is focus-core's own; "
                        "give it another name, or set FOCUS_PLUGINS"
                    )
                if spec.name in found:
                    raise PluginError(
                        f"{found[spec.name][1]} and {owner} both offer {kind} "
                        f"{spec.name!r}; uninstall one, or set FOCUS_PLUGINS"
                    )
                found[spec.name] = spec, owner
        return dict(sorted(found.items()))

    def find(self, kind: str, name: str) -> Spec:
        """The spec of that name, checked to be usable.

        ``module:Class`` names one that no plug-in registered, of any module that can be imported,
        those of the current directory included.

        Raises:
            UnknownNameError: There is none; the message says what exists and what to install.
            UsageError: It needs a module that is not installed.
        """
        if ":" in name:
            return _unregistered(kind, name)
        known = self.specs(kind)
        if name not in known:
            broken = "".join(f"; {plugin}" for plugin in self.broken if plugin.name == name)
            package = _KINDS[kind][1].format(name)
            install = f"; pip install {package}" if package in OURS else ""
            raise UnknownNameError(
                f"no {kind} {name!r}{closest(name, known)}; installed: "
                f"{', '.join(known) or 'none'}{install}{broken}"
            )
        spec, _ = known[name]
        missing = [module for module in spec.requires if not _importable(module)]
        if missing:
            install = spec.install or f"pip install {' '.join(missing)}"
            raise UsageError(f"{kind} {name!r} needs {', '.join(missing)}; {install}")
        return spec

    def make(self, kind: str, name: str, options: Mapping[str, Any]) -> Any:
        """Build what a spec offers; errors as in ``find`` and ``options.build``."""
        return build(self.find(kind, name).load(), options, kind)

    def open_trainer(self, name: str, options: Mapping[str, Any]) -> Trainer:
        """The trainer of a run, through the first plug-in whose ``focus_open_trainer`` gives one.

        Raises:
            UsageError: As in ``make``.
        """
        spec = self.find("trainer", name)
        assert isinstance(spec, TrainerSpec)
        return cast("Trainer", self.manager.hook.focus_open_trainer(spec=spec, config=options))


def _unregistered(kind: str, name: str) -> Spec:
    """The spec of a ``module:Class``.

    Raises:
        UnknownNameError: There is no such module, or nothing of that name in it.
    """
    module, _, member = name.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise PluginError(f"{kind} {name!r}: {_one_line(error)}") from error
        raise UnknownNameError(
            f"{kind} {name!r}: there is no module {error.name!r}, installed or in {here}"
        ) from error
    except Exception as error:
        raise PluginError(f"{kind} {name!r} does not import: {_one_line(error)}") from error
    if not callable(getattr(found, member, None)):
        raise UnknownNameError(
            f"{kind} {name!r}: {module} has no class or function "
            f"{member!r}{closest(member, [n for n in vars(found) if not n.startswith('_')])}"
        )
    spec_class, _ = _KINDS[kind]
    return spec_class(name, f"of {module}", getattr(found, member))


def load() -> Plugins:
    """Load the installed plug-ins, a broken one apart."""
    plugins = Plugins()
    names = os.environ.get("FOCUS_PLUGINS", "").split(",")
    wanted = {name.strip() for name in names if name.strip()}
    for point in sorted(entry_points(group=GROUP), key=lambda p: (_owner(p), p.name)):
        owner = _owner(point)
        if wanted and point.name not in wanted and owner.split()[0] not in wanted:
            continue
        try:
            plugins.register(point.load(), f"{owner.split()[0]}:{point.name}", owner)
        except Exception as error:  # a broken plug-in must not break the others
            plugins.broken.append(BrokenPlugin(point.name, owner, _one_line(error)))
    return plugins


def _meant(message: str) -> str:
    """A hook of nearly that name."""
    known = [name for name in vars(Hooks) if name.startswith("focus_")]
    found = re.search(r"unknown hook '(\w+)'", message)
    return closest(found.group(1), known) if found else ""


def _several(kind: str) -> str:
    """The kind's name in hooks."""
    return f"{kind}es" if kind.endswith(("x", "ch")) else f"{kind}s"


def _owner(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
