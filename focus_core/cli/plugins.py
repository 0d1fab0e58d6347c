"""``focus plugins``."""

from __future__ import annotations

import json as json_module

from focus_core.cli._common import JsonOption

__all__ = ["plugins"]

KINDS = (
    *("task", "trainer", "search", "recipe", "critic"),
    *("lane", "converter", "observer", "sandbox", "command"),
)


def plugins(json: JsonOption = False) -> None:
    """List what plug-ins offer: tasks, trainers, searches, recipes, critics, lanes and more."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from focus_core.plugins.manager import load

    found = load()
    rows = [
        {
            "kind": kind,
            "name": spec.name,
            "description": spec.description,
            "distribution": owner,
            "capabilities": sorted(spec.capabilities),
        }
        for kind in KINDS
        for spec, owner in found.specs(kind).values()
    ]
    broken = [
        {"name": b.name, "distribution": b.distribution, "error": b.error} for b in found.broken
    ]
    if json:
        for row in (*rows, *({"kind": "broken", **row} for row in broken)):
            print(json_module.dumps(row))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("kind", "name", "description", "distribution"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(
            *(Text(str(row[column])) for column in ("kind", "name", "description", "distribution"))
        )
    console = Console()
    console.print(table)
    for plugin in found.broken:
        console.print(str(plugin), style="red", markup=False)
