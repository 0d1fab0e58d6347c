"""Attention of one new token a row, without a copy of keys and values for every query head.

Where heads share keys and values and rows differ in length (there is a mask), transformers repeats
keys and values for each head of a group before torch attends to them: a copy of the whole cache in
every layer of every step. With one query a row the heads of a group can be that group's queries
instead.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

__all__ = ["attend_in_groups"]

_NAME = "focus_grouped"


def attend_in_groups(model: Any) -> None:
    """Have a model that attends with torch's function do so in groups; leave others alone.

    Args:
        model: A transformers model that only samples.
    """
    if getattr(model.config, "_attn_implementation", None) != "sdpa":
        return
    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """From (N, heads, W, width), and keys and values of fewer heads, to (N, W, heads, width)."""
    rows, heads, queries, width = query.shape
    shared = key.shape[1]
    alike = attention_mask is None or attention_mask.shape[1] == 1  # for all heads
    if queries != 1 or heads == shared or not alike:
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **more
        )
        return result
    grouped = query.reshape(rows, shared, heads // shared, width)
    out = scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(rows, 1, heads, value.shape[-1]), None
