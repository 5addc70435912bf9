"""Losses: slopes, convexity, declared bounds, prox, compiled pieces."""

import json
import math

import numpy as np
import pytest

from dpsample import losses
from tests.contracts import pieces
from tests.support.tiers import one_in

# Other parameters than by default.
PARAMETERS = {
    "capped_logistic": {"cap": 0.4},
    "quantile": {"level": 0.3},
    "huber": {"width": 0.7},
}
LOSSES = [
    kind(**PARAMETERS[kind.name])
    if kind.name in PARAMETERS
    else pieces.examples(kind, 0)[0]
    for kind in pieces.LOSSES
]
# Losses with exact values here; `tests.contracts.test_promises` looks at all.
FORMULAS = {
    "linear": lambda u, y: -y * u,
    "logistic": lambda u, y: np.logaddexp(0.0, -y * u),
    "calibrated_logistic": lambda u, y: np.where(
        y * u >= 0.0, 0.5 * np.exp(-y * u), 0.5 - 0.5 * y * u
    ),
    "capped_logistic": lambda u, y: np.where(
        y * u >= np.log(1.5),
        np.logaddexp(0.0, -y * u),
        0.4 * (np.log(1.5) - y * u) - np.log(0.6),
    ),
    "hinge": lambda u, y: np.maximum(0.0, 1.0 - y * u),
    "smoothed_hinge": lambda u, y: np.where(
        y * u >= 1.0,
        0.0,
        np.where(y * u > 0.5, (1.0 - y * u) ** 2, 0.75 - y * u),
    ),
    "absolute": lambda u, y: np.abs(u - y),
    "quantile": lambda u, y: np.maximum(0.3 * (y - u), -0.7 * (y - u)),
    "huber": lambda u, y: np.where(
        np.abs(u - y) <= 0.7, 0.5 * (u - y) ** 2, 0.7 * np.abs(u - y) - 0.245
    ),
    "squared": lambda u, y: 0.5 * (u - y) ** 2,
    "power_four": lambda u, y: (u - y) ** 4,
}
ABOUT = {"classification": (-1.0, 1.0), "regression": (-1.5, -0.4, 0.0, 0.9)}

KNOWN = [loss for loss in LOSSES if loss.name in FORMULAS]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
each_known = pytest.mark.parametrize("loss", KNOWN, ids=lambda loss: loss.name)


def labels(loss):
    return ABOUT["classification" if loss.is_classification else "regression"]


def pairs(loss, size, reach=4.0, seed=1):
    """Random margins and responses that the loss accepts."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-reach, reach, size), rng.choice(labels(loss), size)


@each_known
def test_value_is_the_formula(loss):
    u, y = pairs(loss, 1000)
    np.testing.assert_allclose(
        loss.value(u, y), FORMULAS[loss.name](u, y), rtol=1e-14, atol=1e-15
    )


@each_loss
def test_secants_lie_between_the_slopes_at_their_ends(loss):
    """Convexity and a slope that is a subgradient, kinks included."""
    u, y = pairs(loss, 2000)
    for width in (1e-3, 0.1, 3.0):
        secant = (loss.value(u + width, y) - loss.value(u, y)) / width
        slack = 1e-10 * (1.0 + np.abs(secant))
        assert np.all(loss.slope(u, y) <= secant + slack)
        assert np.all(secant <= loss.slope(u + width, y) + slack)
        # Planted bug: half the slope is no subgradient of any of the losses.
        bad = 0.5 * loss.slope(u, y), 0.5 * loss.slope(u + width, y)
        assert np.any(bad[0] > secant + slack) or np.any(secant > bad[1] + slack)


@each_loss
def test_slope_at_a_kink_is_a_subgradient(loss):
    kinks = {"hinge": 1.0, "absolute": -0.4, "quantile": -0.4}
    u, y = kinks.get(loss.name, 0.3), labels(loss)[1]
    value, slope = loss.value(u, y), loss.slope(u, y)
    for other in (u - 1.0, u - 1e-6, u + 1e-6, u + 1.0):
        assert loss.value(other, y) >= value + slope * (other - u) - 1e-15


@each_known
def test_slope_bound_is_attained_and_never_exceeded(loss):
    margin_bound, response_bound = 60.0, 1.5
    bound = loss.slope_bound(margin_bound, response_bound)
    u = np.linspace(-margin_bound, margin_bound, 4001)
    ys = (-1.0, 1.0) if loss.is_classification else np.linspace(-1.5, 1.5, 31)
    largest = max(np.abs(loss.slope(u, y)).max() for y in ys)
    assert largest <= bound * (1.0 + 1e-14)
    assert largest == pytest.approx(bound, rel=1e-12)


def intervals(loss, size=3000):
    """Random margin intervals, two points inside each, and responses."""
    rng = np.random.default_rng(2)
    lower, y = pairs(loss, size)
    upper = lower + rng.exponential(rng.choice([0.05, 1.0, 5.0], size))
    points = np.sort(rng.uniform(lower, upper, (2, size)), axis=0)
    return lower, upper, y, points


def curvature_holds(loss, low, high, y, points):
    """Whether the slope's difference quotients lie within the bounds."""
    rise = loss.slope(points[1], y) - loss.slope(points[0], y)
    gap = points[1] - points[0]
    slack = 1e-13 * (1.0 + np.abs(loss.slope(points[1], y)))
    with np.errstate(invalid="ignore"):
        return np.all(rise >= low * gap - slack) and np.all(rise <= high * gap + slack)


@each_loss
def test_curvature_bounds_every_difference_quotient_on_its_interval(loss):
    lower, upper, y, points = intervals(loss)
    low, high = loss.curvature(lower, upper, y)
    assert low.shape == high.shape == lower.shape
    assert np.all(low >= 0.0) and np.all(low <= high)
    assert curvature_holds(loss, low, high, y, points)


@each_known
def test_a_larger_lower_bound_or_a_smaller_upper_bound_is_caught(loss):
    lower, upper, y, points = intervals(loss)
    low, high = loss.curvature(lower, upper, y)
    assert not curvature_holds(loss, low + 0.01, high, y, points)
    finite = np.isfinite(high)
    if np.any(high[finite] > 0.0):
        assert not curvature_holds(loss, low, 0.9 * high, y, points)
    if loss.name in ("logistic", "power_four"):
        # An interval that is thought to be shorter than it is.
        low, high = loss.curvature(lower, 0.5 * (lower + upper), y)
        assert not curvature_holds(loss, low, high, y, points)


@each_known
def test_unbounded_margins_still_have_valid_curvature_bounds(loss):
    y = np.array([1.0, -1.0])
    low, high = loss.curvature(np.full(2, -np.inf), np.full(2, np.inf), y)
    constant = {"squared": 1.0}.get(loss.name, 0.0)
    np.testing.assert_array_equal(low, constant)
    finite = {"linear": 0.0, "logistic": 0.25, "squared": 1.0, "huber": 1.0}
    finite |= {"capped_logistic": 0.24, "calibrated_logistic": 0.5}
    finite["smoothed_hinge"] = 2.0
    np.testing.assert_allclose(high, finite.get(loss.name, np.inf), rtol=1e-15)


@each_known
def test_third_derivative_bound_holds_and_is_attained(loss):
    bound = loss.third_derivative_bound(4.0, 1.5)
    if math.isinf(bound):
        return
    u = np.linspace(-4.0, 4.0, 100_001)
    largest = 0.0
    for y in (-1.0, 1.0) if loss.is_classification else (-1.5, 1.5):
        second = loss.curvature(u, u, np.full(u.size, y))[0]
        largest = max(largest, np.abs(np.diff(second) / np.diff(u)).max())
    assert largest <= bound * (1.0 + 1e-9) + 1e-9
    assert largest == pytest.approx(bound, rel=1e-3, abs=1e-9)


def test_third_derivative_is_finite_exactly_for_the_smooth_losses():
    smooth = {
        loss.name for loss in KNOWN if loss.third_derivative_bound(1.0, 1.0) < np.inf
    }
    assert smooth == {"linear", "logistic", "squared", "power_four"}


@each_loss
def test_prox_is_optimal(loss):
    """Growth 1/(2 step) from the minimum holds at the minimizer only."""
    u, y = pairs(loss, 400)
    step = np.random.default_rng(3).exponential(2.0, 400) + 1e-3

    def grows(v):
        def objective(w):
            return loss.value(w, y) + (w - u) ** 2 / (2.0 * step)

        others = v + np.linspace(-5.0, 5.0, 401)[:, None]
        excess = objective(others) - objective(v) - (others - v) ** 2 / (2.0 * step)
        return np.all(excess >= -1e-10 * (1.0 + np.abs(objective(others))))

    best = loss.prox(u, y, step)
    assert best.shape == u.shape
    assert grows(best)
    assert not grows(best + 1e-3)
    assert not grows(best - 1e-3)


def test_prox_is_right_for_all_that_it_takes():
    fourth, logistic = losses.PowerFour(), losses.Logistic()
    near = float(fourth.prox(1e30, 0.0, 1.0))  # 4 v^3 + v = u
    assert near == pytest.approx((1e30 / 4.0) ** (1.0 / 3.0), rel=1e-9)
    assert float(fourth.prox(1e110, 0.0, 1.0)) < 1e37
    for step, point in ((1e60, 133.26), (1e100, 224.84)):
        assert float(logistic.prox(0.0, 1.0, step)) == pytest.approx(point, rel=1e-4)
    flat = float(losses.Huber(1.0).prox(1e10, 0.0, 1e100))
    assert abs(flat) < 1e-80


@each_loss
def test_prox_takes_scalars_and_broadcasts(loss):
    y = labels(loss)[0]
    row = loss.prox([0.1, 0.2, -3.0], y, 0.5)
    each = [float(loss.prox(u, y, 0.5)) for u in (0.1, 0.2, -3.0)]
    np.testing.assert_allclose(row, each, rtol=0, atol=1e-15)


@one_in(12)
@each_loss
def test_record_piece_and_block_pieces_agree(loss):
    u, y = pairs(loss, 40)
    value_piece, slope_piece, record_piece = loss.pieces
    params = loss.params
    values, total = u.copy(), np.full(2, np.nan)
    value_piece(params, values, y, total)
    again, slopes, out = u.copy(), np.full(40, np.nan), np.full(2, np.nan)
    slope_piece(params, again, y, slopes, out)
    np.testing.assert_array_equal(values, again)
    assert total[0] == out[0] == pytest.approx(values.sum(), rel=1e-13)
    for i in range(40):
        record = np.full(2, np.nan)
        record_piece(params, float(u[i]), float(y[i]), record)
        # A block may be compiled to vector instructions, which round differently.
        np.testing.assert_allclose(record, [values[i], slopes[i]], rtol=1e-14)


@one_in(3)
@each_loss
def test_nan_gives_nan(loss):
    for u, y in ((np.nan, 1.0), (0.5, np.nan)):
        assert np.isnan(loss.value(u, y))
        margins = np.array([0.1, u, 0.2])
        out = np.full(2, np.nan)
        loss.pieces[0](loss.params, margins, np.array([1.0, y, -1.0]), out)
        assert np.isnan(out[0])


@pytest.mark.parametrize("size", [1e3, 1e10, 1e100, 1e300])
def test_logistic_does_not_overflow(size):
    loss = losses.Logistic()
    for y in (-1.0, 1.0):
        assert loss.value(-y * size, y) == size
        assert loss.slope(-y * size, y) == -y
        assert loss.value(y * size, y) == 0.0 == loss.slope(y * size, y)


@each_loss
def test_dictionary_round_trip(loss):
    text = json.dumps(loss.to_dict())
    assert losses.from_dict(json.loads(text)) == loss


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"^loss must be one of .*, got 'cubic'\.$"):
        losses.from_dict({"name": "cubic"})


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: losses.SmoothedHinge(width=0.0), "Use Hinge"),
        (lambda: losses.CappedLogistic(cap=1.0), r"got 1.*\. Logistic\(\) has"),
        (lambda: losses.CappedLogistic(cap=0.0), "cap must be > 0.01 and < 1, got 0"),
        (lambda: losses.SmoothedHinge(width=math.nan), "width must be"),
        (lambda: losses.Huber(width=-1.0), "width must be from 1e-60 to 1e\\+60"),
        (lambda: losses.Huber(width=1e-200), "width must be from 1e-60 to 1e\\+60"),
        (lambda: losses.Quantile(level=1.0), "level must be > 0 and < 1, got 1"),
        (lambda: losses.Quantile(level="a"), "level must be > 0 and < 1, got 'a'"),
    ],
)
def test_bad_parameters_are_refused(build, words):
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.parametrize("name", ["logistic", "calibrated_logistic", "hinge"])
def test_labels_0_and_1_name_the_remedy(name):
    loss = next(loss for loss in LOSSES if loss.name == name)
    words = r"^response must be -1 or 1, got 0 at record 2\. Map .* 2 \* y - 1 "
    with pytest.raises(ValueError, match=words):
        loss.check_response(np.array([1.0, 1.0, 0.0]), None)
    loss.check_response(np.array([1.0, -1.0]), None)


@pytest.mark.parametrize("name", ["linear", "squared", "huber"])
def test_a_response_above_its_bound_is_named(name):
    loss = next(loss for loss in LOSSES if loss.name == name)
    words = r"within response_bound = 2 .* got -2\.5 at record 1\. Declare"
    with pytest.raises(ValueError, match=words):
        loss.check_response(np.array([2.0, -2.5]), 2.0)
    loss.check_response(np.array([2.0, -2.0]), 2.0)


def test_a_loss_that_inherits_its_name_does_not_replace_its_base():
    """Else certificates of the base would be verified with bounds of the heir."""

    class Heir(losses.Logistic):
        largest_slope = 0.5

    assert Heir().name == "logistic"
    assert type(losses.from_dict({"name": "logistic"})) is losses.Logistic
