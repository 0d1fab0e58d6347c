"""Per-token policy losses: the inputs, sum reduction and clipping of Tinker's losses.

With ``p`` the learner's log probability of a generated token, ``q`` the behaviour log probability
it was sampled with, ``A`` its advantage, ``r = exp(p - q)`` and clip bounds ``low`` and ``high``
on the *ratio* (0.8 and 1.2, not 0.2), each token loses

====================  ====================================================================
importance_sampling   ``-r A``
ppo                   ``-min(r A, clamp(r, low, high) A)``
cispo                 ``-stop_gradient(clamp(r, low, high)) A p``
cross_entropy         ``-A p``; the advantages are the weights, the behaviour is not read
====================  ====================================================================

and a batch loses the sum over its generated tokens: no mean over tokens or samples, no advantage
normalisation. Sources: the loss reference of the Tinker documentation; PPO is equation 7 of
Schulman et al. 2017 (arXiv 1707.06347), CISPO equation 4 of MiniMax-M1 (arXiv 2506.13585).
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import torch
from torch import Tensor

__all__ = ["LOSSES", "LossConfig", "TokenSums", "token_loss"]


@attrs.frozen(kw_only=True)
class LossConfig:
    """Which loss, and its bounds.

    Attributes:
        name: One of ``LOSSES``.
        clip_low_threshold: Least ratio that ppo and cispo let through.
        clip_high_threshold: Largest ratio that ppo and cispo let through.
    """

    name: str = "ppo"
    clip_low_threshold: float = 0.8
    clip_high_threshold: float = 1.2


def _importance_sampling(p: Tensor, ratio: Tensor, advantages: Tensor, _: LossConfig) -> Tensor:
    return -ratio * advantages


def _ppo(p: Tensor, ratio: Tensor, advantages: Tensor, config: LossConfig) -> Tensor:
    clipped = ratio.clamp(config.clip_low_threshold, config.clip_high_threshold)
    return -torch.minimum(ratio * advantages, clipped * advantages)


def _cispo(p: Tensor, ratio: Tensor, advantages: Tensor, config: LossConfig) -> Tensor:
    weight = ratio.detach().clamp(config.clip_low_threshold, config.clip_high_threshold)
    return -weight * advantages * p


def _cross_entropy(p: Tensor, ratio: Tensor, advantages: Tensor, _: LossConfig) -> Tensor:
    return -advantages * p


LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, LossConfig], Tensor]] = {
    "ppo": _ppo,
    "importance_sampling": _importance_sampling,
    "cispo": _cispo,
    "cross_entropy": _cross_entropy,
}


def token_loss(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, config: LossConfig
) -> Tensor:
    """Loss of each generated token.

    Args:
        logprobs: Shape (N,); the learner's, with gradient.
        behaviour: Shape (N,); the sampler's.
        advantages: Shape (N,).
        config: Which loss.

    Returns:
        Shape (N,); sum it.
    """
    ratio = torch.exp(logprobs - behaviour)
    return LOSSES[config.name](logprobs, ratio, advantages, config)


@attrs.define
class TokenSums:
    """What an update reports, summed over generated tokens as micro-batches pass.

    Attributes:
        tokens: How many.
        loss: Sum of the token losses.
        ratio: Sum of ratios.
        ratio_deviation: Largest ``|ratio - 1|``.
        clipped: How many ratios lie outside the clip bounds.
        gap: Sum of ``|p - q|``, in nats.
        gap_max: Largest ``|p - q|``, in nats.
        kl: Sum of ``r - 1 - log r``: Schulman's k3 estimate of KL(behaviour || learner).
    """

    tokens: int = 0
    loss: float = 0.0
    ratio: float = 0.0
    ratio_deviation: float = 0.0
    clipped: float = 0.0
    gap: float = 0.0
    gap_max: float = 0.0
    kl: float = 0.0

    def add(self, loss: Tensor, logprobs: Tensor, behaviour: Tensor, config: LossConfig) -> None:
        """Add the tokens of one micro-batch (shapes (N,), one device transfer)."""
        difference = (logprobs.detach() - behaviour).double()
        ratio = difference.exp()
        clipped = (ratio < config.clip_low_threshold) | (ratio > config.clip_high_threshold)
        gap = difference.abs()
        sums = torch.stack(
            [
                loss.detach().double().sum(),
                ratio.sum(),
                (ratio - 1).abs().max(),
                clipped.double().sum(),
                gap.sum(),
                gap.max(),
                (ratio - 1 - difference).sum(),
            ]
        ).tolist()
        self.tokens += len(gap)
        self.loss += sums[0]
        self.ratio += sums[1]
        self.ratio_deviation = max(self.ratio_deviation, sums[2])
        self.clipped += sums[3]
        self.gap += sums[4]
        self.gap_max = max(self.gap_max, sums[5])
        self.kl += sums[6]

    def metrics(self) -> dict[str, float]:
        """The report's numbers; ``loss`` is a sum, the others are per token."""
        count = max(self.tokens, 1)
        return {
            "loss": self.loss,
            "ratio_mean": self.ratio / count,
            "ratio_max_deviation": self.ratio_deviation,
            "clip_fraction": self.clipped / count,
            "logprob_gap": self.gap / count,
            "logprob_gap_max": self.gap_max,
            "kl": self.kl / count,
            "trained_tokens": float(self.tokens),
        }
