"""Losses and their gradients against numpy, written from the formulas."""

import numpy as np
import pytest
import torch
from focus_adapter_local.losses import LOSSES, LossConfig, TokenSums, token_loss

LOW, HIGH = 0.8, 1.3


def reference(name, p, q, advantages):
    """Loss and d loss / d p of each token, in float64, from the definitions."""
    ratio = np.exp(p - q)
    inside = (ratio >= LOW) & (ratio <= HIGH)
    clipped = np.clip(ratio, LOW, HIGH)
    if name == "importance_sampling":
        return -ratio * advantages, -ratio * advantages
    if name == "ppo":
        taken = np.minimum(ratio * advantages, clipped * advantages)
        # The clipped branch is flat outside the bounds; it is taken where it is the smaller one.
        slope = np.where(ratio * advantages <= clipped * advantages, ratio * advantages, 0.0)
        assert (taken[inside] == (ratio * advantages)[inside]).all()
        return -taken, -slope
    if name == "cispo":
        return -clipped * advantages * p, -clipped * advantages
    return -advantages * p, -advantages


def logits_and_reference(name, seed=0, tokens=40, vocabulary=11):
    """A softmax layer's logits, and the summed loss's gradient on them by the chain rule."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(tokens, vocabulary)) * 2
    targets = draw.integers(vocabulary, size=tokens)
    shifted = logits - logits.max(1, keepdims=True)
    logprobs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    p = logprobs[np.arange(tokens), targets]
    q = p + draw.normal(size=tokens) * 0.4  # ratios on both sides of both bounds
    advantages = draw.normal(size=tokens) * 2
    loss, slope = reference(name, p, q, advantages)
    onehot = np.eye(vocabulary)[targets]
    gradient = slope[:, None] * (onehot - np.exp(logprobs))
    return logits, targets, q, advantages, loss.sum(), gradient


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
def test_loss_and_gradient(name, dtype, within):
    logits, targets, q, advantages, loss, gradient = logits_and_reference(name)
    leaf = torch.tensor(logits, dtype=dtype, requires_grad=True)
    logprobs = -torch.nn.functional.cross_entropy(leaf, torch.tensor(targets), reduction="none")
    config = LossConfig(name=name, clip_low_threshold=LOW, clip_high_threshold=HIGH)
    ours = token_loss(
        logprobs, torch.tensor(q, dtype=dtype), torch.tensor(advantages, dtype=dtype), config
    ).sum()
    ours.backward()
    assert float(ours.detach()) == pytest.approx(loss, rel=within)
    scale = np.abs(gradient).max()
    np.testing.assert_allclose(leaf.grad.numpy(), gradient, rtol=within, atol=within * scale)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "flows"),
    [
        (1.5, 2.0, -HIGH * 2.0, False),  # already much likelier: no more credit
        (1.5, -2.0, 1.5 * 2.0, True),  # became likelier though it is bad: pushed back
        (0.5, 2.0, -0.5 * 2.0, True),  # became rarer though it is good: pulled back
        (0.5, -2.0, LOW * 2.0, False),  # already much rarer: no more blame
        (1.1, 2.0, -1.1 * 2.0, True),
        (1.1, -2.0, 1.1 * 2.0, True),
    ],
)
def test_ppo_clips_only_what_would_go_too_far(ratio, advantage, loss, flows):
    p = torch.tensor([np.log(ratio)], dtype=torch.float64, requires_grad=True)
    config = LossConfig(clip_low_threshold=LOW, clip_high_threshold=HIGH)
    zero = torch.zeros(1, dtype=torch.float64)
    ours = token_loss(p, zero, torch.tensor([advantage], dtype=torch.float64), config)
    ours.sum().backward()
    assert ours.item() == pytest.approx(loss)
    assert (p.grad.item() != 0) is flows


def test_cispo_keeps_the_gradient_of_clipped_tokens():
    p = torch.tensor([np.log(3.0)], dtype=torch.float64, requires_grad=True)
    config = LossConfig(name="cispo", clip_low_threshold=LOW, clip_high_threshold=HIGH)
    one = torch.ones(1, dtype=torch.float64)
    token_loss(p, torch.zeros(1, dtype=torch.float64), one, config).sum().backward()
    assert p.grad.item() == pytest.approx(-HIGH)


def test_sums_over_micro_batches():
    p = torch.tensor([-1.0, -2.0, -0.5, -3.0], dtype=torch.float64)
    q = torch.tensor([-1.0, -1.5, -0.6, -3.5], dtype=torch.float64)
    config = LossConfig(clip_low_threshold=LOW, clip_high_threshold=HIGH)
    loss = torch.tensor([1.0, 2.0, 3.0, 4.0])
    sums = TokenSums()
    sums.add(loss[:1], p[:1], q[:1], config)
    sums.add(loss[1:], p[1:], q[1:], config)
    ratio = np.exp((p - q).numpy())
    metrics = sums.metrics()
    assert metrics["loss"] == 10
    assert metrics["trained_tokens"] == 4
    assert metrics["ratio_mean"] == pytest.approx(ratio.mean())
    assert metrics["ratio_max_deviation"] == pytest.approx(np.abs(ratio - 1).max())
    assert metrics["clip_fraction"] == 0.5  # 0.61 and 1.65; 1.105 is within
    assert metrics["logprob_gap"] == pytest.approx((0.5 + 0.1 + 0.5) / 4)
    assert metrics["logprob_gap_max"] == pytest.approx(0.5)
    assert metrics["kl"] == pytest.approx((ratio - 1 - np.log(ratio)).mean())
