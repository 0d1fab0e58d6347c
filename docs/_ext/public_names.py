"""The API reference: every public name, by the module it lives in.

``.. public-names:: policy trainer`` documents what ``focus_core`` exports from those modules. A
public name that no page documents is a warning, so it fails the build.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import attrs
from docutils import nodes
from sphinx.domains.python import PyObject
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import focus_core

_log = logging.getLogger(__name__)


class PublicNames(SphinxDirective):
    """The public names of some modules, in the order in which the package lists them."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """One autodoc directive a name."""
        lines = []
        for module in self.arguments[0].split():
            for name in focus_core._MODULES[module]:
                lines += [*_directive(module, name), ""]
        return self.parse_text_to_nodes("\n".join(lines))


def _directive(module: str, name: str) -> list[str]:
    value, public = getattr(focus_core, name), f"focus_core.{name}"
    if inspect.isfunction(value):
        return [f".. autofunction:: {public}"]
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, Exception) else "autoclass"
        return [f".. {kind}:: {public}"]
    said = ModuleAnalyzer.for_module(f"focus_core.{module}").find_attr_docs()
    return [f".. py:data:: {public}", "", *(f"   {line}" for line in said.get(("", name), ()))]


def _at_home(app: Any, env: Any, node: Any, content: nodes.Node) -> nodes.Node | None:
    """Resolve ``focus_core.env.env.Env`` in a signature to ``focus_core.Env``."""
    target = node.get("reftarget", "")
    name = target.rpartition(".")[2]
    public = f"focus_core.{name}"
    if node.get("refdomain") != "py" or name not in focus_core.__all__ or target == public:
        return None
    domain = env.domains["py"]
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", public, node, content)


def _no_type(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Napoleon takes the words before a colon in an attribute's first line for its type."""
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]  # an empty comment


def _signature(
    app: Any, what: str, name: str, value: Any, options: Any, arguments: str | None, returns: Any
) -> tuple[str, Any] | None:
    """No arguments of a protocol, which nobody calls; factories of attrs fields as calls."""
    if what != "class" or arguments is None:
        return None
    if getattr(value, "_is_protocol", False):
        return "", None
    if attrs.has(value):
        for field in attrs.fields(value):
            if isinstance(field.default, attrs.Factory):
                factory = field.default
                made = "..." if factory.takes_self else f"{factory.factory.__name__}()"
                default = rf"((?<![\w.]){field.alias}\b[^=]*) = NOTHING"
                arguments = re.sub(default, rf"\g<1> = {made}", arguments, count=1)
    return arguments, returns


def _complete(app: Any, env: Any) -> None:
    documented = env.domains["py"].objects
    for name in focus_core.__all__:
        if f"focus_core.{name}" not in documented:
            _log.warning("public name %s is not in the API reference", name)


def setup(app: Any) -> dict[str, Any]:
    """Register the directive and both checks."""
    app.add_directive("public-names", PublicNames)
    app.connect("missing-reference", _at_home)
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _no_type, priority=400)  # before Napoleon
    app.connect("env-check-consistency", _complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
