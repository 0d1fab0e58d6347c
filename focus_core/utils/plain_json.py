"""Plain JSON types: reading them strictly, and turning other things into them."""

from __future__ import annotations

import enum
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import attrs
import numpy as np

__all__ = ["DECODER", "exact", "loads", "to_json"]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {next(k for k, n in counts.items() if n > 1)!r} is there twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_finite, parse_constant=_finite)
"""Refuses, with a ``ValueError``, a key twice and numbers that are not finite (``1e999`` too)."""


def loads(text: str) -> Any:
    """A JSON text, read strictly.

    Raises:
        ValueError: Wrong syntax, a key twice, a number that is not finite, or too deep nesting.
    """
    try:
        return DECODER.decode(text)
    except RecursionError:
        raise ValueError("is nested too deep") from None


def to_json(value: Any) -> Any:
    """JSON types only: numpy becomes numbers and lists, and what is not finite ``null``."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def exact(value: Any) -> Any:
    """JSON types with nothing lost: models, attrs and data classes as objects, arrays as lists.

    Raises:
        TypeError: There is no such form; nothing is turned into text to make it fit.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, enum.Enum):
        return exact(value.value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not finite")
        return value
    if isinstance(value, Mapping):
        return {_key(key): exact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    for form in ("model_dump", "tolist"):  # pydantic; arrays and tensors, also as dataclasses
        if callable(getattr(value, form, None)) and not isinstance(value, type):
            return exact(getattr(value, form)())
    if attrs.has(type(value)):
        names = [field.name for field in attrs.fields(type(value))]
        return {name: exact(getattr(value, name)) for name in names}
    if is_dataclass(value):
        return {field.name: exact(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"a {type(value).__name__} is among its parts")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r} is not text")
    return key
