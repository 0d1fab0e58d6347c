"""Reading and running the code blocks of a Markdown page."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import attrs
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
_NO_RUN = re.compile(r"<!--\s*no-run:\s*(.+?)\s*-->")


@attrs.frozen
class Block:
    """A fenced block: its language, its text, and where it stands.

    A block with a caption is a file of that name, or ``in_part`` an excerpt of it; ``no_run``
    says why a block is left out.
    """

    language: str
    text: str
    caption: str | None
    in_part: bool
    no_run: str | None
    path: Path
    line: int

    def __str__(self):
        return f"{self.path.name}:{self.line}"


def blocks(path):
    """Every fenced block of a page, in order."""
    no_run = None
    for token in MarkdownIt().parse(path.read_text(encoding="utf-8")):
        if token.type == "html_block":
            found = _NO_RUN.search(token.content)
            no_run = found[1] if found else None
        elif token.type == "fence":
            caption, text = None, token.content
            language = token.info.strip()
            if language.startswith("{code-block}"):
                language = language.removeprefix("{code-block}").strip()
                head, _, text = text.partition("\n\n")
                caption = head.removeprefix(":caption:").strip(' "')
            name, comma, _ = (caption or "").partition(", in part")
            yield Block(
                language, text, name.strip("`") or None, bool(comma), no_run, path, token.map[0] + 1
            )
            no_run = None


def run_python(block, scope):
    """Run one block in a page's namespace; returns what it printed."""
    lines = "\n" * block.line  # so that a traceback names the line of the page
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(lines + block.text, str(block.path), "exec"), scope)
    return out.getvalue()


def same_output(said, printed):
    """Whether a page's output is what was printed; ``...`` stands for anything."""
    return doctest.OutputChecker().check_output(said, printed, doctest.ELLIPSIS)


def commands(block):
    """The command lines of a shell block, comments and continuations resolved."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def install(folder, site):
    """Install a page's distribution with pip, editable, as it tells its reader to."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run(
        [*pip, "install", "--quiet", *offline, "--target", str(site), "-e", str(folder)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
