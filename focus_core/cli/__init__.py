"""The command line. Importing it loads Typer and nothing heavier; commands import what they use."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from focus_core.cli._common import guarded
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


app = typer.Typer(
    name="focus",
    no_args_is_help=True,
    add_completion=False,
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
