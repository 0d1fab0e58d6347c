"""Arrows point one way, the core needs no trainer, and start-up imports what it uses."""

import ast
import functools
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import focus_core
from tests.core.cli_kit import environment, fake_distribution

ROOT = Path(focus_core.__file__).parent

LAYERS = [
    {"errors", "failure", "utils"},
    {"records", "policy", "sources"},
    {"tree"},
    {"env", "lanes"},
    {"agent", "critic", "recipes", "search", "tokenizer"},
    {"collect"},
    {"task", "trainer", "own_loop", "hookspecs", "plugins"},
    {"schedule"},
    {"view"},
    {"run"},
    {"testing"},
    {"cli"},
    {"__main__"},
]
"""A room imports from its own layer and those above it in this list."""

BESIDE = {"__init__"}
"""It imports nothing by name."""


def modules():
    """Every module of the core as (dotted name without the package, syntax tree)."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts), ast.parse(path.read_text(encoding="utf-8"))


def imports(tree):
    """(module, line) of every import: at the top, inside functions, and for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((name.name, node.lineno) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module, node.lineno
            for name in node.names:  # "from focus_core.plugins import builtin" names a module
                if node.module.startswith("focus_core"):
                    yield f"{node.module}.{name.name}", node.lineno


def room(module):
    return module.split(".")[0]


MODULES = dict(modules())
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def test_every_module_has_its_layer():
    assert {room(name) for name in MODULES} == set(RANK) | BESIDE


@pytest.mark.parametrize("name", [n for n in MODULES if room(n) not in BESIDE])
def test_arrows_point_one_way(name):
    for target, line in imports(MODULES[name]):
        if target.startswith("focus_core."):
            below = room(target.removeprefix("focus_core."))
            assert below in RANK, f"{name}:{line} imports {target}"
            assert RANK[below] <= RANK[room(name)], f"{name}:{line} imports {target}, upward"


def test_nothing_loops():
    """Modules, over every import there is: late ones and those for types too."""
    edges = {}
    for name, tree in MODULES.items():
        own = name.removesuffix(".__init__")
        targets = {target.removeprefix("focus_core.") for target, _ in imports(tree)}
        edges[own] = {t for t in targets if t in MODULES or f"{t}.__init__" in MODULES} - {own}
    done, path = set(), []

    def visit(name):
        assert name not in path, f"a circle: {[*path[path.index(name) :], name]}"
        if name not in done:
            path.append(name)
            for target in sorted(edges[name]):
                visit(target)
            path.pop()
            done.add(name)

    for name in edges:
        visit(name)
    assert len(done) == len(edges)


def test_the_core_imports_only_what_it_declares():
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]
    declared = {line.split(">")[0] for line in project["dependencies"]}
    extras = {
        line.split(">")[0] for extra in project["optional-dependencies"].values() for line in extra
    }
    needed = {name: tree for name, tree in MODULES.items() if name != "testing.pytest_plugin"}
    used = {target.split(".")[0] for tree in needed.values() for target, _ in imports(tree)} - set(
        sys.stdlib_module_names
    )
    assert used - {"focus_core"} <= declared | extras
    assert {"numpy", *extras} <= used  # it does see imports, those inside functions too


def loaded(code, folder="", **more):
    """The modules that a new process has loaded after running some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"],
        env=environment(folder, **more),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def run(*args):
    """Code that runs a command and goes on."""
    return f"""
import contextlib, io, sys
sys.argv = ["focus", *{list(args)!r}]
from focus_core.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
"""


HEAVY = {
    *("torch", "transformers", "peft", "tinker", "ray", "vllm", "sympy"),
    *("datasets", "pyarrow", "pandas"),
}


def test_importing_the_package_imports_nothing():
    before = loaded("pass")
    got = {name.split(".")[0] for name in loaded("import focus_core") - before}
    assert got - set(sys.stdlib_module_names) == {"focus_core"}
    assert "asyncio" not in got
    assert "numpy" in loaded("import focus_core; focus_core.Batch")


def test_hookimpl_and_specs_are_enough_for_a_plugin_and_light():
    got = loaded("from focus_core import TaskSpec, TrainerSpec, hookimpl")
    assert not got & {"numpy", "rich", "typer", "asyncio"}


@functools.cache
def empty(*args):
    """What Typer itself loads to print the help of a program with an option or two."""
    return loaded(f"""
import contextlib, io, sys, typer
from typing import Annotated
sys.argv = ["empty", *{list(args)!r}, "--help"]
app = typer.Typer()
@app.command()
def one(x: Annotated[int, typer.Option("--x", min=1)] = 1): "One."
@app.command()
def two(): "Two."
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    app()
""")


COMMANDS = ("_common", "check", "collect", "evaluate", "export", "new", "plugins", "train", "view")


@pytest.mark.parametrize(
    "command",
    [
        (),
        *(
            (name,)
            for name in ["train", "collect", "eval", "view", "export", "plugins", "check", "new"]
        ),
    ],
)
def test_help_loads_typer_and_the_commands_and_nothing_else(command):
    typer = empty(*(["one"] if command else []))
    more = loaded(run(*command, "--help")) - typer
    light = {*sys.stdlib_module_names, "rich", "typer"}  # Rich loads its tables piece by piece
    assert {name for name in more if name.split(".")[0] not in light} == {
        "focus_core",
        *("focus_core.utils", "focus_core.utils.lazy"),
        "focus_core.cli",
        *(f"focus_core.cli.{name}" for name in COMMANDS),
    }
    assert not (more | typer) & {"numpy", "pluggy", *HEAVY}


def test_listing_plugins_imports_no_task_and_no_trainer(tmp_path):
    """With every installed distribution, not only the fake one."""
    fake_distribution(tmp_path)
    got = loaded(run("plugins"), tmp_path, FOCUS_PLUGINS="")
    assert "focus_fake" in got
    assert not got & HEAVY
    assert not got & {"focus_core.schedule", "focus_core.run"}
