"""A loss from a user's own scalar functions, compared with its declared bounds.

The user declares bounds of the slope (the derivative in the margin), of the curvature
(the second derivative) and of the third derivative. `compare` evaluates the functions
at many margins and responses and raises if a bound does not hold there. A loss that
passes is not proved to satisfy its bounds.

The growth of the slope between two margins is the integral of the curvature. So a
narrow peak of the curvature shows in the difference of two slopes, however far apart
they are. Intervals that come nearest to a bound are divided several times, so that a
peak is missed only if its integral is small.

Each margin is compared with all margins before it, not only with its neighbor. Then
the allowance for rounding errors is granted once, and not once for each interval.
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
from dpsample.core.jit import kernel, reject_print
from dpsample.core.spec import Json
from dpsample.losses.loss import Curvatures, Loss, Pieces, compile_pieces

# Function of the margin and the response.
Scalar = Callable[[float, float], float]
# Largest margin or response that is tried if there is no bound. Its exponential does
# not overflow.
FAR = 500.0
# Number of evenly spaced responses.
NUM_RESPONSES = 17
# Distances, relative to the largest margin, from the margins 0, 1, -1 and y, near which
# losses often change their slope.
NEAR = np.concatenate([-(2.0 ** -np.arange(41.0)), [0.0], 2.0 ** -np.arange(41.0)])
# Error of computed slopes, relative to the largest one.
SLACK = 1e-10
# Factor for declared curvatures, which allows for rounding errors of the comparison.
WIDENED = 1.0 + 1e-9
Positions = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Declared(Loss):
    """Bounds that a user declares for a loss. The subclass `Custom` adds functions."""

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
        """Whether the functions read a response that is not a label."""
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
        """Return the declared facts only, because a certificate holds no functions."""
        facts = {f.name: getattr(self, f.name) for f in fields(Declared)}
        return {"name": self.name} | facts


class Scale(NamedTuple):
    """Largest absolute value and slope over all margins and responses."""

    value: float
    slope: float


class Limits(NamedTuple):
    """Range of the comparison, and the remedy that an error mentions."""

    margin: float  # largest absolute margin
    responses: Array
    remedy: str
    record: int | None = None  # number of the first record, None if no records


class Evaluations(NamedTuple):
    """Values and slopes at margins in ascending order, in one row for each response."""

    margins: Array
    responses: Array  # (rows, 1)
    values: Array
    slopes: Array


@dataclass(frozen=True, kw_only=True)
class Custom(Declared):
    """Loss of the function `custom`. Read from a file, it has only declared facts."""

    functions: Pieces | None = field(default=None, compare=False, repr=False)
    # True if the functions were already compared on wider margins.
    is_compared: bool = field(default=False, compare=False, repr=False)
    # Scales of passed comparisons, by the bounds of margins and responses.
    _passed: dict[tuple[float, float | None], Scale] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    name: ClassVar[str] = "custom"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out passed comparisons, as a global that a function reads may change.

        A compiled function keeps the first value, and a copy in another process is
        compiled with the last one.
        """
        return self.__dict__ | {"_passed": {}}

    def check_declarations(
        self, margin_bound: float, response_bound: float | None
    ) -> None:
        """Compare the functions with the declared bounds, if there are functions."""
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
        """Compare at the response of each record, and at margins up to ``reaches``."""
        if self.functions is not None and not self.is_compared:
            scale = self._scale(margin_bound, response_bound)
            known_scale = None if response_bound == np.inf else scale
            compare_records(self, reaches, response, known_scale, first)

    def _scale(self, margin_bound: float, response_bound: float | None) -> Scale:
        """Return the scale of a comparison, which is made once for these bounds."""
        key = (margin_bound, response_bound)
        if key not in self._passed:
            self._passed[key] = compare(self, *key)
        return self._passed[key]

    @property
    def pieces(self) -> Pieces:
        """Compiled functions, which a loss read from a file does not have."""
        if self.functions is None:
            check.fail("loss", "a custom loss with its functions", self.label)
        return self.functions


def _compile(name: str, function: Scalar) -> Scalar:
    """Return a user's function compiled by Numba."""
    reject_print(name, function)
    if is_jitted(function):
        return function
    if not inspect.isfunction(function):
        remedy = "Wrap it: lambda u, y: ..."
        check.fail(name, "a Python or Numba function of (u, y)", function, remedy)
    return kernel(function, cached=False)


def _reads_response(function: Scalar) -> bool:
    """Return whether the code of a function of (u, y) mentions y, so it may read it."""
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

    The functions are compiled alone, and no sampler kernel is compiled again for them.
    Everything declared is an assumption of the certificate. `Problem` knows which
    margins and responses can occur. It tests convexity and each bound at many points of
    that range and at the records. This can refute a declaration, but does not prove it.

    Parameters
    ----------
    value, slope : callable
        ``value(u, y)`` convex in ``u`` and ``slope(u, y)``, its derivative or a
        subgradient. Plain Python or Numba functions.
    slope_bound : float
        Public bound of ``|slope|`` for every margin up to ``facts.margin_bound`` and
        every possible response. Infinity, if there is none, serves methods that bound
        gradients themselves.
    lower_curvature, upper_curvature : float
        Bounds of the second derivative for the same margins and responses.
    third_derivative_bound : float
        Bound of the third derivative, infinite if there is none.
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
    phi, dphi = _compile("value", value), _compile("slope", slope)
    reads_response = _reads_response(value) or _reads_response(slope)
    _try_once(phi, dphi, reads_response=reads_response)

    def of_response(params: Array, u: float, y: float) -> tuple[float, float]:
        return phi(u, y), dphi(u, y)

    # Functions that do not mention y get a constant, so that they cannot depend on it.
    def of_margin(params: Array, u: float, y: float) -> tuple[float, float]:
        return phi(u, 0.0), dphi(u, 0.0)

    scalar = of_response if reads_response else of_margin
    # The fingerprint of the cache does not include the sources of a user's functions.
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
    """Call both functions at the margin 0, to see that they return numbers."""
    y = 1.0 if reads_response else 0.0
    try:
        # Uncompiled functions warn where compiled ones return NaN.
        with np.errstate(all="ignore"):
            float(phi(0.0, y)), float(dphi(0.0, y))
    except Exception as error:
        check.fail("value and slope", "scalar functions of (u, y)", repr(error))


def compare(loss: Declared, margin_bound: float, response_bound: float | None) -> Scale:
    """Compare a loss with its declarations at many margins and responses.

    Margins go up to ``margin_bound``, or to `FAR` if it is infinite. Responses go up to
    ``response_bound``, which is None for labels and for losses that read no response.
    Returns the scale to which rounding errors are relative. A ValueError names the
    first declaration that does not hold, with margin and response.
    """
    reach = FAR if np.isinf(margin_bound) else margin_bound
    limits = Limits(
        margin=reach,
        responses=_choose_responses(loss, reach, response_bound),
        remedy=_explain_range(loss, margin_bound, response_bound),
    )
    seen = _evaluate_finite(
        loss, _choose_margins(limits), limits.responses[:, None], limits
    )
    scale = Scale(*(float(np.abs(part).max()) for part in (seen.values, seen.slopes)))
    _check_all(loss, seen, limits, scale)
    # Responses between those of the first grid are tried with a few margins.
    few = np.linspace(-reach, reach, 9)
    y = limits.responses
    # Labels, and losses that read no response, have fewer responses.
    if len(y) >= NUM_RESPONSES:
        dense = np.linspace(y[0], y[-1], 2_049)[:, None]
        seen_between = _evaluate_finite(
            loss, np.tile(few, (len(dense), 1)), dense, limits
        )
        _check_all(loss, seen_between, limits, scale)
    # Intervals on which the slope grows fastest, or slowest, are divided again and
    # again, as the worst point may be on any scale.
    for sign in (1.0, -1.0):
        cells = seen
        # 14 divisions into 8 parts make an interval 2^42 times shorter.
        for _ in range(14):
            cells = _divide(loss, cells, _find_worst(cells, scale, sign), limits)
            _check_all(loss, cells, limits, scale)
    return scale


def compare_records(
    loss: Declared,
    reaches: Array,
    response: Array,
    scale: Scale | None,
    first: int = 0,
) -> None:
    """Compare a loss with its declarations at the records.

    ``reaches`` are the largest absolute margins of the records, of the same shape
    (num_records,) as ``response``. ``scale`` is the result of `compare`. It is None if
    responses have no bound. Then rounding errors of values have none either, and only
    slopes are compared, where they are finite. A ValueError names the first declaration
    that does not hold, and a record. ``first`` is the number of the first record.
    """
    shares = np.linspace(-1.0, 1.0, 5)
    largest = FAR if np.isinf(reaches).any() else np.inf
    block = 65_536  # records that are compared at once
    for start in range(0, len(response), block):
        part = slice(start, start + block)
        margins = shares * np.minimum(reaches[part, None], largest)
        limits = Limits(0.0, response[part], "", record=first + start)
        y = response[part, None]
        if scale is not None:
            _check_all(loss, _evaluate_finite(loss, margins, y, limits), limits, scale)
        else:
            seen = _evaluate(loss, margins, y, limits)
            finite_slopes = np.where(np.isfinite(seen.slopes), seen.slopes, 0.0)
            _check_slopes(loss, seen._replace(slopes=finite_slopes), limits)


def _explain_range(
    loss: Declared, margin_bound: float, response_bound: float | None
) -> str:
    """Return a sentence on the margins and responses for which it must hold."""
    responses = "every label"
    if not loss.reads_response:
        responses = "every response"
    elif response_bound is not None and not loss.labels:
        responses = f"every response up to {response_bound:g}"
    return f"It must hold for every margin up to {margin_bound:g} and {responses}."


def _choose_responses(loss: Declared, reach: float, bound: float | None) -> Array:
    """Return the responses at which declarations are checked."""
    if loss.labels:
        return np.array([-1.0, 1.0])
    if not loss.reads_response or bound is None:
        return np.zeros(1)
    # Responses within the margins bend the loss there. Farther ones give the largest
    # slopes.
    farthest = FAR if np.isinf(bound) else bound
    inner = min(farthest, reach)
    even = [np.linspace(-end, end, NUM_RESPONSES) for end in (farthest, inner)]
    return np.unique(np.concatenate([*even, farthest * NEAR[::2]]))


def _choose_margins(limits: Limits) -> Array:
    """Return ascending margins for each response, fine where losses bend."""
    reach, y = limits.margin, limits.responses[:, None]
    # The responses share 32,768 evenly spaced margins.
    even = np.linspace(-reach, reach, max(513, 32_768 // len(y)))
    fixed = np.concatenate([even] + [reach * NEAR + c for c in (0.0, 1.0, -1.0)])
    near_y = reach * NEAR + y
    margins = np.concatenate([np.tile(fixed, (len(y), 1)), near_y], axis=1)
    return np.asarray(np.sort(np.clip(margins, -reach, reach), axis=1))


def _evaluate(
    loss: Declared, margins: Array, responses: Array, limits: Limits
) -> Evaluations:
    """Return values and slopes of a user's loss, or raise its error."""
    try:
        # Uncompiled functions warn where compiled ones return NaN.
        with np.errstate(all="ignore"):
            values, slopes = loss._evaluate(margins, responses)
    except Exception as error:
        _fail("value and slope", "scalar functions of (u, y)", repr(error), limits)
    return Evaluations(margins, responses, values, slopes)


def _evaluate_finite(
    loss: Declared, margins: Array, responses: Array, limits: Limits
) -> Evaluations:
    """Evaluate a loss, and raise unless all values and slopes are finite."""
    seen = _evaluate(loss, margins, responses, limits)
    broken = ~(np.isfinite(seen.values) & np.isfinite(seen.slopes))
    if broken.any():
        i, j = _find_first(broken)
        numbers = f"{seen.values[i, j]:g} and {seen.slopes[i, j]:g}"
        got = f"{numbers}{_locate(seen, limits, i, j)}"
        _fail("value and slope", "finite at every margin", got, limits)
    return seen


def _find_worst(seen: Evaluations, scale: Scale, sign: float) -> Positions:
    """Return the 32 intervals on which the slope grows fastest, slowest for sign -1.

    The growth is reduced by its rounding error, which is large on short intervals.
    """
    width, growth = np.diff(seen.margins), np.diff(seen.slopes)
    with np.errstate(all="ignore"):
        rate = (growth - sign * SLACK * scale.slope) / width
        order = np.argsort(np.where(width > 0.0, rate, -sign * np.inf), axis=None)
    return order[-32:] if sign > 0.0 else order[:32]


def _divide(
    loss: Declared, seen: Evaluations, cells: Positions, limits: Limits
) -> Evaluations:
    """Divide intervals, numbered row by row, into 8 parts, and evaluate the loss."""
    row, column = np.divmod(cells, seen.margins.shape[1] - 1)
    low, high = seen.margins[row, column], seen.margins[row, column + 1]
    shares = np.linspace(0.0, 1.0, 9)
    margins = low[:, None] + shares * (high - low)[:, None]
    margins[:, -1] = high  # rounding must not lead outside the interval
    return _evaluate_finite(loss, margins, seen.responses[row], limits)


def _check_all(loss: Declared, seen: Evaluations, limits: Limits, scale: Scale) -> None:
    """Raise if a declaration is contradicted."""
    _check_slopes(loss, seen, limits)
    _check_convexity(seen, limits, scale)
    _check_curvature(loss, seen, limits, SLACK * scale.slope)
    if loss.third_derivative < np.inf:
        _check_third_derivative(loss, seen, limits, SLACK * scale.slope)


def _check_slopes(loss: Declared, seen: Evaluations, limits: Limits) -> None:
    """Raise if a slope is above its bound."""
    size = np.abs(seen.slopes)
    if size.max() > loss.declared_slope * (1.0 + 1e-12):  # a rounding error
        i, j = _find_first(size == size.max())
        where = f"the slope{_locate(seen, limits, i, j)}"
        condition = f"at least {size[i, j]:.6g}, {where}"
        _fail("slope_bound", condition, f"{loss.declared_slope:g}", limits)


def _check_convexity(seen: Evaluations, limits: Limits, scale: Scale) -> None:
    """Raise if the slope decreases, or contradicts the secants of the values.

    A convex function is above its tangents at both ends of an interval. Violations are
    summed over neighboring intervals, so that many small ones are noticed.
    """
    width, rise = np.diff(seen.margins), np.diff(seen.values)
    slack = SLACK * scale.slope
    # A squared loss with responses up to B has values B/R times as large as their
    # differences on margins up to R. So values need a smaller allowance than slopes.
    slack_rise = 1e-12 * scale.value + slack * width.sum(1, keepdims=True)
    # Each excess is >= 0 for a convex function: a secant is at least as steep as the
    # tangent at its left end, and at most as steep as the one at its right end.
    bent = _measure_falls(seen.slopes) > slack
    for excess in (
        rise - seen.slopes[:, :-1] * width,
        seen.slopes[:, 1:] * width - rise,
    ):
        sums = np.cumsum(np.pad(excess, ((0, 0), (1, 0))), axis=1)
        bent |= _measure_falls(sums) > slack_rise
    if bent.any():
        where = _locate(seen, limits, *_find_first(bent))
        got = f"slopes and secants that contradict it{where}"
        _fail("value", "convex in u with derivative slope", got, limits)


def _check_curvature(
    loss: Declared, seen: Evaluations, limits: Limits, slack: float
) -> None:
    """Raise if the slope grows faster or slower than is declared."""
    width, growth = np.diff(seen.margins), np.diff(seen.slopes)
    lower, upper = loss.lower_curvature, loss.upper_curvature
    # The differences below subtract products of a curvature and a margin, whose
    # rounding errors grow with the largest margin.
    rounding = 1e-15 * float(np.abs(seen.margins).max())
    slow = (
        _measure_falls(seen.slopes - lower / WIDENED * seen.margins)
        > slack + rounding * lower
    )
    with np.errstate(all="ignore"):  # an infinite bound times a width of 0
        fast = growth > upper * width * WIDENED + slack
    # phi' - upper u must not rise. Its rise over several intervals shows violations
    # that are too small on one.
    if upper < np.inf:
        excess = seen.slopes - upper * WIDENED * seen.margins
        fast |= _measure_falls(-excess) > slack + rounding * upper
    for name, declared, words, bad in (
        ("upper_curvature", upper, "at least", fast),
        ("lower_curvature", lower, "at most", slow),
    ):
        if bad.any():
            i, j = _find_first(bad)
            rate = growth[i, j] / width[i, j] if width[i, j] else np.inf
            where = f"the growth of the slope{_locate(seen, limits, i, j)}"
            condition = f"{words} {rate:.6g}, {where}"
            _fail(name, condition, f"{declared:g}", limits)


def _measure_falls(rows: Array) -> Array:
    """Return by how much each entry, except the first, is below the largest before."""
    return np.asarray((np.maximum.accumulate(rows, axis=1) - rows)[:, 1:])


def _check_third_derivative(
    loss: Declared, seen: Evaluations, limits: Limits, slack: float
) -> None:
    """Raise if second differences of the slope contradict the third derivative."""
    width, growth = np.diff(seen.margins), np.diff(seen.slopes)
    span = width[:, 1:] + width[:, :-1]
    with np.errstate(all="ignore"):
        rate, error = growth / width, slack / width
        change = np.abs(np.diff(rate)) - error[:, 1:] - error[:, :-1]
        third = 2.0 * change / span
    # The NaN of intervals without width is not above the bound.
    bad = third > loss.third_derivative * WIDENED
    if bad.any():
        i, j = _find_first(bad)
        where = f"the growth of the curvature{_locate(seen, limits, i, j)}"
        condition = f"at least {third[i, j]:.6g}, {where}"
        got = f"{loss.third_derivative:g}"
        _fail("third_derivative_bound", condition, got, limits)


def _find_first(where: Bools) -> tuple[int, int]:
    """Return row and column of the first True."""
    i, j = np.unravel_index(int(np.argmax(where)), where.shape)
    return int(i), int(j)


def _locate(seen: Evaluations, limits: Limits, i: int, j: int) -> str:
    """Return the end of a sentence that names a margin, a response and a record."""
    y = float(seen.responses[i, 0])
    text = f" at the margin {seen.margins[i, j]:.6g} and the response {y:.6g}"
    return text if limits.record is None else f"{text} of record {limits.record + i}"


def _fail(name: str, condition: str, got: str, limits: Limits) -> NoReturn:
    """Raise the error of a contradicted declaration."""
    check.fail(name, condition, got, limits.remedy)
