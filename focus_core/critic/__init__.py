"""What predicts the remaining return of a state."""

from focus_core.critic.critic import Critic
from focus_core.critic.vllm import VLLMCritic

__all__ = ["Critic", "VLLMCritic"]
