"""The proof of docs/generalized-gaussian.md, checked by numerical integration."""

import math

import numpy as np
import pytest
from scipy.stats import norm as normal

from dpsample.privacy import gaussian_delta
from dpsample.privacy.curves.additive import generalized_gaussian_gdp
from tests.support.quadrature import grid, privacy_curve
from tests.support.shift_curves import equivalent_gdp, scaled_shift, shift_curve
from tests.support.tiers import one_in

EXPONENTS = [2.0, 2.5, 3.0, 4.0, 6.0, 10.0]
PLANE = [0.0, 10.0, 22.5, 33.0, 45.0, 60.0, 113.0]
SPACE = [(1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, 1.0, 1.0), (3.0, 2.0, -1.0)]

# Equivalent Gaussian distance over the proved gdp = 1, along the diagonal, at epsilon =
# 0, 1 and 2, as published for d = 2 and d = 3.
DIAGONAL = {
    (2, 3.0): (0.784, 0.728, 0.703),
    (2, 4.0): (0.682, 0.603, 0.573),
    (2, 6.0): (0.569, 0.473, 0.445),
    (2, 10.0): (0.454, 0.353, 0.332),
    (3, 3.0): (0.813, 0.749, 0.708),
    (3, 4.0): (0.729, 0.629, 0.579),
    (3, 6.0): (0.634, 0.498, 0.449),
    (3, 10.0): (0.527, 0.373, 0.335),
}


def gdp_of(shift, r):
    """What the package proves for this shift: the l_r sensitivity is its l_r norm."""
    size = float((np.abs(shift) ** r).sum() ** (1.0 / r))
    p = r / (r - 1.0)
    return generalized_gaussian_gdp(
        sensitivity=size, sigma=1.0, dim=len(shift), p=p, r=r
    )


def assert_below(deltas, errors, epsilons, gdp):
    for delta, error, epsilon in zip(deltas, errors, epsilons, strict=True):
        claimed = gaussian_delta(epsilon, gdp)
        assert delta <= claimed + error, f"statistic: {delta} above {claimed}"


def in_plane(angle):
    return [math.cos(math.radians(angle)), math.sin(math.radians(angle))]


@one_in(5)
@pytest.mark.parametrize("r", EXPONENTS)
@pytest.mark.parametrize("angle", PLANE)
def test_no_shift_in_the_plane_beats_the_gaussian(r, angle):
    for gdp in (0.3, 1.0, 3.0):
        shift = scaled_shift(in_plane(angle), r, gdp)
        epsilons = np.array([0.0, 0.5, 1.0, 2.0]) * gdp
        deltas, errors = shift_curve(shift, r, epsilons, step=0.05)
        assert gdp_of(shift, r) == pytest.approx(gdp, rel=1e-12)
        assert_below(deltas, errors, epsilons, gdp_of(shift, r))
        wanted = [gaussian_delta(epsilon, gdp) for epsilon in epsilons]
        assert (errors < 0.02 * np.array(wanted)).all()
        if r == 2.0:
            assert (np.abs(deltas - wanted) <= errors).all()
        else:
            assert (deltas + errors < wanted).all()


@one_in(5)
@pytest.mark.parametrize("r", EXPONENTS)
@pytest.mark.parametrize("direction", SPACE)
def test_no_shift_in_space_beats_the_gaussian(r, direction):
    shift, epsilons = scaled_shift(direction, r, 1.0), (0.0, 1.0, 2.0)
    deltas, errors = shift_curve(shift, r, epsilons, step=0.18)
    assert_below(deltas, errors, epsilons, gdp_of(shift, r))
    wanted = np.array([gaussian_delta(epsilon, 1.0) for epsilon in epsilons])
    assert (errors < 0.03 * wanted).all()
    if r == 2.0:
        assert (np.abs(deltas - wanted) <= errors).all()
    else:
        assert (deltas + errors < wanted).all()


@pytest.mark.parametrize("r", EXPONENTS[1:])
def test_gdp_without_the_root_of_r_minus_one_is_refuted(r):
    shift = scaled_shift((1.0, 1.0), r, 1.0)
    deltas, errors = shift_curve(shift, r, (0.0,), step=0.05)
    with pytest.raises(AssertionError, match="statistic"):
        assert_below(deltas, errors, (0.0,), gdp_of(shift, r) / math.sqrt(r - 1.0))


def test_the_error_bound_holds_between_two_steps():
    shift = scaled_shift((2.0, 1.0), 3.0, 1.0)
    fine, _ = shift_curve(shift, 3.0, (0.0, 1.0), step=0.02)
    rough, errors = shift_curve(shift, 3.0, (0.0, 1.0), step=0.1)
    assert (np.abs(fine - rough) <= errors).all()


def assert_table(dim, r, step):
    shift = scaled_shift(np.ones(dim), r, 1.0)
    deltas, _ = shift_curve(shift, r, (0.0, 1.0, 2.0), step=step)
    found = [
        equivalent_gdp(*pair) for pair in zip((0.0, 1.0, 2.0), deltas, strict=True)
    ]
    np.testing.assert_allclose(found, DIAGONAL[dim, r], rtol=0, atol=6e-4)


@pytest.mark.parametrize("r", [3.0, 4.0, 6.0, 10.0])
def test_published_slack_in_the_plane(r):
    assert_table(2, r, step=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("r", [3.0, 4.0, 6.0, 10.0])
def test_published_slack_in_space(r):
    assert_table(3, r, step=0.05)


def test_the_diagonal_is_not_the_worst_direction_of_the_tail():
    """At epsilon = 2 gdp a shift near the axis loses more than the diagonal one."""
    slack = {}
    for angle in (15.0, 45.0):
        shift = scaled_shift(in_plane(angle), 3.0, 1.0)
        deltas, _ = shift_curve(shift, 3.0, (2.0,), step=0.02)
        slack[angle] = equivalent_gdp(2.0, deltas[0])
    assert slack[15.0] == pytest.approx(0.717, abs=1e-3)
    assert slack[45.0] == pytest.approx(0.703, abs=1e-3)


# The one-dimensional lemma: convex potentials with V'' <= 1, and what it needs.

POTENTIALS = {
    "normal": lambda x: 0.5 * x**2,
    "huber": lambda x: np.where(np.abs(x) < 1.0, 0.5 * x**2, np.abs(x) - 0.5),
    "log cosh": lambda x: np.logaddexp(x, -x),
    "one-sided": lambda x: np.where(x < 0.0, 0.5 * x**2, 0.0) + np.logaddexp(0.0, x),
    "softplus": lambda x: 4.0 * np.logaddexp(0.0, x) - 2.0 * x,
}


@pytest.mark.parametrize("name", POTENTIALS)
@pytest.mark.parametrize("shift", [0.1, 1.0, 2.5])
def test_smooth_potentials_on_the_line_are_gaussian_private(name, shift):
    x, weights = grid(-60.0, 60.0, 240_001)
    potential = POTENTIALS[name]
    # The one-sided potential bends up to 1 + 1/4.
    gdp = shift * (math.sqrt(1.25) if name == "one-sided" else 1.0)
    epsilons = np.array([0.0, 0.3, 1.0, 2.0]) * shift
    deltas = privacy_curve(-potential(x), -potential(x - shift), weights, epsilons)
    assert_below(deltas, np.full(4, 1e-6), epsilons, gdp)
    if name == "normal":
        wanted = [gaussian_delta(eps, shift) for eps in epsilons]
        np.testing.assert_allclose(deltas, wanted, atol=1e-6)


@pytest.mark.parametrize("name", POTENTIALS)
def test_the_profile_is_below_the_gaussian_one(name):
    x, weights = grid(-60.0, 60.0, 240_001)
    density = np.exp(-POTENTIALS[name](x))
    density /= (density * weights).sum()
    mass = np.cumsum(density * weights) - 0.5 * density * weights
    bend = math.sqrt(1.25 if name == "one-sided" else 1.0)
    inside = (mass > 1e-9) & (mass < 1.0 - 1e-9)
    profile = bend * normal.pdf(normal.ppf(mass[inside]))
    assert (density[inside] <= profile + 1e-6).all()


@pytest.mark.parametrize(
    "potential",
    [
        lambda x: np.where(np.abs(x) < 1.0, 0.5 * x**2, np.inf),
        lambda x: 3.0 * np.abs(x),
    ],
    ids=["cut off", "kinked"],
)
def test_without_full_support_or_smoothness_the_lemma_fails(potential):
    """Away from the edge or the kink V'' <= 1, yet the curve is above the Gaussian."""
    x, weights = grid(-60.0, 60.0, 240_001)
    deltas = privacy_curve(-potential(x), -potential(x - 0.1), weights, (0.0,))
    with pytest.raises(AssertionError, match="statistic"):
        assert_below(deltas, np.full(1, 1e-4), (0.0,), 0.1)
