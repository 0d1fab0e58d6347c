"""An environment with wheels and what they declare to need, linked from the one that runs this.

usage: linked.py WHEELS ENVIRONMENT DISTRIBUTION ...

Nothing is downloaded or copied: a dependency that no wheel declares is not there, as it would not
be after ``pip install``.
"""

import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

wheels, environment = Path(sys.argv[1]), Path(sys.argv[2])
built = {parse_wheel_filename(path.name)[0]: path for path in wheels.glob("*.whl")}


def needed(wanted: list[Requirement]) -> set[str]:
    """Names of the distributions that these require, they included."""
    seen: set[tuple[str, str]] = set()
    while wanted:
        one = wanted.pop()
        name = canonicalize_name(one.name)
        for extra in {"", *one.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for each in map(Requirement, requires(name)):
                if each.marker is None or each.marker.evaluate({"extra": extra}):
                    check(each, name)
                    wanted.append(each)
    return {name for name, _ in seen}


def requires(name: str) -> list[str]:
    """What a distribution declares to need."""
    if name not in built:
        return distribution(name).requires or []
    with zipfile.ZipFile(built[name]) as wheel:
        (path,) = (each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
        return Parser().parsestr(wheel.read(path).decode()).get_all("Requires-Dist", [])


def check(requirement: Requirement, by: str) -> None:
    """Refuse a version here that is not one of those asked for."""
    try:
        found = distribution(requirement.name).version
    except PackageNotFoundError:
        sys.exit(f"{by} needs {requirement}, which is not installed: run scripts/install")
    if not requirement.specifier.contains(found, prereleases=True):
        sys.exit(f"{by} needs {requirement}, and {requirement.name} {found} is installed")


if not environment.exists():
    venv.create(environment, with_pip=False, symlinks=True)
(site,) = environment.glob("lib/python*/site-packages")
names = needed([Requirement(each) for each in sys.argv[3:]])
for name in names - set(built):
    files = distribution(name).files or []
    outer = Path(str(distribution(name).locate_file("")))
    for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        if not (site / top).exists():
            (site / top).symlink_to(outer / top)
pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--force-reinstall"]
own = [str(built[name]) for name in sorted(names & set(built))]
sys.exit(subprocess.run([*pip, *quiet, *own], check=False).returncode)
