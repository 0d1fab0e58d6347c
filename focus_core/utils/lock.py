"""One process at a time writes to a directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["hold"]


def hold(directory: Path) -> int:
    """Hold a directory until the descriptor is closed or the process ends; not on Windows.

    Raises:
        BlockingIOError: Another process holds it.
        OSError: There is no such directory.
    """
    if sys.platform == "win32":  # no such lock there
        return os.open(os.devnull, os.O_RDONLY)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
