"""A fresh environment that sees this one's packages, with distributions that pip installed."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.core.cli_kit import Outcome, environment

ROOT = str(Path(__file__).parents[2])


def fresh_environment(folder):
    """An empty environment on top of this one; its site-packages come first.

    Nothing is downloaded: ``addsitedir`` also reads this environment's own ``.pth`` files, so what
    is installed here in editable form is seen too.
    """
    venv.create(folder, with_pip=False)
    outer = sysconfig.get_path("purelib")
    (inner,) = folder.glob("lib/python*/site-packages")
    (inner / "outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n")
    return folder / "bin" / "python"


def pip_install(python, *folders):
    """Build and install distributions, offline and as they are."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"),
            *("--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--no-index"),
            *map(str, folders),
        ],
        env=environment("", PYTHONWARNINGS="default"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def focus_of(python, *args, cwd, **more):
    """Run ``focus`` in an environment, with every plug-in that it holds."""
    done = subprocess.run(
        [str(python), "-m", "focus_core", *map(str, args)],
        env=environment(ROOT, FOCUS_PLUGINS="", **more),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
