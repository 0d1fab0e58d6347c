"""Where Slime's programs are, and running one of them to its end."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from focus_adapter_slime.versions import INSTALL, find_slime
from focus_core.errors import UsageError

__all__ = ["find_checkout", "model_flags", "run"]

PROGRAMS = ("train.py", "train_async.py")
"""Slime's entry points, by ``--async-depth``."""


def find_checkout(root: str | None = None) -> Path:
    """The folder of Slime's ``train.py``: the one named, or the package's own.

    Raises:
        UsageError: Slime is not installed, is too old, or has no such folder.
    """
    if root is not None:
        folder = Path(root).expanduser().resolve()
        if not _is_checkout(folder):
            raise UsageError(
                f"trainer.root={root} has no {' and '.join(PROGRAMS)}; name a checkout of "
                "THUDM/slime"
            )
        return folder
    find_slime()
    spec = importlib.util.find_spec("slime")
    places = (
        [Path(place).parent for place in (spec.submodule_search_locations or ())] if spec else []
    )
    for folder in places:
        if _is_checkout(folder):
            return folder.resolve()
    raise UsageError(
        f"Slime is installed without its train.py; {INSTALL}, or name a checkout with "
        "--set trainer.root=DIR"
    )


def _is_checkout(folder: Path) -> bool:
    return all((folder / name).is_file() for name in PROGRAMS)


def model_flags(name: str, checkout: Path | None) -> list[str]:
    """Megatron's flags of a model: ``MODEL_ARGS`` of a script as in Slime's ``scripts/models``.

    Args:
        name: The script, or the name of one of Slime's own, such as ``"qwen3-4B"``.
        checkout: Where Slime's own are; ``None`` if it is not here.

    Raises:
        UsageError: There is no such script, or it sets no ``MODEL_ARGS``.
    """
    own = {} if checkout is None else _models(checkout)
    script = own.get(name, Path(name).expanduser())
    if not script.is_file():
        raise UsageError(
            f"trainer.model_args={name} is no script"
            + (f", nor one of {', '.join(own)}" if own else "; give its path")
        )
    done = subprocess.run(
        [
            "bash",
            "-c",
            'source "$1" >&2; printf "%s\\0" "${MODEL_ARGS[@]}"',
            "bash",
            str(script.resolve()),
        ],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    flags = done.stdout.split("\0")[:-1]
    if done.returncode or not any(flags):
        said = (done.stderr.strip().splitlines() or ["it sets no MODEL_ARGS"])[-1]
        raise UsageError(f"trainer.model_args={name}: {script}: {said}")
    return flags


def _models(checkout: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(checkout.glob("scripts/models/*.sh"))}


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program until it and everything that it started have ended.

    SIGINT and SIGTERM are passed on to its process group and waited for; a second one kills it.

    Returns:
        Its exit code; 128 and the number of the signal that ended it.

    Raises:
        KeyboardInterrupt: It was stopped, and has ended.
    """
    stopped: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def stop(number: int, _: Any) -> None:
        stopped.append(number)
        if process is not None:
            _signal(process, number if len(stopped) == 1 else signal.SIGKILL)
        if len(stopped) == 1:
            print("stopping Slime; once more to end at once", file=sys.stderr, flush=True)

    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a group of its own: stopped whole, and once
        )
        if stopped:
            _signal(process, stopped[0])
        try:
            # Left unreaped, so that its number stays its group's until the group is gone.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        finally:
            _signal(process, signal.SIGKILL)
            code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if stopped:
        raise KeyboardInterrupt
    return code if code >= 0 else 128 - code


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
