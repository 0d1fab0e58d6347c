"""Our critics by name: what ``--critic`` and ``--set critic.OPTION`` make."""

from __future__ import annotations

import os

from focus_core.critic.critic import Critic
from focus_core.critic.vllm import VLLMCritic

__all__ = ["constant_critic", "vllm_critic"]


def constant_critic(value: float = 0.5) -> Critic:
    """The same prediction for every unfinished state.

    Args:
        value: The prediction.
    """
    return Critic.constant(value)


def vllm_critic(
    base_url: str,
    model: str,
    batch_size: int = 32,
    concurrency: int = 4,
    timeout: float = 60.0,
    retries: int = 4,
) -> VLLMCritic:
    """A value model behind vLLM's pooling endpoint; its key is read from ``VLLM_API_KEY``.

    Args:
        base_url: Root of the server, without ``/v1``.
        model: Its served name.
        batch_size: Most texts of a request.
        concurrency: Most requests at a time.
        timeout: Seconds a request may take.
        retries: How often a request is sent again when the server is busy, broken or gone.
    """
    return VLLMCritic(
        base_url,
        model,
        api_key=os.environ.get("VLLM_API_KEY"),
        batch_size=batch_size,
        concurrency=concurrency,
        timeout=timeout,
        retries=retries,
    )
