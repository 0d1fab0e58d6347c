"""The contracts of the conformance kit, read from its classes.

``.. contracts:: TaskContract`` is a table of the contracts that the class adds to those it
inherits: the name that ``focus check`` prints, and what it asks.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from focus_core import testing


class Contracts(SphinxDirective):
    """A row a contract, in the order in which they run."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Build the table from the methods' docstrings."""
        lines = [".. list-table::", "   :header-rows: 1", "   :class: contracts", ""]
        lines += ["   * - contract", "     - what it asks"]
        for name, asks in _contracts(getattr(testing, self.arguments[0])):
            lines += [f"   * - ``{name}``", f"     - {asks}"]
        return self.parse_text_to_nodes(StringList(lines, source=__file__))


def _contracts(kind: Any) -> list[tuple[str, str]]:
    found = []
    for name, method in vars(kind).items():
        if name.startswith("test_"):
            paragraphs = inspect.cleandoc(method.__doc__).split("\n\n")
            asks = re.sub(r"([*_|])", r"\\\1", " ".join(" ".join(paragraphs).split()))
            asks = re.sub(r"(?<!\S)(--[a-z-]+)", r"``\1``", asks)
            needs = inspect.getclosurevars(method).nonlocals["needs"]
            flag = f" *(for the capability* ``{needs}`` *)*" if needs else ""
            found.append((name.removeprefix("test_"), asks + flag))
    return found


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("contracts", Contracts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
