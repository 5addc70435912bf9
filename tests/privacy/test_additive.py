"""Additive noise: calibration, its inverse, printed constants."""

import math

import mpmath
import numpy as np
import pytest

from dpsample.numerics.norms import dual, norm, printed_kappa, regularity
from dpsample.privacy import Budget, gaussian_delta, gaussian_epsilon, gdp_from_budget
from dpsample.privacy.curves.additive import (
    gaussian_stddev,
    generalized_gaussian_gdp,
    generalized_gaussian_sigma,
    pure_scale,
    unit_gdp,
)
from tests.support.tiers import one_in

EPSILONS = [1e-3, 3e-3, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0]
DELTAS = [1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-3, 0.01, 0.1, 0.4]
CASES = [(3, 2.0, 2.0), (50, 1.5, 3.0), (50, 1.0, 8.0), (1000, 1.1, 4.5), (7, 3.0, 2.5)]


def exact_delta(epsilon, gdp):
    with mpmath.workdps(60):
        eps, t = mpmath.mpf(epsilon), mpmath.mpf(gdp)
        upper = mpmath.erfc((eps / t - t / 2) / mpmath.sqrt(2)) / 2
        lower = mpmath.erfc((eps / t + t / 2) / mpmath.sqrt(2)) / 2
        return upper - mpmath.exp(eps) * lower


@one_in(7)
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_gaussian_round_trips_to_ten_digits(epsilon, delta):
    budget = Budget(epsilon=epsilon, delta=delta)
    for sensitivity in (1e-6, 1.0, 37.5):
        gdp = sensitivity / gaussian_stddev(budget, sensitivity)
        assert gdp == pytest.approx(gdp_from_budget(epsilon, delta), rel=1e-10)
        # The curve of the noise, by high-precision arithmetic, meets the budget.
        reached = exact_delta(epsilon, gdp)
        assert reached <= delta
        assert float(reached) == pytest.approx(delta, rel=1e-10)
        assert gaussian_delta(epsilon, gdp) == pytest.approx(delta, rel=1e-10)
        again = gaussian_epsilon(delta, gdp)
        assert again == pytest.approx(epsilon, rel=1e-10)
        assert again <= epsilon * (1.0 + 1e-15)


@one_in(21)
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(("dim", "p", "r"), CASES)
def test_generalized_round_trips_to_ten_digits(epsilon, delta, dim, p, r):
    budget = Budget(epsilon=epsilon, delta=delta)
    case = {"sensitivity": 0.3, "dim": dim, "p": p, "r": r}
    sigma = generalized_gaussian_sigma(budget, **case)
    gdp = generalized_gaussian_gdp(sigma=sigma, **case)
    assert gdp <= gdp_from_budget(epsilon, delta) * (1.0 + 1e-14)
    reached = exact_delta(epsilon, gdp)
    assert float(reached) == pytest.approx(delta, rel=1e-10)
    assert gaussian_epsilon(delta, gdp) == pytest.approx(epsilon, rel=1e-10)


@pytest.mark.parametrize(("dim", "p", "r"), CASES)
def test_noise_is_rounded_up(dim, p, r):
    budget = Budget(epsilon=1.0, delta=1e-6)
    with mpmath.workdps(40):
        s, t = mpmath.mpf(0.3), mpmath.mpf(gdp_from_budget(1.0, 1e-6))
        q, power = dual(p), mpmath.mpf(0)
        if r < q:
            power = 1 / mpmath.mpf(r) - (0 if math.isinf(q) else 1 / mpmath.mpf(q))
        exact = mpmath.sqrt(mpmath.mpf(r) - 1) * s * mpmath.mpf(dim) ** power / t
        sigma = generalized_gaussian_sigma(budget, sensitivity=0.3, dim=dim, p=p, r=r)
        gdp = generalized_gaussian_gdp(
            sensitivity=0.3, dim=dim, p=p, r=r, sigma=1.0 / float(t)
        )
        assert exact <= sigma <= exact * (1 + mpmath.mpf(1e-13))
        assert exact * t * t <= gdp <= exact * t * t * (1 + mpmath.mpf(1e-13))
        stddev = gaussian_stddev(budget, 0.3)
        assert s / t <= stddev <= s / t * (1 + mpmath.mpf(1e-13))
    scale = pure_scale(Budget(epsilon=0.7, delta=0.1), 0.3)
    assert mpmath.mpf(0.3) / mpmath.mpf(0.7) <= scale
    assert scale == pytest.approx(0.3 / 0.7, rel=1e-14)


@pytest.mark.parametrize(("dim", "p", "r"), CASES)
def test_the_sensitivity_bounds_every_change_in_the_smooth_norm(dim, p, r):
    rng = np.random.default_rng(1)
    changes = np.vstack([rng.normal(size=(300, dim)), np.ones(dim), np.eye(dim)[0]])
    changes /= norm(changes, dual(p))[:, None]
    sizes = np.sqrt(r - 1.0) * norm(changes, r)
    bound = unit_gdp(sensitivity=1.0, dim=dim, p=p, r=r)
    assert sizes.max() <= bound
    assert sizes.max() >= bound * (1.0 - 1e-12), "attained"


def test_exponent_two_is_the_plain_gaussian():
    budget = Budget(epsilon=0.8, delta=1e-7)
    sigma = generalized_gaussian_sigma(budget, sensitivity=2.0, dim=9, p=2.0, r=2.0)
    assert sigma == pytest.approx(gaussian_stddev(budget, 2.0), rel=1e-14)


def test_exact_calibration_saves_a_fifth_of_the_printed_noise():
    """Where the printed kappa is right, at epsilon = 1 and delta = 1e-6."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    case = {"sensitivity": 1.0, "dim": 1000, "p": 1.5, "r": 3.0}
    exact = generalized_gaussian_sigma(budget, **case)
    paper = generalized_gaussian_sigma(budget, **case, calibration="paper")
    assert exact / paper == pytest.approx(0.804, abs=5e-4)


def proved_epsilon(budget, *, dim, p):
    """Epsilon proved for the printed noise."""
    r = regularity(p, dim=dim, r="printed").r
    case = {"sensitivity": 1.0, "dim": dim, "p": p, "r": r}
    sigma = generalized_gaussian_sigma(budget, **case, calibration="paper")
    return gaussian_epsilon(budget.delta, generalized_gaussian_gdp(sigma=sigma, **case))


# Largest epsilon (rounded down) for which Lemmas 2 and 3 of arXiv:2303.18047 are true.
PRINTED_LIMITS = {
    0.3: (4.96, 4.20),
    1e-2: (6.77, 6.24),
    1e-3: (7.46, 6.97),
    1e-5: (8.41, 7.96),
    1e-6: (8.78, 8.33),
    1e-10: (9.84, 9.42),
}


def test_printed_noise_is_proved_for_small_epsilon_only():
    """With p = 2 it is a plain Gaussian: what is not proved is false (gradient-E8)."""
    for delta, (second, third) in PRINTED_LIMITS.items():
        for share in (0.01, 0.1, 0.5, 1.0, 1.005):
            budget = Budget(epsilon=share * third, delta=delta)
            holds = proved_epsilon(budget, dim=9, p=2.0) <= budget.epsilon
            assert holds == (share <= 1.0)
            budget = Budget(epsilon=share * second, delta=delta)
            stddev = gaussian_stddev(budget, 1.0, calibration="paper")
            holds = gaussian_epsilon(delta, 1.0 / stddev) <= budget.epsilon
            assert holds == (share <= 1.0)


def test_the_missing_factor_e_breaks_the_printed_noise():
    budget = Budget(epsilon=1.0, delta=1e-6)
    assert proved_epsilon(budget, dim=1000, p=1.0) > 1.2
    assert proved_epsilon(budget, dim=1000, p=1.5) < 1.0


def test_printed_kappa_is_the_printed_formula():
    assert printed_kappa(dim=1000, p=1.5) == 2.0
    assert printed_kappa(dim=1000, p=1.0) == pytest.approx(2.0 * math.log(1000.0))
    assert printed_kappa(dim=2, p=1.1) == pytest.approx(2.0 * math.log(2.0))


BUDGET = Budget(epsilon=1.0, delta=1e-6)
GOOD = {"sensitivity": 1.0, "dim": 5, "p": 1.5, "r": 3.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sensitivity": 0.0}, "sensitivity must be from 1e-60 to .*, got 0"),
        ({"sensitivity": math.nan}, "sensitivity must be from 1e-60"),
        ({"sensitivity": math.inf}, "sensitivity must be from 1e-60"),
        ({"sensitivity": [1.0]}, "sensitivity must be from 1e-60"),
        ({"dim": 0}, "dim must be an integer >= 1, got 0"),
        ({"dim": 2.5}, "dim must be an integer >= 1"),
        ({"p": 0.5}, "p must be >= 1, got 0.5"),
        ({"p": math.nan}, "p must be >= 1, got nan"),
        ({"r": 1.9}, "r must be >= 2, got 1.9. No Gaussian guarantee holds"),
        ({"r": math.inf}, "r must be finite, got inf. No Gaussian guarantee holds"),
        ({"r": math.nan}, "r must be >= 2, got nan"),
    ],
)
def test_bad_arguments_are_named(changes, words):
    case = GOOD | changes
    with pytest.raises(ValueError, match=words):
        generalized_gaussian_gdp(sigma=1.0, **case)
    with pytest.raises(ValueError, match=words):
        generalized_gaussian_sigma(BUDGET, **case)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_bad_scales_are_named(sigma):
    with pytest.raises(ValueError, match="sigma must be a finite number > 0"):
        generalized_gaussian_gdp(sigma=sigma, **GOOD)


@pytest.mark.parametrize("function", [gaussian_stddev, pure_scale])
@pytest.mark.parametrize("sensitivity", [0.0, -1.0, math.nan, math.inf, None])
def test_bad_sensitivities_are_named(function, sensitivity):
    with pytest.raises(ValueError, match="sensitivity must be from 1e-60"):
        function(BUDGET, sensitivity)
    with pytest.raises(ValueError, match="budget must be a Budget"):
        function((1.0, 1e-6), 1.0)


def test_bad_words_are_named():
    with pytest.raises(ValueError, match="calibration must be one of"):
        gaussian_stddev(BUDGET, 1.0, calibration="tight")
    with pytest.raises(ValueError, match="p must be <= 2, got 3"):
        printed_kappa(dim=5, p=3.0)
    with pytest.raises(ValueError, match="dim must be an integer >= 2, got 1"):
        printed_kappa(dim=1, p=1.5)
