"""Training clients on which no step may be made any more, whoever holds them."""

from __future__ import annotations

import contextlib
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from focus_core.errors import TrainerError

__all__ = ["check_answers", "check_fit", "clear", "spoil"]


@attrs.frozen
class _Mark:
    """Why a client is spoilt; ``lost``: what it was asked got no answer, and holds up the rest."""

    why: str | None
    lost: bool


_MARKS: WeakKeyDictionary[Any, _Mark] = WeakKeyDictionary()
"""By client, not by trainer: a gradient that Tinker holds is met by every later step of any."""


def spoil(client: Any, why: str | None, *, lost: bool = False) -> None:
    """Note that Tinker may hold what an operation left; ``why`` is ``None`` while it goes on."""
    with contextlib.suppress(TypeError):  # a stand-in that has no weak references or no hash
        _MARKS[client] = _Mark(why, lost)


def clear(client: Any) -> None:
    """Note that a step went through whole."""
    with contextlib.suppress(TypeError, KeyError):
        del _MARKS[client]


def check_fit(client: Any, name: str) -> None:
    """Refuse a step that would apply the gradients of another.

    Args:
        client: A ``tinker.TrainingClient``.
        name: Of the step.

    Raises:
        TrainerError: One before it failed on this client, or is under way.
    """
    check_answers(client, f"make {name}")
    mark = _found(client)
    if mark is None:
        return
    if mark.why is None:
        raise TrainerError(
            f"{name} is not made, as another is under way on the same training client, or was cut "
            "short; await each before the next, and after one that was cut short make a new client"
        )
    raise TrainerError(
        f"{name} is not made, as Tinker may hold gradients of one that failed ({mark.why}), and "
        "would apply them; make a new training client, from a saved state if there is one "
        "(create_training_client_from_state_with_optimizer)"
    )


def check_answers(client: Any, what: str) -> None:
    """Refuse what would wait for something that got no answer.

    Raises:
        TrainerError: The client is of no use any more.
    """
    mark = _found(client)
    if mark is not None and mark.lost:
        raise TrainerError(
            f"cannot {what}: the training client waits for what got no answer ({mark.why}); make "
            "a new one"
        )


def _found(client: Any) -> _Mark | None:
    try:
        return _MARKS.get(client)
    except TypeError:
        return None
