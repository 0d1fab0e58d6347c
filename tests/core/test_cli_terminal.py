"""On a real terminal: live progress that leaves clean lines behind."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

from tests.core.cli_kit import command, environment, fake_distribution

TRAIN = ("train", "--task", "countdown", "--trainer", "fake", "--run-dir", "run")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return fake_distribution(tmp_path_factory.mktemp("site"))


def on_terminal(folder, cwd, *args, stdout_too=True, interrupt_at=None):
    """Run with a terminal for stderr and, unless told not to, stdout.

    Returns the exit code, what the terminal received, and what a piped stdout received.
    """
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command(*args),
        env=environment(folder, TERM="xterm-256color", COLUMNS="100", LINES="30"),
        cwd=cwd,
        stdin=slave,
        stdout=slave if stdout_too else subprocess.PIPE,
        stderr=slave,
    )
    os.close(slave)
    seen, deadline, interrupted = b"", time.monotonic() + 60, False
    try:
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    data = os.read(master, 65536)
                except OSError:  # the other end is closed
                    break
                if not data:
                    break
                seen += data
            if interrupt_at and not interrupted and interrupt_at in seen:
                process.send_signal(signal.SIGINT)
                interrupted = True
        piped = process.stdout.read().decode() if process.stdout else ""
        return process.wait(timeout=20), seen.decode(), piped
    finally:
        process.kill()
        process.wait()
        os.close(master)
        if process.stdout:
            process.stdout.close()


SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


def screen(text):
    """The lines a terminal shows in the end; any control code but the few below is an error."""
    lines, row, column = [""], 0, 0
    at = 0
    while at < len(text):
        match = SEQUENCE.match(text, at)
        assert match, f"stray control code: {text[at : at + 20]!r}"
        at = match.end()
        piece, numbers, code = match[0], match[1], match[2]
        if piece == "\r":
            column = 0
        elif piece == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif code == "A":
            row -= int(numbers or 1)
            assert row >= 0
        elif code == "K":
            assert numbers == "2"
            lines[row] = ""
        elif code is not None:
            assert code == "m" or (code in "hl" and numbers == "?25"), piece
        else:
            assert piece.isprintable(), repr(piece)
            lines[row] = (
                lines[row].ljust(column)[:column] + piece + lines[row][column + len(piece) :]
            )
            column += len(piece)
    return [line.rstrip() for line in lines if line.strip()]


def test_a_run_draws_progress_and_leaves_its_lines(installed, tmp_path):
    code, seen, _ = on_terminal(
        installed,
        tmp_path,
        *(*TRAIN, "--steps", 3, "--eval-every", 3),
        *("--set", "trainer.seconds=0.3"),
    )
    assert code == 0, seen
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h") >= 1, "the cursor is shown again"
    drawn = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", seen)
    assert "0/3" in drawn
    assert "1/3" in drawn
    assert re.search(r"batch \d: return \d\.\d\d", drawn)
    shown = screen(seen)
    lines = [line for line in shown if "3/3" not in line]
    kinds = [line.split()[0] for line in lines]
    steps = [line for line in lines if line.startswith("step ")]
    assert [line.split("  ")[:2] for line in steps] == [
        ["step 0", "lag 0"],
        ["step 1", "lag 1"],
        ["step 2", "lag 1"],
    ]
    assert kinds[:2] == ["run", "training"]
    assert lines[-1].startswith("held-out mean return, before -> after: ")
    assert sum("3/3" in line for line in shown) == 1, "one bar stays, finished"


def test_progress_on_stderr_keeps_stdout_clean(installed, tmp_path):
    code, seen, piped = on_terminal(
        installed, tmp_path, *TRAIN, "--steps", 2, "--json", stdout_too=False
    )
    assert code == 0, seen
    assert [json.loads(line)["batch"] for line in piped.splitlines()] == [0, 1]
    assert "\x1b" not in piped
    assert "2/2" in seen


def test_an_interrupted_run_gives_the_terminal_back(installed, tmp_path):
    code, seen, _ = on_terminal(
        installed,
        tmp_path,
        *(*TRAIN, "--steps", 9, "--set", "trainer.seconds=30"),
        interrupt_at=b": return",
    )
    assert code == 130
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h") >= 1
    assert screen(seen)[-1] == "interrupted"
    assert "interrupted after 0 updates" in screen(seen)


def test_a_model_output_that_looks_like_markup_is_shown_as_it_is():
    """Lines go above the bar as text: no markup, no highlighting."""
    import io

    from focus_core.cli.display import TerminalDisplay

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    shown = TerminalDisplay(out)
    shown.say("a [red]b[/red] [/x] 12 :smile:")
    assert "a [red]b[/red] [/x] 12 :smile:" in out.getvalue()
