"""Reading the plain form of records: JSON types, checked by name."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_core.errors import RecordError

__all__ = ["SCHEMA", "check_header", "metadata_of", "number", "numbers"]

SCHEMA = 1
"""Version of the plain form."""


def check_header(plain: Mapping[str, Any], lane: str) -> None:
    """Refuse another schema or lane."""
    if plain.get("schema") != SCHEMA:
        raise RecordError(f"schema is {plain.get('schema')!r}; this version reads {SCHEMA}")
    if plain.get("lane") != lane:
        raise RecordError(f"lane is {plain.get('lane')!r}, not {lane!r}")


def numbers(key: str, values: Any) -> NDArray[np.float64]:
    """A flat, finite float64 array, or a complaint naming the first offender."""
    try:
        array = np.asarray(values)
    except ValueError:  # ragged
        array = np.asarray(None)
    if array.ndim != 1 or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise RecordError(f"{key!r} must be a flat list of finite numbers")
    return array.astype(np.float64)


def number(key: str, value: Any) -> float:
    """A finite float, or a complaint."""
    number = math.nan
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            number = float(value)
    if not math.isfinite(number):
        raise RecordError(f"{key} is {value!r}; it must be a finite number")
    return number


def metadata_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a record's metadata, or a complaint."""
    metadata = plain.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise RecordError(f"metadata is {metadata!r}; it must be an object")
    return dict(metadata or {})
