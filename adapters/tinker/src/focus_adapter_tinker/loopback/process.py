"""A loopback server in a process of its own, for as long as a block runs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any

import attrs

from focus_core.errors import TrainerError, UsageError

__all__ = ["Loopback"]

_SECRETS = ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD")


@attrs.define(kw_only=True, eq=False)
class Loopback:
    """Starts ``python -m focus_adapter_tinker.loopback`` and stops it.

    Use it with ``with``, or call ``start`` and ``stop``, which block for seconds, in a thread; a
    server whose owner was killed stops by itself::

        with Loopback(model="tiny") as server:
            client = tinker.ServiceClient(base_url=server.base_url, api_key="tml-loopback")

    Attributes:
        model: ``tiny``, ``smollm2`` or a directory. Whatever base model a client asks for, it is
            this one.
        faults: Specs; see ``focus_adapter_tinker.loopback.faults.Fault``.
        state: Directory for checkpoints; ``None`` makes one that is deleted in the end.
        seed: Makes sampling reproducible.
        threads: CPU threads of each thread that samples, learns or scores.
        key: The API key that clients must give; ``None`` takes any.
        options: Further arguments of the command.
        start_seconds: Longest that loading may take.
    """

    model: str = "tiny"
    faults: Sequence[str] = ()
    state: str | os.PathLike[str] | None = None
    seed: int | None = None
    threads: int | None = None
    key: str | None = attrs.field(default=None, repr=False)
    options: Sequence[str] = ()
    start_seconds: float = 180.0

    _process: subprocess.Popen[bytes] | None = attrs.field(init=False, default=None)
    _log: IO[bytes] | None = attrs.field(init=False, default=None)
    _base_url: str | None = attrs.field(init=False, default=None)

    @property
    def base_url(self) -> str:
        """What a client takes as ``base_url``.

        Raises:
            TrainerError: The server is not running.
        """
        if self._base_url is None:
            raise TrainerError("the loopback is not running; use it within 'with'")
        return self._base_url

    @property
    def pid(self) -> int | None:
        """The server's process, while it runs."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Loopback:
        """Start, as ``start`` does."""
        self.start()
        return self

    def start(self) -> None:
        """Start, and wait until the server answers.

        Raises:
            UsageError: An option cannot be used, or something is not installed.
            TrainerError: The server ended, or took longer than ``start_seconds``.
        """
        if self._process is not None:
            raise TrainerError("the loopback is running already")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # until stop()
        environment = {name: x for name, x in os.environ.items() if name not in _SECRETS}
        environment["FOCUS_LOOPBACK_KEY"] = self.key or ""
        # A session of its own: what interrupts the program must not take the server from under it.
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,
        )
        try:
            self._base_url = self._ready(self._process)
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server."""
        self.stop()

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "focus_adapter_tinker.loopback", "--stop-with-stdin"]
        command += ["--model", self.model]
        for fault in self.faults:
            command += ["--fault", fault]
        for name in ("state", "seed", "threads"):
            if (value := getattr(self, name)) is not None:
                command += [f"--{name}", str(value)]
        return [*command, *self.options]

    def _ready(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        end = time.monotonic() + self.start_seconds
        line = b""
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise TrainerError(f"the loopback was not ready after {self.start_seconds:g} s")
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                raise self._failure(process.wait())
            line += piece
        return line.decode().split()[1]

    def _failure(self, status: int) -> TrainerError | UsageError:
        last = (self.log().strip().splitlines() or [f"exit status {status}"])[-1]
        message = f"the loopback did not start: {last.removeprefix('error: ')}"
        return UsageError(message) if status == 2 else TrainerError(message)

    def log(self) -> str:
        """What the server wrote to its standard error so far."""
        if self._log is None:
            return ""
        # Not seek and read: the server writes at the same position of the same open file.
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def stop(self) -> None:
        """Stop the server, and wait for its end."""
        process, self._process, self._base_url = self._process, None, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout, self._log):
            if pipe is not None:
                pipe.close()
        self._log = None

    # Control

    def stats(self) -> dict[str, Any]:
        """Counts since the start.

        Returns:
            ``routes`` (HTTP requests by route), ``requests`` (those that ask for work),
            ``prompt_tokens`` (once per request, however many samples), ``sampled_tokens``,
            ``trained_tokens`` and ``forward_tokens`` (all tokens of the data of forward_backward
            and of forward) and ``gradients`` computed; ``steps``, the same counts between one
            optimizer step and the next, with the ``gradients`` it applied; ``pending`` results,
            how often each of the ``faults`` struck, and ``sessions`` with the status they were
            closed with (``None``: open).
        """
        return self._control("GET", "stats")

    def inject(self, *faults: str) -> None:
        """Switch faults on; they count requests from here.

        Raises:
            UsageError: A spec cannot be read.
        """
        self._control("POST", "faults", {"faults": list(faults)})

    def heal(self) -> None:
        """Switch all faults off; whom one keeps waiting is hung up on."""
        self._control("DELETE", "faults")

    def _control(self, method: str, what: str, body: Any = None) -> dict[str, Any]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(
            f"{self.base_url}/loopback/{what}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={} if self.key is None else {"X-API-Key": self.key},
        )
        try:
            with opener.open(request, timeout=30) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise UsageError(json.load(error)["detail"]) from None
        return answer
