"""Samples' columns as arrays, of which Slime makes tensors several times as fast as of lists."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mask", "finite_floats", "use_arrays"]


class Mask(np.ndarray):
    """A loss mask as bytes: Slime adds it up, and as Python's integers that is as fast as a list."""

    def __iter__(self) -> Iterator[int]:  # type: ignore[override]
        return iter(self.tobytes())


def use_arrays(sample: Any) -> None:
    """Replace a sample's lists by arrays of the same values.

    Slime calls the reward hook first thing when it converts samples, after everything that logs,
    filters or saves them; what it does then with these three is ``len``, ``sum`` and tensors, in
    every version (``test_fidelity.py``). A column that is no list of such numbers stays as it is,
    for Slime to take or refuse.
    """
    for name, made in _COLUMNS.items():
        column = getattr(sample, name, None)
        if type(column) is list:
            try:
                setattr(sample, name, made(column))
            except (TypeError, ValueError, OverflowError):
                continue


def _mask(column: list[Any]) -> Mask:
    return np.frombuffer(bytearray(column), np.uint8).view(Mask)


# By way of Python's arrays, which take numbers only: NumPy makes NaN of None, and 1 of "1".
_COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "tokens": lambda column: np.frombuffer(array("q", column), np.int64),
    "rollout_log_probs": lambda column: np.frombuffer(array("f", column), np.float32),
    "loss_mask": _mask,
}


def finite_floats(values: Any) -> NDArray[np.float64] | None:
    """Numbers as float64 of shape (len(values),); ``None`` if one is no number or not finite."""
    if isinstance(values, np.ndarray):
        found = values if values.dtype.kind == "f" else None
    elif set(map(type, values)) <= {int, float}:
        found = np.fromiter(values, np.float64, len(values))
    else:
        found = None
    return found if found is not None and np.isfinite(found).all() else None
