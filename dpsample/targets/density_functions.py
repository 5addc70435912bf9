# mypy: allow-untyped-defs
"""The functions of a `Density`: a value F, its gradient, and differences.

They become C functions with the signatures of a loss, `LOSS_VALUE` and `LOSS_SLOPE`,
which get the point in place of margins, F in place of the loss, and the gradient in
place of slopes. So kernels that take C functions are the same for all targets.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dpsample.core import check
from dpsample.core.addresses import address_of, function_at
from dpsample.core.arrays import Array
from dpsample.core.jit import Pointer, kernel
from dpsample.core.spec import lazy_property
from dpsample.core.user_functions import (
    UserData,
    UserFunction,
    array_reader,
    check_function,
    compile_lines,
    compile_user_function,
    read_only_view,
    recorded_errors,
)
from dpsample.losses.loss import LOSS_SLOPE, LOSS_VALUE
from dpsample.targets.gibbs_target import as_kernel_array

# Parameters of C functions with the signatures `LOSS_VALUE` and `LOSS_SLOPE`. Those
# that a density has no use for are arrays, too.
VALUE_PARAMETERS = "unused, theta, unused_too, out"
SLOPE_PARAMETERS = "unused, theta, unused_too, gradient, out"


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def fill_values(value, points, out):
    """Fill out with F at each row of points, NaN where the function raised."""
    for i in range(points.shape[0]):
        out[i] = np.nan
        value(points[i], points[i], points[i], out[i : i + 1])


@kernel(counts_references=False)
def call_slope(slope, point, gradient, out):
    """Fill the gradient of F at a point, and out[0] with F."""
    slope(point, point, point, gradient, out)


# Lines of a C function of F. Minus infinity, where the density would be infinite,
# counts as a failure, as NaN does. The point is copied in a loop, because for a slice
# Numba compiles the text of an error about shapes, which takes 0.6 s.
VALUE = """
risk = sign * float(value())
if risk > -np.inf:
    out[0] = risk
else:
    for j in range(len(theta)):
        failed[j] = theta[j]
"""
# Lines of a C function of central differences, which calls the C function of F. Where
# only one of two points has a finite value the difference is one-sided.
DIFFERENCES = """
value = value_at(address)
value(theta, theta, theta, out)
center, here = theta, out[0]
theta = center.copy()
for j in range(len(center)):
    theta[j] = center[j] + steps[j]
    width_above = theta[j] - center[j]
    out[0] = np.nan
    value(theta, theta, theta, out)
    above = out[0]
    theta[j] = center[j] - steps[j]
    width_below = center[j] - theta[j]
    out[0] = np.nan
    value(theta, theta, theta, out)
    below = out[0]
    theta[j] = center[j]
    if not np.isfinite(above):
        width_above, above = 0.0, here
    if not np.isfinite(below):
        width_below, below = 0.0, here
    width = width_above + width_below
    slope = (above - below) / width if width > 0.0 else 0.0
    gradient[j] = min(max(slope, -limits[j]), limits[j])
out[0] = here
"""
value_at = function_at(LOSS_VALUE)


@dataclass(frozen=True, kw_only=True, eq=False)
class DensityFunctions:
    """The user's functions of a density, compiled at first use.

    Targets with other numbers k and mu share them.
    """

    value: UserFunction
    dim: int
    gradient: UserFunction | None = None
    has_both: bool = False  # the gradient returns the pair of value and gradient
    lift: Callable[[Array], Array] | None = None  # to the user's coordinates
    sign: float = 1.0  # -1 if the functions are a log density and its gradient

    def __getstate__(self) -> dict[str, object]:
        """Leave out the C functions, which contain addresses of this process."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore the fields of a copy."""
        vars(self).update(state)

    def __deepcopy__(self, memo: object) -> "DensityFunctions":
        """Return the same functions, which do not change."""
        return self

    @lazy_property
    def failed(self) -> Array:
        """Last point at which F or its gradient was NaN; NaN at first."""
        return np.full(self.dim, np.nan)

    @lazy_property
    def value_pointer(self) -> Pointer:
        """C function of F, with the signature `LOSS_VALUE`."""
        return self._compile_value(checks_indices=False)

    @lazy_property
    def _checked_value_pointer(self) -> Pointer:
        """The same for the first calls, at points far apart, with indices checked."""
        if not self.value.has_indices:
            return self.value_pointer
        return self._compile_value(checks_indices=True)

    def _compile_value(self, *, checks_indices: bool) -> Pointer:
        return compile_user_function(
            {"value": self.value},
            LOSS_VALUE,
            VALUE_PARAMETERS,
            VALUE.strip().splitlines(),
            failure=self.failed,
            checks_indices=checks_indices,
            sign=self.sign,
        )

    @lazy_property
    def gradient_pointer(self) -> Pointer:
        """C function of the user's gradient, with the signature `LOSS_SLOPE`."""
        assert self.gradient is not None
        functions = {"value": self.value, "slope": self.gradient}
        if self.has_both:
            del functions["value"]
            lines = ["risk, result = slope()"]
        elif self.gradient.arguments:
            lines = ["result = np.full(len(theta), np.nan)", "slope()"]
        else:
            lines = ["result = slope()"]
        if not self.has_both:
            lines.append("risk = value()")
        lines += [
            "for j in range(len(theta)):",
            "    gradient[j] = sign * result[j]",
            "    if np.isnan(gradient[j]):",
            "        for i in range(len(theta)):",
            "            failed[i] = theta[i]",
            *VALUE.strip().replace("value()", "risk").splitlines(),
        ]
        return compile_user_function(
            functions,
            LOSS_SLOPE,
            SLOPE_PARAMETERS,
            lines,
            failure=self.failed,
            sign=self.sign,
        )

    def difference_pointer(self, steps: Array, limits: Array) -> Pointer:
        """Return a C function of central differences of F with the given steps.

        Slopes are cut at the limits, in absolute value. Both arrays have shape (dim,).
        It is valid as long as these functions are.
        """
        return compile_lines(
            LOSS_SLOPE,
            SLOPE_PARAMETERS,
            DIFFERENCES.strip().splitlines(),
            np=np,
            value_at=value_at,
            address=address_of(self.value_pointer),
            steps=steps,
            limits=limits,
        )

    def values(self, points: Array) -> Array:
        """Return F at each row of points (num_points, dim), NaN where it fails."""
        out = np.empty(len(points))
        fill_values(self._checked_value_pointer, as_kernel_array(points), out)
        return out

    def describe_failure(self) -> str:
        """Return what is wrong, after a C function has failed."""
        functions = [self.value, *([] if self.gradient is None else [self.gradient])]
        names = " or ".join(function.name for function in functions)
        remedy = "Return a number at every point of the domain"
        for function in functions:
            error = recorded_errors.raised_by(function.python)
            if error:
                return f"{function.name} raised {error}. {remedy}."
        # A helper, or a function of the domain, may have raised. What returned NaN at a
        # known point has not.
        if recorded_errors.last and np.isnan(self.failed).all():
            names = "A function of the target or its domain"
            return f"{names} raised {recorded_errors.last}. {remedy}."
        where = ""
        if not np.isnan(self.failed).all():
            point = self.failed if self.lift is None else self.lift(self.failed)
            where = f" at {check.describe(point.tolist())}"
        infinity = "np.inf" if self.sign > 0.0 else "-np.inf"
        return (
            f"{names} returned NaN, or a density that is infinite{where}. {remedy}, "
            f"{infinity} where the density is 0."
        )

    def digests(self) -> list[str]:
        """Return texts that change with the functions and their data."""
        functions = [self.value, *([] if self.gradient is None else [self.gradient])]
        data = self.value.data.digest()
        return [*(f.digest() for f in functions), data, f"{self.sign} {self.has_both}"]

    def in_coordinates(self, origin: Array, basis: Array) -> "DensityFunctions":
        """Return functions of v, for points origin + basis v."""
        move = _Coordinates(origin, basis)
        value = move.compose(self.value, is_gradient=False)
        gradient, own_gradient = None, self.gradient
        # Gradients of other forms are replaced by differences.
        if own_gradient is not None and not (self.has_both or own_gradient.arguments):
            gradient = move.compose(own_gradient, is_gradient=True)
        return DensityFunctions(
            value=value,
            dim=basis.shape[1],
            gradient=gradient,
            lift=move.lift,
            sign=self.sign,
        )


class _Coordinates:
    """The map of v to origin + basis v, whose arrays live as long as it does."""

    def __init__(self, origin: Array, basis: Array) -> None:
        self.origin = np.array(origin, dtype=np.float64)
        self.basis = np.array(basis, dtype=np.float64, order="C")

    def lift(self, vector: Array) -> Array:
        """Return the point."""
        return np.asarray(self.origin + self.basis @ vector)

    def compose(self, function: UserFunction, *, is_gradient: bool) -> UserFunction:
        """Return a function of v that calls the user's at the point."""
        # For a read-only point Numba has the machine code of the user's function. New
        # code could have other globals.
        inner: Any = function.compiled
        origin, basis = array_reader(self.origin), array_reader(self.basis)

        if is_gradient:

            def with_data(v, data):
                return basis().T @ inner(read_only_view(origin() + basis() @ v), data)

            def without_data(v):
                return basis().T @ inner(read_only_view(origin() + basis() @ v))

        else:

            def with_data(v, data):
                return inner(read_only_view(origin() + basis() @ v), data)

            def without_data(v):
                return inner(read_only_view(origin() + basis() @ v))

        source = with_data if function.data.is_given else without_data
        # Addresses in the code are not part of a checkpoint's identity.
        digest = hashlib.blake2b(function.digest().encode(), digest_size=16)
        digest.update(self.origin.tobytes() + self.basis.tobytes())
        return UserFunction(
            function.name,
            source,
            function.data,
            identity=digest.hexdigest(),
            is_composed=True,
        )


def read_functions(
    energy: object,
    log_density: object,
    gradient: object,
    value_and_gradient: object,
    data: object,
    dim: int,
) -> DensityFunctions:
    """Return the functions of a density, if they have the right forms."""
    if (energy is None) == (log_density is None):
        remedy = "Use energy=f for the density exp(-f), log_density=f for exp(f)."
        got = "neither" if energy is None else "both"
        check.fail("energy or log_density", "given, exactly one of them", got, remedy)
    copy = UserData(data)
    name, value_fn, sign = "energy", energy, 1.0
    if energy is None:
        name, value_fn, sign = "log_density", log_density, -1.0
    arguments = "(theta, data)" if copy.is_given else "(theta)"
    count = 2 if copy.is_given else 1
    value = check_function(name, value_fn, (count,), f"f{arguments}")
    first = UserFunction(name, value, copy)
    if gradient is not None and value_and_gradient is not None:
        check.fail("gradient", "None if value_and_gradient is given", "both")
    if value_and_gradient is not None:
        both_fn = check_function(
            "value_and_gradient", value_and_gradient, (count,), f"f{arguments}"
        )
        second = UserFunction("value_and_gradient", both_fn, copy)
        return DensityFunctions(
            value=first, dim=dim, gradient=second, has_both=True, sign=sign
        )
    if gradient is None:
        return DensityFunctions(value=first, dim=dim, sign=sign)
    form = f"f{arguments} or f{arguments[:-1]}, out)"
    slope = check_function("gradient", gradient, (count, count + 1), form)
    python = getattr(slope, "py_func", slope)
    fills = python.__code__.co_argcount > count
    second = UserFunction("gradient", slope, copy, ("result",) if fills else ())
    return DensityFunctions(value=first, dim=dim, gradient=second, sign=sign)
