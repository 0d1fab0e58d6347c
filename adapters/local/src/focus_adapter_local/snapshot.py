"""Frozen weights to sample from, sharing with the learner all that LoRA does not touch."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from focus_adapter_local._cache import attends_to_everything
from focus_core.errors import DataError
from focus_core.tokenizer import known_ids, turn_ends

__all__ = [
    "Changes",
    "Dense",
    "LowRank",
    "ModelFacts",
    "Snapshot",
    "facts_of",
    "merged_copy",
    "share",
]


@attrs.frozen(kw_only=True)
class ModelFacts:
    """What of a model stays the same while its weights change.

    Attributes:
        vocabulary: Number of token ids it has embeddings for.
        context_length: Most tokens of prompt and reply together; ``None``: unlimited.
        layers: Number of its layers.
        stops: Its end tokens, ascending.
        absent: Ids, int64, ascending, that the model has and its tokenizer does not: they are
            never sampled, and get no probability from the learner either; ``None``: none.
        device: Where it runs.
        cache_argument: What its ``forward`` calls the cache.
        takes_positions: Its ``forward`` takes ``position_ids``.
        takes_logits_to_keep: Its ``forward`` takes ``logits_to_keep``.
        plain: Every layer attends to everything before it, at positions given to it.
    """

    vocabulary: int
    context_length: int | None
    layers: int
    stops: tuple[int, ...]
    absent: Tensor | None = attrs.field(default=None, eq=False, repr=False)
    device: torch.device
    cache_argument: str
    takes_positions: bool
    takes_logits_to_keep: bool
    plain: bool

    def possible(self, logits: Tensor) -> Tensor:
        """Logits, shape (..., V), with ``-inf`` for ``absent`` ids."""
        return logits if self.absent is None else logits.index_fill(-1, self.absent, -torch.inf)


def facts_of(model: Any, tokenizer: Any, name: str) -> ModelFacts:
    """Read them off a loaded model.

    Raises:
        DataError: The model cannot be sampled with a cache that transformers knows.
    """
    takes = inspect.signature(model.forward).parameters
    cache_argument = next((x for x in ("cache", "past_key_values") if x in takes), None)
    config = model.config.get_text_config(decoder=True)
    if cache_argument is None or model.config.is_encoder_decoder:
        raise DataError(
            f"a model of type {model.config.model_type!r} keeps no key-value cache, which "
            "sampling needs",
            path=name,
            remedy="use a decoder-only transformer",
        )
    takes_positions = "position_ids" in takes
    try:
        plain = takes_positions and attends_to_everything(model.config)
    except ValueError as error:
        raise DataError(
            f"a model of type {model.config.model_type!r} cannot be sampled: {error}",
            path=name,
            remedy="use a newer transformers, or another model",
        ) from error
    generation = getattr(model, "generation_config", None)
    stops: set[int] = set()
    for source in (tokenizer, config, generation):
        ids = getattr(source, "eos_token_id", None)
        stops |= set(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    stops |= turn_ends(tokenizer, name)
    device = model.get_input_embeddings().weight.device
    return ModelFacts(
        vocabulary=model.get_input_embeddings().num_embeddings,
        context_length=getattr(config, "max_position_embeddings", None),
        layers=config.num_hidden_layers,
        stops=tuple(sorted(stops)),
        absent=_absent(model, tokenizer, device),
        device=device,
        cache_argument=cache_argument,
        takes_positions=takes_positions,
        takes_logits_to_keep="logits_to_keep" in takes,
        plain=plain,
    )


def _absent(model: Any, tokenizer: Any, device: torch.device) -> Tensor | None:
    """Ids of the model's output that its tokenizer lacks; ``None`` if there are none."""
    known = known_ids(tokenizer)
    head = model.get_output_embeddings() or model.get_input_embeddings()
    lacking = [] if known is None else sorted(set(range(head.weight.shape[0])) - known)
    return torch.tensor(lacking, dtype=torch.long, device=device) if lacking else None


@attrs.frozen(eq=False)
class Snapshot:
    """Weights that do not change.

    Attributes:
        model: A plain transformers model, without adapters.
        facts: See ``ModelFacts``.
        version: Updates completed when it was taken.
    """

    model: Any
    facts: ModelFacts
    version: int

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: Cache) -> Tensor:
        """One pass that brings the cache forward.

        Args:
            ids: int64, shape (N, W).
            positions: int64, shape (N, W).
            mask: Shape (N, columns of the cache after the pass), 0 where not to look; ``None``
                hides nothing.
            cache: Keys and values so far.

        Returns:
            Logits of what follows the last of ``ids``, shape (N, V).
        """
        facts = self.facts
        more: dict[str, Any] = {facts.cache_argument: cache}
        if facts.takes_positions:
            more["position_ids"] = positions
        if facts.takes_logits_to_keep:
            more["logits_to_keep"] = 1
        output = self.model(input_ids=ids, attention_mask=mask, use_cache=True, **more)
        logits: Tensor = output.logits[:, -1]
        return facts.possible(logits)


def share(model: nn.Module) -> nn.Module:
    """A second module tree over the same parameters and buffers."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


@attrs.frozen
class LowRank:
    """A change of a weight: ``scale * (up @ down)``, transposed for layers that store it so.

    Attributes:
        down: Shape (rank, inputs).
        up: Shape (outputs, rank).
        scale: Factor.
        transposed: The layer's weight has shape (inputs, outputs).
    """

    down: Tensor
    up: Tensor
    scale: float
    transposed: bool = False

    def added_to(self, weight: Tensor) -> Tensor:
        """A new tensor; summed in the wider of the two types, then rounded to the weight's."""
        wide = torch.promote_types(weight.dtype, self.up.dtype)
        factors = (self.down.T, self.up.T) if self.transposed else (self.up, self.down)
        return torch.addmm(weight.to(wide), *factors, alpha=self.scale).to(weight.dtype)


@attrs.frozen
class Dense:
    """A change of a weight of any shape."""

    delta: Tensor

    def added_to(self, weight: Tensor) -> Tensor:
        """As ``LowRank.added_to``."""
        wide = torch.promote_types(weight.dtype, self.delta.dtype)
        return (weight.to(wide) + self.delta.to(wide)).to(weight.dtype)


Changes = dict[tuple[str, str], LowRank | Dense]
"""Of some weights, by names of a module and of its parameter."""


@torch.no_grad()
def merged_copy(template: nn.Module, changes: Changes) -> nn.Module:
    """The template with weights changed, sharing every tensor that is not.

    Args:
        template: A model without adapters.
        changes: What to add to it; none are the template itself.
    """
    model = share(template)
    for (name, parameter), change in changes.items():
        module = model.get_submodule(name)
        merged = change.added_to(getattr(module, parameter))
        setattr(module, parameter, nn.Parameter(merged, requires_grad=False))
    return model
