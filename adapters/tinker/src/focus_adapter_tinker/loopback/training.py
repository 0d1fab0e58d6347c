"""Models being trained: the operations of each in the order of their numbers, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
from focus_adapter_local.learner import AdamConfig, Learner, LearnerConfig
from focus_adapter_local.losses import LossConfig

from focus_core.errors import TrainerError, UsageError

__all__ = ["TrainedModel", "Turns", "adam_config", "learner_config"]

ALPHA = 32.0
"""LoRA's alpha on the service, at any rank."""

_ADAM = {
    "learning_rate": 1e-4,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-12,
    "weight_decay": 0.0,
    "grad_clip_norm": 0.0,
}
"""The service's defaults."""


class Turns:
    """Lets operations go one at a time, in the order of their numbers, however they arrive.

    Args:
        patience: Seconds that an operation waits for one before it that never arrives.
        on_gap: Called when one never arrived; all that waited for it fail.
    """

    def __init__(self, patience: float, on_gap: Callable[[], None]) -> None:
        self._patience = patience
        self._on_gap = on_gap
        self._failed_to = 0
        self._next = 1
        self._arrived: set[int] = set()
        self._news = asyncio.Condition()

    def arrive(self, number: int) -> None:
        """Announce an operation, so that later ones wait for it as long as it takes."""
        self._arrived.add(number)

    @asynccontextmanager
    async def take(self, number: int) -> AsyncIterator[None]:
        """Wait for the turn of an operation that arrived; the next goes after the block.

        Raises:
            TrainerError: An operation before it never arrived, or it arrived too late itself.
        """
        try:
            async with self._news:
                while self._next < number:
                    await self._wait_for_next(number)
            if self._next > number:
                raise TrainerError(
                    f"operation {number} of the model arrived too late: the loopback gave it up"
                )
            if number <= self._failed_to:
                raise TrainerError(f"operation {number} is not done: one before it never arrived")
            yield
        finally:
            self._next = max(self._next, number + 1)
            async with self._news:
                self._news.notify_all()

    async def _wait_for_next(self, number: int) -> None:
        missing = self._next
        waited = self._patience if missing not in self._arrived else None
        try:
            async with asyncio.timeout(waited):
                await self._news.wait()
        except TimeoutError:
            if self._next == missing and missing not in self._arrived:
                self._failed_to = max(self._arrived)
                self._on_gap()
                raise TrainerError(
                    f"operation {missing} of the model never arrived ({self._patience:g} s), so "
                    f"operation {number} is not done"
                ) from None


@attrs.define(eq=False)
class TrainedModel:
    """A model of a session.

    Attributes:
        model_id: Its id.
        base_model: What the client calls the base.
        learner: Its weights.
        turns: Order of its operations.
    """

    model_id: str
    base_model: str
    learner: Learner
    turns: Turns


def learner_config(rank: int, seed: int, max_batch_tokens: int) -> LearnerConfig:
    """How a model learns, but for what each request says itself."""
    return LearnerConfig(
        loss=LossConfig(),
        lora_rank=rank,
        lora_alpha=ALPHA,
        adapter=None,
        seed=seed,
        max_batch_tokens=max_batch_tokens,
        warmup_steps=0,
        logprob_tolerance=float("inf"),
        **_ADAM,
    )


def adam_config(body: dict[str, Any]) -> AdamConfig:
    """The optimizer settings of an ``optim_step``.

    Raises:
        UsageError: It is another optimizer, or a setting is out of range.
    """
    asked = body.get("adam_params")
    if not isinstance(asked, dict):
        raise UsageError("the loopback has the optimizer AdamW only; give adam_params")
    settings = {name: float(asked.get(name, default)) for name, default in _ADAM.items()}
    for name, value in settings.items():
        if not 0 <= value < float("inf") or (name.startswith("beta") and value >= 1):
            raise UsageError(f"adam_params: {name} is {value}, out of range")
    return AdamConfig(**settings)
