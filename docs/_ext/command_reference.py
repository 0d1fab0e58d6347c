"""The command reference, read from the program itself.

``.. focus-commands::`` documents every command and option of ``focus``; ``.. focus-options::``
every ``--set`` key of the searches, the recipes, and the tasks and trainers of this repository.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from sphinx.util.docutils import SphinxDirective


def _plain(text: str) -> str:
    """Text that means itself in reStructuredText, with options as code."""
    escaped = re.sub(r"([\\*`_|])", r"\\\1", " ".join(text.split()))
    return re.sub(r"(?<!\S)(--[a-z][a-z-]*)", r"``\1``", escaped)


def _paragraphs(text: str) -> list[str]:
    return [line for part in text.split("\n\n") for line in (_plain(part), "")]


def _commands() -> Iterator[tuple[str, Any]]:
    """Every command by its full name; those of a group one by one."""
    from focus_core.cli import app

    todo: list[tuple[str, Any]] = [("focus", typer.main.get_command(app)), *_of_plugins()]
    while todo:
        name, command = todo.pop(0)
        below = getattr(command, "commands", None)
        if below is None:
            yield name, command
        else:
            todo = [(f"{name} {each}", inner) for each, inner in below.items()] + todo


def _of_plugins() -> Iterator[tuple[str, Any]]:
    """Those of this repository's distributions."""
    from focus_core.plugins.manager import load

    for name, (spec, owner) in load().specs("command").items():
        if owner.startswith("focus-adapter-"):
            alone = typer.Typer(add_completion=False)
            alone.command(name)(spec.load())
            yield f"focus {name}", typer.main.get_command(alone)


class Commands(SphinxDirective):
    """A section for each command, with its options."""

    def run(self) -> list[nodes.Node]:
        """Build them from Typer's own objects."""
        lines: list[str] = []
        for title, command in _commands():
            lines += [title, "=" * len(title), "", *_paragraphs(inspect.cleandoc(command.help))]
            lines += [f".. program:: {title}", ""]
            for parameter in command.params:
                lines += [*_option(parameter), ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _option(parameter: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
        return [f".. option:: {name}", "", f"   {_plain(parameter.help or '')}"]
    value = "" if parameter.is_flag else f" <{_kind(parameter)}>"
    spellings = ", ".join(n + value for n in [*parameter.opts, *parameter.secondary_opts])
    said, _, default = (parameter.help or "").partition("[default: ")
    if parameter.default not in (None, False):
        default = str(parameter.default)
    bounds = [f"at least {parameter.min}"] if parameter.min is not None else []
    bounds += [f"at most {parameter.max}"] if parameter.max is not None else []
    return [
        f".. option:: {spellings}",
        "",
        f"   {_plain(said)}{_notes('required' * parameter.required, *bounds, default=default)}",
    ]


def _notes(*notes: str, default: str) -> str:
    shown = [note for note in notes if note]
    shown += [f"default: {default.rstrip(']')}"] if default else []
    return f" *({_plain(', '.join(shown))})*" if shown else ""


def _kind(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar).lower()
    kind = parameter.type_descriptor.annotation
    return {int: "integer", float: "number", str: "text"}.get(kind, kind.__name__.lower())


class Options(SphinxDirective):
    """A section for each thing that ``--set`` reaches, with its options."""

    def run(self) -> list[nodes.Node]:
        """Build them from the factories' parameters."""
        lines: list[str] = []
        for section, name, factory in _factories():
            title = f"{section.capitalize()} {name}"
            lines += [title, "=" * len(title), "", _summary(factory), ""]
            lines += [f".. program:: {section} {name}", "", *_settings(section, factory)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _factories() -> Iterator[tuple[str, str, Any]]:
    from focus_core.plugins.manager import load

    plugins = load()
    for kind in ("search", "recipe", "critic", "task", "trainer"):
        for name, (spec, owner) in plugins.specs(kind).items():
            if owner.startswith(("focus-core", "focus-task-", "focus-adapter-")):
                yield kind, name, spec.load()


def _summary(factory: Any) -> str:
    return " ".join((inspect.getdoc(factory) or "").split("\n\n")[0].split())


def _settings(section: str, factory: Any) -> Iterator[str]:
    from focus_core.plugins.options import options_of

    said = _described(inspect.getdoc(factory) or "")
    options = options_of(factory)
    for name, option in options.items():
        plain = isinstance(option.default, bool | int | float | str | tuple | None)
        note = _notes(default=str(option.default) if plain else "")
        yield f".. option:: {section}.{name}=<{_type_name(option.annotation)}>"
        yield ""
        yield f"   {said.get(name, '')}{note}"
        yield ""
    if not options:
        yield "No options."
        yield ""


def _type_name(kind: Any) -> str:
    if typing.get_origin(kind) is None and inspect.isclass(kind):
        return kind.__name__
    return str(kind).replace("typing.", "")


def _described(doc: str) -> dict[str, str]:
    """What a Google-style docstring says of each argument or attribute."""
    found: dict[str, str] = {}
    for part in re.findall(r"^(?:Args|Attributes):\n((?:[ ]{4}.*\n?|\n)+)", doc, re.MULTILINE):
        name = ""
        for line in part.splitlines():
            start = re.match(r" {4}(\w+): (.*)", line)
            if start:
                name = start[1]
                found[name] = start[2]
            elif name:
                found[name] += " " + line.strip()
    return found


def setup(app: Any) -> dict[str, Any]:
    """Register both directives."""
    app.add_directive("focus-commands", Commands)
    app.add_directive("focus-options", Options)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
