"""Lanes: the training roles of what a tree exports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs

if TYPE_CHECKING:
    from focus_core.collect import Collection

__all__ = ["Lane"]


@attrs.frozen
class Lane:
    """One training role.

    Attributes:
        name: Its key in batches and files.
        record_type: Class of its records; each has ``metadata`` and ``to_dict()``.
        export: From a prepared collection to its records.
        consumer: ``"update"`` hands them to the trainer, ``"sink"`` to a sink once the update
            succeeded.
    """

    name: str
    record_type: type[Any]
    export: Callable[[Collection], Sequence[Any]]
    consumer: Literal["update", "sink"]
