"""Files an agent writes, branched with the state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

__all__ = ["Workspace"]


class Workspace:
    """A small in-memory file tree. Forks share file contents until one of them writes.

    An environment with an attribute ``workspace`` finds its own fork there.

    Args:
        files: Contents by relative POSIX path.
    """

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self._files: dict[str, bytes] = {}
        for path, content in (files or {}).items():
            self.write(path, content)

    @staticmethod
    def _key(path: str) -> str:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise ValueError(f"{path!r} leaves the workspace; give a relative path without '..'")
        return str(pure)

    def read(self, path: str) -> bytes:
        """Content of a file.

        Raises:
            FileNotFoundError: There is none.
        """
        try:
            return self._files[self._key(path)]
        except KeyError:
            raise FileNotFoundError(f"no file {path!r} in the workspace") from None

    def write(self, path: str, content: bytes) -> None:
        """Write a whole file."""
        self._files[self._key(path)] = bytes(content)

    def delete(self, path: str) -> None:
        """Remove a file that exists."""
        self.read(path)
        del self._files[self._key(path)]

    def __iter__(self) -> Iterator[str]:
        """Paths, sorted."""
        return iter(sorted(self._files))

    def fork(self) -> Workspace:
        """A copy that shares contents and no future."""
        other = Workspace()
        other._files = dict(self._files)
        return other
