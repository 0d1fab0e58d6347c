"""Distributions that strangers wrote: where they are, and copies of them with one thing changed."""

import importlib
import shutil
import sys
from pathlib import Path

import attrs

from focus_core.plugins.manager import Plugins
from focus_core.testing import check, contracts_of

HERE = Path(__file__).parent
DISTRIBUTIONS = sorted(path.parent for path in HERE.glob("*/pyproject.toml"))
KINDS = {
    "task": ("focus-task-codewords", "codewords"),
    "trainer": ("focus-adapter-tabular", "tabular"),
    "policy": ("focus-adapter-tabular", "tabular"),
    "lane": ("focus-lane-preferences", "preferences"),
    "observer": ("focus-observer-csv", "csv"),
}
COUNT = "import itertools\n\n_COUNT = itertools.count(8, 5)\n\n\n"
"""For a mistake that must be another one each time, and always the same ones."""


@attrs.frozen
class Break:
    """A mistake in a stranger's code, and what the kit says to it.

    Attributes:
        kind: What is checked.
        contract: The one contract that it breaks.
        file: The module that is changed, without ``.py``.
        edits: Texts and what replaces them.
        says: A part of the message.
        also: Contracts that cannot hold either.
    """

    kind: str
    contract: str
    file: str
    edits: dict[str, str]
    says: str
    also: frozenset[str] = attrs.field(default=frozenset(), converter=frozenset)

    def __str__(self):
        return f"{self.kind}-{self.contract}"


def copied(folder, kind, file=None, edits=None):
    """Copy a stranger's sources, change some text, and give the folder to import from."""
    distribution, _ = KINDS[kind]
    (source,) = (HERE / distribution / "src").iterdir()
    target = folder / source.name
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    for old, new in (edits or {}).items():
        path = target / f"{file}.py"
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path.name}"
        path.write_text(text.replace(old, new))
    return target


def outcomes(package, kind, monkeypatch, **settings):
    """Check a package that lies in a folder; ``settings`` change the contract's attributes."""
    monkeypatch.syspath_prepend(str(package.parent))
    for name in [n for n in sys.modules if n.split(".")[0] == package.name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    plugins = Plugins()
    plugins.register(importlib.import_module(f"{package.name}.plugin"), package.name)
    contracts = contracts_of(plugins, kind, KINDS[kind][1])
    for name, value in settings.items():
        setattr(contracts, name, value)
    return list(check(contracts))
