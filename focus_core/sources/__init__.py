"""Where problems come from: rows of files, folders and Hugging Face data sets, for any task."""

from focus_core.sources.read import read_rows
from focus_core.sources.rows import DataWarning, Row

__all__ = ["DataWarning", "Row", "read_rows"]
