"""Where to spend: searches choose the state that the next continuation leaves."""

from focus_core.search.base import Explained, Frontier, Search
from focus_core.search.best_first import BestFirst
from focus_core.search.calibration import BetaBernoulli, Calibration, Gaussian
from focus_core.search.decisions import Decisions
from focus_core.search.fifo import Fifo
from focus_core.search.independent import Independent
from focus_core.search.selective import Selective
from focus_core.search.token_entropy import TokenEntropy
from focus_core.search.worth import expected_error_reduction

__all__ = [
    "BestFirst",
    "BetaBernoulli",
    "Calibration",
    "Decisions",
    "Explained",
    "Fifo",
    "Frontier",
    "Gaussian",
    "Independent",
    "Search",
    "Selective",
    "TokenEntropy",
    "expected_error_reduction",
]
