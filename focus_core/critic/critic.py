"""The critic: a value for every unfinished state, and the text it was asked about."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from focus_core.env.execution import Execution, call
from focus_core.errors import CriticError
from focus_core.tree.rollout import Rollout

__all__ = ["Critic"]


@attrs.frozen
class Critic:
    """A fixed value function. Make one with ``constant`` or ``from_fn``.

    Attributes:
        fn: From a state's text to its value; ``None`` for a constant.
        value: The constant.
        context: From a rollout to that text; by default the policy's decoding of every token at
            the state. Called in a worker thread. The text sent is the text saved in critic
            records.
    """

    fn: Callable[[Any], float | Awaitable[float]] | None
    value: float | None
    context: Callable[[Rollout], Any] | None = None

    @classmethod
    def constant(cls, value: float, *, context: Callable[[Rollout], Any] | None = None) -> Critic:
        """The same prediction for every unfinished state.

        Raises:
            CriticError: ``value`` is not a finite number.
        """
        return cls(None, _finite(value), context)

    @classmethod
    def from_fn(
        cls,
        fn: Callable[[Any], float | Awaitable[float]],
        *,
        context: Callable[[Rollout], Any] | None = None,
    ) -> Critic:
        """Predictions of a function of the context; a plain function runs in a worker thread."""
        return cls(fn, None, context)

    async def predict(self, text: Any, execution: Execution) -> float:
        """The value of a state with this context.

        Raises:
            CriticError: The prediction is missing or not a finite number.
        """
        if self.fn is None:
            return self.value  # type: ignore[return-value]  # set when fn is not
        return _finite(await call(execution, self.fn, text))


def _finite(value: Any) -> float:
    number = math.nan
    if not isinstance(value, str | bytes):
        with contextlib.suppress(TypeError, ValueError):
            number = float(value)
    if not math.isfinite(number):
        raise CriticError(f"the critic predicted {value!r}; it must be a finite number")
    return number
