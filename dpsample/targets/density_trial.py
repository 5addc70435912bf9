"""Comparison of a user's density with what it has to be, around one point.

The *scale* of a direction is the length over which the energy changes by about 1. Tests
are made at random points some scales away from the domain's interior point. Errors name
the argument and show the point. What passes is not proved: another mode, or a flat part
far away, stays unseen.
"""

import math
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import NoReturn

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.user_functions import recorded_errors
from dpsample.domains import Domain
from dpsample.targets.density_functions import DensityFunctions, call_slope

# Numbers of points and of pairs of points at which functions are tried. A sum with the
# wrong sign fails at most of them, and 200 pairs take milliseconds.
NUM_TRIED = 5
NUM_PAIRS = 200
# Smallest relative spacing of doubles.
EPSILON = 2.0**-52
# Relative difference between a gradient and differences that counts as an error.
GRADIENT_TOLERANCE = 1e-4


class DensityTrial:
    """Comparison of a density with what it has to be, around one point."""

    def __init__(
        self,
        functions: DensityFunctions,
        domain: Domain,
        dim: int,
        k: float,
        point: Array | None = None,
        *,
        energies_fn: Callable[[Array], Array] | None = None,
    ) -> None:
        self.functions, self.domain, self.dim, self.k = functions, domain, dim, k
        # Energies at the rows of points, of which k F may be a part only.
        self.energies_fn = energies_fn or (lambda rows: k * functions.values(rows))
        # A fixed seed, so that the same density always passes or always fails.
        self.rng = np.random.default_rng(0)
        center = domain.interior_point(dim) if point is None else point
        self.point = np.array(center, dtype=np.float64)
        # Directions that span the domain's hull, one in each row.
        self.axes = np.ascontiguousarray(domain.hull(dim)[1].T)

    @cached_property
    def value(self) -> float:
        """F at the point."""
        return float(self.functions.values(self.point[None])[0])

    @cached_property
    def height(self) -> float:
        """Energy at the point."""
        return float(self.energies_fn(self.point[None])[0])

    @cached_property
    def axis_scales(self) -> Array:
        """Scales along the axes of the hull."""
        return self.scales(self.axes)

    @property
    def coordinate_scales(self) -> Array:
        """Scales of the coefficients, infinite for those that the domain fixes."""
        # The largest move of each coefficient within one scale of any axis.
        widths = np.abs(self.axes * self.axis_scales[:, None]).max(axis=0)
        return np.where(widths > 0.0, widths, np.inf)

    @property
    def name(self) -> str:
        """Parameter that the value was given for."""
        return self.functions.value.name

    def run(self, *, is_regularized: bool, convex: bool) -> bool:
        """Return whether F may be convex. Anything else that is wrong raises.

        ``is_regularized`` is whether a regularizer makes the density integrable, and
        ``convex`` is what the user says.
        """
        self._call_python(self.point)
        if not math.isfinite(self.value):
            self._fail_infinite(self.point)
        is_proper = self.domain.is_bounded or is_regularized
        if not is_proper:
            self._check_axes()
        self._check_widths(is_regularized=is_regularized)
        # Points one scale away, at which the density is about e^-1 of its largest
        # value.
        near_points = self._points(NUM_TRIED, np.ones(NUM_TRIED))
        values = self.functions.values(near_points)
        for point, value in zip(near_points, values, strict=True):
            if not math.isfinite(value):
                self._fail_infinite(point)
        # Compiled earlier, a function may have other globals, which one point may hide.
        self._call_python(near_points[0])
        if self.functions.gradient is not None:
            for point in near_points[:3]:
                self._compare_gradient(point)
        if not is_proper:
            self._check_tails()
        return convex and self._seems_convex()

    def _check_widths(self, *, is_regularized: bool) -> None:
        """Raise if squares of the lengths along axes overflow, or are 0."""
        # Their squares are within the range of doubles.
        shortest, limit = 1e-150, 1e150
        longest = math.inf if is_regularized else limit
        for axis, scale in zip(self.axes, self.axis_scales, strict=True):
            if shortest <= scale <= longest:
                continue
            where = check.describe(np.round(axis, 3).tolist())
            condition = f"on lengths from {shortest:g} to {limit:g}"
            got = f"{scale:.3g} along {where}"
            check.fail("density", condition, got, "Use other units.")

    def _call_python(self, point: Array) -> None:
        """Call the functions uncompiled at a point, and compare the value."""
        function, dim = self.functions.value, self.dim
        # Called from Python, the inner function would have today's globals.
        if function.is_composed:
            return
        result = function.call_python(point)
        if not isinstance(result, int | float | np.number) or np.iscomplexobj(result):
            got = check.describe(result)
            check.fail(self.name, "a function that returns a real number", got)
        value = self.functions.sign * float(result)
        # Sums in another order may differ in the last digits.
        compiled = float(self.functions.values(point[None])[0])
        if math.isfinite(value) and not np.isclose(value, compiled, rtol=1e-6):
            got = f"{float(result):.6g} from Python and "
            got += f"{self.functions.sign * compiled:.6g} compiled"
            if recorded_errors.last:
                got = f"compiled code that raises {recorded_errors.last}"
            check.fail(self.name, "the same function if Numba compiles it", got)
        gradient = self.functions.gradient
        if gradient is None:
            return
        out = np.full(dim, np.nan)
        arguments = [out] if gradient.arguments else []
        result = gradient.call_python(point, *arguments)
        if self.functions.has_both:
            if not (isinstance(result, tuple) and len(result) == 2):
                got = check.describe(result)
                check.fail(gradient.name, "a function that returns two things", got)
            result = result[1]
        slope = out if gradient.arguments else result
        if np.shape(slope) != (dim,):
            got = f"shape {np.shape(slope)}"
            check.fail(gradient.name, f"a function that returns shape ({dim},)", got)
        if gradient.arguments and np.isnan(out).any():
            got = f"nan at index {np.flatnonzero(np.isnan(out)).tolist()[:3]}"
            remedy = "Write to its entries, as in out[:] = ..."
            check.fail(gradient.name, "a function that fills out", got, remedy)

    def _fail_infinite(self, point: Array) -> NoReturn:
        """Fail with what the function itself raises or returns at a point."""
        result = self.functions.value.call_python(point)
        got = f"{check.describe(result)} at {check.describe(point.tolist())}"
        remedy = ""
        if np.isfinite(self.functions.sign * result):
            remedy = "It is finite in Python, but not if Numba compiles it."
        check.fail(self.name, "finite at points inside the domain", got, remedy)

    def scales(self, directions: Array) -> Array:
        """Return lengths t along directions over which the energy changes by about 1.

        Energies above 1e12 have lengths of the changes that rounding leaves.

        They are positive, and at most half of the longer of the two ways to the
        boundary.
        """
        reaches, count = np.empty(len(directions)), len(directions)
        for i, direction in enumerate(directions):
            low, high = self.domain.chord(self.point, direction)
            reaches[i] = 0.5 * max(high, -low)
        lengths = np.minimum(1.0, reaches)
        is_growing = np.ones(count, dtype=bool)
        # A change by 1 may drown in the rounding of a large value.
        size = max(1.0, 1e3 * EPSILON * abs(self.height))
        # A factor of 4 in 250 steps spans all doubles.
        for step in range(250):
            changes = self._changes(lengths[:, None] * directions)
            is_long = ~(changes <= size)
            # Directions along which the first length was short enough grow until it is
            # too long. The others shrink until it is not.
            if step == 0:
                is_growing = ~is_long
            moves = np.where(is_growing, ~is_long & (lengths < reaches), is_long)
            if not moves.any():
                break
            factor = np.where(is_growing, 4.0, 0.25)
            lengths = np.where(moves, np.minimum(lengths * factor, reaches), lengths)
        # The last factor of 4 went too far.
        return np.where(is_growing & is_long, 0.25 * lengths, lengths)

    def _changes(self, moves: Array) -> Array:
        """Return how much V changes from the point, on the side that changes less."""
        above, below = (
            # At a boundary of the support one side may be infinite.
            self.energies_fn(self.point + sign * moves)
            for sign in (1.0, -1.0)
        )
        rises = np.abs(np.array([above, below]) - self.height)
        rises[~np.isfinite(rises)] = np.inf
        return np.asarray(rises.min(axis=0))

    def _random_directions(self, count: int) -> Array:
        """Return directions in the hull, one in each row, with the scales of axes."""
        rank = len(self.axes)
        # A sum of ``rank`` steps along axes is sqrt(rank) times as long as one of them.
        weights = self.rng.standard_normal((count, rank)) * self.axis_scales
        return np.asarray(weights @ self.axes / math.sqrt(rank))

    def _points(self, count: int, factors: Array) -> Array:
        """Return random points at which V differs by about the squared factors."""
        dim, domain = self.dim, self.domain
        directions = self._random_directions(count)
        lengths = self.scales(directions) * factors
        points = np.empty((count, dim))
        for i, direction in enumerate(directions):
            _, high = domain.chord(self.point, direction)
            # Inside by a tenth of the way to the boundary.
            length = min(lengths[i], 0.9 * high)
            points[i] = self.point + length * direction
        return points

    def _compare_gradient(self, point: Array) -> None:
        """Compare the gradient with differences along random directions."""
        functions, dim = self.functions, self.dim
        gradient, out = np.full(dim, np.nan), np.full(1, np.nan)
        call_slope(functions.gradient_pointer, point, gradient, out)
        for direction in self._random_directions(3):
            # Differences over seven sizes of steps. The best one counts, because long
            # steps have curvature and short ones rounding errors.
            sizes = 10.0 ** -np.arange(1.0, 8.0)
            steps = sizes[:, None] * direction
            above, below = (functions.values(point + s * steps) for s in (1.0, -1.0))
            slopes = (above - below) / (2.0 * sizes)
            slope = float(gradient @ direction)
            # Rounding of the values, which may have a large constant in common.
            noise = 8.0 * EPSILON * abs(float(out[0])) / sizes
            size = abs(slope) + float(np.abs(gradient * direction).max())
            misses = np.abs(slopes - slope) - noise
            if (
                not np.nanmin(misses, initial=np.inf)
                <= GRADIENT_TOLERANCE * size + 1e-12
            ):
                best = (
                    slopes[np.nanargmin(misses)]
                    if np.isfinite(misses).any()
                    else np.nan
                )
                got = (
                    f"{functions.sign * slope:.6g} along a direction in which "
                    f"differences give {functions.sign * best:.6g}"
                )
                name = functions.gradient.name if functions.gradient else "gradient"
                check.fail(name, f"the gradient of {self.name}", got)

    def _check_tails(self) -> None:
        """Raise if the energy does not rise along an infinite ray."""
        domain = self.domain
        axes = self.axes[:50]
        directions = np.concatenate([axes, -axes, self._random_directions(50)])
        lengths = self.scales(directions)
        # Almost every ray has a finite integral of e^(-V) r^(rank - 1), if all have
        # one together. So between two radii V rises by the rank times the difference of
        # their logarithms, far out. On axes it may rise less.
        rank, num_axes = len(self.axes), 2 * len(axes)
        # Random rays have to rise by 0.99 times the rank, which leaves room for
        # rounding. In one dimension all rays are axes.
        slowest = np.where(np.arange(len(directions)) >= num_axes, 0.99 * rank, 0.0)
        slowest[:] = 0.99 if rank == 1 else slowest
        radii = 10.0 ** np.arange(41.0, 1.0, -3.0)
        # From 10^41 scales down, until a value is a number.
        for direction, length, slope in zip(directions, lengths, slowest, strict=True):
            if domain.chord(self.point, direction)[1] < math.inf:
                continue
            known_radii, known_values = self._values_far_out(length * direction, radii)
            rises = self.k * (known_values[0] - self.value) > 0.5
            if known_values.size > 1 and math.isfinite(known_values[0]):
                rises &= self.k * (known_values[0] - known_values[1]) >= (
                    slope * math.log(known_radii[0] / known_radii[1])
                )
            if not rises:
                self._fail_improper(direction, known_values[0])

    def _values_far_out(self, move: Array, radii: Array) -> tuple[Array, Array]:
        """Return the radii, farthest first, at which F is a number, and its values.

        Too far out it may be the difference of two infinities, or zero times one. Then
        radii in between follow, as F may fall before it rises.
        """
        values = self.functions.values(self.point + radii[:, None] * move)
        is_known = ~np.isnan(values)
        if not is_known.any():
            self._fail_nan(self.point + radii[-1] * move)
        first = int(np.argmax(is_known))
        known_radii, known_values = radii[is_known], values[is_known]
        if first > 0:
            between = radii[first] * 1000.0 ** np.linspace(0.95, 0.05, 19)
            more = self.functions.values(self.point + between[:, None] * move)
            known_radii = np.concatenate([between[~np.isnan(more)], known_radii])
            known_values = np.concatenate([more[~np.isnan(more)], known_values])
        return known_radii, known_values

    def _check_axes(self) -> None:
        """Fail where the energy is the same along an infinite axis, however far."""
        for axis, scale in zip(self.axes, self.axis_scales, strict=True):
            for side in (axis, -axis):
                if scale < 1e100 or self.domain.chord(self.point, side)[1] < math.inf:
                    continue
                value = float(
                    self.functions.values((self.point + 1e50 * side)[None])[0]
                )
                if self.k * abs(value - self.value) <= 1.0:
                    self._fail_improper(side, value)

    def _fail_improper(self, direction: Array, value: float) -> NoReturn:
        got = (
            f"{self.functions.sign * value:.6g} far along "
            f"{check.describe(np.round(direction, 3).tolist())}"
        )
        remedy = "Its density cannot be normalized: bound the domain, or use mu > 0."
        verb = "falls" if self.functions.sign < 0.0 else "rises"
        condition = f"one that {verb} where the domain is unbounded"
        check.fail(self.name, condition, got, remedy)

    def _fail_nan(self, point: Array) -> NoReturn:
        """Fail because F has no value at a point far away."""
        result = self.functions.value.call_python(point)
        got = f"{check.describe(result)} at {check.describe(point.tolist())}"
        if recorded_errors.last and math.isfinite(result):
            got = recorded_errors.last
        infinity = "np.inf" if self.functions.sign > 0.0 else "-np.inf"
        remedy = f"Return {infinity} where the density is 0, or bound the domain."
        check.fail(self.name, "a number, or infinite where it is cut off", got, remedy)

    def _seems_convex(self) -> bool:
        """Return whether F passes at midpoints of pairs of points. If not, warn."""
        # Pairs are one, ten and a hundred scales from the point, as far as the domain
        # goes.
        factors = np.array([1.0, 10.0, 100.0])[self.rng.integers(0, 3, 2 * NUM_PAIRS)]
        points = self._points(2 * NUM_PAIRS, factors)
        first, second = points[::2], points[1::2]
        middle = 0.5 * (first + second)
        values = [self.functions.values(part) for part in (first, second, middle)]
        chords = 0.5 * (values[0] + values[1])
        # Rounding errors of the three values.
        size = 1e-9 * (1.0 + np.abs(values[0]) + np.abs(values[1]))
        with np.errstate(invalid="ignore"):
            is_above = values[2] > chords + size
            is_below = values[2] < chords - size
        if not is_above.any():
            return True
        i = int(np.argmax(is_above))
        ends = " and ".join(
            check.describe(end.tolist()) for end in (first[i], second[i])
        )
        advice = "Chains keep the density invariant, but may miss modes"
        if not is_below.any():
            other = "log_density" if self.name == "energy" else "energy"
            advice = f"Is it meant as {other}=? Otherwise chains may miss modes"
        kind = "convex" if self.name == "energy" else "concave"
        warnings.warn(
            f"{self.name} is not {kind} between {ends}. {advice}. "
            "convex=False says that this is known.",
            RuntimeWarning,
            stacklevel=check.user_stack_level(),
        )
        return False
