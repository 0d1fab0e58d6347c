"""The command line. Importing it loads Typer and nothing heavier; commands import what they use."""

from __future__ import annotations

import io
import sys
from collections.abc import Collection
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from focus_core.cli._common import guarded, load_plugins
from focus_core.cli.check import check
from focus_core.cli.collect import collect
from focus_core.cli.evaluate import evaluate
from focus_core.cli.export import export
from focus_core.cli.new import new
from focus_core.cli.plugins import plugins
from focus_core.cli.train import train
from focus_core.cli.view import view

__all__ = ["app", "main"]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"focus-core {version('focus-core')}")
        raise typer.Exit


class Commands(TyperGroup):
    """The core's commands; a plug-in's is looked up only when no such command is the core's."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the first word names."""
        name, *rest = args
        if name in self.commands or name.startswith("-"):
            return super().resolve_command(ctx, args)
        return name, _plugged(name, self.commands), rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each with its whole first sentence, on as many lines as it takes."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(10_000)) for name, each in self.commands.items()]
            )


@guarded
def _plugged(name: str, own: Collection[str]) -> Any:
    """A plug-in's command.

    Raises:
        UnknownNameError: Nobody has one of that name.
    """
    from focus_core.errors import UnknownNameError
    from focus_core.plugins.options import closest

    plugins = load_plugins()
    known = plugins.specs("command")
    if name not in known:
        raise UnknownNameError(
            f"no command {name!r}{closest(name, [*own, *known])}; 'focus --help' lists the core's, "
            "'focus plugins' those of plug-ins"
        )
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(guarded(plugins.find("command", name).load()))
    return typer.main.get_command(alone)


app = typer.Typer(
    name="focus",
    cls=Commands,
    epilog="Plug-ins add commands: 'focus plugins' lists them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # its tables cut names that do not fit into 80 columns
    pretty_exceptions_enable=False,
)
app.command()(guarded(train))
app.command()(guarded(collect))
app.command("eval")(guarded(evaluate))
app.command()(guarded(view))
app.command()(guarded(export))
app.command()(guarded(plugins))
app.command()(guarded(check))
app.command()(guarded(new))


@app.callback()
def focus(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Say which.")
    ] = False,
) -> None:
    """Collect trees of continuations, credit each segment, train with any trainer."""


def main() -> None:
    """Run a command. Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character it cannot show is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    app()
