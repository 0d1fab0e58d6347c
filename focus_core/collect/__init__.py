"""One problem's tree: collected, credited, and ready for lanes to export."""

from focus_core.collect.collection import Collection, summarize
from focus_core.collect.collector import Collector
from focus_core.failure import Failure

__all__ = ["Collection", "Collector", "Failure", "summarize"]
