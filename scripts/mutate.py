"""What ``scripts/mutate`` does: one planted bug at a time, its likely tests, then all of them.

Prints a line for each and how many were caught; exit status 1 if one survives, 2 if a text to
change is not there once, or if a test fails without any bug.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.mutations import MUTATIONS, Mutation  # noqa: E402


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """A copy of what git knows of, and ``../shared`` beside it where there is one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="focus-mutate-") as folder:
        copy = Path(folder) / "focus"
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy / name)
        if (ROOT.parent / "shared").exists():
            (Path(folder) / "shared").symlink_to(ROOT.parent / "shared")
        yield copy


def pytest(copy: Path, *arguments: str) -> tuple[bool, str]:
    """Whether tests pass in the copy, importing it; and the first that does not, or why."""
    sources = [copy, *sorted(copy.glob("adapters/*/src")), *sorted(copy.glob("tasks/*/src"))]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=copy,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, sources)),
            "PYTHONDONTWRITEBYTECODE": "1",  # a mutation may keep a file's size and second
        },
        capture_output=True,
        text=True,
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    said = failed[0].split(" - ")[0] if failed else done.stdout[-2000:] + done.stderr[-2000:]
    return done.returncode == 0, said


def survives(copy: Path, mutation: Mutation) -> str | None:
    """``None``, or the test that noticed."""
    path = copy / mutation.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        likely = [f"tests/{name}" for name in mutation.tests.split()]
        for arguments in (likely, ["-n", "2", "--dist", "worksteal"]):
            passed, said = pytest(copy, *arguments)
            if not passed:
                return said
    finally:
        path.write_text(text, encoding="utf-8")
    return None


def main(words: list[str]) -> int:
    """Try the bugs that the words choose."""
    chosen = [m for m in MUTATIONS if not words or any(w in m.file + m.breaks for w in words)]
    for mutation in chosen:
        path = ROOT / mutation.file
        count = path.read_text(encoding="utf-8").count(mutation.old) if path.is_file() else 0
        if count != 1:
            print(f"{mutation.file}: {mutation.old!r} is there {count} times, not once")
            return 2
    survivors = 0
    with copied() as copy:
        every = sorted({f"tests/{name}" for m in chosen for name in m.tests.split()})
        passed, said = pytest(copy, *every)
        if not passed:
            print(f"without any bug: {said}")
            return 2
        for number, mutation in enumerate(chosen, 1):
            began = time.monotonic()
            by = survives(copy, mutation)
            survivors += by is None
            verdict = "SURVIVED" if by is None else "caught"
            print(f"{number:3} {verdict:8} {time.monotonic() - began:4.0f} s  {mutation.breaks}")
            print(f"      {mutation.file}: {by or 'no test noticed'}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} planted bugs were caught")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
