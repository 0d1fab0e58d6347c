"""Sandboxes, both ways: the cookbook's behind FOCUS's contract, and FOCUS's behind its."""

from __future__ import annotations

import importlib
import inspect
import math
from pathlib import Path
from typing import Any

from tinker_cookbook.sandbox.sandbox_interface import (
    SandboxInterface,
    SandboxResult,
    SandboxTerminatedError,
)

from focus_core.env.execution import bounded
from focus_core.env.sandbox import Sandbox
from focus_core.env.sandbox import SandboxResult as Result
from focus_core.errors import DeadlineError, ExecutionError, UsageError

__all__ = ["CookbookSandbox", "FocusSandbox", "open_sandbox"]

_GRACE = 5.0
"""Seconds in which a sandbox may report its own time limit before we stop waiting for it."""


class FocusSandbox:
    """A cookbook sandbox behind FOCUS's ``Sandbox`` contract.

    Args:
        sandbox: The cookbook's.
        max_output_bytes: Most bytes kept of each of a command's streams; ``None``: as many as the
            sandbox keeps by itself.
        file_timeout: Limit of reading or writing a file, in seconds.
    """

    def __init__(
        self,
        sandbox: SandboxInterface,
        *,
        max_output_bytes: int | None = None,
        file_timeout: float = 60.0,
    ) -> None:
        self.sandbox = sandbox
        self.max_output_bytes = max_output_bytes
        self.file_timeout = file_timeout
        self._closed = False

    async def run(
        self, command: str, *, timeout: float = 60.0, directory: str | None = None
    ) -> Result:
        """Run a shell command; its limit is rounded up to whole seconds, the cookbook's unit."""
        found = await self._call(
            self.sandbox.run_command(
                command,
                workdir=directory,
                timeout=math.ceil(timeout),
                max_output_bytes=self.max_output_bytes,
            ),
            timeout,
        )
        return Result(found.stdout, found.stderr, found.exit_code)

    async def read(self, path: str) -> bytes:
        """Content of a file; the cookbook gives text, so what is no UTF-8 is not kept."""
        seconds = math.ceil(self.file_timeout)
        found = await self._call(self.sandbox.read_file(path, timeout=seconds), seconds)
        if found.exit_code:
            raise FileNotFoundError(f"{path!r} cannot be read in the sandbox: {_said(found)}")
        return str(found.stdout).encode()

    async def write(self, path: str, content: bytes, *, executable: bool = False) -> None:
        """Write a whole file."""
        seconds = math.ceil(self.file_timeout)
        found = await self._call(
            self.sandbox.write_file(path, content, executable=executable, timeout=seconds), seconds
        )
        if found.exit_code:
            raise OSError(f"{path!r} cannot be written in the sandbox: {_said(found)}")

    async def aclose(self) -> None:
        """Clean up, once."""
        if not self._closed:
            self._closed = True
            await self.sandbox.cleanup()

    async def _call(self, work: Any, timeout: float) -> Any:
        try:
            return await bounded(work, timeout + _GRACE)
        except SandboxTerminatedError as error:
            raise ExecutionError(f"the sandbox is gone: {error}") from error
        except (DeadlineError, ExecutionError):
            raise
        except TimeoutError as error:
            raise DeadlineError(f"the sandbox did not answer within {timeout:g} s") from error


class CookbookSandbox:
    """A FOCUS sandbox as the cookbook's ``SandboxInterface``, for its recipes and tools.

    Args:
        sandbox: FOCUS's.
        name: Its identifier.
    """

    def __init__(self, sandbox: Sandbox, name: str = "focus") -> None:
        self.sandbox = sandbox
        self._name = name

    @property
    def sandbox_id(self) -> str:
        """The name."""
        return self._name

    async def send_heartbeat(self, timeout: int = 30) -> None:
        """Nothing: FOCUS's sandboxes keep themselves alive."""

    async def run_command(
        self,
        command: str,
        workdir: str | None = None,
        timeout: int = 60,
        max_output_bytes: int | None = None,
    ) -> SandboxResult:
        """Run a shell command; one that takes too long has exit code 124, as ``timeout`` gives."""
        try:
            found = await self.sandbox.run(command, timeout=timeout, directory=workdir)
        except DeadlineError as error:
            return SandboxResult(stdout="", stderr=str(error), exit_code=124)
        except ExecutionError as error:
            raise SandboxTerminatedError(str(error)) from error
        return SandboxResult(
            stdout=_capped(found.stdout, max_output_bytes),
            stderr=_capped(found.stderr, max_output_bytes),
            exit_code=found.exit_code,
        )

    async def read_file(
        self, path: str, max_bytes: int | None = None, timeout: int = 60
    ) -> SandboxResult:
        """Read a file; one that cannot be read has exit code 1."""
        try:
            content = await bounded(self.sandbox.read(path), timeout)
        except ExecutionError as error:
            raise SandboxTerminatedError(str(error)) from error
        except OSError as error:
            return SandboxResult(stdout="", stderr=str(error), exit_code=1)
        return SandboxResult(
            stdout=content[:max_bytes].decode(errors="replace"), stderr="", exit_code=0
        )

    async def write_file(
        self, path: str, content: str | bytes, executable: bool = False, timeout: int = 60
    ) -> SandboxResult:
        """Write a file; one that cannot be written has exit code 1."""
        data = content.encode() if isinstance(content, str) else content
        try:
            await bounded(self.sandbox.write(path, data, executable=executable), timeout)
        except ExecutionError as error:
            raise SandboxTerminatedError(str(error)) from error
        except OSError as error:
            return SandboxResult(stdout="", stderr=str(error), exit_code=1)
        return SandboxResult(stdout="", stderr="", exit_code=0)

    async def cleanup(self) -> None:
        """Close it."""
        await self.sandbox.aclose()


async def open_sandbox(factory: str, directory: str = ".", timeout: int = 600) -> Sandbox:
    """Open a sandbox with a factory written for the cookbook's recipes.

    Args:
        factory: ``"module:function"``; called with the environment's directory and the timeout,
            as ``tinker_cookbook.recipes.harbor_rl.harbor_env:default_sandbox_factory`` is.
        directory: Where the environment's files (a Dockerfile, say) are.
        timeout: The sandbox's own lifetime, in seconds.

    Raises:
        UsageError: There is no such factory, or it makes no sandbox.
    """
    module, _, name = factory.partition(":")
    try:
        make = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"factory={factory!r} cannot be imported: {error}") from error
    made = make(Path(directory), timeout)
    sandbox = await made if inspect.isawaitable(made) else made
    if not isinstance(sandbox, SandboxInterface):
        raise UsageError(f"{factory} made a {type(sandbox).__name__}, which is no SandboxInterface")
    return FocusSandbox(sandbox)


def _said(found: SandboxResult) -> str:
    return " ".join(found.stderr.split()) or f"exit code {found.exit_code}"


def _capped(text: str, most: int | None) -> str:
    return text if most is None else text.encode()[:most].decode(errors="ignore")
