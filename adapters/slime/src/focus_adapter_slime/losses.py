"""Slime's three training hooks: rewards pass unchanged, advantages reach their tokens, losses sum.

A sample of one edge carries its advantage as its reward. A sample of several edges cannot, so its
advantages travel token by token in its metadata, under ``samples.ADVANTAGES``. There Slime's
conversion would drop them: ``preserve_advantages`` puts them into the list of rewards, which
conversion and data-parallel split pass on as it is, and ``advantages`` turns that list back into
numbers once it has read it, because Slime's logger adds rewards up.

With these hooks Slime's gradient is the sum of the token losses of all samples, divided by
``global_batch_size`` rollouts: Slime scales a micro-batch's loss by ``num_microbatches /
global_batch_size`` and averages over micro-batches and data-parallel ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from focus_adapter_slime.columns import Column, use_arrays
from focus_adapter_slime.samples import ADVANTAGES, FACTS, RETURN
from focus_core.errors import RecordError, UsageError

__all__ = ["advantages", "preserve_advantages", "sum_policy_tokens"]


def preserve_advantages(args: Any, samples: list[Any]) -> tuple[list[float], ...]:
    """Return the FOCUS advantages unchanged: no group centring, no scaling.

    For ``--custom-reward-post-process-path``. Slime calls it once, with every sample, when it
    begins to make tensors of them; their tokens, log probabilities and masks become arrays here,
    unless ``focus_arrays`` is false.

    Args:
        args: Slime's arguments; of them ``focus_arrays`` is read.
        samples: Slime samples whose ``reward`` is an advantage.

    Returns:
        What Slime logs as ``raw_reward``, one float per sample, and what it trains on: the same
        float, or the response tokens' advantages of a sample that has several.

    Raises:
        RecordError: A reward or advantage is missing or not finite, or there are more or fewer
            advantages than response tokens.
    """
    arrays = getattr(args, "focus_arrays", True)
    _leave_out_of_the_mean(samples)
    raw: list[float] = []
    trained: list[Any] = []
    for place, sample in enumerate(samples):
        if arrays:
            use_arrays(sample)
        name = f"sample {place} (index {sample.index})"
        raw.append(_finite(sample.reward, f"the reward of {name}"))
        by_token = (sample.metadata or {}).get(ADVANTAGES)
        if by_token is None:
            trained.append(raw[-1])
            continue
        _same_length(by_token, sample.response_length, name)
        column = _all_finite(by_token, name)
        trained.append(column if arrays else column.tolist())
    return raw, trained


def advantages(args: Any, rollout_data: dict[str, Any]) -> None:
    """Give every response token its edge's advantage, whatever estimator Slime was started with.

    For ``--custom-advantage-function-path``. Sets ``advantages`` and ``returns``, lists of
    float32 tensors shaped like ``rollout_data["kl"]``, one of shape (response length,) per
    sample. Returns are zero: critic targets are exported separately. Conditioning tokens of the
    response have a loss mask of 0, so what they get here is not read. Lists in
    ``rollout_data["rewards"]`` become their mean over generated tokens, for Slime's logger.

    Args:
        args: Slime's arguments.
        rollout_data: One data-parallel rank's share, changed in place.

    Raises:
        UsageError: ``--normalize-advantages`` would rescale the advantages after this hook, or
            the context parallel size is above 1.
        RecordError: A reward is missing or not finite, or there are more or fewer advantages
            than response tokens.
    """
    import torch

    if getattr(args, "normalize_advantages", False):
        raise UsageError(
            "--normalize-advantages rescales FOCUS's advantages, which changes what is optimised; "
            "remove it"
        )
    _check_context_parallel(getattr(args, "context_parallel_size", 1))
    kl, rewards = rollout_data["kl"], rollout_data["rewards"]
    if len(kl) != len(rewards):
        raise RecordError(f"{len(rewards)} rewards for {len(kl)} samples")
    spread: list[torch.Tensor] = []
    logged: list[float] = []
    for place, (like, reward) in enumerate(zip(kl, rewards, strict=True)):
        name = f"sample {place} of this rank"
        if isinstance(reward, list | tuple | np.ndarray):
            _same_length(reward, len(like), name)
            values = _all_finite(reward, name)
            spread.append(torch.tensor(values, dtype=like.dtype, device=like.device))
            kept = values[rollout_data["loss_masks"][place].bool().cpu().numpy()]
            logged.append(float(kept.mean()) if len(kept) else 0.0)
        else:
            logged.append(_finite(reward, f"the reward of {name}"))
            spread.append(torch.full_like(like, logged[-1]))
    rollout_data["advantages"] = spread
    rollout_data["returns"] = [torch.zeros_like(like) for like in kl]
    rollout_data["rewards"] = logged


def sum_policy_tokens(
    total_lengths: Any,
    response_lengths: Any,
    loss_masks: list[Any],
    calculate_per_token_loss: bool = False,
) -> Callable[[Any], Any]:
    """Sum the losses of generated tokens instead of averaging them by rollout.

    For ``--custom-pg-loss-reducer-function-path``. Every generated token then contributes its
    edge's advantage once, however long its sample is and wherever its tree is cut into samples
    and micro-batches.

    Args:
        total_lengths: Tokens of each sample; not read.
        response_lengths: Response tokens of each sample.
        loss_masks: Tensors of shape (response length,), one per sample.
        calculate_per_token_loss: Not read: the sum is the same. Slime divides by the number of
            tokens afterwards if it is set, so ``focus_adapter_slime`` refuses that flag.

    Returns:
        A function of the micro-batch's token losses, samples one after the other in shape
        (sum of response lengths,), to their sum, a scalar tensor.

    Raises:
        UsageError: The context parallel size is above 1.
    """
    _check_context_parallel(1)

    def reduce(losses: Any) -> Any:
        import torch

        if len(losses) != sum(int(length) for length in response_lengths):
            raise RecordError(
                f"{len(losses)} token losses for samples of {list(response_lengths)} response "
                "tokens; sum_policy_tokens needs all of them on one rank"
            )
        if not len(losses):
            return losses.sum()
        return (losses * torch.cat(list(loss_masks)).to(losses.device)).sum()

    return reduce


def _check_context_parallel(size: int) -> None:
    """Refuse a response that is spread over ranks: by its setting, or by Megatron's groups."""
    try:
        from megatron.core import mpu  # type: ignore[import-not-found, unused-ignore]
    except ImportError:  # without Megatron there is nobody to share a sequence with
        pass
    else:
        size = max(size, mpu.get_context_parallel_world_size())
    if size > 1:
        raise UsageError(
            f"the context parallel size is {size}, but FOCUS's advantages and loss need whole "
            "responses; set --context-parallel-size 1"
        )


def _finite(value: Any, name: str) -> float:
    if isinstance(value, bool | str) or value is None:
        number = math.nan
    else:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
    if not math.isfinite(number):
        raise RecordError(
            f"{name} is {value!r}; it must be a finite advantage. Is the generate function one of "
            "focus_adapter_slime's?"
        )
    return number


def _leave_out_of_the_mean(samples: list[Any]) -> None:
    """Give failed trees' samples the others' mean return, so that none is logged as a zero."""
    facts = [sample.metadata or {} for sample in samples]
    returns = [each[RETURN] for each in facts if RETURN in each and FACTS in each]
    if returns:
        mean = math.fsum(returns) / len(returns)
        for each in facts:
            if "removed" in each.get(FACTS, ()):
                each.setdefault(RETURN, mean)


def _all_finite(values: Any, name: str) -> Any:
    """A response's advantages as float64."""
    known = values.array if isinstance(values, Column) else values
    if not isinstance(known, np.ndarray) or not np.isfinite(known).all():
        known = np.array([_finite(value, f"an advantage of {name}") for value in values])
    return known


def _same_length(values: Any, length: int, name: str) -> None:
    if len(values) != length:
        raise RecordError(f"{name} has {len(values)} advantages for {length} response tokens")
