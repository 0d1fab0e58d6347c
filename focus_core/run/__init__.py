"""A run: its directory, its evaluation, and the session that ties task and trainer together."""
