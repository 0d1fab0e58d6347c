"""Every benchmark that has rows with targets, one after another, each in a process of its own.

    python benchmarks/run_all.py [--only NAME ...] [--write]

Prints each row as it comes, and at the end which targets were missed. A missed target is not an
error: it is what one wants to know. A benchmark that fails is. ``--write`` puts the rows into
``docs/performance.md``, with the day and the machine; what was not run this time stays there.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from _measure import Row, line, table

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs/performance.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
NAMES = (
    "scheduler",
    "conversion",
    "slime",
    "overlap",
    "problems",
    "soak",
    "sampling",
    "replay",
    "grading",
)
"""In the order in which they run and stand on the page."""


def there() -> list[str]:
    """The benchmarks of this checkout."""
    return [name for name in NAMES if (HERE / f"{name}.py").exists()]


def run(name: str) -> tuple[list[Row], int]:
    """One benchmark's rows, printed as they come, and its exit status."""
    command = [sys.executable, str(HERE / f"{name}.py"), "--json"]
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for said in process.stdout:
            try:
                fields = json.loads(said)
                del fields["holds"]
                row = Row(**fields)
            except (ValueError, TypeError, KeyError):  # no row: someone else's word
                print(said, end="", flush=True)
                continue
            rows.append(row)
            print(line(row), flush=True)
    return rows, process.returncode


def machine() -> str:
    """The processor, its cores and Python."""
    processor = platform.processor() or platform.machine()
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        processor = found[1] if found else processor
    except OSError:
        pass
    return f"{processor}, {os.cpu_count()} cores, Python {platform.python_version()}"


def section(name: str, rows: Sequence[Row], taken: float, load: float) -> str:
    """What the page says of one benchmark."""
    today = datetime.date.today().isoformat()
    return (
        f"### {name}\n\n{today}, {machine()}; {taken:.0f} s, load {load:.1f} at the end.\n\n"
        f"{table(rows)}\n"
    )


def write(sections: dict[str, str]) -> None:
    """Put sections into the page, between the two markers, in order.

    Raises:
        SystemExit: The page lacks a marker.
    """
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    kept, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{PAGE} lacks {BEGIN} or {END}; the results belong between them")
    parts = re.split(r"^### (.+)\n", kept, flags=re.MULTILINE)
    now = {
        n: f"### {n}\n{body.rstrip()}\n" for n, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    now |= sections
    body = "\n".join(now[name] for name in NAMES if name in now)
    PAGE.write_text(f"{before}{BEGIN}\n\n{body}\n{END}{after}", encoding="utf-8")


def main() -> int:
    """Run what was asked for; 1 if a benchmark failed."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", nargs="+", choices=there(), metavar="NAME", help="some of them")
    options.add_argument("--write", action="store_true", help=f"put the rows into {PAGE.name}")
    asked = options.parse_args()
    results: dict[str, list[Row]] = {}
    failed: list[str] = []
    for name in asked.only or there():
        print(f"\n{name}", flush=True)
        start = time.perf_counter()
        results[name], status = run(name)
        if status:
            failed.append(f"{name} (exit status {status})")
        elif asked.write:
            taken = time.perf_counter() - start
            write({name: section(name, results[name], taken, os.getloadavg()[0])})
    rows = [row for some in results.values() for row in some if row.holds is not None]
    missed = [row for row in rows if not row.holds]
    print(f"\n{len(rows) - len(missed)} of {len(rows)} targets hold")
    for row in missed:
        print(f"MISSED  {row.what}: {row.value:.3g}, target {row.target}")
    for name in failed:
        print(f"FAILED  {name}: its rows are not complete")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
