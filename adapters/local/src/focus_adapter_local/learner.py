"""The weights that learn: LoRA on a frozen base, one optimizer step per batch."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_adapter_local._attention import attend_in_groups
from focus_adapter_local.adapter import Adapter, check_targets
from focus_adapter_local.items import Item, check_items
from focus_adapter_local.losses import LossConfig, TokenSums, token_loss
from focus_adapter_local.models import LoadedModel, quiet
from focus_adapter_local.snapshot import (
    Changes,
    Dense,
    LowRank,
    ModelFacts,
    Snapshot,
    facts_of,
    merged_copy,
    share,
)
from focus_core.errors import OffPolicyError, RecordError, TrainerError

__all__ = ["AdamConfig", "Learner", "LearnerConfig", "Stopped", "micro_batches"]

ADAPTER = "default"
"""PEFT's name of the adapter that learns."""


class Stopped(Exception):
    """The update was called off before its optimizer step; nothing has changed."""


@attrs.frozen(kw_only=True)
class LearnerConfig:
    """How to learn; see ``LocalTrainer`` for the meaning of each."""

    loss: LossConfig
    learning_rate: float
    warmup_steps: int
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float
    lora_rank: int
    lora_alpha: float
    adapter: Adapter | None = None
    seed: int
    max_batch_tokens: int
    logprob_tolerance: float


@attrs.frozen(kw_only=True)
class AdamConfig:
    """One optimizer step; see ``LocalTrainer`` for the meaning of each."""

    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float


def micro_batches(items: Sequence[Item], max_tokens: int) -> list[list[int]]:
    """Group items of like length, so that rows times width stays within ``max_tokens``.

    An item without generated tokens is left out; one longer than ``max_tokens`` goes alone.

    Returns:
        Indices into ``items``, longest first.
    """
    width = {i: _used(item) for i, item in enumerate(items) if item.mask.any()}
    groups: list[list[int]] = []
    for index in sorted(width, key=lambda i: (-width[i], i)):
        if groups and (len(groups[-1]) + 1) * width[groups[-1][0]] <= max_tokens:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _used(item: Item) -> int:
    """Inputs up to the one that predicts the last generated token; later ones teach nothing."""
    return int(np.flatnonzero(item.mask)[-1]) + 1


@attrs.frozen
class _Rectangle:
    """Some items as tensors: rows padded on the right, where causal attention does not look.

    Attributes:
        ids: int64, shape (rows, width).
        columns: int64; the positions at which some row predicts a generated token.
        row: int64, shape (N,); row of each generated token.
        column: int64, shape (N,); index into ``columns`` of each generated token.
        targets: int64, shape (N,).
        behaviour: float, shape (N,).
        advantages: float, shape (N,).
    """

    ids: Tensor
    columns: Tensor
    row: Tensor
    column: Tensor
    targets: Tensor
    behaviour: Tensor
    advantages: Tensor


def _scatter(
    results: list[NDArray[np.float64]], group: list[int], rectangle: _Rectangle, logprobs: Tensor
) -> None:
    """Put a micro-batch's log probabilities where their items are."""
    values = logprobs.detach().double().cpu().numpy()
    rows = rectangle.row.cpu().numpy()
    for row, index in enumerate(group):
        results[index] = values[rows == row]


class Learner:
    """Adapter weights, their optimizer, and the count of updates. Not thread-safe: one thread.

    Args:
        loaded: A model, which is given over to the learner.
        config: How to learn.
    """

    def __init__(self, loaded: LoadedModel, config: LearnerConfig) -> None:
        from peft import LoraConfig, get_peft_model

        self.config = config
        self.facts: ModelFacts = facts_of(
            loaded.model, loaded.tokenizer, str(loaded.files.directory)
        )
        self.step = 0
        self._template = share(loaded.model)
        attend_in_groups(self._template)
        shape: dict[str, Any] = {
            "r": config.lora_rank,
            "lora_alpha": config.lora_alpha,
            "target_modules": "all-linear",
        }
        if config.adapter is not None:
            check_targets(loaded.model, config.adapter)
            shape = dict(config.adapter.shape)
        lora = LoraConfig(task_type="CAUSAL_LM", **shape)
        with quiet():
            self.model: Any = get_peft_model(loaded.model, lora)
        self.model.eval()  # dropout would make the ratio differ from 1
        self.parameters = {
            name: each for name, each in self.model.named_parameters() if each.requires_grad
        }
        self._initialise()
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(),
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            weight_decay=config.weight_decay,
        )

    def _initialise(self) -> None:
        """PEFT's own initial weights, drawn from the seed without touching torch's generator."""
        generator = torch.Generator().manual_seed(self.config.seed)
        for name, parameter in self.parameters.items():
            if ".lora_A." in name:
                bound = 1 / math.sqrt(parameter.shape[1])  # kaiming_uniform_(a=sqrt(5))
                values = torch.rand(parameter.shape, generator=generator) * (2 * bound) - bound
                with torch.no_grad():
                    parameter.copy_(values)

    # Learning

    def update(
        self, items: Sequence[Item], *, on_policy: bool, stop: threading.Event
    ) -> dict[str, float]:
        """One optimizer step, or an error and no change at all.

        Args:
            items: The batch.
            on_policy: The current weights sampled it, so the ratio has to be 1.
            stop: Set by another thread to call the update off.

        Raises:
            RecordError: An item breaks its contract, or no token is trained.
            OffPolicyError: ``on_policy``, and a log probability differs by more than the
                tolerance.
            TrainerError: The loss or the gradient is not finite, or torch failed.
            Stopped: ``stop`` was set in time.
        """
        groups = self._checked_groups(items)
        if not groups:
            raise RecordError("no token of the batch is trained; skip it instead of updating")
        self.drop_gradient()
        sums, loss = TokenSums(), self.config.loss
        try:
            with self._explained("the update"):
                for group in groups:
                    rectangle, logprobs, losses = self._losses(items, group, sums, loss)
                    reads_behaviour = loss.name != "cross_entropy"
                    tolerance = self.config.logprob_tolerance
                    if on_policy and reads_behaviour and not sums.gap_max <= tolerance:
                        raise OffPolicyError(self._disagreement(rectangle, logprobs, group, sums))
                    self._backward(losses, sums)
                    if stop.is_set():
                        raise Stopped
                norm = self._check_gradient(self.config.grad_clip_norm)
                rate = self._step()
        finally:
            self.drop_gradient()
        return {**sums.metrics(), "grad_norm": norm, "learning_rate": rate}

    def forward_backward(
        self, items: Sequence[Item], loss: LossConfig, *, backward: bool = True
    ) -> tuple[list[NDArray[np.float64]], float]:
        """Add a batch's gradient to what ``optim_step`` will use, or an error and no change.

        Args:
            items: The batch.
            loss: Which loss, instead of the configured one.
            backward: ``False`` leaves the gradient alone.

        Returns:
            The learner's log probability of each generated target, by item, and the sum of the
            token losses.

        Raises:
            RecordError: An item breaks its contract.
            TrainerError: The loss is not finite, or torch failed.
        """
        results = [np.zeros(0) for _ in items]
        sums = TokenSums()
        before = [parameter.grad for parameter in self.parameters.values()]
        groups = self._checked_groups(items)
        try:
            self.drop_gradient()
            with self._explained("the gradient"), torch.set_grad_enabled(backward):
                for group in groups:
                    rectangle, logprobs, losses = self._losses(items, group, sums, loss)
                    self._backward(losses, sums, backward=backward)
                    _scatter(results, group, rectangle, logprobs)
        except BaseException:
            self.drop_gradient()
            raise
        finally:
            for parameter, gradient in zip(self.parameters.values(), before, strict=True):
                if gradient is not None:
                    parameter.grad = (
                        gradient if parameter.grad is None else gradient.add_(parameter.grad)
                    )
        return results, sums.loss

    def optim_step(self, adam: AdamConfig) -> float:
        """One step along what ``forward_backward`` has added up since the last, and forget it.

        Returns:
            The gradient's norm before clipping.

        Raises:
            TrainerError: There is no gradient, it is not finite, or torch failed; the weights
                are as they were.
        """
        if all(parameter.grad is None for parameter in self.parameters.values()):
            raise TrainerError("no gradient was accumulated since the last optimizer step")
        for group in self.optimizer.param_groups:
            group["lr"] = adam.learning_rate
            group["betas"] = (adam.beta1, adam.beta2)
            group["eps"] = adam.eps
            group["weight_decay"] = adam.weight_decay
        try:
            with self._explained("the optimizer step"):
                norm = self._check_gradient(adam.grad_clip_norm)
                self.optimizer.step()
        finally:
            self.drop_gradient()
        self.step += 1
        return norm

    def drop_gradient(self) -> None:
        """Forget what was accumulated."""
        self.optimizer.zero_grad(set_to_none=True)

    def _checked_groups(self, items: Sequence[Item]) -> list[list[int]]:
        check_items(
            items,
            vocabulary=self.facts.vocabulary,
            context_length=self.facts.context_length,
            absent=() if self.facts.absent is None else self.facts.absent.tolist(),
        )
        return micro_batches(items, self.config.max_batch_tokens)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Raise torch's errors as the trainer's."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise TrainerError(
                f"out of memory at {self.config.max_batch_tokens} tokens per micro-batch; lower "
                f"trainer.max_batch_tokens ({error})"
            ) from error
        except RuntimeError as error:
            if isinstance(error, TrainerError | OffPolicyError):
                raise
            raise TrainerError(f"{what} failed: {error}") from error

    def _losses(
        self, items: Sequence[Item], group: list[int], sums: TokenSums, loss: LossConfig
    ) -> tuple[_Rectangle, Tensor, Tensor]:
        """Log probabilities and losses of one micro-batch's generated tokens, both (N,)."""
        rectangle = self._rectangle([items[index] for index in group])
        logprobs = self._logprobs(rectangle)
        losses = token_loss(logprobs, rectangle.behaviour, rectangle.advantages, loss)
        sums.add(losses, logprobs, rectangle.behaviour, loss)
        return rectangle, logprobs, losses

    def _backward(self, losses: Tensor, sums: TokenSums, *, backward: bool = True) -> None:
        """Add one micro-batch's gradient."""
        if not math.isfinite(sums.loss):
            raise TrainerError(
                f"the loss is {sums.loss} (largest |learner - behaviour| {sums.gap_max:.3g} nats); "
                "nothing was changed"
            )
        if backward:
            losses.sum().backward()  # type: ignore[no-untyped-call]

    def _check_gradient(self, limit: float) -> float:
        """Clip it unless ``limit`` is 0; its norm before that."""
        limit = limit or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), limit))
        if not math.isfinite(norm):
            raise TrainerError(f"the gradient's norm is {norm}; nothing was changed")
        return norm

    def _step(self) -> float:
        """Step with the warmed-up learning rate, which is returned."""
        warm = min(1.0, (self.step + 1) / max(self.config.warmup_steps, 1))
        rate = self.config.learning_rate * warm
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.step += 1
        return rate

    def _disagreement(
        self, rectangle: _Rectangle, logprobs: Tensor, group: list[int], sums: TokenSums
    ) -> str:
        logprobs = logprobs.detach()
        gap = (logprobs - rectangle.behaviour).abs()
        worst = int(gap.nan_to_num(nan=math.inf).argmax())
        row, column = int(rectangle.row[worst]), int(rectangle.column[worst])
        return (
            "sampler and learner disagree on the same weights: of "
            f"{sums.tokens} tokens compared the mean |learner - behaviour| is "
            f"{sums.gap / sums.tokens:.3g} nats and the largest {sums.gap_max:.3g} (tolerance "
            f"{self.config.logprob_tolerance:g}), at item {group[row]}, target "
            f"{int(rectangle.columns[column])}, token {int(rectangle.targets[worst])}: learner "
            f"{float(logprobs[worst]):.4f}, behaviour {float(rectangle.behaviour[worst]):.4f}. "
            "Nothing was changed. Usual causes: sampling at a temperature other than 1 (or with "
            "top_p or top_k), tokens of another model or tokenizer, or a low-precision dtype; "
            "trainer.logprob_tolerance sets the tolerance"
        )

    # Forward

    def forward_logprobs(self, items: Sequence[Item]) -> list[NDArray[np.float64]]:
        """The learner's log probability of each generated target, by item; no gradient."""
        results = [np.zeros(0) for _ in items]
        groups = self._checked_groups(items)
        with torch.no_grad():
            for group in groups:
                rectangle = self._rectangle([items[index] for index in group])
                _scatter(results, group, rectangle, self._logprobs(rectangle))
        return results

    def _rectangle(self, items: Sequence[Item]) -> _Rectangle:
        width = max(_used(item) for item in items)
        ids = np.zeros((len(items), width), np.int64)
        mask = np.zeros((len(items), width), bool)
        for row, item in enumerate(items):
            used = _used(item)
            ids[row, :used] = item.input_tokens[:used]
            mask[row, :used] = item.mask[:used]
        columns = np.flatnonzero(mask.any(0))
        rows, places = np.nonzero(mask[:, columns])
        device = self.facts.device
        exact = torch.promote_types(self._dtype, torch.float32)

        def flat(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(item, name)[item.mask] for item in items])

        return _Rectangle(
            ids=torch.from_numpy(ids).to(device),
            columns=torch.from_numpy(columns).to(device),
            row=torch.from_numpy(rows).to(device),
            column=torch.from_numpy(places).to(device),
            targets=torch.from_numpy(flat("target_tokens").astype(np.int64)).to(device),
            behaviour=torch.from_numpy(flat("logprobs")).to(device, exact),
            advantages=torch.from_numpy(flat("advantages")).to(device, exact),
        )

    @property
    def _dtype(self) -> torch.dtype:
        weight = self._template.get_input_embeddings().weight  # type: ignore[operator]
        return weight.dtype  # type: ignore[no-any-return]

    def _logprobs(self, rectangle: _Rectangle) -> Tensor:
        """Shape (N,); logits only where some row needs them, log-softmax in float32 or wider."""
        if self.facts.takes_logits_to_keep:
            kept = self.model(
                input_ids=rectangle.ids, use_cache=False, logits_to_keep=rectangle.columns
            ).logits
        else:
            logits = self.model(input_ids=rectangle.ids, use_cache=False).logits
            kept = logits[:, rectangle.columns]
        picked = kept[rectangle.row, rectangle.column].to(rectangle.behaviour.dtype)
        picked = self.facts.possible(picked)
        return -torch.nn.functional.cross_entropy(picked, rectangle.targets, reduction="none")

    # Publishing

    def snapshot(self) -> Snapshot:
        """The current weights, merged; shares what LoRA does not touch, and nothing else."""
        return Snapshot(merged_copy(self._template, self._changes()), self.facts, self.step)

    def frozen_changes(self) -> Changes:
        """What the current weights add to the base: a copy, for ``merged_copy`` at any time."""
        return {
            name: attrs.evolve(change, down=change.down.clone(), up=change.up.clone())
            if isinstance(change, LowRank)
            else change
            for name, change in self._changes().items()
        }

    def _changes(self) -> Changes:
        changes: Changes = {}
        for name, module in self.model.get_base_model().named_modules():
            if ADAPTER not in getattr(module, "lora_A", ()):
                continue
            if fused := getattr(module, "parameter_name", None):  # the experts of a mixture
                changes[name.replace(".base_layer", ""), fused] = Dense(
                    module.get_delta_weight(ADAPTER).detach()
                )
            else:
                changes[name, "weight"] = LowRank(
                    module.lora_A[ADAPTER].weight.detach(),
                    module.lora_B[ADAPTER].weight.detach(),
                    module.scaling[ADAPTER],
                    module.fan_in_fan_out,
                )
        return changes
