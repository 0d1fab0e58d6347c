"""Entering a trainer: whoever waits for a model that loads is told so."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from focus_core.trainer import Trainer

__all__ = ["entered"]

PATIENCE = 0.5
"""Seconds of silence before the line."""


@asynccontextmanager
async def entered(trainer: Trainer, name: str) -> AsyncIterator[Trainer]:
    """``async with trainer``, with a line on stderr if it takes a while to enter.

    Args:
        trainer: To enter; its ``model``, where it has one, is named.
        name: Its registered name.
    """
    model = getattr(trainer, "model", None)
    what = f"the model {model} for the trainer {name}" if model else f"the trainer {name}"

    def say() -> None:
        print(f"loading {what} ...", file=sys.stderr, flush=True)

    waiting = asyncio.get_running_loop().call_later(PATIENCE, say)
    try:
        async with trainer:
            waiting.cancel()
            yield trainer
    finally:
        waiting.cancel()
