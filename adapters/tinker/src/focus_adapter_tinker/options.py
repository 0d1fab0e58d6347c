"""What the trainer ``tinker`` can be told, and what is refused of it before anything is made."""

from __future__ import annotations

import math
from typing import ClassVar

import attrs

from focus_adapter_tinker.connection import address, check_key
from focus_adapter_tinker.losses import CLIPPED, SUMS, check_loss
from focus_adapter_tinker.usage import PRICED, Prices
from focus_core.errors import UsageError

__all__ = ["TinkerOptions"]


@attrs.define(kw_only=True, eq=False, slots=False)
class TinkerOptions:
    """Options of ``TinkerTrainer``, checked on construction.

    The API key comes from ``TINKER_API_KEY`` (or what ``tinker auth login`` stored); it is no
    option, so that no configuration holds it.

    Attributes:
        model: Tinker's name of the base model.
        learning_rate: Adam's step size.
        loss: ``ppo``, ``importance_sampling``, ``cispo``, ``cross_entropy`` or ``gspo``.
        clip_low_threshold: Least ratio that ppo, cispo and gspo let through.
        clip_high_threshold: Largest ratio that ppo, cispo and gspo let through.
        lora_rank: Rank of the adapter.
        seed: Of the adapter's initial weights.
        beta1: Adam's decay of the gradient's mean.
        beta2: Adam's decay of the gradient's square.
        eps: Adam's epsilon.
        weight_decay: Decoupled (AdamW).
        grad_clip_norm: Largest norm of the whole gradient; 0 does not clip.
        profile: How replies are read; see ``TinkerPolicy``.
        context_length: Most tokens of prompt and reply together; ``None``: what Tinker says of
            the model, if it does.
        project: Tinker's id of the project; ``None`` is ``TINKER_PROJECT_ID``, if set.
        base_url: Of another server; ``None`` is ``TINKER_BASE_URL``, if set, or Tinker itself.
        checkpoint_ttl: Seconds Tinker keeps a saved state; ``None``: for ever.
        resume_from: Path of a saved state, weights and optimizer, to continue from.
        logprob_tolerance: Largest mean difference between learner and sampler, in nats, that an
            update on the current weights accepts.
        update_timeout: Seconds an update, a snapshot or a save may take.
        sample_timeout: Seconds a sampling request may take.
        server_timeout: Seconds the server may be out of reach while the run waits for it.
        prices: A dated price file, for costs in reports; see ``Prices.read``.
        price_prompt: Instead of a file: dollars per million prompt tokens.
        price_sampled: Dollars per million sampled tokens.
        price_trained: Dollars per million trained tokens.
        dry_run: Run against a server on this machine that speaks Tinker's protocol, and spend
            nothing; ``focus train --dry-run`` sets it.
        dry_run_model: What that server samples and trains: ``tiny``, ``smollm2`` or a directory.
        capabilities: Of a trainer with this loss.
        known_prices: Those of the file and of the options; ``None`` if there are none.
        url: Where Tinker is.
    """

    capabilities: ClassVar[frozenset[str]]

    model: str = ""
    learning_rate: float = 1e-4
    loss: str = "ppo"
    clip_low_threshold: float = 0.8
    clip_high_threshold: float = 1.2
    lora_rank: int = attrs.field(default=32, validator=attrs.validators.ge(1))
    seed: int | None = None
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0
    profile: str | None = None
    context_length: int | None = None
    project: str | None = None
    base_url: str | None = None
    checkpoint_ttl: int | None = None
    resume_from: str | None = None
    logprob_tolerance: float = 0.25
    update_timeout: float = 3600.0
    sample_timeout: float = 1800.0
    server_timeout: float = 300.0
    prices: str | None = None
    price_prompt: float | None = None
    price_sampled: float | None = None
    price_trained: float | None = None
    dry_run: bool = False
    dry_run_model: str = "tiny"

    known_prices: Prices | None = attrs.field(init=False)
    url: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Refuse what would fail later.

        Raises:
            UsageError: An option is missing or out of range, or there is no API key.
            DataError: The price file cannot be used.
        """
        if not self.model:
            raise UsageError("give the base model that Tinker should train: --model NAME")
        check_loss(self.loss, self.loss_config())
        for name in ("learning_rate", "eps", "update_timeout", "sample_timeout", "server_timeout"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)!r}; it must be above 0, finite")
        for name in ("weight_decay", "grad_clip_norm"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)!r}; it must be 0 or more, finite")
        if not self.logprob_tolerance >= 0:  # infinity accepts everything
            raise UsageError(
                f"logprob_tolerance is {self.logprob_tolerance!r}; it must be 0 or more"
            )
        if self.context_length is not None and self.context_length < 2:
            raise UsageError(
                f"context_length is {self.context_length}; a prompt and a reply need 2 or more"
            )
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)!r}; it must be in [0, 1)")
        if self.checkpoint_ttl is not None and self.checkpoint_ttl < 3600:
            raise UsageError(
                f"checkpoint_ttl is {self.checkpoint_ttl}; Tinker keeps a state for an hour (3600) "
                "or longer"
            )
        self.capabilities = frozenset(  # type: ignore[misc]  # of the loss that was chosen
            {"merges-spans", "resumes"} if self.loss in SUMS else {"resumes"}
        )
        self.known_prices = self._prices()
        self.url = address(self.base_url)
        if not self.dry_run:
            check_key()

    def loss_config(self) -> dict[str, float] | None:
        """The configuration that goes with the loss."""
        if self.loss not in CLIPPED:
            return None
        return {
            "clip_low_threshold": self.clip_low_threshold,
            "clip_high_threshold": self.clip_high_threshold,
        }

    def _prices(self) -> Prices | None:
        options = {name: getattr(self, f"price_{name}") for name in PRICED}
        given = {name: price for name, price in options.items() if price is not None}
        if self.prices is None:
            return Prices(**given, options=tuple(given)) if given else None
        return attrs.evolve(Prices.read(self.prices, self.model), **given, options=tuple(given))
