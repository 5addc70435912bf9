"""What a loss declares, compared with its compiled scalar at hostile places."""

from __future__ import annotations

import decimal
import json
import math

import numpy as np
import pytest

from dpsample import losses

REACHES, BOUNDS = (0.5, 4.0, 60.0), (0.7, 3.0)
EPS = np.finfo(float).eps
STEPS = 2.0 ** -np.arange(1.0, 42.0, 8.0)  # distances from places where losses bend
SHARES = np.array([0.0, 1e-3, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1.0])
LARGE = 1e5  # a response that only a loss without need of its bound meets


def responses(loss, bound):
    if loss.is_classification:
        return np.array([-1.0, 1.0])
    return bound * np.array([-1.0, -0.37, 0.0, 0.61, 1.0])


def bends(loss, reach, y):
    """Margins at which losses of y may bend: 0, labels, the response, parameters."""
    sizes = np.array([0.0, 1.0, *np.abs(loss.params)])
    near = np.concatenate([sizes, -sizes])
    near = np.unique([*near, *(y + near), *(y - y * sizes)])
    return np.clip(near, -reach, reach)


def margins(loss, reach, y):
    """Margins up to the reach, evenly spaced and close to bends."""
    near = bends(loss, reach, y)
    close = (near[:, None] + reach * np.concatenate([-STEPS, STEPS])).ravel()
    even = np.linspace(-reach, reach, 121)
    return np.unique(np.clip([*even, *near, *close], -reach, reach))


def cells(loss):
    """Reach, response and margins of every case."""
    for reach in REACHES:
        for y in responses(loss, BOUNDS[-1]):
            yield reach, y, margins(loss, reach, y)


def subgradients(loss):
    """Values are convex in the margin, slopes their subgradients."""
    for reach, y, u in cells(loss):
        value, slope = loss.value(u, y), loss.slope(u, y)
        assert np.isfinite(value).all() and np.isfinite(slope).all()
        scale = np.abs(value).max() + reach * np.abs(slope).max()
        tangent = value[:, None] + slope[:, None] * (u[None] - u[:, None])
        assert (value[None] - tangent >= -32.0 * EPS * scale).all()
        assert (np.diff(slope) >= -32.0 * EPS * np.abs(slope).max()).all()
        # Differences of slopes have digits where those of values have none.
        middle = 0.5 * (u[1:] + u[:-1])
        wide = np.diff(u) > 1e-3 * reach
        rise = np.diff(value)[wide] / np.diff(u)[wide]
        assert (rise >= slope[:-1][wide] - 1e-9 * scale).all()
        assert (rise <= slope[1:][wide] + 1e-9 * scale).all()
        assert np.isfinite(loss.value(middle, y)).all()


def slope_bound(loss):
    """No slope is above the bound of its margins and responses; far out it grows."""
    for reach in (*REACHES, 1e4, math.inf):
        for bound in BOUNDS:
            declared = loss.slope_bound(reach, bound)
            assert declared >= 0.0
            free = not (loss.is_classification or loss.needs_response_bound)
            # Without a declared bound of the responses facts pass 1; `Problem` limits
            # those of the linear loss to it.
            is_same = declared == loss.slope_bound(reach, 10.0 * bound)
            assert is_same or not free or type(loss) is losses.Linear
            ys = responses(loss, bound)
            if free and is_same:
                ys = np.append(ys, [LARGE, -LARGE, 15.0, -15.0])
            for y in ys:
                slope = loss.slope(margins(loss, min(reach, 1e6), y), y)
                largest = np.abs(slope).max()
                assert largest <= declared * (1.0 + 1e-12)
                assert (np.diff(slope) >= -32.0 * EPS * largest).all()


def oscillation(loss):
    """No interval of margins, for no response, has values farther apart."""
    shares = np.linspace(0.0, 1.0, 41)
    for reach in REACHES:
        for bound in (None, 1.0, BOUNDS[-1]):
            is_free = bound is None and type(loss) is not losses.Linear
            ys = np.append(responses(loss, bound or 1.0), [LARGE, -LARGE] * is_free)
            if loss.is_classification:
                ys = responses(loss, bound)
            for width in reach * np.array([0.1, 1.0, 1.7, 2.0]):
                declared, largest = loss.oscillation(reach, width, bound), 0.0
                for low in np.linspace(-reach, reach - width, 9):
                    u = low + width * shares
                    for y in ys:
                        largest = max(largest, np.ptp(loss.value(u, y)))
                rounding = 8.0 * EPS * LARGE * is_free
                assert largest <= declared * (1.0 + 1e-12) + rounding


def intervals(loss, seed=2, count=400):
    """Intervals of margins, some at bends, points in each, and responses."""
    rng = np.random.default_rng(seed)
    y = rng.choice(responses(loss, BOUNDS[-1]), count)
    lower = rng.uniform(-6.0, 6.0, count)
    at_bend = np.array([rng.choice(bends(loss, 6.0, each)) for each in y])
    width = 10.0 ** rng.uniform(-4.0, 1.0, count)
    lower = np.where(
        rng.random(count) < 0.5, at_bend - width * rng.random(count), lower
    )
    upper = lower + width
    points = lower + np.concatenate([SHARES, rng.random(4)])[:, None] * (upper - lower)
    bent = np.array([rng.choice(bends(loss, 60.0, each), 4) for each in y]).T
    points = np.sort(np.clip(np.concatenate([points, bent]), lower, upper), axis=0)
    return lower, upper, y, points


def curvature(loss):
    """Difference quotients of slopes lie between the bounds of their interval."""
    lower, upper, y, points = intervals(loss)
    low, high = loss.curvature(lower, upper, y)
    assert (low >= 0.0).all() and (low <= high).all()
    slopes = loss.slope(points, y)
    slack = 32.0 * EPS * (1.0 + np.abs(slopes).max(0))
    gap, rise = np.diff(points, axis=0), np.diff(slopes, axis=0)
    with np.errstate(invalid="ignore"):  # no curvature is promised, no gap
        assert (rise >= low * gap - slack).all()
        assert not (rise > high * gap + slack).any()
    far = np.array([np.inf, np.inf])
    ends = responses(loss, 1.0)[[0, -1]]
    widest = loss.curvature(-far, far, ends)
    assert (widest[0] <= loss.curvature(-0.1 * far, 0.1 * far, ends)[1]).all()
    assert (widest[0][:, None] <= low).all() and (low <= widest[1].max()).all()
    assert not (high > widest[1].max()).any() or loss.needs_response_bound


def quotients(loss, order, seed=3):
    """Declared least quotients and the quotients at points of their intervals."""
    lower, upper, y, points = intervals(loss, seed)
    u = points[
        np.random.default_rng(seed).integers(len(points), size=len(y)), range(len(y))
    ]
    which = loss.secant_curvature if order == 1 else loss.bregman_curvature
    declared = which(u, lower, upper, y)
    t = points - u
    value, slope = loss.value(u, y), loss.slope(u, y)
    with np.errstate(divide="ignore", invalid="ignore"):
        if order == 1:
            found = (loss.slope(points, y) - slope) / t
            size = np.abs(slope) / np.abs(t)
        else:
            found = 2.0 * (loss.value(points, y) - value - slope * t) / t**2
            size = (np.abs(value) + np.abs(slope * t)) / t**2
    return declared, found, np.where(t == 0.0, np.inf, 64.0 * EPS * size)


def secant_curvature(loss):
    """No secant of the slope is below the declared one."""
    declared, found, slack = quotients(loss, 1)
    assert not (found < declared * (1.0 - 1e-9) - slack).any()


def bregman_curvature(loss):
    """No Bregman quotient is below the declared one."""
    declared, found, slack = quotients(loss, 2)
    assert not (found < declared * (1.0 - 1e-9) - slack).any()


def has_unimodal_curvature(loss):
    """Curvature rises in the margin and then falls, where that is promised."""
    if not loss.has_unimodal_curvature:
        return
    for _, y, u in cells(loss):
        low = loss.curvature(u, u, np.full(len(u), y))[0]
        top = int(np.argmax(low))
        assert (np.diff(low[: top + 1]) >= -1e-12).all()
        assert (np.diff(low[top:]) <= 1e-12).all()


def third_derivative_bound(loss):
    """Second differences of slopes are at most the bound times the square of a step."""
    for reach in REACHES:
        bound = loss.third_derivative_bound(reach, BOUNDS[-1])
        for y in responses(loss, BOUNDS[-1]):
            u, step = margins(loss, 0.99 * reach, y), 0.01 * reach
            for h in (step, 0.1 * step):
                slopes = [loss.slope(u + k * h, y) for k in (-1, 0, 1)]
                second = np.abs(slopes[0] - 2.0 * slopes[1] + slopes[2])
                slack = 16.0 * EPS * np.abs(slopes).max()
                assert not (second > bound * (1.0 + 1e-9) * h**2 + slack).any()


def prox(loss):
    """The step from u to its proximal point v is a subgradient at v."""
    for y in responses(loss, BOUNDS[-1]):
        u = margins(loss, 4.0, y)
        for step in (1e-3, 0.3, 5.0, 1e3):
            v = loss.prox(u, y, step)
            pull, near = (u - v) / step, 1e-7 * (1.0 + np.abs(v))
            slack = 1e-7 * (1.0 + np.abs(pull))
            assert (loss.slope(v - near, y) <= pull + slack).all()
            assert (pull <= loss.slope(v + near, y) + slack).all()


def near_response(loss):
    """Losses of the nearer response differ by a constant on the margins."""
    ys = responses(loss, BOUNDS[-1])
    if not loss.is_classification:
        ys = np.append(ys, [1e4, -1e4])
    for reach in REACHES:
        near = loss.near_response(ys, reach)
        for y, z in zip(ys, near, strict=True):
            u = margins(loss, reach, y)
            gap = loss.value(u, y) - loss.value(u, z)
            slack = 64.0 * EPS * max(np.abs(loss.value(u, y)).max(), 1.0)
            assert np.ptp(gap) <= slack


def kink(loss):
    """On both sides of a kink the slope is constant."""
    ys = responses(loss, BOUNDS[-1])
    places = loss.kink(ys)
    for y, place in zip(
        ys, () if places is None else places, strict=places is not None
    ):
        u = margins(loss, 9.0, y)
        for side in (u[u < place], u[u > place]):
            assert np.ptp(loss.slope(side, y)) <= 8.0 * EPS


def check_response(loss):
    """What the bounds do not cover is refused, and what they cover is not."""
    loss.check_response(responses(loss, 1.0), 1.0)
    for bad in (0.0, 2.0, -1.5) if loss.is_classification else (1.01, -7.0):
        with pytest.raises(ValueError, match="response must be"):
            loss.check_response(np.array([1.0, bad]), 1.0)


def exact_value(loss):
    """Digits of a decimal evaluation begin with those of the double."""
    if not loss.has_decimals:
        return
    with decimal.localcontext(prec=40):
        for u in (-30.0, -1.0, -0.3, 0.0, 0.45, 1.0, 2.7, 30.0):
            for y in responses(loss, BOUNDS[-1]):
                exact = float(loss._exact_value(decimal.Decimal(u), float(y)))
                assert float(loss.value(u, y)) == pytest.approx(exact, 1e-13, 1e-15)


def travels(loss):
    """Name and fields are all that a file needs to make the loss again."""
    again = losses.from_dict(json.loads(json.dumps(loss.to_dict())))
    assert again.to_dict() == loss.to_dict()
    for _, y, u in cells(loss):
        assert np.array_equal(again.value(u, y), loss.value(u, y))


# What each public name of `Loss` promises. Names without a number in them are last.
PROMISES = {
    "value": subgradients,
    "slope": subgradients,
    "slope_bound": slope_bound,
    "oscillation": oscillation,
    "is_classification": slope_bound,
    "needs_response_bound": slope_bound,
    "curvature": curvature,
    "secant_curvature": secant_curvature,
    "bregman_curvature": bregman_curvature,
    "has_unimodal_curvature": has_unimodal_curvature,
    "third_derivative_bound": third_derivative_bound,
    "prox": prox,
    "near_response": near_response,
    "kink": kink,
    "check_response": check_response,
    "has_digits": exact_value,
    "has_decimals": exact_value,
    "_exact_value": exact_value,
    "to_dict": travels,
}
# Read by the methods above, or no claims: where compiled code and its numbers are.
NO_PROMISES = {"largest_slope", "largest_third_derivative", "name", "params"}
NO_PROMISES |= {"pieces", "pointers", "value_pointer", "slope_pointer"}
NO_PROMISES |= {"is_cached", "is_ours", "has_margin"}


def is_valley(loss):
    """Whether the curvature is less at the response 0 than on both sides of it."""
    low = loss.curvature(*2 * [np.array([-1.0, 0.0, 1.0])], np.zeros(3))[0]
    return not loss.is_classification and low[0] > low[1] < low[2]


def planted(loss, factor):
    """Pairs of a name and a false version of it, each times the factor below 1.

    What a factor leaves true (0, infinity, flags that promise nothing) is not listed.
    """
    kind, name = type(loss), loss.name
    cut = lambda name: lambda self, *a: factor * getattr(kind, name)(self, *a)  # noqa: E731
    yield "value", cut("value")
    yield "slope", cut("slope")
    yield "slope_bound", cut("slope_bound")
    # The piece itself, as a copy of another class would use its slope bound.
    yield "oscillation", lambda self, *a: factor * loss.oscillation(*a)
    if loss.is_classification:
        yield "is_classification", False
    if loss.needs_response_bound:
        yield "needs_response_bound", False
    more = 1.0 / factor

    def low_curvature(self, *a):
        low, high = kind.curvature(self, *a)
        return more * low + 0.01, np.maximum(high, more * low + 0.01)

    def high_curvature(self, *a):
        low, high = kind.curvature(self, *a)
        high = np.where(np.isinf(high), 0.1, factor * high)
        return np.minimum(low, high), high

    def larger(name):
        return lambda self, *a: more * getattr(kind, name)(self, *a) + 0.01

    yield "curvature", low_curvature
    if loss.curvature(*np.array([[-1.0], [1.0], [1.0]]))[1] > 0.0:
        yield "curvature", high_curvature
    yield "secant_curvature", larger("secant_curvature")
    yield "bregman_curvature", larger("bregman_curvature")
    if is_valley(loss):
        yield "has_unimodal_curvature", True
    third = loss.third_derivative_bound(4.0, 1.0)
    if third > 0.0:
        least = factor if math.isfinite(third) else 0.0
        yield (
            "third_derivative_bound",
            lambda self, *a: (
                least * kind.third_derivative_bound(self, *a) if least else 1e-3
            ),
        )
    yield "prox", lambda self, u, y, c: kind.prox(self, u, y, c) + 1.0 - factor
    if not isinstance(loss, losses.Linear):
        yield "near_response", lambda self, y, reach: factor * y
        yield (
            "kink",
            lambda self, y: (
                y if kind.kink(self, y) is None else kind.kink(self, y) + 1.0 - factor
            ),
        )
    yield "check_response", lambda self, *a, **options: None
    yield "to_dict", lambda self: {"name": "hinge" if name != "hinge" else "logistic"}
    if loss.has_decimals:
        share = decimal.Decimal(factor)
        yield "_exact_value", lambda self, *a: share * kind._exact_value(self, *a)
