"""Expected critic-error reduction, to the values of the algorithm notes and by hand."""

import math

import pytest

from focus_core import BetaBernoulli, Gaussian
from focus_core.search import expected_error_reduction
from focus_core.search.worth import Evidence


def seen(*returns, in_flight=0):
    evidence = Evidence()
    for value in returns:
        evidence.observe(value)
    evidence.in_flight = in_flight
    return evidence


def worth(v, evidence, *, kappa=1.0, calibration=None):
    return expected_error_reduction(
        v, evidence, kappa=kappa, calibration=calibration or BetaBernoulli()
    )


def exactly(value):
    return pytest.approx(value, rel=0, abs=1e-12)


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_one_outcome_at_a_critic_of_one_half(outcome):
    # mu = 0.75 or 0.25; e2 = 0.0625 + 0.1875/3 = 0.125; (2*0.125 + 0) / 2^3
    assert worth(0.5, seen(outcome)) == exactly(0.03125)


def test_two_outcomes_that_agree_with_the_critic():
    # mu = 0.5; e2 = 0.25/4; s2 = 0.25; (2*0.0625 + 1*0.25) / 3^3 = 0.375/27
    assert worth(0.5, seen(0.0, 1.0)) == exactly(0.375 / 27)
    assert worth(0.5, seen(1.0, 0.0)) == exactly(0.01388888888888889)


@pytest.mark.parametrize(
    ("flying", "score"),
    [
        (0, 0.03125),
        (1, (0.25 + 0.1875) / 27),  # n_eff = 2, e2 and s2 as landed
        (2, (0.25 + 2 * 0.1875) / 64),
        (3, (0.25 + 3 * 0.1875) / 125),
    ],
)
def test_launches_in_flight_count_in_n_eff_and_nowhere_else(flying, score):
    assert worth(0.5, seen(1.0, in_flight=flying)) == exactly(score)


def test_a_surprise_is_worth_more_than_agreement():
    assert worth(0.1, seen(1.0)) > worth(0.1, seen(0.0))
    assert worth(0.9, seen(0.0)) > worth(0.9, seen(1.0))
    # v = 0.1, outcome 1: mu = 0.55; e2 = 0.45^2 + 0.2475/3 = 0.285; 0.57/8
    assert worth(0.1, seen(1.0)) == exactly(0.07125)
    # v = 0.1, outcome 0: mu = 0.05; e2 = 0.0025 + 0.0475/3; * 2/8
    assert worth(0.1, seen(0.0)) == exactly((0.0025 + 0.0475 / 3) / 4)


def test_kappa_weighs_the_prior():
    # kappa = 2, n = 1, mean 1: mu = 2/3; e2 = 1/36 + (2/9)/4 = 1/12; s2 = 2/9
    # (2*4/12 + (1 - 2)*2/9) / 27 = (4/9) / 27
    assert worth(0.5, seen(1.0), kappa=2.0) == exactly(4 / 243)


@pytest.mark.parametrize(
    ("v", "returns", "clamped_v", "clamped"),
    [
        (1.7, (0.0,), 1.0, (0.0,)),
        (-0.3, (1.0,), 0.0, (1.0,)),
        (0.5, (4.0,), 0.5, (1.0,)),
        (0.5, (-4.0,), 0.5, (0.0,)),
    ],
)
def test_predictions_and_means_outside_the_unit_interval_are_clamped(
    v, returns, clamped_v, clamped
):
    assert worth(v, seen(*returns)) == exactly(worth(clamped_v, seen(*clamped)))
    assert worth(v, seen(*returns)) > 0


def test_certainty_is_worth_nothing():
    """v and every return at one end: no error and no variance are left."""
    assert worth(1.0, seen(1.0, 1.0)) == 0.0
    assert worth(3.0, seen(1.0)) == 0.0
    assert worth(0.0, seen(0.0)) == 0.0


@pytest.mark.parametrize("flying", [0, 1, 5])
def test_without_a_landed_observation_a_state_is_not_eligible(flying):
    assert worth(0.5, seen(in_flight=flying)) == 0.0


@pytest.mark.parametrize("v", [math.nan, math.inf, -math.inf])
def test_without_a_finite_prediction_a_state_is_not_eligible(v):
    assert worth(v, seen(1.0)) == 0.0
    assert worth(v, seen(1.0), calibration=Gaussian()) == 0.0


@pytest.mark.parametrize(
    "moments", [(math.nan, 0.1), (math.inf, 0.1), (-1.0, 0.0), (0.0, 0.0), (0.1, math.nan)]
)
def test_a_score_that_is_not_finite_and_positive_is_not_eligible(moments):
    class Odd:
        def moments(self, v, n, mean, variance, kappa):
            return moments

    assert worth(0.5, seen(1.0, 0.0), calibration=Odd()) == 0.0


def test_gaussian_with_one_return_uses_the_prior_variance():
    # v = 2, return 4: mu = 3; e2 = 1 + 0.25/2 = 1.125; (2*1.125 + 0) / 8
    assert worth(2.0, seen(4.0), calibration=Gaussian()) == exactly(0.28125)


def test_gaussian_with_two_returns_uses_their_sample_variance():
    # v = 0, returns 1 and 3: s2^ = 2; mu = 4/3; e2 = 16/9 + 2/3 = 22/9; s2 = 2*(4/3) = 8/3
    # (44/9 + 24/9) / 27
    assert worth(0.0, seen(1.0, 3.0), calibration=Gaussian()) == exactly(68 / 243)


def test_gaussian_variance_has_a_floor():
    # returns 1, 1, v = 1: e2 = 1e-3/3; s2 = 1e-3*4/3; (2e-3/3 + 4e-3/3) / 27 = 2e-3/27
    assert worth(1.0, seen(1.0, 1.0), calibration=Gaussian()) == exactly(2e-3 / 27)
    # three returns that agree: n = 3; (2*1e-3/4 + 2*1e-3*5/4) / 64 = 3e-3/64
    assert worth(1.0, seen(1.0, 1.0, 1.0), calibration=Gaussian()) == exactly(3e-3 / 64)


def test_gaussian_parameters():
    belief = Gaussian(prior_variance=1.0, min_variance=0.5)
    # n = 1: e2 = 0 + 1/2; 2*0.5/8
    assert worth(1.0, seen(1.0), calibration=belief) == exactly(0.125)
    # n = 2, floor 0.5: e2 = 0.5/3, s2 = 0.5*4/3; (1/3 + 2/3)/27
    assert worth(1.0, seen(1.0, 1.0), calibration=belief) == exactly(1 / 27)


def test_gaussian_does_not_clamp():
    assert worth(5.0, seen(9.0), calibration=Gaussian()) == exactly(
        worth(-5.0, seen(-1.0), calibration=Gaussian())
    )


def test_evidence_is_a_running_mean_and_sample_variance():
    evidence = seen(0.5)
    assert (evidence.n, evidence.mean, evidence.variance) == (1, 0.5, 0.0)
    evidence = seen(1.0, 2.0, 6.0)
    assert (evidence.n, evidence.mean) == (3, 3.0)
    assert evidence.variance == pytest.approx(7.0)  # (4 + 1 + 9) / 2
    given = Evidence(n=2, mean=0.5)
    given.observe(1.0)
    assert given.mean == pytest.approx(2 / 3)
