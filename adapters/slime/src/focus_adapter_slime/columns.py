"""Columns of samples: lists to everybody, and the arrays they came from to what makes tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Column", "Mask", "use_arrays"]


class Mask(np.ndarray):
    """A loss mask as bytes, which Slime adds up as Python's integers, as fast as a list's."""

    def __iter__(self) -> Iterator[int]:  # type: ignore[override]
        return iter(self.tobytes())


class Column(list[Any]):
    """A list that keeps a copy of the array it was made of, until it is changed.

    It is saved as a plain list.

    Args:
        values: An array of one dimension; of anything else it is a list.
    """

    def __init__(self, values: Any = ()) -> None:
        known = isinstance(values, np.ndarray)
        super().__init__(values.tolist() if known else values)
        self._array = values.copy() if known else None

    @property
    def array(self) -> NDArray[Any] | None:
        """The values; ``None`` if the list was changed."""
        return None if self._array is None or len(self._array) != len(self) else self._array

    def __deepcopy__(self, memo: Any) -> Column:
        return Column(list(self) if self.array is None else self.array)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return list, (list(self),)


def _changing(name: str) -> Callable[..., Any]:
    change = getattr(list, name)

    def changed(self: Column, *args: Any, **named: Any) -> Any:
        self._array = None
        return change(self, *args, **named)

    return changed


for _name in (
    *("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "extend", "insert"),
    *("pop", "remove", "clear", "sort", "reverse"),
):
    setattr(Column, _name, _changing(_name))


def use_arrays(sample: Any) -> None:
    """Replace a sample's columns by their arrays, of which tensors are made without a Python loop.

    Slime calls the reward hook first thing when it converts samples, after everything that logs,
    filters or saves them; what it does then with these three is ``len``, ``sum`` and tensors, in
    every version (``test_fidelity.py``). Other lists, and columns that were changed, stay lists.
    """
    for name in ("tokens", "loss_mask", "rollout_log_probs"):
        column = getattr(sample, name, None)
        if isinstance(column, Column) and column.array is not None:
            setattr(sample, name, column.array)
