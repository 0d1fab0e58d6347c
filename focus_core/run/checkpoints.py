"""Which of a run's saved files stay.

The loop names a checkpoint ``step-NNNNNN``; a trainer may add to the name. One that begins with a
dot is not whole yet, or not any more.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

__all__ = ["drop_after", "drop_old"]

_NAME = re.compile(r"(\.?)step-(\d+)(?!\d).*", re.DOTALL)


def drop_after(folder: Path, step: int) -> list[str]:
    """Remove what was saved after a step, or not saved whole.

    Args:
        folder: The run's ``checkpoints``; nothing else writes there now.
        step: Updates in the newest checkpoint that the run knows; -1: it knows none.

    Returns:
        Names of what went.
    """
    dropped = [path for path, whole, saved in _found(folder) if saved > step or not whole]
    _remove(dropped)
    return [path.name for path in dropped]


def drop_old(folder: Path, step: int, keep: int | None) -> None:
    """Remove what was not saved whole, and all but the newest checkpoints up to a step.

    Args:
        folder: The run's ``checkpoints``; nothing else writes there now.
        step: Updates in the newest one.
        keep: How many stay; ``None``: all.
    """
    found = _found(folder)
    steps = sorted({saved for _, whole, saved in found if whole and saved <= step})
    old = set(steps[:-keep]) if keep is not None else set()
    _remove([path for path, whole, saved in found if not whole or saved in old])


def _found(folder: Path) -> list[tuple[Path, bool, int]]:
    """Every file or directory of a checkpoint: where, whether it is whole, and its step."""
    if not folder.is_dir():
        return []
    named = [(path, _NAME.fullmatch(path.name)) for path in sorted(folder.iterdir())]
    return [(path, not match[1], int(match[2])) for path, match in named if match]


def _remove(paths: list[Path]) -> None:
    for path in paths:
        gone = path
        if not path.name.startswith("."):  # in one move: what is cut now is never taken for whole
            gone = path.with_name(f".{path.name}.old-{os.getpid()}")
            path.rename(gone)
        if gone.is_dir() and not gone.is_symlink():
            shutil.rmtree(gone)
        else:
            gone.unlink()
