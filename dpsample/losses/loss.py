"""Base class of losses of a linear margin, and their compiled functions.

A loss is phi(u, y), convex in the margin u = <a, theta> + offset, where y is the
response. The slope is its derivative phi' in the margin, and the curvature is phi''.

A loss is written once, as a scalar function that returns value and slope. Three
functions are compiled from it: values of a block of margins, values and slopes of a
block, and both for one record. They work on margins, so one kernel serves dense and
sparse features and all losses.

Subclasses declare bounds that hold for every record. Privacy rests on `slope_bound`,
and certified samplers on the curvatures.
"""

from __future__ import annotations

import math
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
    reject_print,
    vector,
)
from dpsample.core.spec import Json
from dpsample.losses.oscillation import largest_oscillation

# (params, margins, response, out): margins are replaced by phi, and out[0] is their sum
LOSS_VALUE = numba_types.void(vector, vector, vector, vector)
# (params, margins, response, slopes, out): in addition slopes become phi'
LOSS_SLOPE = numba_types.void(vector, vector, vector, vector, vector)
# (params, margin, response, out): out becomes value and slope of one record
LOSS_RECORD = numba_types.void(vector, f8, f8, vector)

Pieces = tuple[Piece, Piece, Piece]  # value, slope, and one record
Curvatures = tuple[Array, Array]  # lower and upper bounds, one for each record

registry: dict[str, type[Loss]] = {}


@kernel(fastmath={"reassoc"}, counts_references=False)
def total(values: Array) -> float:
    """Return a sum in any order, so that the compiler can use vector registers."""
    result = 0.0
    for i in range(values.shape[0]):
        result += values[i]
    return result


def compile_pieces(
    scalar: Callable[..., tuple[float, float]],
    decorator: Callable[[Piece], Piece] | None = None,
) -> Pieces:
    """Compile the functions of a scalar loss (params, u, y) -> (phi, phi').

    The scalar function must be `register_jitable`. Then the closures below are found in
    the cache on disk by another process, which closures over compiled functions are
    not. In the first of them the compiler removes the slope as dead code. Values are
    stored before they are added, because a loop without a sum is vectorized.
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


# Rounding error of a difference, relative to its terms.
ROUNDING = 32.0 * np.finfo(float).eps


@kernel
def lower_by_end_quotients(
    order: int,
    margins: Array,
    value: Array,
    slope: Array,
    ends: Array,
    value_at_end: Array,
    slope_at_end: Array,
    quotients: Array,
) -> None:
    """Lower quotients to those at the ends of intervals, less their rounding errors.

    For order 1 they are the quotients of `Loss.secant_curvature`, and for order 2 those
    in `Loss.bregman_curvature`, with the margin u and the end v. If v = u there is no
    quotient.
    """
    for i in range(quotients.shape[0]):
        t = ends[i] - margins[i]
        if t == 0.0 or quotients[i] != quotients[i]:  # the same point, or NaN
            continue
        if order == 1:
            quotient = (slope_at_end[i] - slope[i]) / t
            size = (abs(slope_at_end[i]) + abs(slope[i])) / abs(t)
        else:
            tangent = slope[i] * t
            quotient = 2.0 * (value_at_end[i] - value[i] - tangent) / t**2
            size = abs(value_at_end[i]) + abs(value[i]) + abs(tangent)
            size = 2.0 * size / t**2
        # The rounding error of the difference is relative to its terms.
        quotient -= ROUNDING * size
        if not quotient >= quotients[i]:
            quotients[i] = quotient


def broadcast(*, finite: bool = True, **values: ArrayLike) -> list[Array]:
    """Return arrays of numbers, broadcast against each other."""
    arrays = [check.entries(n, value, finite=finite) for n, value in values.items()]
    try:
        return list(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        check.fail(" and ".join(values), "of shapes that fit", f"shapes {shapes}")


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Base of all losses, with bounds for every record and compiled functions."""

    name: ClassVar[str] = ""
    _scalar: ClassVar[Callable[..., Any] | None] = None
    # (params, u, y) to phi with the decimal context's digits, None for users' losses
    _exact: ClassVar[Callable[..., Decimal] | None] = None
    # the same of a piecewise linear loss
    _exact_kinked: ClassVar[Callable[..., Decimal] | None] = None
    pieces: ClassVar[Any] = None
    # Bounds of losses for which they depend on neither margins nor responses.
    largest_slope: ClassVar[float] = np.inf
    largest_third_derivative: ClassVar[float] = np.inf
    is_cached: ClassVar[bool] = True  # False if the functions are the user's
    is_ours: ClassVar[bool] = True  # whether the scalar function is of this package
    # False for a loss that is given by gradients of whole records.
    has_margin: ClassVar[bool] = True
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
                reject_print("_scalar", cls.__dict__["_scalar"].__func__)
            cls.pieces = compile_pieces(
                register_jitable(cls.__dict__["_scalar"].__func__),
                kernel(cached=cls.is_ours, counts_references=False),
            )

    @property
    def params(self) -> Array:
        """Numbers that compiled functions read, the fields in their order.

        A user's functions contain their own numbers.
        """
        if not self.is_cached:
            return np.zeros(0)
        return np.array([getattr(self, f.name) for f in fields(self)], dtype=np.float64)

    @property
    def has_digits(self) -> bool:
        """Whether the loss is smooth, and `_exact_value` computes it to any digit."""
        return self._exact_of_scalar("_exact") is not None

    @property
    def has_decimals(self) -> bool:
        """Whether `_exact_value` computes the same loss as the scalar function."""
        return self.has_digits or self._exact_of_scalar("_exact_kinked") is not None

    def _exact_of_scalar(self, name: str) -> Callable[..., Decimal] | None:
        """Return the decimal function of the class that has the scalar function."""
        owner = next(c for c in type(self).__mro__ if "_scalar" in vars(c))
        return getattr(owner, name) if name in vars(owner) else None

    def _exact_value(self, margin: Decimal, response: float) -> Decimal:
        """Return the loss of one record with the digits of the decimal context."""
        exact = type(self)._exact or type(self)._exact_kinked
        assert exact is not None
        params = tuple(map(Decimal, self.params.tolist()))
        return exact(params, margin, Decimal(response))

    @property
    def value_pointer(self) -> Pointer:
        """C function of the value alone."""
        cached = self.is_cached and self.is_ours
        return pointer(self.pieces[0], LOSS_VALUE, cached=cached)

    @property
    def slope_pointer(self) -> Pointer:
        """C function of the slope, and of values with it and their sum."""
        cached = self.is_cached and self.is_ours
        return pointer(self.pieces[1], LOSS_SLOPE, cached=cached)

    @property
    def pointers(self) -> tuple[Pointer, Pointer, Pointer]:
        """C functions of values, of values and slopes, and of one record."""
        value, slope, record = self.pieces
        cached = self.is_cached and self.is_ours
        return (
            pointer(value, LOSS_VALUE, cached=cached),
            pointer(slope, LOSS_SLOPE, cached=cached),
            pointer(record, LOSS_RECORD, cached=cached),
        )

    def value(self, margins: ArrayLike, response: ArrayLike) -> Array:
        """Return the loss of each record at its margin."""
        return self._evaluate(margins, response)[0]

    def slope(self, margins: ArrayLike, response: ArrayLike) -> Array:
        """Slope of each record at its margin, a subgradient if phi' jumps there."""
        return self._evaluate(margins, response)[1]

    def _evaluate(self, margins: ArrayLike, response: ArrayLike) -> tuple[Array, Array]:
        u, y = broadcast(finite=False, margins=margins, response=response)
        values, slopes, out = u.flatten(), np.empty(u.size), np.full(1, np.nan)
        self.pieces[1](self.params, values, y.flatten(), slopes, out)
        return values.reshape(u.shape), slopes.reshape(u.shape)

    def _evaluate_flat(self, margins: Array, response: Array) -> tuple[Array, Array]:
        """Return losses and slopes at a margin for each response, without checks."""
        values, slopes, out = margins.copy(), np.empty_like(margins), np.full(1, np.nan)
        self.pieces[1](self.params, values, response, slopes, out)
        return values, slopes

    def check_response(
        self, response: Array, response_bound: float | None, *, first: int = 0
    ) -> None:
        """Raise for labels other than -1 and 1, or for a response above its bound.

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
        """Return responses with which each loss changes by a constant on all margins.

        Some losses are linear between all margins and a response that is far away. A
        nearer response then gives the same slopes. Differences of losses keep more
        digits, and sums do not overflow.
        """
        del margin_bound
        return response

    def kink(self, response: Array) -> Array | None:
        """Return margins at which the slopes jump, if the losses are linear elsewhere.

        None for all other losses.
        """
        del response
        return None

    def slope_bound(self, margin_bound: float, response_bound: float) -> float:
        """Return the largest |phi'| on |u| <= margin_bound, |y| <= response_bound."""
        del margin_bound, response_bound
        return self.largest_slope

    def oscillation(
        self, margin_bound: float, width: float, response_bound: float | None
    ) -> float:
        """Return the largest max phi - min phi over an interval of margins, rounded up.

        The interval has at most length ``width`` and is inside ``[-margin_bound,
        margin_bound]``. It belongs to any one response that `Problem` accepts with this
        ``response_bound``. Both bounds are widened by 3e-12, as a row may exceed its
        declared bound by a rounding error. The result may be infinite.

        It is exact for the losses of this package (`dpsample.losses.oscillation` has
        the proof). For other losses, and for responses without a bound, it is the slope
        bound times the width, also an upper bound.
        """
        largest = np.inf if response_bound is None else response_bound
        if self.is_classification:
            largest = 1.0
        if math.isinf(max(margin_bound, width)):
            return np.inf
        exact = self._exact_of_scalar("_exact") or self._exact_of_scalar(
            "_exact_kinked"
        )
        # Subclasses of other packages may accept other responses.
        is_known = type(self).__module__.split(".")[0] == "dpsample"
        if exact is None or not is_known or math.isinf(largest):
            steepest = self.slope_bound(margin_bound, largest)
            # NaN becomes infinity.
            product = steepest * min(width, 2.0 * margin_bound) * (1.0 + 1e-11)
            return product if product < np.inf else np.inf
        params = tuple(map(Decimal, self.params.tolist()))
        return largest_oscillation(
            lambda u, y: exact(params, u, Decimal(y)),
            margin_bound=margin_bound,
            width=width,
            response_bound=largest,
        )

    def curvature(self, lower: Array, upper: Array, response: Array) -> Curvatures:
        """Return bounds of phi'' for each record on its interval [lower, upper]."""
        del upper, response  # no curvature is promised by default
        return np.zeros_like(lower), np.full_like(lower, np.inf)

    def secant_curvature(
        self, margins: Array, lower: Array, upper: Array, response: Array
    ) -> Array:
        """Return lower bounds of [phi'(v) - phi'(u)] / (v - u) for v in [lower, upper].

        u is the margin of each record, in its interval. The quotient is an average of
        phi'', so the result is at least the bound of `curvature`.
        """
        lower_bounds, _ = self.curvature(lower, upper, response)
        if not self.has_unimodal_curvature:
            return lower_bounds
        return self._bound_by_end_quotients(
            1, lower_bounds, margins, lower, upper, response
        )

    def bregman_curvature(
        self, margins: Array, lower: Array, upper: Array, response: Array
    ) -> Array:
        """Return lower bounds of 2 [phi(v) - phi(u) - phi'(u)(v - u)] / (v - u)^2.

        v is in [lower, upper] and u is the margin of each record. The quotient is the
        average of phi''(w) with the weight 2 (v - w) / (v - u)^2, so the bound is at
        least that of `curvature`.
        """
        if not self.has_unimodal_curvature:
            return self.secant_curvature(margins, lower, upper, response)
        lower_bounds, _ = self.curvature(lower, upper, response)
        return self._bound_by_end_quotients(
            2, lower_bounds, margins, lower, upper, response
        )

    def _bound_by_end_quotients(
        self,
        order: int,
        lower_bounds: Array,
        margins: Array,
        lower: Array,
        upper: Array,
        response: Array,
    ) -> Array:
        """Return the least of the quotients at u, where it is phi'', and at both ends.

        phi'' rises and then falls. Its averages over [u, v] with weights 1 or v - w do
        the same as v moves away from u, so they have no minimum strictly between. A
        value below the bound of `curvature` is a rounding error.
        """
        quotients = np.array(self.curvature(margins, margins, response)[0])
        at_margins = self._evaluate_flat(margins, response)
        for ends in (lower, upper):
            at_ends = self._evaluate_flat(ends, response)
            lower_by_end_quotients(
                order, margins, *at_margins, ends, *at_ends, quotients
            )
        # An infinite end gives NaN, which `fmax` ignores.
        return np.asarray(np.fmax(lower_bounds, quotients))

    def third_derivative_bound(
        self, margin_bound: float, response_bound: float
    ) -> float:
        """Return a bound of |phi'''|, infinite if phi'' jumps."""
        del margin_bound, response_bound
        return self.largest_third_derivative

    def prox(self, margins: ArrayLike, response: ArrayLike, step: ArrayLike) -> Array:
        """Return argmin over v of phi(v, y) + (v - u)^2 / (2 step), elementwise."""
        arrays = broadcast(margins=margins, response=response, step=step)
        if (arrays[2] < 0.0).any():
            check.fail("step", ">= 0", float(arrays[2].min()))
        largest = max(float(np.abs(array).max(initial=0.0)) for array in arrays)
        if largest > 1e150:  # products might overflow
            names = "margins, response and step"
            check.fail(names, "at most 1e+150 in absolute value", largest)
        with np.errstate(under="ignore"):
            return np.asarray(self._prox(*arrays))

    def _prox(self, u: Array, y: Array, c: Array) -> Array:
        """Find the root of the increasing function v - u + c phi'(v) by bisection.

        The root is within c |phi'(u)| of u.
        """
        with np.errstate(over="ignore"):
            reach = c * np.maximum(np.abs(self.slope(u, y)), 1e-300)
        reach = np.minimum(reach, 1e300)
        low, high = u - reach, u + reach
        middle = 0.5 * (low + high)
        while ((low < middle) & (middle < high)).any():
            with np.errstate(over="ignore"):
                above = middle - u + c * self.slope(middle, y) > 0
            low, high = np.where(above, low, middle), np.where(above, middle, high)
            middle = 0.5 * (low + high)
        return middle

    def to_dict(self) -> Json:
        """Return name and fields, as in a certificate."""
        facts = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"name": self.name} | facts


def from_dict(spec: Json) -> Loss:
    """Rebuild the loss that `Loss.to_dict` described.

    Parameters
    ----------
    spec : dict
        Name of the loss and its parameters, as `Loss.to_dict` returns them.

    Returns
    -------
    Loss

    Raises
    ------
    ValueError
        If the name is unknown, or a parameter is missing, unknown or out of range.
    """
    check.instance(dict, spec=spec)
    check.one_of(tuple(registry), loss=spec.get("name"))
    rest = {key: value for key, value in spec.items() if key != "name"}
    return check.build("spec", registry[spec["name"]], rest)
