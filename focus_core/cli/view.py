"""``focus view``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from focus_core.cli._common import DISK

__all__ = ["view"]

# ruff: noqa: UP045  # Typer resolves these annotations at run time


def view(
    source: Annotated[
        Path,
        typer.Argument(metavar="TREE.json|DIR", help="A tree, or a directory of focus collect."),
    ],
    output: Annotated[
        Optional[Path],
        typer.Option("--output", help="The page; by default beside the tree, or in the directory."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Draw collected trees as one HTML page that needs no network; prints its path."""
    from focus_core.errors import DataError, UsageError
    from focus_core.utils.files import write_atomically
    from focus_core.view import read_tree, render_html

    if source.is_dir():
        files = sorted(source.glob("tree-*.json"), key=lambda path: (len(path.name), path.name))
        if not files:
            raise DataError(
                "no tree-N.json in it", path=source, remedy="name the --output of focus collect"
            )
        page = output or source / "trees.html"
    else:
        files, page = [source], output or source.with_suffix(".html")
    if page.is_dir() or page.resolve() in {file.resolve() for file in files}:
        raise UsageError(f"--output {page} is a directory or the tree itself; name an HTML file")
    text = render_html([read_tree(file) for file in files])
    try:
        write_atomically(page, text)
    except OSError as error:
        if error.errno in DISK:
            raise
        raise UsageError(f"--output {page} cannot be written: {error.strerror}") from error
    print(page)
    if open_:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
