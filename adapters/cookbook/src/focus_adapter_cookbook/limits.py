"""The budgets that an environment asks a rollout runner to keep."""

from __future__ import annotations

from tinker_cookbook.rl.rollout_limits import RolloutLimits
from tinker_cookbook.rl.types import StopReason

__all__ = ["budget", "exhausted"]


def exhausted(
    limits: RolloutLimits | None, *, turns: int, observed: int, sampled: int
) -> str | None:
    """Which budget ends a rollout before its next turn, as the cookbook's runner decides.

    Args:
        limits: The environment's own; ``None``: none.
        turns: Turns taken.
        observed: Tokens of the next observation.
        sampled: Tokens sampled in all turns.
    """
    if limits is None:
        return None
    if limits.max_turns is not None and turns >= limits.max_turns:
        return str(StopReason.MAX_TURNS)
    if limits.max_trajectory_tokens is not None and limits.max_trajectory_tokens - observed <= 1:
        return str(StopReason.MAX_TOKENS)
    if limits.max_sampled_tokens is not None and limits.max_sampled_tokens - sampled <= 1:
        return str(StopReason.MAX_SAMPLED_TOKENS)
    return None


def budget(limits: RolloutLimits | None, most: int, *, observed: int, sampled: int) -> int:
    """Most tokens of the next turn.

    Args:
        limits: The environment's own; ``None``: none.
        most: The task's limit.
        observed: Tokens of the observation.
        sampled: Tokens sampled before.
    """
    if limits is None:
        return most
    terms = (
        most,
        limits.max_turn_tokens,
        limits.max_trajectory_tokens and limits.max_trajectory_tokens - observed,
        limits.max_sampled_tokens and limits.max_sampled_tokens - sampled,
    )
    return min(term for term in terms if term is not None)
