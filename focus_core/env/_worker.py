"""The process side of ``ProcessExecution``: one call after another until the other side closes."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import resource
import socket
import struct
import threading
import traceback
from typing import Any

__all__ = ["LENGTH", "STARTED", "main"]

LENGTH = struct.Struct(">Q")
"""Before each pickle: its length in bytes."""
STARTED = b"s"
"""Sent when a call has been read and its function imported."""


def main(fd: int, memory: int | None) -> None:
    """Serve calls.

    Args:
        fd: This side's end of the socket.
        memory: Most address space, in bytes.
    """
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with contextlib.suppress(ValueError, OSError):  # not on every system
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.set_inheritable(fd, False)  # a program the function starts must not hold the socket open
    channel = socket.socket(fileno=fd)
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(channel, calls), daemon=True).start()
    while True:
        payload = calls.get()
        try:
            function, args = pickle.loads(payload)
        except BaseException as error:  # importing the function's module runs anything
            channel.sendall(STARTED)
            _send(channel, False, error)
            continue
        channel.sendall(STARTED)
        try:
            outcome = function(*args)
        except BaseException as error:
            _send(channel, False, error)
        else:
            _send(channel, True, outcome)


def _read(channel: socket.socket, calls: queue.SimpleQueue[bytes]) -> None:
    """Pass calls on; end the process, busy or not, when nobody is there to read the answer."""
    with channel.makefile("rb") as stream:
        while True:
            head = stream.read(LENGTH.size)
            body = stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""
            if not body:
                os._exit(0)
            calls.put(body)


def _send(channel: socket.socket, worked: bool, outcome: Any) -> None:
    if not worked:
        outcome.add_note("In a worker process:\n" + "".join(traceback.format_exception(outcome)))
        if not isinstance(outcome, Exception):
            outcome = RuntimeError(f"the function raised {outcome!r}")
    try:
        payload = pickle.dumps((worked, outcome))
        if not worked:
            pickle.loads(payload)  # some exceptions cannot be made from what they pickle
    except Exception as error:
        told = outcome if not worked else error
        why = "raised" if not worked else "returned something that does not pickle:"
        said = RuntimeError(f"the function {why} {type(told).__name__}: {told}")
        payload = pickle.dumps((False, said))
    channel.sendall(LENGTH.pack(len(payload)) + payload)
