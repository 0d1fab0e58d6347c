"""A collected tree in a browser: its saved form, and one self-contained page that draws it."""

from focus_core.view.html import render_html
from focus_core.view.saved import SavedFailure, SavedState, SavedTree, read_tree, save_tree

__all__ = ["SavedFailure", "SavedState", "SavedTree", "read_tree", "render_html", "save_tree"]
