"""``python -m focus_core``."""

from focus_core.cli import main

main()
