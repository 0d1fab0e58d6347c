"""What was collected: the tree, its values, and its text form."""

from focus_core.tree.prefix import Prefix
from focus_core.tree.returns import Values, backup
from focus_core.tree.text import render_text
from focus_core.tree.tree import OPEN, TERMINAL, TRUNCATED, Tree

__all__ = ["OPEN", "TERMINAL", "TRUNCATED", "Prefix", "Tree", "Values", "backup", "render_text"]
