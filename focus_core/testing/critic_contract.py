"""The contract of critics: a finite number for any text, the same in anybody's company."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable

from focus_core.critic import Critic
from focus_core.env.execution import ThreadExecution
from focus_core.testing._looking import longest_hold
from focus_core.testing.base import Contract, contract, require

__all__ = ["CriticContract"]

TEXTS = (
    "Compute 2+3.",
    "",
    " ",
    "2+3 is 5, so the answer is 5}" * 200,
    "\u202e\u0000 数学 <script>",
)
_HOLD = 0.5
"""Seconds that a prediction may hold the event loop up."""


class CriticContract(Contract):
    """What every critic keeps; ``subject()`` gives a ``Critic``, or an object with ``predict``."""

    @contract()
    def test_can_be_asked(self) -> None:
        """It is a Critic, or has predict(text)."""
        made = self.subject()
        require(
            isinstance(made, Critic) or callable(getattr(made, "predict", None)),
            f"{type(made).__name__} is no Critic and has no predict(text)",
        )

    @contract()
    async def test_predicts_finite_numbers(self) -> None:
        """Any text has a finite value: empty, long, and with any characters."""
        async with self._asked() as ask:
            for text in TEXTS:
                require(math.isfinite(await ask(text)), f"not so of {text!r:.40}")

    @contract()
    async def test_same_text_same_value(self) -> None:
        """A critic is a fixed function of the text, alone and among others."""
        async with self._asked() as ask:
            alone = [await ask(text) for text in TEXTS]
            together = await asyncio.gather(*map(ask, TEXTS * 4))
            for text, one, other in zip(TEXTS * 4, alone * 4, together, strict=True):
                close = math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6)
                require(close, f"of {text!r:.40} it predicted {one} alone, {other} among others")

    @contract()
    async def test_holds_nobody_up(self) -> None:
        """The event loop goes on while it predicts: a plain function runs in a thread."""
        async with self._asked() as ask:

            async def predicting() -> None:
                await asyncio.gather(*map(ask, TEXTS))

            held = await longest_hold(predicting)
        require(
            held < _HOLD, f"it held the event loop up for {held:.2f} s; await, or be no coroutine"
        )

    @contextlib.asynccontextmanager
    async def _asked(self) -> AsyncIterator[Callable[[str], Awaitable[float]]]:
        """Its predictions as a collector asks for them; closed at the end, where it can be."""
        made = self.subject()
        critic = made if isinstance(made, Critic) else Critic.from_fn(made.predict)
        execution = ThreadExecution()
        try:
            yield lambda text: critic.predict(text, execution)
        finally:
            await execution.aclose()
            if hasattr(made, "aclose"):
                await made.aclose()
