"""The tokens of a state, by reference: what a request sends, without copying them for each one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from focus_core.tree.tree import Tree

__all__ = ["Prefix", "TokenArray"]


class TokenArray(Sequence[int]):
    """Tokens that numpy holds and that read like a list of ints; subclasses say where they are."""

    __slots__ = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Its tokens, int32, shape (T,)."""
        raise NotImplementedError

    def tolist(self) -> list[int]:
        """Its tokens, as ints."""
        tokens: list[int] = np.asarray(self).tolist()
        return tokens

    def __iter__(self) -> Iterator[int]:
        """Token by token."""
        return iter(self.tolist())

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        """A token, or a list of some."""
        found: int | list[int] = np.asarray(self)[index].tolist()
        return found

    def __eq__(self, other: object) -> bool:
        """Whether the tokens are the same, in order."""
        return isinstance(other, Sequence) and len(self) == len(other) and list(other) == [*self]

    __hash__ = None  # type: ignore[assignment]  # compares like a list

    def __repr__(self) -> str:
        """As a list."""
        return repr(self.tolist())


class Prefix(TokenArray):
    """Every token of the sequence up to one state, read from its tree when asked for.

    A sequence of ints like the list that other policies get: it can be iterated, indexed and
    compared, ``list(prefix)`` and ``np.asarray(prefix)`` copy it. ``chunks`` names its parts, so
    that a policy which turns tokens into something of its own does so once for each part, however
    many requests share it. Only policies with ``takes_prefix`` are given one.

    Attributes:
        cache: Shared by all prefixes of one tree, for what a policy makes of a chunk; emptied when
            the tree is grown.
    """

    __slots__ = ("_length", "_node", "_tree", "cache")

    def __init__(self, tree: Tree, node: int, length: int, cache: dict[Any, Any]) -> None:
        self._tree = tree
        self._node = node
        self._length = length
        self.cache = cache

    def chunks(self) -> list[tuple[int, NDArray[np.int32]]]:
        """Its parts in order: a state's number, and the tokens on the edge to it.

        They are views of the tree's own: copy what you change.
        """
        return self._tree.chunks(self._node)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Its tokens, int32, shape (T,); always a copy."""
        tokens = self._tree.prefix(self._node)
        return tokens if dtype is None else tokens.astype(dtype, copy=False)

    def __len__(self) -> int:
        """Number of tokens."""
        return self._length

    def __repr__(self) -> str:
        """As a list."""
        return f"Prefix({self.tolist()!r})"
