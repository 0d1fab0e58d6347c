"""``focus new``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Optional

import typer

from focus_core.cli._common import load_plugins

__all__ = ["new"]

# ruff: noqa: UP045  # Typer resolves these annotations at run time

_KINDS: Mapping[str, tuple[str, str]] = {
    "task": ("task", "FOCUS task: spell a word backwards."),
    "adapter": ("trainer", "FOCUS trainer: a softmax over bytes, given the byte before."),
    "search": ("search", "FOCUS search: where fewest continuations have been."),
    "recipe": ("recipe", "FOCUS recipe: a return less the mean of its tree."),
    "critic": ("critic", "FOCUS critic: less is expected of longer texts."),
    "lane": ("lane", "FOCUS lane: the best rollout of each tree."),
    "observer": ("observer", "FOCUS observer: the return of each step, in a log file."),
}
"""By kind: what a plug-in registers (and ``focus check`` checks), and a line of description."""

_LONGEST = 24
"""Characters of a name; the lines of the skeletons that hold it then fit."""


def new(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="task, adapter, search, recipe, critic, lane or observer."
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="What users will type, such as countdown or word-golf."
        ),
    ],
    directory: Annotated[
        Optional[Path],
        typer.Option("--directory", help="Where to write it, if not in ./focus-KIND-NAME."),
    ] = None,
) -> None:
    """Write a distribution that works: a small task, adapter or search, say, to change.

    It passes 'focus check' and its own tests as it is.
    """
    from focus_core.errors import UsageError

    values = _values(kind, name)
    folder = directory or Path(values["distribution"])
    files = _files(kind, values)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} exists already; name another place with --directory")
        _write(folder, files)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}; name another place with --directory"
        ) from error
    print(f"wrote {folder}. Next:")
    print(f"  pip install -e {folder}")
    print(f"  focus check {values['checked']} {name}")
    if kind == "adapter":
        print(f"  focus check policy {name}")
    print(f"  python -m pytest {folder}")


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Every file, or none, into a folder that is empty or not there."""
    import shutil

    new = not folder.exists()
    try:
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except BaseException:
        for made in {path.split("/")[0] for path in files}:
            shutil.rmtree(folder / made, ignore_errors=True)
            with contextlib.suppress(OSError):
                (folder / made).unlink()
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _values(kind: str, name: str) -> dict[str, str]:
    """What the templates' placeholders stand for.

    Raises:
        UsageError: The name cannot be used, or is taken.
    """
    import re
    from importlib.util import find_spec

    import focus_core
    from focus_core.errors import UnknownNameError, UsageError
    from focus_core.plugins.options import closest

    if kind not in _KINDS:
        raise UnknownNameError(
            f"there is no skeleton of a {kind!r}{closest(kind, _KINDS)}; choose {', '.join(_KINDS)}"
        )
    checked, description = _KINDS[kind]
    prefix = f"focus-{kind}-"
    if name.startswith("focus-"):
        raise UsageError(f"{name!r}: leave the prefix out; {prefix}... is added")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or len(name) > _LONGEST:
        raise UsageError(
            f"{name!r} cannot be a name; take lower-case letters, digits and single hyphens "
            f"between them, {_LONGEST} characters at most, such as word-golf"
        )
    module = (prefix + name).replace("-", "_")
    if name in load_plugins().specs(checked) or find_spec(module) is not None:
        raise UsageError(f"a {checked} {name!r} is installed already; take another name")
    major, minor = map(int, focus_core.__version__.split(".")[:2])
    return {
        "name": name,
        "distribution": prefix + name,
        "module": module,
        "class": "".join(map(str.capitalize, [*name.split("-"), checked])),
        "checked": checked,
        "description": description,
        "requirement": f"focus-core>={major}.{minor},<{major}.{minor + 1}",
    }


def _files(kind: str, values: Mapping[str, str]) -> dict[str, str]:
    """Texts by path inside the distribution."""
    templates = Path(__file__).with_name("templates")
    files = {}
    for source in sorted([*(templates / "common").iterdir(), *(templates / kind).iterdir()]):
        text = source.read_text(encoding="utf-8")
        for placeholder, value in values.items():
            text = text.replace(f"{{{{{placeholder}}}}}", value)
        name = source.name.removesuffix(".txt")
        if name.startswith("test_"):
            name = f"tests/test_{values['module']}.py"  # two distributions are tested together
        elif name.endswith((".py", ".typed")):
            name = f"src/{values['module']}/{name}"
        files[name] = text
    return files
