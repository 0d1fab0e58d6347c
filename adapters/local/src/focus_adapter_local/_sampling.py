"""Choosing one token for each row of a batch, with the log probability it was chosen with.

Each row draws its uniform numbers from its own generator and inverts its own distribution
function, so what a seeded request samples does not depend on who else is in the batch (beyond
the rounding of the forward pass).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["choose", "generator_for"]

_SEED_SPACE = 2**128


def generator_for(seed: int | None, sample: int) -> np.random.Generator:
    """Random numbers of one row: sample ``sample`` of a request; free if it has no seed."""
    entropy = None if seed is None else (seed % _SEED_SPACE, sample)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))


def choose(
    logits: Tensor,
    uniforms: Tensor,
    *,
    temperature: Tensor | None = None,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sample each row by inverting its distribution function.

    Temperature comes first, then ``top_k``, then ``top_p`` on what is left: the smallest set of
    likeliest tokens whose mass reaches it.

    Args:
        logits: Shape (N, V), any float type; computed on in float32.
        uniforms: float64, shape (N,), in [0, 1).
        temperature: float32, shape (N,), 0 is greedy; ``None`` is 1 everywhere.
        top_k: int64, shape (N,), 0 keeps all; ``None`` keeps all everywhere.
        top_p: float32, shape (N,), 1 keeps all; ``None`` keeps all everywhere.

    Returns:
        Tokens, int64, shape (N,), and the natural log of the probability with which each was
        drawn, float32, shape (N,); 0 for greedy rows.
    """
    logits = logits.float()
    greedy = None
    if temperature is not None:
        greedy = temperature == 0
        logits = logits / torch.where(greedy, 1.0, temperature)[:, None]
    logprobs = torch.log_softmax(logits, dim=-1)
    if top_k is not None or top_p is not None:
        logprobs = _truncate(logprobs, top_k, top_p)
    mass = logprobs.double().exp_().cumsum(-1)
    total = mass[:, -1]
    point = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(mass, point[:, None], right=True)
    tokens.clamp_(max=logits.shape[-1] - 1)  # only a row that is not finite gets this far
    chosen = logprobs.gather(-1, tokens).squeeze(-1)
    tokens = tokens.squeeze(-1)
    if greedy is not None:
        tokens = torch.where(greedy, logits.argmax(-1), tokens)
        chosen = torch.where(greedy & chosen.isfinite(), 0.0, chosen)
    return tokens, chosen


def _truncate(logprobs: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
    """Renormalised log probabilities, ``-inf`` on what top-k and top-p leave out."""
    ordered, order = logprobs.sort(dim=-1, descending=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if top_k is not None:
        rank = torch.arange(ordered.shape[-1], device=ordered.device)
        keep = (top_k[:, None] == 0) | (rank < top_k[:, None])
        ordered = torch.log_softmax(ordered.masked_fill(~keep, -torch.inf), dim=-1)
    if top_p is not None:
        mass = ordered.exp()
        before = mass.cumsum(-1) - mass
        keep = keep & ((before < top_p[:, None]) | (top_p[:, None] >= 1))
        keep[:, 0] = True
    kept = torch.zeros_like(keep).scatter(-1, order, keep)
    return torch.log_softmax(logprobs.masked_fill(~kept, -torch.inf), dim=-1)
