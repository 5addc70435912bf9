"""A loss from a user's own scalar functions, and what is declared of it, tried.

The slope's growth between two margins is the integral of the curvature, so a narrow
peak shows in the difference of two slopes however far apart they are. Intervals that
come nearest to a bound are divided again and again: a peak is missed only if it is
small in total. Each margin is compared with all before it, not with its neighbor alone,
so that what rounding may hide is counted once and not once for each interval. What
passes has been seen at points; it is not proved.
"""

import dis
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
from numba.extending import is_jitted
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core.arrays import Array, Bools
from dpsample.core.jit import kernel, refuse_print
from dpsample.core.spec import Json
from dpsample.losses.loss import Curvatures, Loss, Pieces, compile_pieces

Scalar = Callable[[float, float], float]  # of the margin and the response
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


@dataclass(frozen=True, kw_only=True)
class Custom(Declared):
    """Loss made by `custom`; without functions it only carries declared facts."""

    functions: Pieces | None = field(default=None, compare=False, repr=False)
    # Set where the comparison was made on wider margins than the problem now has.
    is_compared: bool = field(default=False, compare=False, repr=False)
    # Scales found by comparisons that were passed, by the bounds of the problem.
    _passed: dict[tuple[float, float | None], Scale] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    name: ClassVar[str] = "custom"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was passed: a global that a function reads may change.

        Compiled functions keep its first value, and those that travel the last one.
        """
        return self.__dict__ | {"_passed": {}}

    def check_declarations(
        self, margin_bound: float, response_bound: float | None
    ) -> None:
        """Compare the functions with what is declared; a loss from a file has none."""
        if self.functions is not None and not self.is_compared:
            self._scale(margin_bound, response_bound)

    def check_at_records(
        self,
        reaches: Array,
        response: Array,
        *,
        margin_bound: float,
        response_bound: float | None,
        first: int = 0,
    ) -> None:
        """Compare at each record's own margins, up to ``reaches``, and response."""
        if self.functions is not None and not self.is_compared:
            scale = self._scale(margin_bound, response_bound)
            known_scale = None if response_bound == np.inf else scale
            compare_records(self, reaches, response, known_scale, first)

    def _scale(self, margin_bound: float, response_bound: float | None) -> Scale:
        key = (margin_bound, response_bound)
        if key not in self._passed:
            self._passed[key] = compare(self, *key)
        return self._passed[key]

    @property
    def pieces(self) -> Pieces:
        """Return the compiled pieces; a loss read from a file has none."""
        if self.functions is None:
            check.fail("loss", "a custom loss with its functions", self.label)
        return self.functions


def _compiled(name: str, function: Scalar) -> Scalar:
    refuse_print(name, function)
    if is_jitted(function):
        return function
    if not inspect.isfunction(function):
        remedy = "Wrap it: lambda u, y: ..."
        check.fail(name, "a Python or Numba function of (u, y)", function, remedy)
    return kernel(function, cached=False)


def _reads_second(function: Scalar) -> bool:
    """Whether the code of a function of (u, y) mentions y: if not, it can't read it."""
    code = getattr(function, "py_func", function).__code__
    if code.co_argcount < 2 or code.co_flags & (inspect.CO_VARARGS):
        return True
    name = code.co_varnames[1]
    if name in code.co_cellvars:
        return True
    mentioned = (step.argval for step in dis.get_instructions(code))
    return any(name == m or (isinstance(m, tuple) and name in m) for m in mentioned)


def custom(
    value: Scalar,
    slope: Scalar,
    *,
    slope_bound: float,
    lower_curvature: float = 0.0,
    upper_curvature: float = np.inf,
    third_derivative_bound: float = np.inf,
    labels: bool = False,
    name: str = "custom",
) -> Custom:
    r"""Make a loss from two scalar functions of the margin u and the response y.

    The functions are compiled alone: no sampler kernel is compiled again for them.
    Everything declared is an assumption of the certificate. `Problem`, which knows the
    margins and the responses that can occur, compares the functions with convexity and
    with each bound at many points of that range and at the records: this refutes, and
    does not prove.

    Parameters
    ----------
    value, slope : callable
        ``value(u, y)`` convex in ``u`` and ``slope(u, y)``, its derivative or a
        subgradient; plain Python or Numba functions.
    slope_bound : float
        Public bound of ``|slope|`` for every margin up to ``facts.margin_bound`` and
        every possible response. Infinity, if there is none, serves methods that bound
        gradients themselves.
    lower_curvature, upper_curvature : float
        Bounds of the second derivative for the same margins and responses.
    third_derivative_bound : float
        Bound of the third derivative; infinite if there is none.
    labels : bool
        Responses are labels -1 and 1. Other problems must declare a ``response_bound``
        if the code of ``value`` or ``slope`` mentions ``y``.
    name : str
        Shown in the certificate.

    Returns
    -------
    Custom
        A loss for `Problem`.

    Raises
    ------
    ValueError
        If a function can't be compiled, mentions print or raises at the margin 0, or a
        number is out of its range. `Problem` raises it where a function contradicts its
        declarations.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsample.losses import custom
    >>> loss = custom(lambda u, y: np.sqrt(1.0 + (u - y) ** 2),
    ...               lambda u, y: (u - y) / np.sqrt(1.0 + (u - y) ** 2),
    ...               slope_bound=1.0, upper_curvature=1.0, name="pseudo-Huber")
    >>> loss.value(0.0, 0.0)
    array(1.)
    """
    check.greater_than(0.0, slope_bound=slope_bound)
    check.non_negative(lower_curvature=lower_curvature)
    check.at_least(lower_curvature, upper_curvature=upper_curvature)
    check.at_least(0.0, third_derivative_bound=third_derivative_bound)
    check.instance(bool, labels=labels)
    check.instance(str, name=name)
    phi, dphi = _compiled("value", value), _compiled("slope", slope)
    reads_response = _reads_second(value) or _reads_second(slope)
    _try_once(phi, dphi, reads_response=reads_response)

    def of_response(params: Array, u: float, y: float) -> tuple[float, float]:
        return phi(u, y), dphi(u, y)

    def of_margin(params: Array, u: float, y: float) -> tuple[float, float]:
        return phi(u, 0.0), dphi(u, 0.0)  # not even by a trick does y come in

    scalar = of_response if reads_response else of_margin
    # The user's own functions may change without a trace in our sources.
    uncached = partial(kernel, cached=False)
    return Custom(
        label=name,
        declared_slope=float(slope_bound),
        lower_curvature=float(lower_curvature),
        upper_curvature=float(upper_curvature),
        third_derivative=float(third_derivative_bound),
        labels=labels,
        reads_response=reads_response,
        functions=compile_pieces(uncached(scalar), uncached),
    )


def _try_once(phi: Scalar, dphi: Scalar, *, reads_response: bool) -> None:
    """Call both at the margin 0, which every problem has, for their type alone."""
    y = 1.0 if reads_response else 0.0
    try:
        # Uncompiled functions warn where compiled ones return NaN.
        with np.errstate(all="ignore"):
            float(phi(0.0, y)), float(dphi(0.0, y))
    except Exception as error:
        check.fail("value and slope", "scalar functions of (u, y)", repr(error))


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
            finite_slopes = np.where(np.isfinite(seen.slopes), seen.slopes, 0.0)
            _judge_slopes(loss, seen._replace(slopes=finite_slopes), limits)


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
    lower, upper, widened = loss.lower_curvature, loss.upper_curvature, 1.0 + 1e-9
    rounding = 1e-15 * float(np.abs(seen.margins).max())  # of the products below
    slow = (
        _falls(seen.slopes - lower / widened * seen.margins) > slack + rounding * lower
    )
    with np.errstate(all="ignore"):  # infinity times no width
        fast = growth > upper * width * widened + slack
    if upper < np.inf:
        excess = seen.slopes - upper * widened * seen.margins
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
