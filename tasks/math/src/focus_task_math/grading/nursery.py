"""The pool's handle on its nursery: start it, ask it for workers, have it kill them, end it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys

from focus_task_math.grading.worker import KILL, MESSAGE, READY, SPAWN

__all__ = ["Nursery"]

START_SECONDS = 60.0
"""How long it may take to import sympy; not part of any verdict's limit."""
END_SECONDS = 5.0

# The child finds modules where this process does, however its path came about.
_CHILD = (
    "import sys; sys.path[:] = {path!r}; "
    "from focus_task_math.grading.worker import main; main({fd}, {memory})"
)


class Nursery:
    """A process that forks workers; see ``worker``. Calls must not overlap.

    Args:
        memory: Address space of a worker, in bytes.

    Raises:
        OSError: It cannot be started; the message has the child's reason.
    """

    def __init__(self, memory: int) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(START_SECONDS)
        with theirs:
            path = [entry for entry in sys.path if isinstance(entry, str)]
            code = _CHILD.format(path=path, fd=theirs.fileno(), memory=memory)
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", code],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process; it closes the nursery
            )
        try:
            kind, size = self._read()
            if kind != READY:
                raise OSError(self._control.recv(size).decode(errors="replace"))
        except OSError:
            self.close()
            raise

    def spawn(self) -> tuple[int, socket.socket]:
        """A new worker's process id and this end of its socket.

        Raises:
            OSError: The nursery is gone.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._control, [MESSAGE.pack(SPAWN, 0)], [theirs.fileno()])
            return self._read()[1], ours
        except OSError:
            ours.close()
            raise

    def kill(self, pid: int) -> None:
        """End a worker; it may be dead already."""
        with contextlib.suppress(OSError):  # without a nursery there are no workers
            self._control.sendall(MESSAGE.pack(KILL, pid))

    def close(self) -> None:
        """End the nursery and all its workers."""
        self._control.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """Let go of it in a forked child, whose parent still uses it."""
        self._control.close()
        self._process.returncode = 0  # not this process's to wait for

    def _read(self) -> tuple[bytes, int]:
        message = b""
        while len(message) < MESSAGE.size:
            received = self._control.recv(MESSAGE.size - len(message))
            if not received:
                raise ConnectionResetError("the grading process ended")
            message += received
        kind, number = MESSAGE.unpack(message)
        return kind, number
