"""What an agent acts in: environments, tools, files, and where blocking work runs."""
