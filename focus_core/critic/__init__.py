"""What predicts the remaining return of a state."""

from focus_core.critic.critic import Critic

__all__ = ["Critic"]
