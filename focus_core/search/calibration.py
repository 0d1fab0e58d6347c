"""Beliefs about a state's value, given a prediction and some observed returns."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import attrs

__all__ = ["BetaBernoulli", "Calibration", "Gaussian"]


@runtime_checkable
class Calibration(Protocol):
    """A belief model. Source of both below: the project's algorithm notes."""

    def moments(
        self, v: float, n: int, mean: float, variance: float, kappa: float
    ) -> tuple[float, float]:
        """Expected squared error of ``v``, and variance of the next observed return.

        Args:
            v: The critic's prediction.
            n: Observed returns, at least 1.
            mean: Their mean.
            variance: Their sample variance (over n - 1; 0 for one observation).
            kappa: Strength of the prediction, in observations.
        """
        ...


def _clamp(x: float) -> float:
    return min(max(x, 0.0), 1.0)


@attrs.frozen
class BetaBernoulli:
    """Returns in [0, 1], such as outcomes; predictions and means are clamped to it.

    ``mu = (kappa v + n mean) / (kappa + n)``, ``e2 = (v - mu)^2 + mu (1 - mu) / (kappa + n + 1)``
    and ``s2 = mu (1 - mu)``, the posterior predictive variance.
    """

    def moments(
        self, v: float, n: int, mean: float, variance: float, kappa: float
    ) -> tuple[float, float]:
        """See ``Calibration``."""
        v = _clamp(v)
        mu = (kappa * v + n * _clamp(mean)) / (kappa + n)
        s2 = mu * (1.0 - mu)
        return (v - mu) ** 2 + s2 / (kappa + n + 1.0), s2


@attrs.frozen
class Gaussian:
    """Returns of any range; chosen explicitly, never inferred from a tree.

    ``s2_hat`` is the sample variance, at least ``min_variance``, or ``prior_variance`` before two
    returns are in; ``e2 = (v - mu)^2 + s2_hat / (kappa + n)``; ``s2 = s2_hat (1 + 1/(kappa + n))``.
    """

    prior_variance: float = 0.25
    min_variance: float = 1e-3

    def moments(
        self, v: float, n: int, mean: float, variance: float, kappa: float
    ) -> tuple[float, float]:
        """See ``Calibration``."""
        mu = (kappa * v + n * mean) / (kappa + n)
        spread = max(variance, self.min_variance) if n >= 2 else self.prior_variance
        return (v - mu) ** 2 + spread / (kappa + n), spread * (1.0 + 1.0 / (kappa + n))
