"""What every loss of a linear margin declares and compiles.

A loss is phi(u, y), convex in the margin u = <a, theta> + offset, y the response. It is
written once, as a scalar function that returns value and slope; its pieces work on a
block of margins, so one kernel serves dense and sparse features and every loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from numba import types as numba_types
from numba.extending import register_jitable
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import (
    Piece,
    Pointer,
    f8,
    kernel,
    pointer,
    refuse_print,
    vector,
)
from dpsample.core.spec import Json

# (params, margins, response, out): margins become phi, out[0] their sum
LOSS_VALUE = numba_types.void(vector, vector, vector, vector)
# (params, margins, response, slopes, out): also slopes = d phi / du
LOSS_SLOPE = numba_types.void(vector, vector, vector, vector, vector)
# (params, margin, response, out): out = value, slope of one record
LOSS_RECORD = numba_types.void(vector, f8, f8, vector)

Pieces = tuple[Piece, Piece, Piece]  # value, slope, and one record
Curvatures = tuple[Array, Array]  # lower and upper bounds, one for each record

registry: dict[str, type[Loss]] = {}


@kernel(fastmath={"reassoc"}, counts_references=False)
def total(values: Array) -> float:
    """Sum in any order, which lets the compiler use vector registers."""
    result = 0.0
    for i in range(values.shape[0]):
        result += values[i]
    return result


def compile_pieces(
    scalar: Callable[..., tuple[float, float]],
    decorator: Callable[[Piece], Piece] | None = None,
) -> Pieces:
    """Value, slope and record pieces of a scalar loss (params, u, y) -> (phi, phi').

    A closure over a `register_jitable` function is found again on disk (measured: no
    new file in a second process); one over a compiled function is not. The value piece
    drops the slope's work as dead code. Filling an array and summing it afterwards
    keeps the first loop free of a reduction, so that it vectorizes.
    """

    def value(params: Array, margins: Array, response: Array, out: Array) -> None:
        for i in range(margins.shape[0]):
            margins[i] = scalar(params, margins[i], response[i])[0]
        out[0] = total(margins)

    def slope(
        params: Array, margins: Array, response: Array, slopes: Array, out: Array
    ) -> None:
        for i in range(margins.shape[0]):
            margins[i], slopes[i] = scalar(params, margins[i], response[i])
        out[0] = total(margins)

    def record(params: Array, margin: float, response: float, out: Array) -> None:
        out[0], out[1] = scalar(params, margin, response)

    compile_one = kernel(counts_references=False) if decorator is None else decorator
    return compile_one(value), compile_one(slope), compile_one(record)


ROUNDING = 32.0 * np.finfo(float).eps  # of a difference, relative to its parts
LARGEST = 1e150  # of what a proximal map takes: no product overflows
FARTHEST = 1e300  # of a proximal point


@kernel
def lower_to_ends(
    order: int,
    margins: Array,
    value: Array,
    slope: Array,
    ends: Array,
    value_there: Array,
    slope_there: Array,
    quotients: Array,
) -> None:
    """Lower found to the quotients at the ends, less their rounding errors.

    Those of slopes, or of losses above their tangents; where an end is the margin there
    is none.
    """
    for i in range(quotients.shape[0]):
        t = ends[i] - margins[i]
        if t == 0.0 or quotients[i] != quotients[i]:
            continue
        if order == 1:
            quotient = (slope_there[i] - slope[i]) / t
            size = (abs(slope_there[i]) + abs(slope[i])) / abs(t)
        else:
            tangent = slope[i] * t
            quotient = 2.0 * (value_there[i] - value[i] - tangent) / t**2
            size = abs(value_there[i]) + abs(value[i]) + abs(tangent)
            size = 2.0 * size / t**2
        quotient -= ROUNDING * size
        if not quotient >= quotients[i]:
            quotients[i] = quotient


def together(*, finite: bool = True, **values: ArrayLike) -> list[Array]:
    """Arrays of numbers, broadcast against each other."""
    arrays = [check.entries(n, value, finite=finite) for n, value in values.items()]
    try:
        return list(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        check.fail(" and ".join(values), "of shapes that fit", f"shapes {shapes}")


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Base of all losses: facts that hold for every record, and compiled pieces."""

    name: ClassVar[str] = ""
    _scalar: ClassVar[Callable[..., Any] | None] = None
    # (params, u, y) to phi to the digits of the decimal context; None of a user's loss
    _exact: ClassVar[Callable[..., Decimal] | None] = None
    pieces: ClassVar[Any] = None
    # Of losses whose bounds depend on neither margins nor responses.
    largest_slope: ClassVar[float] = np.inf
    largest_third_derivative: ClassVar[float] = np.inf
    is_cached: ClassVar[bool] = True  # False if the functions are the user's
    is_ours: ClassVar[bool] = True  # whether the scalar function is of this package
    is_classification: ClassVar[bool] = False
    needs_response_bound: ClassVar[bool] = False
    has_unimodal_curvature: ClassVar[bool] = False  # phi'' rises in u, and then falls

    def __init_subclass__(cls) -> None:
        """Register the loss under its own name, and declare its pieces.

        A loss that inherits its name leaves the certificates of its base alone.
        """
        if "name" in vars(cls):
            registry[cls.name] = cls
        if "_scalar" in cls.__dict__:
            # The cache on disk does not see a user's sources change.
            cls.is_ours = cls.__module__.split(".")[0] == "dpsample"
            if not cls.is_ours:
                refuse_print("_scalar", cls.__dict__["_scalar"].__func__)
            cls.pieces = compile_pieces(
                register_jitable(cls.__dict__["_scalar"].__func__),
                kernel(cached=cls.is_ours, counts_references=False),
            )

    @property
    def params(self) -> Array:
        """Numbers that the pieces read: the fields, in order.

        A user's functions carry their own numbers.
        """
        if not self.is_cached:
            return np.zeros(0)
        return np.array([getattr(self, f.name) for f in fields(self)], dtype=np.float64)

    @property
    def has_digits(self) -> bool:
        """Whether `_exact_value` is that of the scalar function: of our own losses."""
        owner = next(c for c in type(self).__mro__ if "_scalar" in vars(c))
        return vars(owner).get("_exact") is not None

    def _exact_value(self, margin: Decimal, response: float) -> Decimal:
        """Loss of one record to the digits of the decimal context."""
        assert self._exact is not None
        params = tuple(map(Decimal, self.params.tolist()))
        return type(self)._exact(params, margin, Decimal(response))  # type: ignore[misc]

    @property
    def value_pointer(self) -> Pointer:
        """C function of the value alone."""
        cached = self.is_cached and self.is_ours
        return pointer(self.pieces[0], LOSS_VALUE, cached=cached)

    @property
    def slope_pointer(self) -> Pointer:
        """C function of the slope alone."""
        cached = self.is_cached and self.is_ours
        return pointer(self.pieces[1], LOSS_SLOPE, cached=cached)

    @property
    def pointers(self) -> tuple[Pointer, Pointer, Pointer]:
        """C functions of the value, slope and record pieces."""
        value, slope, record = self.pieces
        cached = self.is_cached and self.is_ours
        return (
            pointer(value, LOSS_VALUE, cached=cached),
            pointer(slope, LOSS_SLOPE, cached=cached),
            pointer(record, LOSS_RECORD, cached=cached),
        )

    def value(self, margins: ArrayLike, response: ArrayLike) -> Array:
        """Loss of each record at its margin."""
        return self._evaluate(margins, response)[0]

    def slope(self, margins: ArrayLike, response: ArrayLike) -> Array:
        """Slope in the margin of each record; a subgradient at a kink."""
        return self._evaluate(margins, response)[1]

    def _evaluate(self, margins: ArrayLike, response: ArrayLike) -> tuple[Array, Array]:
        u, y = together(finite=False, margins=margins, response=response)
        values, slopes, out = u.flatten(), np.empty(u.size), np.full(1, np.nan)
        self.pieces[1](self.params, values, y.flatten(), slopes, out)
        return values.reshape(u.shape), slopes.reshape(u.shape)

    def _evaluate_flat(self, margins: Array, response: Array) -> tuple[Array, Array]:
        """Losses and slopes at as many margins as responses, which are not checked."""
        values, slopes, out = margins.copy(), np.empty_like(margins), np.full(1, np.nan)
        self.pieces[1](self.params, values, response, slopes, out)
        return values, slopes

    def check_response(
        self, response: Array, response_bound: float | None, *, first: int = 0
    ) -> None:
        """Refuse labels that are not -1 or 1, or a response above its bound.

        ``first`` is the number of the first record.
        """
        if self.is_classification:
            bad, condition = np.abs(response) != 1.0, "-1 or 1"
            remedy = "Map the labels, for example 2 * y - 1 for labels 0 and 1."
        elif response_bound is not None:
            bad = np.abs(response) > response_bound
            condition = f"within response_bound = {check.describe(response_bound)}"
            condition += " in absolute value"
            remedy = "Declare the public bound that holds, or pass clip_rows=True."
        else:
            return
        for i in np.flatnonzero(bad)[:1]:
            got = f"{check.describe(response[i])} at record {first + i}"
            check.fail("response", condition, got, remedy)

    def near_response(self, response: Array, margin_bound: float) -> Array:
        """Return responses of which each loss differs by a constant on the margins.

        Where the loss is linear between all margins and a response far away, one that
        is nearer keeps the digits of differences, and sums from overflowing.
        """
        del margin_bound
        return response

    def kink(self, response: Array) -> Array | None:
        """Margins at which the losses have their only kinks.

        On both sides of it such a loss is linear in the margin; None for all others.
        """
        del response
        return None

    def slope_bound(self, margin_bound: float, response_bound: float) -> float:
        """Largest |phi'| over |u| <= margin_bound and |y| <= response_bound."""
        del margin_bound, response_bound
        return self.largest_slope

    def curvature(self, lower: Array, upper: Array, response: Array) -> Curvatures:
        """Bounds of phi'' for each record on its margin interval [lower, upper]."""
        del upper, response  # no curvature is promised by default
        return np.zeros_like(lower), np.full_like(lower, np.inf)

    def secant_curvature(
        self, margins: Array, lower: Array, upper: Array, response: Array
    ) -> Array:
        """Lower bounds of [phi'(v) - phi'(u)] / (v - u), v in [lower, upper].

        u is each record's margin, in its interval. At least the bound of `curvature`,
        for secants average phi''.
        """
        lower_bounds, _ = self.curvature(lower, upper, response)
        if not self.has_unimodal_curvature:
            return lower_bounds
        return self._least_at_ends(1, lower_bounds, margins, lower, upper, response)

    def bregman_curvature(
        self, margins: Array, lower: Array, upper: Array, response: Array
    ) -> Array:
        """Lower bounds of 2 [phi(v) - phi(u) - phi'(u)(v - u)] / (v - u)^2.

        For v in [lower, upper], where u is each record's margin: averages of the
        quotients of `secant_curvature`, with weight 2 (v - w)/(v - u)^2. At least the
        bound of `curvature`.
        """
        if not self.has_unimodal_curvature:
            return self.secant_curvature(margins, lower, upper, response)
        lower_bounds, _ = self.curvature(lower, upper, response)
        return self._least_at_ends(2, lower_bounds, margins, lower, upper, response)

    def _least_at_ends(
        self,
        order: int,
        lower_bounds: Array,
        margins: Array,
        lower: Array,
        upper: Array,
        response: Array,
    ) -> Array:
        """Least quotient at u itself, where it is phi'', and at the two ends.

        Where phi'' rises and then falls, so do its averages over [u, v] as v leaves u,
        with weights 1 and v - w: they have no least value strictly between. Below
        ``least`` rounding errors have won.
        """
        quotients = np.array(self.curvature(margins, margins, response)[0])
        at_margins = self._evaluate_flat(margins, response)
        for ends in (lower, upper):
            at_ends = self._evaluate_flat(ends, response)
            lower_to_ends(order, margins, *at_margins, ends, *at_ends, quotients)
        return np.asarray(np.fmax(lower_bounds, quotients))  # NaN at an end at infinity

    def third_derivative_bound(
        self, margin_bound: float, response_bound: float
    ) -> float:
        """Bound of |phi'''|; infinite where phi'' jumps."""
        del margin_bound, response_bound
        return self.largest_third_derivative

    def prox(self, margins: ArrayLike, response: ArrayLike, step: ArrayLike) -> Array:
        """Return argmin over v of phi(v, y) + (v - u)^2 / (2 step), elementwise."""
        arrays = together(margins=margins, response=response, step=step)
        if (arrays[2] < 0.0).any():
            check.fail("step", ">= 0", float(arrays[2].min()))
        largest = max(float(np.abs(array).max(initial=0.0)) for array in arrays)
        if largest > LARGEST:
            names = "margins, response and step"
            check.fail(names, f"at most {LARGEST:g} in absolute value", largest)
        with np.errstate(under="ignore"):
            return np.asarray(self._prox(*arrays))

    def _prox(self, u: Array, y: Array, c: Array) -> Array:
        """Bisection on the increasing v - u + c phi'(v), without a closed form."""
        with np.errstate(over="ignore"):
            reach = c * np.maximum(np.abs(self.slope(u, y)), 1e-300)
        reach = np.minimum(reach, FARTHEST)
        low, high = u - reach, u + reach  # |v - u| = step |phi'(v)| <= step |phi'(u)|
        middle = 0.5 * (low + high)
        while ((low < middle) & (middle < high)).any():
            with np.errstate(over="ignore"):
                above = middle - u + c * self.slope(middle, y) > 0
            low, high = np.where(above, low, middle), np.where(above, middle, high)
            middle = 0.5 * (low + high)
        return middle

    def to_dict(self) -> Json:
        """Name and fields, as in a certificate."""
        facts = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"name": self.name} | facts


def from_dict(spec: Json) -> Loss:
    """Loss that `Loss.to_dict` described."""
    check.instance(dict, spec=spec)
    check.one_of(tuple(registry), loss=spec.get("name"))
    rest = {key: value for key, value in spec.items() if key != "name"}
    return check.build("spec", registry[spec["name"]], rest)
