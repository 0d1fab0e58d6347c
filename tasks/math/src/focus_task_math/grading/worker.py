"""The process side of the pool: a nursery that forks workers, and the workers.

The nursery is a fresh interpreter that has imported sympy and runs no threads, so a worker is a
cheap ``fork`` of it and never one of the trainer's process. Only the nursery kills workers, which
are its children, so a recycled process id is never hit. It ends, and they with it, when the pool's
end of its socket closes: the pool closed it, or the pool's process is gone.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import socket
import struct

__all__ = ["KILL", "MESSAGE", "READY", "SPAWN", "main"]

MESSAGE = struct.Struct(">cI")
"""What the pool and the nursery say to each other: a kind and a process id."""
SPAWN, KILL, READY, FAILED = b"s", b"k", b"r", b"f"

# What sympy and regular expressions prepare on first use is then shared by all workers.
_WARMING = [
    (r"\frac{x}{2} + \sqrt{3}", r"\frac12 x + 3^{\frac{1}{2}}"),
    (r"(-\infty, 3) \cup \{5\}", r"x < 3 \text{ or } x = 5"),
    (r"\sin 20^\circ", r"\log_2 3 + e^{i \pi}"),
    (r"5 \text{ cm}", r"\text{The answer is } 0.1\overline{6}"),
]


def main(control_fd: int, memory: int) -> None:
    """Run the nursery.

    Args:
        control_fd: Its end of the socket to the pool.
        memory: Address space of a worker, in bytes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool's process decides when to end
    with socket.socket(fileno=control_fd) as control:
        try:
            import latex2sympy2_extended.latex2sympy2  # type: ignore[import-untyped]  # noqa: F401

            from focus_task_math.grading.judge import judge

            for gold, answer in _WARMING:
                judge(gold, answer)
        except Exception as error:  # told to whoever asks for a verdict
            text = f"{type(error).__name__}: {error}".encode()
            control.sendall(MESSAGE.pack(FAILED, len(text)) + text)
            return
        gc.freeze()  # keeps the collector from copying shared pages
        control.sendall(MESSAGE.pack(READY, 0))
        children: set[int] = set()
        try:
            while _obey(control, children, memory):
                pass
        finally:
            for child in children:
                _end(child)


def _obey(control: socket.socket, children: set[int], memory: int) -> bool:
    message, fds, _, _ = socket.recv_fds(control, MESSAGE.size, 1)
    if len(message) < MESSAGE.size:
        return False
    kind, child = MESSAGE.unpack(message)
    if kind == KILL and child in children:
        children.remove(child)
        _end(child)
    elif kind == SPAWN:
        child = os.fork()
        if child == 0:
            try:
                control.close()
                with socket.socket(fileno=fds[0]) as channel:
                    _work(channel, memory)
            finally:
                os._exit(0)
        os.close(fds[0])
        children.add(child)
        control.sendall(MESSAGE.pack(SPAWN, child))
    return True


def _end(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def _work(channel: socket.socket, memory: int) -> None:
    """Answer requests, one JSON line each, until the other side closes.

    A request is ``[gold, answer, seconds]``. The first line of the reply is ``null`` once the
    gold has been read (left out if it cannot be); the last is ``[correct, reason]``.
    """
    from focus_task_math.grading.judge import judge

    for limit, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):  # not on every system
            resource.setrlimit(limit, (most, most))
    most_cpu = resource.getrlimit(resource.RLIMIT_CPU)[1]
    with channel.makefile("rb") as requests:
        for request in requests:
            gold, answer, seconds = json.loads(request)
            # Should the nursery itself be killed, a stuck worker ends all the same.
            used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
            with contextlib.suppress(ValueError, OSError, OverflowError):
                resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 5, most_cpu))
            verdict = judge(gold, answer, on_gold=lambda: channel.sendall(b"null\n"))
            channel.sendall(json.dumps(verdict).encode() + b"\n")
