"""What acts: agents, environments, contexts, rollouts."""
