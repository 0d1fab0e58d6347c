"""Files an agent writes, branched with the state."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from weakref import WeakValueDictionary

from focus_core.errors import DataError

__all__ = ["Workspace"]


class _Blob:
    """Content that any number of files in any number of workspaces have in common."""

    __slots__ = ("__weakref__", "content", "digest")

    def __init__(self, content: bytes, digest: bytes) -> None:
        self.content = content
        self.digest = digest


_BLOBS: WeakValueDictionary[bytes, _Blob] = WeakValueDictionary()
"""Every content in use in this process, by digest."""


def _blob(content: bytes) -> _Blob:
    digest = hashlib.blake2b(content, digest_size=32).digest()
    return _BLOBS.setdefault(digest, _Blob(content, digest))


_MOST_NAME, _MOST_PATH = 255, 1024
"""Bytes that file systems allow, with room for the directory in which the files are written."""


class Workspace:
    """A small in-memory file tree: contents and relative paths, no permissions, no empty folders.

    A fork costs nothing until one side writes, and then a table of paths; equal contents are
    kept once, whichever workspaces of this process they are in. An environment with an attribute
    ``workspace`` finds its own fork there.

    Args:
        files: Contents by relative POSIX path.
        max_bytes: Most bytes in all files together; ``None``: unlimited.
    """

    def __init__(
        self, files: Mapping[str, bytes] | None = None, *, max_bytes: int | None = None
    ) -> None:
        self.max_bytes = max_bytes
        self._files: dict[str, _Blob] = {}
        self._folders: dict[str, int] = {}  # how many files are below each
        self._size = 0
        self._shared = False
        self._digest: str | None = None
        for path, content in (files or {}).items():
            self.write(path, content)

    @staticmethod
    def _key(path: str) -> str:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in path:
            raise ValueError(f"{path!r} leaves the workspace; give a relative path without '..'")
        try:
            sizes = [len(os.fsencode(part)) for part in pure.parts]
        except UnicodeEncodeError:
            raise ValueError(f"{path!r} holds half of a surrogate pair") from None
        if max(sizes) > _MOST_NAME or sum(sizes) + len(sizes) > _MOST_PATH:
            raise ValueError(
                f"{path[:80]!r}... is too long for a file system; a name has at most {_MOST_NAME} "
                f"bytes and a path {_MOST_PATH}"
            )
        return str(pure)

    def read(self, path: str) -> bytes:
        """Content of a file.

        Raises:
            FileNotFoundError: There is none.
        """
        try:
            return self._files[self._key(path)].content
        except KeyError:
            raise FileNotFoundError(f"no file {path!r} in the workspace") from None

    def write(self, path: str, content: bytes) -> None:
        """Write a whole file; folders come about by themselves.

        Raises:
            ValueError: The path leaves the workspace, or the files would exceed ``max_bytes``.
            IsADirectoryError: There is a folder of that name.
            NotADirectoryError: A part of the path is a file.
        """
        key, content = self._key(path), bytes(memoryview(content))
        before = self._files.get(key)
        if before is None:
            self._make_room(key)
        size = self._size + len(content) - (len(before.content) if before else 0)
        if self.max_bytes is not None and size > self.max_bytes:
            raise ValueError(
                f"writing {path!r} makes {size} bytes, and the workspace holds at most "
                f"{self.max_bytes}; write less, or delete something first"
            )
        self._own()[key] = _blob(content)
        self._size = size
        if before is None:
            for folder in _above(key):
                self._folders[folder] = self._folders.get(folder, 0) + 1

    def _make_room(self, key: str) -> None:
        """Refuse a new file where a folder is, or below a file."""
        for above in _above(key):
            if above in self._files:
                raise NotADirectoryError(f"{above!r} is a file in the workspace, no folder")
        if key in self._folders:
            raise IsADirectoryError(f"{key!r} is a folder in the workspace, no file")

    def delete(self, path: str) -> None:
        """Remove a file that exists."""
        size, key = len(self.read(path)), self._key(path)
        del self._own()[key]
        self._size -= size
        for folder in _above(key):
            self._folders[folder] -= 1
            if not self._folders[folder]:
                del self._folders[folder]

    def _own(self) -> dict[str, _Blob]:
        """This workspace's table, about to change."""
        if self._shared:
            self._files, self._folders = dict(self._files), dict(self._folders)
            self._shared = False
        self._digest = None
        return self._files

    def __iter__(self) -> Iterator[str]:
        """Paths, sorted."""
        return iter(sorted(self._files))

    @property
    def size(self) -> int:
        """Bytes in all files together."""
        return self._size

    @property
    def digest(self) -> str:
        """BLAKE2b of paths and contents, in hex: equal exactly if the files are."""
        if self._digest is None:
            whole = hashlib.blake2b(digest_size=32)
            for path in self:
                name = path.encode("utf-8", "surrogatepass")
                whole.update(len(name).to_bytes(8, "big") + name + self._files[path].digest)
            self._digest = whole.hexdigest()
        return self._digest

    def fork(self) -> Workspace:
        """A copy that shares contents and no future."""
        other = Workspace(max_bytes=self.max_bytes)
        other._files, other._folders = self._files, self._folders
        other._size, other._digest = self._size, self._digest
        other._shared = self._shared = True
        return other

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle contents; on the other side they are shared again."""
        return _rebuilt, ({path: self.read(path) for path in self}, self.max_bytes)

    @classmethod
    def from_directory(cls, directory: str | Path, *, max_bytes: int | None = None) -> Workspace:
        """Read every file below a directory.

        Raises:
            DataError: It is no directory, something in it is neither file nor folder (a symbolic
                link might lead out of it), or the files exceed ``max_bytes``.
        """
        root = Path(directory)
        if not root.is_dir():
            raise DataError("is no directory", path=root, remedy="name one that exists")
        workspace = cls(max_bytes=max_bytes)
        for folder, folders, names in os.walk(root, onerror=_raise):
            for name in sorted(folders + names):
                path = Path(folder, name)
                mode = path.lstat().st_mode
                if stat.S_ISDIR(mode):
                    continue
                if not stat.S_ISREG(mode):
                    raise DataError(
                        "is neither a file nor a folder",
                        path=path,
                        remedy="a workspace holds no links or devices; copy what is meant",
                    )
                room = None if max_bytes is None else max_bytes - workspace.size
                if room is not None and path.lstat().st_size > room:
                    raise DataError(
                        f"the files below {root} exceed {max_bytes} bytes",
                        path=path,
                        remedy="raise max_bytes, or leave files out",
                    )
                workspace.write(path.relative_to(root).as_posix(), path.read_bytes())
        return workspace

    def write_to(self, directory: str | Path) -> None:
        """Write every file below a directory that is new or empty.

        Nothing that is there already can then lead a path out of it.

        Raises:
            DataError: The directory has something in it.
        """
        root = Path(directory)
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise DataError("is not empty", path=root, remedy="name a new or empty directory")
        for path in self:
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as stream:
                stream.write(self.read(path))


def _above(key: str) -> Iterator[str]:
    """The folders a path is in, innermost first."""
    while at := key.rpartition("/")[0]:
        yield at
        key = at


def _rebuilt(files: Mapping[str, bytes], max_bytes: int | None) -> Workspace:
    return Workspace(files, max_bytes=max_bytes)


def _raise(error: OSError) -> None:
    raise error
