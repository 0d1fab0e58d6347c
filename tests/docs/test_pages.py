"""Every code block of the documentation runs, page by page, in order."""

import gc
import importlib
import json
import os
import site
import subprocess
import sys
import textwrap
import tomllib

import pytest

from tests.core.cli_kit import invoke
from tests.docs.docs_kit import ROOT, blocks, commands, install, run_python, same_output

PAGES = sorted((ROOT / "docs").glob("*.md"))
DIRECTIVES = {"{toctree}", "{eval-rst}", "{math}", "{raw} html", "{glossary}"}
NO_RUN = {}
"""Blocks that are not run, by page: every one is a decision, made here."""


class Reader:
    """Does what a page says, in an empty folder."""

    def __init__(self, folder, monkeypatch):
        self.site = folder / "site"
        self.folder = folder / "work"
        self.folder.mkdir()
        self.scope = {"__name__": "page"}
        self.printed = ""
        monkeypatch.chdir(self.folder)
        monkeypatch.syspath_prepend(self.site)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)  # pages change modules within a tick

    def read(self, block):
        if block.in_part:
            self.compare(block)
        elif block.caption:
            self.write(block)
        elif block.language == "python":
            self.printed = run_python(block, self.scope)
        elif block.language == "output":
            assert same_output(block.text, self.printed), f"{block}: printed {self.printed!r}"
        elif block.language == "sh":
            for words in commands(block):
                self.type(words, block)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language.startswith("{include} "):
            assert (ROOT / "docs" / block.language.split()[1]).is_file(), block
        else:
            assert block.language in {"text", *DIRECTIVES}, f"{block}: {block.language!r}"

    def compare(self, block):
        """An excerpt stands in its file as the page shows it."""
        shown = block.text.strip("\n")
        whole = (self.folder / block.caption).read_text()
        assert shown in whole or textwrap.indent(shown, "    ") in whole, block

    def write(self, block):
        path = self.folder / block.caption
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
        if path.suffix == ".py":
            compile(block.text, path.name, "exec")
            self.forget()

    def forget(self):
        """Modules of the page's own distributions are imported anew."""
        for name, module in list(sys.modules.items()):
            if str(self.folder) in (getattr(module, "__file__", None) or ""):
                del sys.modules[name]

    def type(self, words, block):
        if words[0] == "focus":
            done = invoke(*words[1:], *self.small(words))
            assert (done.code, done.exception) == (0, None), f"{block}: {done}"
            self.printed = done.out
        elif words[:3] == ["pip", "install", "-e"] and len(words) == 4:
            install(self.folder / words[3], self.site)
            site.addsitedir(self.site)
            importlib.invalidate_caches()
        elif words[:3] == ["python", "-m", "pytest"]:
            self.printed = self.run(sys.executable, *words[1:], "-q", "-p", "no:cacheprovider")
        elif words[0].startswith("scripts/"):
            assert (ROOT / words[0]).stat().st_mode & 0o100, f"{block}: {words}"
        elif words[0] in ("head", "ls"):
            self.printed = self.run(*words)
            assert self.printed, f"{block}: {words}"
        else:
            assert words == ["source", ".venv/bin/activate"], f"{block}: {words}"

    def run(self, *words):
        path = os.pathsep.join([*sys.path, str(ROOT)])
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @staticmethod
    def small(words):
        """One thread for the embedded trainer: tests share the machine."""
        others = {"bigram", "slime", "tinker", "--replay"} & {*words}
        local = words[1] in ("train", "collect", "eval") and not others
        return ["--set", "trainer.threads=1"] if local and "--resume" not in words else []


def page_of(path):
    """A page as a parameter; Tinker's SDK leaves sockets to the garbage collector."""
    open_sockets = [
        pytest.mark.filterwarnings("ignore::ResourceWarning"),
        pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    ]
    return pytest.param(path, marks=open_sockets if path.stem == "tinker" else (), id=path.stem)


@pytest.mark.parametrize("page", [page_of(path) for path in PAGES])
def test_page_does_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    reader = Reader(tmp_path, monkeypatch)
    try:
        for block in blocks(page):
            if block.no_run is None:
                reader.read(block)
    finally:
        reader.forget()
        gc.collect()


def test_no_other_block_is_left_out():
    left_out = {}
    for page in PAGES:
        reasons = [block.no_run for block in blocks(page) if block.no_run is not None]
        if reasons:
            left_out[page.name] = reasons
    assert left_out == NO_RUN


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nfocus plugins --jsno\n```",
        "```sh\nrm x\n```",
        "```python\nassert 1 + 1 == 3\n```",
        "```python\nprint(1)\n```\n```output\n2\n```",
        "```json\n{\n```",
        "```toml\na =\n```",
        "```yaml\na: 1\n```",
        '```{code-block} python\n:caption: "`a.py`, in part"\n\na = 2\n```',
        "```sh\nfocus plugins\n```\n```output\nnothing\n```",
    ],
)
def test_a_block_that_does_not_work_is_noticed(text, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(text)
    reader = Reader(tmp_path, monkeypatch)
    (reader.folder / "a.py").write_text("a = 1\n")

    def read():
        for block in blocks(page):
            reader.read(block)

    with pytest.raises((AssertionError, ValueError)):
        read()
