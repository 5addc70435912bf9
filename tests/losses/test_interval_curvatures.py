"""Curvature constants of an interval, against brute force with sixty digits."""

import mpmath as mp
import numpy as np
import pytest

from dpsample import losses
from tests.support.tiers import usual

mp.mp.dps = 60
SHARES = [*np.geomspace(1e-6, 1.0, 40), *np.linspace(0.0, 1.0, 40)]


def softplus(x):
    return mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x))


def smoothed(z):
    if z >= 1:
        return mp.mpf(0)
    return (1 - z) ** 2 if z > mp.mpf(1) / 2 else 1 - z - mp.mpf(1) / 4


def capped(z):
    """Logistic loss up to the margin of slope 0.6, and its tangent there."""
    cap = mp.mpf(0.6)
    end = mp.log((1 - cap) / cap)
    return softplus(-z) if z > end else softplus(-end) + cap * (end - z)


def huber(e):
    return e * e / 2 if abs(e) <= 1 else abs(e) - mp.mpf(1) / 2


# The loss, and phi and phi' as functions of exact u and y.
CASES = {
    "logistic": (
        losses.Logistic(),
        lambda u, y: softplus(-y * u),
        lambda u, y: -y / (1 + mp.exp(y * u)),
    ),
    "capped logistic": (
        losses.CappedLogistic(cap=0.6),
        lambda u, y: capped(y * u),
        lambda u, y: -y * min(1 / (1 + mp.exp(y * u)), mp.mpf(0.6)),
    ),
    "calibrated logistic": (
        losses.CalibratedLogistic(),
        lambda u, y: (mp.exp(-y * u) if y * u > 0 else 1 - y * u) / 2,
        lambda u, y: -y * mp.exp(-max(y * u, mp.mpf(0))) / 2,
    ),
    "smoothed hinge": (
        losses.SmoothedHinge(width=0.5),
        lambda u, y: smoothed(y * u),
        lambda u, y: -y * min(max(2 * (1 - y * u), 0), 1),
    ),
    "huber": (
        losses.Huber(width=1.0),
        lambda u, y: huber(u - y),
        lambda u, y: min(max(u - y, mp.mpf(-1)), mp.mpf(1)),
    ),
    "squared": (
        losses.Squared(),
        lambda u, y: (u - y) ** 2 / 2,
        lambda u, y: u - y,
    ),
    "fourth power": (
        losses.PowerFour(),
        lambda u, y: (u - y) ** 4,
        lambda u, y: 4 * (u - y) ** 3,
    ),
    "hinge": (
        losses.Hinge(),
        lambda u, y: max(mp.mpf(0), 1 - y * u),
        lambda u, y: -y if y * u < 1 else mp.mpf(0),
    ),
}


def intervals(rng, count):
    """Margins, ends on both sides of them, and labels."""
    u = rng.normal(scale=rng.choice([0.3, 2.0, 20.0], count))
    widths = 10.0 ** rng.uniform(-9.0, 1.5, (2, count))
    widths *= rng.random((2, count)) > 0.15  # some ends are the margin itself
    return u, u - widths[0], u + widths[1], rng.choice([-1.0, 1.0], count)


def least_quotients(value, slope, u, lower, upper, y):
    """Least secant and least Bregman quotient on a grid that is finer at u."""
    u, y = mp.mpf(u), mp.mpf(y)
    here, steepness = value(u, y), slope(u, y)
    secants, chords = [], []
    for end in (mp.mpf(lower), mp.mpf(upper)):
        for share in SHARES:
            t = (end - u) * mp.mpf(share)
            if t != 0:
                rise = slope(u + t, y) - steepness
                gap = value(u + t, y) - here - steepness * t
                secants.append(rise / t)
                chords.append(2 * gap / t**2)
    return (min(secants), min(chords)) if secants else (mp.inf, mp.inf)


@usual("hinge")
@pytest.mark.parametrize("name", CASES)
def test_constants_are_below_brute_force_and_near_it(name):
    loss, value, slope = CASES[name]
    u, lower, upper, y = intervals(np.random.default_rng(3), 50)
    ends = loss.curvature(lower, upper, y)[0]
    secant = loss.secant_curvature(u, lower, upper, y)
    bregman = loss.bregman_curvature(u, lower, upper, y)
    assert (ends * (1 - 1e-13) <= secant).all()  # Lemma 0
    assert (ends * (1 - 1e-13) <= bregman).all()
    # On narrow intervals more of the Bregman quotient's digits are lost.
    is_exact = np.minimum(u - lower, upper - u) > 1e-3
    assert (secant <= bregman * (1 + 1e-8))[is_exact].all()
    for i in range(len(u)):
        least = least_quotients(value, slope, u[i], lower[i], upper[i], y[i])
        for found, exact in zip((secant[i], bregman[i]), least, strict=True):
            # Of 0 itself the brute force keeps fifty decimal places.
            assert found <= exact + mp.mpf("1e-50") or found <= float(exact) * (
                1 + 1e-14
            )
            is_wide = upper[i] - u[i] > 1e-3 and u[i] - lower[i] > 1e-3
            if name != "hinge" and is_wide:
                assert found >= float(exact) * (1 - 1e-2) - 1e-7


def test_the_least_curvature_is_a_third_of_what_bregmans_constant_keeps():
    """Where phi''' is constant the losses of phi'' are as 1 : 1/2 : 1/3."""
    loss, u, y = losses.Logistic(), np.array([1.0]), np.array([1.0])
    lower, upper = u - 1e-3, u + 1e-3
    top = loss.curvature(u, u, y)[0]
    lost = [
        (top - found).item()
        for found in (
            loss.curvature(lower, upper, y)[0],
            loss.secant_curvature(u, lower, upper, y),
            loss.bregman_curvature(u, lower, upper, y),
        )
    ]
    np.testing.assert_allclose(lost[0] / np.array(lost), [1.0, 2.0, 3.0], rtol=2e-3)


@usual("huber", "smoothed hinge")
@pytest.mark.parametrize(
    "name", ["logistic", "capped logistic", "huber", "smoothed hinge"]
)
def test_planted_bugs_are_above_brute_force(name):
    """Bregman's constant in place of the secant's, and phi'' in place of both."""
    loss, value, slope = CASES[name]
    u, lower, upper, y = intervals(np.random.default_rng(4), 60)
    bregman = loss.bregman_curvature(u, lower, upper, y)
    at_margin = loss.curvature(u, u, y)[0]
    least = [
        least_quotients(value, slope, *each)
        for each in zip(u, lower, upper, y, strict=True)
    ]
    assert any(b > s * (1 + 1e-6) for b, (s, _) in zip(bregman, least, strict=True))
    assert any(b > c * (1 + 1e-6) for b, (_, c) in zip(at_margin, least, strict=True))


def test_unbounded_intervals_promise_nothing():
    far = np.array([np.inf])
    for loss in (losses.Logistic(), losses.Huber(), losses.SmoothedHinge()):
        for constant in (loss.secant_curvature, loss.bregman_curvature):
            found = constant(np.zeros(1), -far, far, np.ones(1))
            np.testing.assert_array_equal(found, 0.0)
