"""What one more continuation from a state is worth: expected critic-error reduction."""

from __future__ import annotations

import math

import attrs

from focus_core.search.calibration import Calibration

__all__ = ["Evidence", "expected_error_reduction"]


@attrs.define
class Evidence:
    """Returns observed at one state: the suffix returns of completed continuations through it.

    Attributes:
        n: How many landed.
        mean: Their mean.
        in_flight: Continuations launched from the state that have not landed.
    """

    n: int = 0
    mean: float = 0.0
    in_flight: int = 0
    _squares: float = 0.0
    _total: float = attrs.field(init=False)

    @_total.default
    def _sum(self) -> float:
        return self.n * self.mean

    def observe(self, value: float) -> None:
        """Add one return (Welford's update).

        The mean is a sum divided, so that states with the same outcomes in another order tie.
        """
        self.n += 1
        self._total += value
        delta = value - self.mean
        self.mean = self._total / self.n
        self._squares += delta * (value - self.mean)

    @property
    def variance(self) -> float:
        """Sample variance; 0 below two observations."""
        return self._squares / (self.n - 1) if self.n > 1 else 0.0


def expected_error_reduction(
    v: float, evidence: Evidence, *, kappa: float, calibration: Calibration
) -> float:
    """Expected reduction of the critic's squared error by one more branch from a state.

    ``(2 kappa^2 e2 + (n_eff - kappa) s2) / (kappa + n_eff)^3``, with ``n_eff`` the landed
    observations and the launches in flight, and ``e2``, ``s2`` from landed ones only. Source: the
    project's algorithm notes, "Expected critic-error reduction".

    Returns:
        The score; 0 where the state is not eligible (nothing landed, no finite prediction, or a
        score that is not finite and positive).
    """
    n = evidence.n
    if n == 0 or not math.isfinite(v):
        return 0.0
    e2, s2 = calibration.moments(v, n, evidence.mean, evidence.variance, kappa)
    effective = n + evidence.in_flight
    total = kappa + effective
    score = (2.0 * kappa * kappa * e2 + (effective - kappa) * s2) / (total * total * total)
    return score if math.isfinite(score) and score > 0.0 else 0.0
