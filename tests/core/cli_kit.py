"""Real distributions in a temporary folder, and the command line run in this process or its own."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import attrs
import typer

FAKE_PLUGIN = Path(__file__).with_name("fake_plugin.py")


def distribution(folder, name, version="1.0", *, points=None, **modules):
    """Install modules (by name, as source text) and ``focus`` entry points into a folder."""
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(textwrap.dedent(source))
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{point} = {target}" for point, target in (points or {}).items()]
    (info / "entry_points.txt").write_text("\n".join(["[focus]", *lines, ""]))
    return folder


def fake_distribution(folder):
    """The task ``countdown`` and the trainer ``fake``."""
    return distribution(
        folder,
        "focus-fake",
        "2.5",
        points={"fake": "focus_fake"},
        focus_fake=FAKE_PLUGIN.read_text(),
    )


@attrs.frozen
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str
    exception: BaseException | None = None

    @property
    def crashed(self):
        """Whether it ended in a traceback."""
        return self.exception is not None or "Traceback" in self.err


def invoke(*args):
    """Run ``focus`` in this process."""
    out, err = io.StringIO(), io.StringIO()
    code, exception = 0, None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            _program().main(args=[str(arg) for arg in args], prog_name="focus")
        except SystemExit as end:
            code = end.code or 0
        except Exception as error:
            code, exception = 1, error
    return Outcome(code, out.getvalue(), err.getvalue(), exception)


@functools.cache
def _program():
    """The built command; Typer's own test runner builds it anew for each call, which is slow."""
    from focus_core.cli import app

    return typer.main.get_command(app)


def environment(folder, **more):
    """Environment variables of a process in which only the folder's plug-ins exist."""
    return {
        **{k: v for k, v in os.environ.items() if k not in ("FOCUS_TRACE", "COLUMNS")},
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
        "FOCUS_PLUGINS": "focus-fake",
        "PYTHONWARNINGS": "error",
        **more,
    }


def command(*args):
    """The command line's process."""
    return [sys.executable, "-m", "focus_core", *map(str, args)]


def focus(folder, *args, cwd=None, timeout=60, **more):
    """Run ``focus`` in a process of its own."""
    done = subprocess.run(
        command(*args),
        env=environment(folder, **more),
        cwd=cwd or folder,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
