"""``focus export``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from focus_core.cli._common import DISK, load_plugins

__all__ = ["export"]

# ruff: noqa: UP045  # Typer resolves these annotations at run time


def export(
    directory: Annotated[
        Path, typer.Argument(help="A recording, a recorded run, or what focus collect wrote.")
    ],
    to: Annotated[
        str, typer.Option("--to", help="Converter of the items; see 'focus plugins'.")
    ] = "records",
    output: Annotated[
        Optional[Path], typer.Option("--output", help="File to write.  [default: stdout]")
    ] = None,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge/--per-edge", help="One item per path where records were merged, or per edge."
        ),
    ] = False,
) -> None:
    """Write saved actor records as a trainer's items, one JSON object a line."""
    from rich.console import Console

    from focus_core.errors import UsageError
    from focus_core.run.exporting import item_lines, saved_records
    from focus_core.utils.files import atomic_file

    convert = load_plugins().find("converter", to).load()
    lines = item_lines(saved_records(directory, merge=merge), to, convert)
    if output is None:
        for line in lines:
            sys.stdout.write(line)
        sys.stdout.flush()
        return
    count = 0
    console = Console(stderr=True)
    try:
        with console.status("exporting") as status, atomic_file(output) as file:
            for count, line in enumerate(lines, 1):
                file.write(line.encode())
                if count % 100 == 0:
                    status.update(f"{count} items")
    except OSError as error:
        if error.errno in DISK:
            raise
        raise UsageError(f"--output {output} cannot be written: {error.strerror}") from error
    print(f"{count} items: {output}")
