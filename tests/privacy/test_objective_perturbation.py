"""Objective perturbation against exact one-dimensional laws."""

import math
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from dpsample.privacy import (
    Budget,
    ComposedEvent,
    GaussianEvent,
    PureEvent,
    TiltEvent,
    delta_of,
    gaussian_delta,
)
from dpsample.privacy.accounting import loss_distributions
from dpsample.privacy.calibration.objective_calibration import (
    composed_stddev,
    objective_stddev,
)
from dpsample.privacy.curves.objective_perturbation import (
    MIN_Z,
    PerturbedObjective,
    tilt_and_gaussian_delta,
)
from tests.support import tilted_scalars as scalars
from tests.support.tiers import one_in, usual

BUDGET = Budget(epsilon=1.0, delta=1e-6)
RELATIONS = ("replace_one", "zero_out")


def objective(ratio=0.125, relation="replace_one"):
    """L = 1 and beta / (2 n lambda) = ratio, with 2 n lambda = 1."""
    return PerturbedObjective(
        lipschitz=1.0,
        smoothness=ratio,
        num_records=10,
        ridge=0.05,
        relation=relation,
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_delta_is_twice_the_gaussian_curve_where_z_is_large_enough(relation):
    known = objective(0.25, relation)
    t = known.shift / 8.0
    left = 1.0 - math.log(1.25)
    z = left / t - t / 2
    expected = 2 * (ndtr(-z) - math.exp(left) * ndtr(-z - t))
    assert z >= MIN_Z[relation]
    assert known.delta(1.0, stddev=8.0) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
def test_curves_decrease_without_a_jump(relation):
    known = objective(0.25, relation)
    epsilons = np.linspace(0.0, 4.0, 4001)
    curve = np.array([known.delta(e, stddev=1.5) for e in epsilons])
    assert np.all(np.diff(curve) <= 0.0) and np.diff(curve).min() > -2e-3
    assert curve[0] <= 1.0 and curve[-1] < 2e-2


def larger_tail(share, u):
    """P(max(|U|, |V|) > u), variances share and 1 - share, independent."""
    inside = [2 * ndtr(u / np.sqrt(v)) - 1 for v in (share, 1 - share)]
    return 1 - inside[0] * inside[1]


def test_two_normals_of_total_variance_one_have_the_smaller_tail_from_one_on():
    share, u = np.meshgrid(np.linspace(1e-9, 0.5, 500), np.linspace(1.0, 8.0, 701))
    # The difference of tails, not of probabilities near 1.
    inner = [2 * ndtr(-u / np.sqrt(v)) for v in (share, 1 - share)]
    tail = inner[0] + inner[1] - inner[0] * inner[1]
    assert np.all(tail <= 2 * ndtr(-u) * (1 + 1e-12))
    assert larger_tail(0.5, 0.5) > 2 * ndtr(-0.5)  # below 1 it fails


def random_record(rng, ratio):
    """Slope with values in [-1, 1] and curvature at most ratio."""
    kind = rng.integers(3)
    if kind == 0:
        low, high = np.sort(rng.uniform(-1, 1, 2))
        if rng.random() < 0.5:
            low, high = -1.0, 1.0
        return scalars.ramp(low, high, rng.normal() * 3, ratio * rng.random() ** 0.3)
    if kind == 1:
        row = min(1.0, 2.0 * math.sqrt(ratio))
        return scalars.logistic(row * rng.choice([-1, 1]), rng.choice([-1, 1]))
    slope = rng.choice([-1.0, 0.0, 1.0])
    return scalars.ramp(slope, slope, 0.0, ratio)


def worst_ratio(relation, seed, *, bounded, num_problems=300):
    """Largest exact delta over the bound, over random problems."""
    rng, worst = np.random.default_rng(seed), 0.0
    for _ in range(num_problems):
        ratio, stddev = rng.choice([0.0, 0.05, 0.3, 1.0]), math.exp(rng.uniform(0, 3))
        known = objective(ratio, relation)
        others = [random_record(rng, ratio) for _ in range(rng.integers(4))]
        grid = scalars.wide_grid(tilt=1.0, stddev=stddev, slopes=5.0)
        if bounded:
            grid = np.linspace(*np.sort(rng.normal(size=2) * stddev), 4001)
        pair = [[random_record(rng, ratio)], [random_record(rng, ratio)]]
        if relation == "zero_out":
            pair[1] = []
        masses = [
            scalars.cell_masses(others + own, grid, tilt=1.0, stddev=stddev)
            for own in pair
        ]
        least = known.least_epsilon(known.distance(stddev))
        for epsilon in least * np.array([0.5, 1.0, 1.3, 2.0]):
            bound = known.delta(epsilon, stddev=stddev)
            if bound > 1e-11:
                delta = scalars.exact_delta(*masses, epsilon)
                worst = max(worst, delta / bound)
    return worst


@one_in(2)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("bounded", [False, True])
def test_exact_curves_of_random_problems_are_below_the_bound(relation, bounded):
    worst = worst_ratio(relation, 11, bounded=bounded)
    assert 0.1 < worst <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("bounded", [False, True])
def test_exact_curves_of_many_random_problems_are_below_the_bound(relation, bounded):
    assert worst_ratio(relation, 12, bounded=bounded, num_problems=5000) <= 1.0


def test_squared_loss_on_an_interval_is_below_the_bound():
    rng = np.random.default_rng(3)
    for _ in range(200):
        radius, rows = rng.uniform(0.2, 2.0), rng.uniform(-1, 1, 4)
        responses = rng.uniform(-1, 1, 4)
        known = PerturbedObjective(
            lipschitz=radius + 1.0, smoothness=1.0, num_records=3, ridge=1.0
        )
        grid = np.linspace(-radius, radius, 4001)
        slopes = [scalars.squared(a, y) for a, y in zip(rows, responses, strict=True)]
        stddev = known.shift * rng.uniform(1.0, 10.0)
        masses = [
            scalars.cell_masses(s, grid, tilt=6.0, stddev=stddev)
            for s in (slopes[:3], slopes[1:])
        ]
        for epsilon in (0.3, 0.6, 1.0):
            delta = scalars.exact_delta(*masses, epsilon)
            assert delta <= known.delta(epsilon, stddev=stddev)


def climb(known, stddev, epsilon, rng, steps=400):
    """Adversarial pair of two-sided Huber losses by random hill climbing."""
    grid = scalars.wide_grid(tilt=1.0, stddev=stddev, slopes=3.0)

    def delta(x):
        pair = [scalars.ramp(-1, 1, x[0], known.smoothness * x[2])]
        other = [scalars.ramp(-1, 1, x[1], known.smoothness * x[3])]
        masses = [
            scalars.cell_masses(s, grid, tilt=1.0, stddev=stddev) for s in (pair, other)
        ]
        return scalars.exact_delta(*masses, epsilon)

    best = np.array([-3.0 * stddev, 3.0 * stddev, 1.0, 1.0])
    value = delta(best)
    for _ in range(steps):
        trial = best + rng.normal(size=4) * (stddev / 3, stddev / 3, 0.1, 0.1)
        trial[2:] = np.clip(trial[2:], 1e-3, 1.0)
        if (new := delta(trial)) > value:
            best, value = trial, new
    return value


@pytest.mark.parametrize("ratio", [0.125, 0.5])
def test_an_adversary_stays_below_the_bound_and_comes_within_a_factor(ratio):
    known = objective(ratio)
    stddev = objective_stddev(known, Budget(epsilon=1.0, delta=1e-3))
    found = climb(known, stddev, 1.0, np.random.default_rng(5))
    assert 1e-5 < found <= 1e-3


def linear_delta(stddev, epsilon, shift):
    """Exact delta of two linear losses with opposite slopes."""
    grid = scalars.wide_grid(tilt=1.0, stddev=stddev, slopes=1.0, points=20001)
    slopes = [scalars.ramp(s, s, 0.0, 0.0) for s in (0.5 * shift, -0.5 * shift)]
    masses = [scalars.cell_masses([s], grid, tilt=1.0, stddev=stddev) for s in slopes]
    return scalars.divergence(*masses, epsilon)


def test_linear_losses_attain_half_of_the_bound():
    known = objective(0.0)
    exact = linear_delta(9.0, 1.0, 2.0)
    assert exact == pytest.approx(gaussian_delta(1.0, 2.0 / 9.0), rel=1e-4)
    assert 2.0 * exact == pytest.approx(known.delta(1.0, stddev=9.0), rel=1e-4)


def test_the_shift_of_one_gradient_without_determinant_is_refuted():
    planted = objective_stddev(
        objective(0.0, "zero_out"), Budget(epsilon=1.0, delta=1e-6, relation="zero_out")
    )
    assert linear_delta(planted, 1.0, 2.0) > 1e-6 * 100


def test_six_percent_less_noise_is_refuted_and_none_less_is_not():
    stddev = objective_stddev(objective(0.0), BUDGET)
    assert linear_delta(0.94 * stddev, 1.0, 2.0) > 1e-6
    assert linear_delta(stddev, 1.0, 2.0) <= 1e-6


def test_a_bound_without_the_determinant_is_refuted():
    # Against a linear loss the record bends the law by 1 + x where it is curved.
    stddev, ratio = 20.0, 1.0
    grid = scalars.wide_grid(tilt=1.0, stddev=stddev, slopes=2.0, points=20001)
    masses = [
        scalars.cell_masses([slope], grid, tilt=1.0, stddev=stddev)
        for slope in (scalars.ramp(-1, 1, 0, ratio), scalars.ramp(0, 0, 0, 0))
    ]
    delta = scalars.divergence(*masses, 0.5)
    without = objective(0.0).delta(0.5, stddev=stddev)
    assert delta > 100 * without
    assert delta <= objective(ratio).delta(0.5, stddev=stddev)


@pytest.mark.parametrize("relation", RELATIONS)
def test_renyi_divergences_are_below_the_bound_and_close_for_linear_losses(relation):
    rng = np.random.default_rng(8)
    for _ in range(100):
        ratio, stddev = rng.choice([0.0, 0.3]), rng.uniform(1, 10)
        known = objective(ratio, relation)
        grid = scalars.wide_grid(tilt=1.0, stddev=stddev, slopes=2.0)
        pair = [[random_record(rng, ratio)], [random_record(rng, ratio)]]
        pair[1] = [] if relation == "zero_out" else pair[1]
        masses = [scalars.cell_masses(s, grid, tilt=1.0, stddev=stddev) for s in pair]
        for order in (1.5, 4.0, 20.0):
            bound = known.rdp(order, stddev=stddev)
            assert scalars.renyi(*masses, order) <= bound
    linear = objective(0.0, relation)
    exact = 20.0 * linear.distance(1.0) ** 2 / 2
    assert exact <= linear.rdp(20.0, stddev=1.0) <= exact + math.log(2) / 19 + 1e-9


@pytest.mark.parametrize("stddev", [1.0, 1e3, 1e6, 1e30])
def test_renyi_bounds_keep_their_digits_near_order_one_and_with_much_noise(stddev):
    known = objective(0.0, "replace_one")
    for excess in (2.0**-50, 1e-12, 1e-6, 0.01, 7.0, 1e3):
        order = 1.0 + excess
        with mpmath.workdps(80):
            t = mpmath.mpf(known.shift) / stddev
            c = (mpmath.mpf(order) - 1) * t
            moment = c * c / 2 + mpmath.log1p(mpmath.erf(c / mpmath.sqrt(2)))
            exact = t * t / 2 + moment / (mpmath.mpf(order) - 1)
            assert exact <= known.rdp(order, stddev=stddev) <= exact * (1 + 1e-12)


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("stddev", [1e9, 1e12, 1e16, 1e30, 1e300])
def test_delta_is_never_below_the_gaussian_one_of_linear_losses(relation, stddev):
    """With beta = 0 and one coordinate the tilt is all there is."""
    linear = objective(0.0, relation)
    with mpmath.workdps(400):
        t = mpmath.mpf(linear.shift) / mpmath.mpf(stddev)
        for share in (0.0, 0.25, 1.0):
            e = mpmath.mpf(float(share * t))
            z, root = e / t - t / 2, mpmath.sqrt(2)
            far = mpmath.exp(e) * mpmath.erfc((z + t) / root)
            gaussian = (mpmath.erfc(z / root) - far) / 2
            assert linear.delta(float(e), stddev=stddev) >= gaussian
        # The curve's continuation, from its smallest epsilon on.
        least = mpmath.mpf(MIN_Z[relation]) * t + t * t / 2
        z = mpmath.mpf(MIN_Z[relation])
        far = mpmath.exp(least) * mpmath.erfc((z + t) / root)
        bound = mpmath.erfc(z / root) - far
        exact = 1 - mpmath.exp(-least) * (1 - bound)
        assert exact <= linear.delta(0.0, stddev=stddev) * (1 + 1e-12)


@pytest.mark.parametrize("shift", [1e-10, 1e-100])
def test_no_noise_makes_a_release_pure(shift):
    """Where doubles end, delta and divergences are those of a larger distance."""
    losses = PerturbedObjective(
        lipschitz=shift, smoothness=0.0, num_records=10, ridge=0.05
    )
    for order in (1.0 + 2.0**-52, 2.0, 1e10):
        assert losses.rdp(order, stddev=1e300) > 0.0
    assert losses.delta(0.0, stddev=1e300) > 2.2e-308


@pytest.mark.parametrize("stddev", [1.2e-38, 1e-300, 5e-324])
def test_noise_too_small_for_its_losses_to_be_numbers_is_refused(stddev):
    objective = PerturbedObjective(
        lipschitz=1e60, smoothness=1.0, num_records=10, ridge=1.0
    )
    with pytest.raises(ValueError, match="stddev must be >="):
        objective.epsilon(1e-6, stddev=stddev)


def test_a_number_of_single_precision_is_reckoned_in_double():
    objective = PerturbedObjective(
        lipschitz=1.0, smoothness=0.0, num_records=10, ridge=1.0
    )
    stddev = np.finfo(np.float32).tiny
    exact = objective.epsilon(1e-6, stddev=float(stddev))
    assert objective.epsilon(1e-6, stddev=stddev) == exact


@cache
def composed_exactly(epsilon, log_determinant, t, gdp, relation):
    """Delta of a tilted minimizer and Gaussian noise by quadrature at 25 digits."""
    with mpmath.workdps(25):
        given = (epsilon, log_determinant, t, gdp)
        epsilon, log_determinant, t, gdp = map(mpmath.mpf, given)
        least = log_determinant + MIN_Z[relation] * t + t * t / 2

        def curve(loss):
            at = max(loss, least)
            z = (at - log_determinant) / t - t / 2
            tail = mpmath.ncdf(-z) - mpmath.exp(at - log_determinant) * mpmath.ncdf(
                -z - t
            )
            return 1 - mpmath.exp(min(loss - least, 0)) * (1 - 2 * tail)

        def integrand(s):
            return curve(epsilon - gdp**2 / 2 - gdp * s) * mpmath.npdf(s)

        kink = (epsilon - gdp**2 / 2 - least) / gdp
        return float(mpmath.quad(integrand, sorted([kink, *range(-14, 42, 4)])))


CASES = {
    "of the note": (1.0, 0.1, 2 / 12.33, 0.2367043 * math.sqrt(0.3)),
    "small": (0.5, 0.05, 0.08, 0.07),
    "large": (10.0, 1.0, 1.2, 0.8),
}


@usual("note-replace_one", "small-zero_out")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_with_gaussian_noise_delta_is_the_integral_rounded_up(case, relation):
    epsilon, log_determinant, t, gdp = case
    exact = composed_exactly(*case, relation)
    tilt = TiltEvent(log_determinant=log_determinant, distance=t)
    event = ComposedEvent((tilt, GaussianEvent(gdp)))
    found = delta_of(event, epsilon=epsilon, relation=relation)
    assert exact <= found <= exact * 1.0005
    # Privacy loss distributions use that curves are convex and hold both ways.
    parts = (GaussianEvent(gdp), tilt)
    other = loss_distributions.composed_delta(parts, epsilon, relation)
    assert 0.995 * exact <= other <= 1.005 * exact
    more = ComposedEvent((event, PureEvent(1e-9)))
    assert delta_of(more, epsilon=epsilon, relation=relation) >= 0.995 * exact


def test_the_note_rounds_its_stddev_down():
    exact = composed_exactly(*CASES["of the note"], "replace_one")
    assert f"{exact:.4e}" == "1.0004e-06"


@pytest.mark.parametrize("relation", RELATIONS)
def test_noise_beside_gaussian_mechanisms_meets_the_budget_and_no_less_does(relation):
    known = objective(0.125, relation)
    budget = Budget(epsilon=1.0, delta=1e-6, relation=relation)
    stddev = composed_stddev(known, budget, 0.12)
    case = {"log_determinant": known.log_determinant, "relation": relation}
    for factor, is_enough in ((1.0, True), (1.0 - 1e-6, False)):
        distance = known.distance(factor * stddev)
        found = tilt_and_gaussian_delta(1.0, distance=distance, gdp=0.12, **case)
        assert (found <= budget.delta) == is_enough
    assert stddev > objective_stddev(known, budget)
    with pytest.raises(ValueError, match="large enough for the tilt"):
        composed_stddev(known, budget, 0.3)
