"""Where code that a policy wrote runs: the sandbox contract."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import attrs

__all__ = ["Sandbox", "SandboxResult"]


@attrs.frozen
class SandboxResult:
    """What a command did.

    Attributes:
        stdout: Its output, as text.
        stderr: Its errors, as text.
        exit_code: 0 where it succeeded.
    """

    stdout: str
    stderr: str
    exit_code: int


@runtime_checkable
class Sandbox(Protocol):
    """A machine of its own for one environment.

    Whatever does not come from the command itself is an error, never a result: ``DeadlineError``
    for a call that took too long, ``ExecutionError`` for a sandbox that is gone. A command that
    fails is a result with its exit code.
    """

    async def run(
        self, command: str, *, timeout: float = 60.0, directory: str | None = None
    ) -> SandboxResult:
        """Run a shell command.

        Args:
            command: What to run.
            timeout: Limit in seconds, after which the command is stopped.
            directory: Where; by default the sandbox's own working directory.

        Raises:
            DeadlineError: It took longer.
            ExecutionError: The sandbox is gone.
        """
        ...

    async def read(self, path: str) -> bytes:
        """Content of a file.

        Raises:
            FileNotFoundError: There is none.
            ExecutionError: The sandbox is gone.
        """
        ...

    async def write(self, path: str, content: bytes, *, executable: bool = False) -> None:
        """Write a whole file.

        Raises:
            OSError: It cannot be written.
            ExecutionError: The sandbox is gone.
        """
        ...

    async def aclose(self) -> None:
        """Free the sandbox and all that runs in it. Safe to call twice."""
        ...
