"""Declarations of a user's loss, compared with what its functions do.

The slope's growth between two margins is the integral of the curvature, so a narrow
peak shows in the difference of two slopes however far apart they are. Intervals that
come nearest to a bound are divided again and again: a peak is missed only if it is
small in total. Each margin is compared with all before it, not with its neighbor alone,
so that what rounding may hide is counted once and not once for each interval. What
passes has been seen at points; it is not proved.
"""

from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core.arrays import Array, Bools
from dpsample.core.spec import Json
from dpsample.losses.loss import Curvatures, Loss

FAR = 500.0  # stands for an infinite bound: its exponential is still a number
NUM_POINTS = 32_768  # evenly spaced margins, shared among the responses
MIN_MARGINS = 513  # of them, for each response
NUM_RESPONSES = 17
NUM_DENSE = 2_049  # responses at which a few margins are tried
FEW_MARGINS = 9
ZOOMED, PARTS, ROUNDS = 32, 8, 14  # worst intervals, each divided, again and again
# Distances, relative to the reach, from places where losses bend: 0, 1, -1 and y.
NEAR = np.concatenate([-(2.0 ** -np.arange(41.0)), [0.0], 2.0 ** -np.arange(41.0)])
SLACK = 1e-10  # error of computed slopes, relative to the largest
# The same of values. A squared loss of responses B has values B/R times as large as
# their differences on margins up to R.
VALUE_SLACK = 1e-12
TIGHT = 1e-12  # relative excess over a bound that is rounding
Places = NDArray[np.intp]
BLOCK = 65_536  # records compared at once


@dataclass(frozen=True, kw_only=True)
class Declared(Loss):
    """Facts that a user declares of a loss; the functions are those of `Custom`."""

    label: str
    declared_slope: float
    lower_curvature: float = 0.0
    upper_curvature: float = np.inf
    third_derivative: float = np.inf
    labels: bool = False
    reads_response: bool = True
    is_cached: ClassVar[bool] = False  # the user's sources are not in our fingerprint

    @property
    def is_classification(self) -> bool:  # type: ignore[override]
        """Whether responses are declared to be labels -1 and 1."""
        return self.labels

    @property
    def needs_response_bound(self) -> bool:  # type: ignore[override]
        """Whether the functions read a response that no label bounds."""
        return self.reads_response and not self.labels

    def slope_bound(self, margin_bound: float, response_bound: float) -> float:
        """Return the declared slope bound."""
        del margin_bound, response_bound
        return self.declared_slope

    def curvature(self, lower: Array, upper: Array, response: Array) -> Curvatures:
        """Return the declared range of curvatures."""
        del upper, response
        return (
            np.full_like(lower, self.lower_curvature),
            np.full_like(lower, self.upper_curvature),
        )

    def third_derivative_bound(
        self, margin_bound: float, response_bound: float
    ) -> float:
        """Return the declared bound."""
        del margin_bound, response_bound
        return self.third_derivative

    def to_dict(self) -> Json:
        """Return the declared facts only: functions do not travel."""
        facts = {f.name: getattr(self, f.name) for f in fields(Declared)}
        return {"name": self.name} | facts


class Scale(NamedTuple):
    """Largest absolute value and slope over all margins and responses."""

    value: float
    slope: float


class Limits(NamedTuple):
    """Largest margin, the responses to try, and what an error has to say."""

    margin: float
    responses: Array
    remedy: str
    record: int | None = None  # the first of the records compared, if they are any


class Seen(NamedTuple):
    """Margins in ascending order, one row per response, with values and slopes."""

    margins: Array
    responses: Array  # (rows, 1)
    values: Array
    slopes: Array


def compare(loss: Declared, margin_bound: float, response_bound: float | None) -> Scale:
    """Compare a loss, with its functions, with its declarations at every margin.

    Margins go up to ``margin_bound``, of which some are tried if it is infinite,
    responses up to ``response_bound``, None for labels and where none is read. Returns
    the scale to which rounding errors are relative; a ValueError names the first
    declaration that does not hold, and where.
    """
    reach = FAR if np.isinf(margin_bound) else margin_bound
    limits = Limits(
        margin=reach,
        responses=_responses(loss, reach, response_bound),
        remedy=_remedy(loss, margin_bound, response_bound),
    )
    seen = _see(loss, _grid(limits), limits.responses[:, None], limits)
    scale = Scale(*(float(np.abs(part).max()) for part in (seen.values, seen.slopes)))
    _judge(loss, seen, limits, scale)
    few = np.linspace(-reach, reach, FEW_MARGINS)
    y = limits.responses
    if len(y) >= NUM_RESPONSES:  # there are others between the extremes, unless labels
        dense = np.linspace(y[0], y[-1], NUM_DENSE)[:, None]
        seen_between = _see(loss, np.tile(few, (len(dense), 1)), dense, limits)
        _judge(loss, seen_between, limits, scale)
    for sign in (1.0, -1.0):
        cells = seen
        for _ in range(ROUNDS):
            cells = _divided(loss, cells, _worst(cells, scale, sign), limits)
            _judge(loss, cells, limits, scale)
    return scale


def compare_records(
    loss: Declared,
    reaches: Array,
    response: Array,
    scale: Scale | None,
    first: int = 0,
) -> None:
    """Compare a loss, with its functions, with its declarations at the records.

    ``reaches`` are the largest absolute margins of the records, of shape (num_records,)
    as ``response``; ``scale`` is that of `compare`. It is None where responses have no
    bound: the rounding errors of values have none either, so that slopes alone are
    compared, where they are finite. A ValueError names the first declaration that does
    not hold, and a record; ``first`` is the number of the first one.
    """
    shares = np.linspace(-1.0, 1.0, 5)
    largest = FAR if np.isinf(reaches).any() else np.inf
    for start in range(0, len(response), BLOCK):
        part = slice(start, start + BLOCK)
        margins = shares * np.minimum(reaches[part, None], largest)
        limits = Limits(0.0, response[part], "", record=first + start)
        y = response[part, None]
        if scale is not None:
            _judge(loss, _see(loss, margins, y, limits), limits, scale)
        else:
            seen = _evaluated(loss, margins, y, limits)
            known = np.where(np.isfinite(seen.slopes), seen.slopes, 0.0)
            _judge_slopes(loss, seen._replace(slopes=known), limits)


def _remedy(loss: Declared, margin_bound: float, response_bound: float | None) -> str:
    responses = "every label"
    if not loss.reads_response:
        responses = "every response"
    elif response_bound is not None and not loss.labels:
        responses = f"every response up to {response_bound:g}"
    return f"It must hold for every margin up to {margin_bound:g} and {responses}."


def _responses(loss: Declared, reach: float, bound: float | None) -> Array:
    if loss.labels:
        return np.array([-1.0, 1.0])
    if not loss.reads_response or bound is None:
        return np.zeros(1)
    far = FAR if np.isinf(bound) else bound
    inner = min(far, reach)
    even = [np.linspace(-end, end, NUM_RESPONSES) for end in (far, inner)]
    return np.unique(np.concatenate([*even, far * NEAR[::2]]))


def _grid(limits: Limits) -> Array:
    """Ascending margins for each response, fine where losses bend."""
    reach, y = limits.margin, limits.responses[:, None]
    even = np.linspace(-reach, reach, max(MIN_MARGINS, NUM_POINTS // len(y)))
    fixed = np.concatenate([even] + [reach * NEAR + c for c in (0.0, 1.0, -1.0)])
    near_y = reach * NEAR + y
    margins = np.concatenate([np.tile(fixed, (len(y), 1)), near_y], axis=1)
    return np.asarray(np.sort(np.clip(margins, -reach, reach), axis=1))


def _evaluated(
    loss: Declared, margins: Array, responses: Array, limits: Limits
) -> Seen:
    try:
        # Uncompiled functions warn where compiled ones return NaN.
        with np.errstate(all="ignore"):
            values, slopes = loss._evaluate(margins, responses)
    except Exception as error:
        _fail("value and slope", "scalar functions of (u, y)", repr(error), limits)
    return Seen(margins, responses, values, slopes)


def _see(loss: Declared, margins: Array, responses: Array, limits: Limits) -> Seen:
    """Evaluate a loss, which must be finite."""
    seen = _evaluated(loss, margins, responses, limits)
    broken = ~(np.isfinite(seen.values) & np.isfinite(seen.slopes))
    if broken.any():
        i, j = _first(broken)
        numbers = f"{seen.values[i, j]:g} and {seen.slopes[i, j]:g}"
        got = f"{numbers}{_at(seen, limits, i, j)}"
        _fail("value and slope", "finite at every margin", got, limits)
    return seen


def _worst(seen: Seen, scale: Scale, sign: float) -> Places:
    """Intervals on which the slope surely grows fastest, or slowest for sign -1."""
    width, growth = np.diff(seen.margins), np.diff(seen.slopes)
    with np.errstate(all="ignore"):
        rate = (growth - sign * SLACK * scale.slope) / width
        order = np.argsort(np.where(width > 0.0, rate, -sign * np.inf), axis=None)
    return order[-ZOOMED:] if sign > 0.0 else order[:ZOOMED]


def _divided(loss: Declared, seen: Seen, cells: Places, limits: Limits) -> Seen:
    """Divide some intervals, numbered row by row, into parts."""
    row, column = np.divmod(cells, seen.margins.shape[1] - 1)
    low, high = seen.margins[row, column], seen.margins[row, column + 1]
    shares = np.linspace(0.0, 1.0, PARTS + 1)
    margins = low[:, None] + shares * (high - low)[:, None]
    margins[:, -1] = high  # not beyond the interval by rounding
    return _see(loss, margins, seen.responses[row], limits)


def _judge(loss: Declared, seen: Seen, limits: Limits, scale: Scale) -> None:
    """Fail if one declaration is contradicted."""
    _judge_slopes(loss, seen, limits)
    _judge_convexity(seen, limits, scale)
    _judge_curvature(loss, seen, limits, SLACK * scale.slope)
    if loss.third_derivative < np.inf:
        _judge_third(loss, seen, limits, SLACK * scale.slope)


def _judge_slopes(loss: Declared, seen: Seen, limits: Limits) -> None:
    """Fail if a slope is above its bound."""
    size = np.abs(seen.slopes)
    if size.max() > loss.declared_slope * (1.0 + TIGHT):
        i, j = _first(size == size.max())
        condition = f"at least {size[i, j]:.6g}, the slope{_at(seen, limits, i, j)}"
        _fail("slope_bound", condition, f"{loss.declared_slope:g}", limits)


def _judge_convexity(seen: Seen, limits: Limits, scale: Scale) -> None:
    """Fail if the slope falls, or no secant has a slope between those at its ends."""
    width, rise = np.diff(seen.margins), np.diff(seen.values)
    slack = SLACK * scale.slope
    slack_rise = VALUE_SLACK * scale.value + slack * width.sum(1, keepdims=True)
    bent = _falls(seen.slopes) > slack
    for excess in (
        rise - seen.slopes[:, :-1] * width,
        seen.slopes[:, 1:] * width - rise,
    ):
        sums = np.cumsum(np.pad(excess, ((0, 0), (1, 0))), axis=1)
        bent |= _falls(sums) > slack_rise
    if bent.any():
        got = f"slopes and secants that contradict it{_at(seen, limits, *_first(bent))}"
        _fail("value", "convex in u with derivative slope", got, limits)


def _judge_curvature(loss: Declared, seen: Seen, limits: Limits, slack: float) -> None:
    """Fail if the slope grows faster or slower than is declared."""
    width, growth = np.diff(seen.margins), np.diff(seen.slopes)
    lower, upper, more = loss.lower_curvature, loss.upper_curvature, 1.0 + 1e-9
    rounding = 1e-15 * float(np.abs(seen.margins).max())  # of the products below
    slow = _falls(seen.slopes - lower / more * seen.margins) > slack + rounding * lower
    with np.errstate(all="ignore"):  # infinity times no width
        fast = growth > upper * width * more + slack
    if upper < np.inf:
        excess = seen.slopes - upper * more * seen.margins
        fast |= _falls(-excess) > slack + rounding * upper
    for name, declared, words, bad in (
        ("upper_curvature", upper, "at least", fast),
        ("lower_curvature", lower, "at most", slow),
    ):
        if bad.any():
            i, j = _first(bad)
            rate = growth[i, j] / width[i, j] if width[i, j] else np.inf
            where = f"the growth of the slope{_at(seen, limits, i, j)}"
            condition = f"{words} {rate:.6g}, {where}"
            _fail(name, condition, f"{declared:g}", limits)


def _falls(rows: Array) -> Array:
    """Return how far each entry but the first is below the largest before it."""
    return np.asarray((np.maximum.accumulate(rows, axis=1) - rows)[:, 1:])


def _judge_third(loss: Declared, seen: Seen, limits: Limits, slack: float) -> None:
    """Second differences of the slope are at most half the bound."""
    width, growth = np.diff(seen.margins), np.diff(seen.slopes)
    span = width[:, 1:] + width[:, :-1]
    with np.errstate(all="ignore"):
        rate, error = growth / width, slack / width
        change = np.abs(np.diff(rate)) - error[:, 1:] - error[:, :-1]
        third = 2.0 * change / span
    bad = third > loss.third_derivative * (1.0 + 1e-9)
    if bad.any():  # NaN, of intervals without width, contradicts nothing
        i, j = _first(bad)
        where = f"the growth of the curvature{_at(seen, limits, i, j)}"
        condition = f"at least {third[i, j]:.6g}, {where}"
        got = f"{loss.third_derivative:g}"
        _fail("third_derivative_bound", condition, got, limits)


def _first(where: Bools) -> tuple[int, int]:
    i, j = np.unravel_index(int(np.argmax(where)), where.shape)
    return int(i), int(j)


def _at(seen: Seen, limits: Limits, i: int, j: int) -> str:
    y = float(seen.responses[i, 0])
    text = f" at the margin {seen.margins[i, j]:.6g} and the response {y:.6g}"
    return text if limits.record is None else f"{text} of record {limits.record + i}"


def _fail(name: str, condition: str, got: str, limits: Limits) -> NoReturn:
    check.fail(name, condition, got, limits.remedy)
