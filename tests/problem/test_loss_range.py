"""Ranges of one record's loss: brute force in 50 digits, and records as hostile as any.

The privacy of range calibration rests on them, so a value that is too small is a false
claim, and each test here has a planted error that it must catch.
"""

import decimal
import math

import mpmath
import numpy as np
import pytest

import dpsample as dps
from dpsample import losses
from dpsample.losses.loss import Loss
from dpsample.losses.oscillation import largest_oscillation
from dpsample.numerics.norms import dual, norm
from dpsample.problem.facts import PublicFacts
from tests.support.tiers import one_in

LOSSES = (
    losses.Linear(),
    losses.Logistic(),
    *(losses.CappedLogistic(cap) for cap in (0.1, 0.5, 0.9)),
    losses.CalibratedLogistic(),
    losses.Hinge(),
    *(losses.SmoothedHinge(width) for width in (0.5, 3.0)),
    losses.Absolute(),
    *(losses.Quantile(level) for level in (0.1, 0.75)),
    *(losses.Huber(width) for width in (0.25, 1.0, 9.0)),
    losses.Squared(),
    losses.PowerFour(),
)
REAL = {"linear", "absolute", "quantile", "huber", "squared", "power_four"}


def in_digits(loss, u, y):
    """The loss by its definition, with mpmath's digits."""
    m, name = mpmath, loss.name
    z, e = y * u, u - y
    if name == "linear":
        return -z
    if name == "logistic":
        return m.log1p(m.exp(-z))
    if name == "capped_logistic":
        cap = m.mpf(loss.cap)
        odds = m.log(cap) - m.log1p(-cap)
        entropy = -cap * m.log(cap) - (1 - cap) * m.log1p(-cap)
        return m.log1p(m.exp(-z)) if -z <= odds else entropy - cap * z
    if name == "calibrated_logistic":
        return m.exp(-z) / 2 if z >= 0 else (1 - z) / 2
    if name == "hinge":
        return max(m.mpf(0), 1 - z)
    if name == "smoothed_hinge":
        w = m.mpf(loss.width)
        if z >= 1:
            return m.mpf(0)
        return (1 - z) ** 2 / (2 * w) if z > 1 - w else 1 - z - w / 2
    if name == "absolute":
        return abs(e)
    if name == "quantile":
        level = m.mpf(loss.level)
        return max(-level * e, (1 - level) * e)
    if name == "huber":
        w = m.mpf(loss.width)
        return e**2 / 2 if abs(e) <= w else w * abs(e) - w**2 / 2
    return e**2 / 2 if name == "squared" else e**4


def brute_force(loss, reach, width, bound, seed=1, count=40):
    """The largest difference of values seen, as it is and over all tried intervals."""
    rng = np.random.default_rng(seed)
    reach, width, bound = map(mpmath.mpf, (reach, width, bound))
    ys = [bound, -bound]
    if loss.name in REAL:
        ys += [bound * mpmath.mpf(float(x)) for x in rng.uniform(-1, 1, 3)]
    lows = [-reach, reach - width]
    lows += [-reach + (2 * reach - width) * float(x) for x in rng.random(5)]
    best = mpmath.mpf(0)
    for y in ys:
        for low in lows:
            points = [low, low + width, min(max(y, low), low + width)]
            points += [low + width * float(x) for x in rng.random(3)]
            values = [in_digits(loss, u, y) for u in points]
            best = max(best, max(values) - min(values))
    return best


@one_in(3)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_oscillations_are_those_of_a_brute_force_in_50_digits(loss):
    with mpmath.workdps(50):
        for reach in (1e-12, 1.0, 1e6):
            for share in (2.0, 1.0, 0.1):
                for bound in (1e-6, 1.0, 1e6) if loss.name in REAL else (1.0,):
                    width = share * reach
                    declared = loss.oscillation(reach, width, bound)
                    ratio = declared / brute_force(loss, reach, width, bound)
                    assert 1.0 <= ratio <= 1.0 + 1e-10


def test_differences_of_doubles_would_lose_the_claim():
    """Three values in doubles would be up to 2e-5 too small."""
    loss, reach = losses.Logistic(), 1e-12
    values = loss.value([-reach, reach], 1.0)
    assert np.ptp(values) < reach * (1.0 - 1e-6)
    assert loss.oscillation(reach, 2.0 * reach, 1.0) >= reach


def test_responses_without_a_bound_have_the_slope_times_the_width():
    for loss in (losses.Absolute(), losses.Huber(1.0)):
        free = loss.oscillation(3.0, 6.0, None)
        assert free == pytest.approx(6.0, rel=1e-10)
        assert free == loss.oscillation(3.0, 6.0, math.inf)
        # The planted error: without a declared bound, 1 is none.
        seen = float(np.ptp(loss.value([-3.0, 3.0], 100.0)))
        assert loss.oscillation(3.0, 6.0, 1.0) < 0.7 * seen <= free
    assert losses.Linear().oscillation(3.0, 6.0, None) == pytest.approx(6.0)
    assert losses.Squared().oscillation(3.0, 6.0, math.inf) == math.inf
    assert losses.Logistic().oscillation(math.inf, math.inf, None) == math.inf


def test_a_width_beyond_both_ends_is_cut():
    wide = losses.Hinge().oscillation(1.0, 4.0, 1.0)
    assert wide == losses.Hinge().oscillation(1.0, 2.0, 1.0)

    def hinge(u, y):
        return max(decimal.Decimal(0), 1 - decimal.Decimal(y) * u)

    # The planted error is this formula without its guard: twice as much.
    low, high = decimal.Decimal(-1), decimal.Decimal(3)
    assert float(hinge(low, -1.0).copy_abs()) < float(hinge(high, -1.0)) == 4.0
    cut = largest_oscillation(hinge, margin_bound=1.0, width=4.0, response_bound=1.0)
    assert cut == pytest.approx(2.0, rel=1e-10)


@pytest.mark.slow
def test_extreme_sizes_round_up():
    for loss in LOSSES:
        for reach, bound in ((1e-100, 1e100), (1e100, 1e-100), (1e-100, 1e-100)):
            oscillation = loss.oscillation(reach, 2.0 * reach, bound)
            assert 0.0 < oscillation or loss.name == "power_four"
            with mpmath.workdps(450):
                y = bound if loss.name in REAL else 1.0
                assert oscillation >= brute_force(loss, reach, 2.0 * reach, y, count=1)


def test_a_loss_of_another_package_has_its_slope_bound():
    class Steep(losses.Logistic):
        name = "steep_of_a_test"

    try:
        assert Steep().oscillation(2.0, 4.0, 1.0) == pytest.approx(4.0, rel=1e-10)
    finally:
        from dpsample.losses.loss import registry

        registry.pop("steep_of_a_test", None)
    assert isinstance(Steep(), Loss)


def facts(**changes):
    defaults = {
        "num_records": 10,
        "dim": 3,
        "loss": losses.Logistic(),
        "domain": dps.domains.Ball(1.5),
        "row_bound": 2.0,
        "row_norm": 2.0,
    }
    return PublicFacts(**(defaults | changes))


DOMAINS = {
    "ball": dps.domains.Ball(1.5),
    "moved ball": dps.domains.Ball(0.5, center=[1.0, -2.0, 0.0]),
    "l1 ball": dps.domains.Ball(1.0, p=1.0),
    "box": dps.domains.Box([-1.0, 0.0, 2.0], [0.0, 3.0, 2.5]),
    "simplex": dps.domains.Simplex(),
    "polytope": dps.domains.Polytope(
        [[1.0, 1.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]],
        [1.0, 0.0, 0.0, 0.0],
    ),
}


def corners(domain, rng):
    """Points of a domain, its extreme ones among them."""
    points = rng.normal(size=(300, 3))
    outer = np.array([domain.project(10.0 * point) for point in points])
    return np.vstack(
        [outer, [domain.project(10.0 * s * e) for e in np.eye(3) for s in (1, -1)]]
    )


@one_in(3)
@pytest.mark.parametrize("row_norm", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("shape", DOMAINS)
def test_margins_of_one_record_are_within_the_width(shape, row_norm):
    domain, rng = DOMAINS[shape], np.random.default_rng(1)
    stated = facts(domain=domain, row_norm=row_norm)
    points = corners(domain, rng)
    differences = (points[:, None] - points[None]).reshape(-1, 3)
    # The row that is worst for a difference attains the dual norm.
    seen = 2.0 * float(norm(differences, dual(row_norm)).max())
    assert seen <= stated.margin_width * (1.0 + 1e-9)
    if shape != "polytope" and not (shape == "l1 ball" and row_norm == math.inf):
        assert seen >= 0.9 * stated.margin_width
    assert stated.margin_width <= 2.0 * stated.margin_bound * (1.0 + 1e-12)


def test_an_offset_moves_margins_and_does_not_spread_them():
    stated = facts(offset_bound=4.0)
    assert stated.margin_width == pytest.approx(2.0 * stated.margin_bound - 8.0)
    assert facts(intercept=True).margin_width == pytest.approx(3.0 * math.sqrt(5.0))
    matrix = dps.domains.SchattenBall(1.5, p=1.0, shape=(2, 3))
    assert facts(domain=matrix, dim=6).margin_width == pytest.approx(6.0)


@one_in(4)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("shape", DOMAINS)
def test_no_pair_of_records_changes_the_losses_by_more(loss, shape):
    domain, rng = DOMAINS[shape], np.random.default_rng(2)
    bound = 1.5 if loss.name in REAL else None
    stated = facts(loss=loss, domain=domain, response_bound=bound)
    points, best = corners(domain, rng), [0.0, 0.0]
    rows = rng.normal(size=(150, 3))
    axes = points[rng.integers(len(points), size=50)]
    rows = np.vstack([rows, np.eye(3), axes - points[:50] + 1e-6])
    rows *= 2.0 / np.linalg.norm(rows, axis=1)[:, None]
    ys = np.where(rng.random((2, len(rows))) < 0.5, 1.0, -1.0) * (bound or 1.0)
    for i, row in enumerate(rows):
        other = rows[rng.integers(len(rows))] if i % 2 else -row
        for a, b, y, z in (
            (row, other, ys[0, i], ys[1, i]),
            (row, row, ys[0, i], -ys[0, i]),
        ):
            first, second = loss.value(points @ a, y), loss.value(points @ b, z)
            best[0] = max(best[0], float(np.ptp(first)))
            best[1] = max(best[1], float(np.ptp(first - second)))
    for seen, relation in zip(best, ("zero_out", "replace_one"), strict=True):
        assert seen <= stated.loss_range(relation)
    if shape == "ball":  # half of it, as a planted error, would be seen
        assert best[1] > 0.9 * stated.loss_range("replace_one")
        assert best[0] > 0.9 * stated.loss_range("zero_out")


def test_what_has_no_finite_range_is_refused_by_public_facts():
    with pytest.raises(ValueError, match="domain must be bounded for a finite range"):
        facts(domain=dps.domains.WholeSpace()).loss_range()
    for loss in (losses.Squared(), losses.PowerFour()):
        with pytest.raises(ValueError, match="response_bound must be finite"):
            facts(loss=loss, response_bound=math.inf).loss_range()
    record = losses.record_gradient(lambda row, y, theta, out: None, name="own")
    with pytest.raises(ValueError, match="loss must be a function of the margin"):
        facts(loss=record).loss_range()
    with pytest.raises(ValueError, match="relation must be one of"):
        facts().loss_range("both")
    custom_loss = losses.custom(
        lambda u, y: abs(u), lambda u, y: 1.0 if u > 0 else -1.0, slope_bound=1.0
    )
    assert facts(loss=custom_loss).loss_range("zero_out") == pytest.approx(
        6.0, rel=1e-9
    )
