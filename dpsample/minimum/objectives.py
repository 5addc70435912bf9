r"""Objectives with affine minorants: mean losses of records, and densities of users.

An affine *minorant* of an objective V at a point x is a function

.. math:: \ell(v) = V(x) - e + \langle g, v - x \rangle \le V(v)

with an *excess* e >= 0. The tangent of a convex function is one without excess. Its
minimum on the domain is a lower bound of the minimum of V, which `gap` computes.

Losses with a kink (a margin at which the slope jumps) are smoothed by logarithms of
their dual variable. With slopes from p to q around the kink, and r the margin's
distance from it,

.. math:: \varphi_s = \max_{p < a < q} a r + s \log(a - p) + s \log(q - a) + \dots

The best a is a slope of phi at the kink, so that records contribute the minorants a r,
whose slopes are those of the smoothed objective, and whose excess is at most 2 s.
This is the central path of an interior-point method for the Fenchel dual.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.domains import Domain
from dpsample.losses import Loss
from dpsample.problem.problem import Problem
from dpsample.problem.records import Data, weighted_gram
from dpsample.problem.storage import add_entries
from dpsample.regularizers import Regularizer, RegularizerParams
from dpsample.targets.density import Density
from dpsample.targets.gibbs import NearResponses, as_rows
from dpsample.targets.gibbs_target import GibbsTarget, energies, slopes

# Smallest relative spacing of doubles.
EPSILON = 2.0**-52
# Rounding errors of a loss, a regularizer or a user's function, in units of its last
# digit. Compiled functions of the standard library have a few.
FUNCTION_ERROR = 64.0
# Relative step of differences of gradients.
STEP = 1e-5


class Evaluation(NamedTuple):
    """Smoothed objective at a point, and a minorant of the objective itself."""

    value: float
    height: float  # value of the minorant, the objective less the excess
    slope: Array  # (dim,): gradient of the smoothed objective, slope of the minorant
    hessian: Array | None  # (dim, dim), of the smoothed objective
    excess: float
    error: float  # bound of the rounding errors of the objective minus the minorant
    slope_error: float  # bound of those of the slope, in l2
    smoothing: float = 0.0


class Objective:
    """Convex function on a domain, as the search for its minimum reads it.

    Attributes
    ----------
    domain : Domain
        Set on which it is minimized.
    dim : int
        Number of coefficients.
    strong_convexity : float
        Proved lower bound of its curvature in l2.
    smoothing : float
        First smoothing parameter s, 0 if the objective is not smoothed.
    scale : float
        Factor of losses in the objective. The excess is at most 2 s times it.
    num_terms : int
        Number of smoothed terms, whose mean is in the objective.
    is_steep : bool
        Whether slopes are infinite at the boundary, as those of the entropy are.
    assumption : str
        Condition of the gap, "" if there is none.
    is_convex : bool
        False if it is known that the function is not convex. Then no gap is proved.
    uses_differences : bool
        Whether slopes are differences of values.
    """

    domain: Domain
    dim: int
    strong_convexity: float
    smoothing: float = 0.0
    scale: float = 1.0
    num_terms: int = 1
    is_steep: bool = False
    assumption: str = ""
    is_convex: bool = True
    uses_differences: bool = False

    def evaluate(
        self, point: Array, smoothing: float, *, wants_hessian: bool = True
    ) -> Evaluation:
        """Return the smoothed objective and a minorant at a point of the domain."""
        raise NotImplementedError


class LossSums(NamedTuple):
    """Sums over records at a point."""

    value: float  # sum of smoothed losses
    height: float  # sum of minorants
    excess: float
    slope: Array  # (dim,)
    gram: Array  # (dim, dim), of second derivatives, zeros if they are not wanted
    num_nonfinite: int  # chunks of records with an infinite second derivative
    size: float  # sum of |phi|
    slope_size: float  # sum of |phi'| ||a||
    offset_size: float  # sum of |phi'| |b|


def smooth_kink(
    distance: Array, low: Array, high: Array, smoothing: float
) -> tuple[Array, Array, Array, Array]:
    """Return values, slopes, second derivatives and excesses of smoothed losses.

    ``distance`` is that of the margin from the kink, where the loss counts as 0.
    """
    width = high - low
    # In the formulas of the comments, r is the distance and s the smoothing.
    # With t in (-1, 1) the slope is (low + high + width t) / 2. It solves the quadratic
    # equation d/da = 0 of the maximum above. This form of the root does not cancel.
    size = np.abs(distance) * width
    root = np.hypot(size, 2.0 * smoothing) + 2.0 * smoothing
    t = size / root
    # 1 - t^2 = 4 s / root
    # 1 - t, from (1 - t^2) / (1 + t).
    rest = 4.0 * smoothing / (root * (1.0 + t))
    # phi(r) - a r, the difference of the slopes times |r|.
    excess = 0.5 * width * rest * np.abs(distance)
    is_above = distance >= 0.0
    side = np.where(is_above, high, low)
    slope = side + np.where(is_above, -0.5, 0.5) * width * rest
    # The sum of the logarithms is s log(width^2 / 4 (1 - t^2)). Its constant
    # s log(width^2 / 4) is left out.
    value = side * distance - excess + smoothing * np.log(4.0 * smoothing / root)
    curvature = 2.0 * smoothing * (width / root) ** 2 / (1.0 + t * t)
    return value, slope, curvature, excess


def sum_losses(
    part: Data, loss: Loss, point: Array, smoothing: float, wants_gram: bool
) -> LossSums:
    """Return the sums over a part of the records."""
    rows, dim = as_rows(part), part.dim
    offset = part.offset if part.offset.size else np.zeros(part.num_records)
    margins = rows @ point + offset
    values, slope = loss._evaluate_flat(margins, part.response)
    size, steepest = float(np.abs(values).sum()), np.abs(slope)
    height, excess = float(values.sum()), 0.0
    kink = loss.kink(part.response) if smoothing > 0.0 else None
    # Slopes on both sides of the kink, a distance away that rounding cannot undo.
    if kink is not None:
        distance = 1.0 + np.abs(kink)
        low, high = (
            loss._evaluate_flat(kink + sign * distance, part.response)[1]
            for sign in (-1.0, 1.0)
        )
        base = loss._evaluate_flat(kink, part.response)[0]
        smooth, slope, weights, excesses = smooth_kink(
            margins - kink, low, high, smoothing
        )
        excess, height = float(excesses.sum()), float((values - excesses).sum())
        values = smooth + base
        steepest = np.maximum(np.abs(low), np.abs(high))
    elif wants_gram:
        weights = loss.curvature(margins, margins, part.response)[1]
    gram, num_nonfinite = np.zeros((dim, dim)), 0
    if wants_gram:
        num_nonfinite = int(not np.isfinite(weights).all())
        if not num_nonfinite:
            gram = weighted_gram(part, np.ascontiguousarray(weights))
    # Sums of sums of sqrt(n) terms have smaller rounding errors than one of n.
    total, block = np.zeros(dim), math.isqrt(part.num_records) + 1
    # Each block has its own sum.
    for start in range(0, part.num_records, block):
        stop = start + block
        total = total + slope[start:stop] @ rows[start:stop]
    # Sparse matrices have `multiply`, which multiplies entry by entry.
    squares = rows.multiply(rows) if hasattr(rows, "multiply") else rows * rows
    lengths = np.sqrt(np.asarray(squares.sum(axis=1)).reshape(-1))
    return LossSums(
        float(values.sum()),
        height,
        excess,
        np.asarray(total),
        gram,
        num_nonfinite,
        size,
        float(steepest @ lengths),
        float(steepest @ np.abs(offset)),
    )


class RecordObjective(Objective):
    """k (F + mu r), with the mean loss F of records and a regularizer r of weight mu.

    k is a factor, by default 1.
    """

    def __init__(
        self,
        problem: Problem,
        k: float = 1.0,
        mu: float = 0.0,
        regularizer: Regularizer | None = None,
        params: RegularizerParams | None = None,
    ) -> None:
        self.problem, self.k, self.mu = problem, k, mu
        self.regularizer, self.params = regularizer, params
        self.domain, self.dim = problem.domain, problem.dim
        self.storage = NearResponses(problem.storage, problem)
        self.scale, self.num_terms = k, problem.num_records
        # A regularizer's curvature counts only if it has a weight.
        self.lowest_curvature = 0.0
        if regularizer is not None and mu > 0.0:
            self.lowest_curvature = regularizer.curvature_l2(self.dim)[0]
            self.is_steep = regularizer.name == "entropy"
        self.strong_convexity = k * mu * self.lowest_curvature
        if not problem.loss.is_ours:
            self.assumption = "the loss is convex with the declared slopes"
        if problem.loss.kink(np.zeros(1)) is not None:
            self.smoothing = self._first_smoothing()

    def _first_smoothing(self) -> float:
        """Return a smoothing parameter of the size of the mean loss."""
        start = self.domain.interior_point(self.dim)
        sums = self._sums(start, 0.0, wants_gram=False)
        # A mean loss of 0 would leave nothing to smooth with.
        return max(sums.size / self.problem.num_records, 1e-8)

    def _sums(self, point: Array, smoothing: float, *, wants_gram: bool) -> LossSums:
        """Return the sums over all records, by one pass."""
        arguments = self.problem.loss, point, smoothing, wants_gram
        return LossSums(*self.storage.fold(add_entries, sum_losses, *arguments))

    def evaluate(
        self, point: Array, smoothing: float, *, wants_hessian: bool = True
    ) -> Evaluation:
        """Return the smoothed objective and a minorant at a point of the domain."""
        n, dim = self.problem.num_records, self.dim
        sums = self._sums(point, smoothing, wants_gram=wants_hessian)
        value, low, slope = sums.value / n, sums.height / n, sums.slope / n
        # As EPSILON is twice the unit roundoff, the factor 2 covers both levels of
        # sums.
        # Worst-case bounds of recursive sums of sqrt(n) terms, and of inner products.
        terms = EPSILON * (2.0 * math.sqrt(n) + dim + FUNCTION_ERROR)
        slope_error = terms * sums.slope_size / n
        margins = float(np.linalg.norm(point)) * sums.slope_size + sums.offset_size
        error = (terms * sums.size + 2.0 * (dim + 2.0) * EPSILON * margins) / n
        hessian: Array | None = None
        if wants_hessian and not sums.num_nonfinite:
            hessian = sums.gram / n
        if self.regularizer is not None and self.mu > 0.0:
            height, rise = self._penalty(point)
            value, low = value + self.mu * height, low + self.mu * height
            slope = slope + self.mu * rise
            digits = self.mu * EPSILON * (8.0 * dim + FUNCTION_ERROR)
            error += digits * abs(height)
            slope_error += digits * float(np.linalg.norm(rise))
            if hessian is not None:
                hessian = hessian + self.mu * self._penalty_hessian(point)
        if hessian is not None:
            hessian = self.k * hessian
        k = self.k
        excess = k * sums.excess / n
        return Evaluation(
            value=k * value,
            height=k * low,
            slope=k * slope,
            hessian=hessian,
            excess=excess,
            error=k * error,
            slope_error=k * slope_error,
            smoothing=smoothing,
        )

    def _penalty(self, point: Array) -> tuple[float, Array]:
        """Return the regularizer and its gradient."""
        assert self.regularizer is not None
        assert self.params is not None
        center = self.params.center
        return (
            self.regularizer.value(point, center),
            self.regularizer.gradient(point, center),
        )

    def _penalty_hessian(self, point: Array) -> Array:
        """Return the Hessian of the regularizer, by differences if need be."""
        assert self.regularizer is not None
        lower, upper = self.regularizer.curvature_l2(self.dim)
        if lower == upper:
            return np.asarray(lower * np.eye(self.dim))
        if self.regularizer.name == "entropy":
            # The entropy's second derivative 1 / theta_j, without division by 0.
            return np.diag(1.0 / np.maximum(point, 1e-300))
        step = STEP * max(float(np.abs(point).max()), 1e-3)
        columns = [
            self._penalty(point + step * unit)[1]
            - self._penalty(point - step * unit)[1]
            for unit in np.eye(self.dim)
        ]
        return _as_curvature(np.array(columns) / (2.0 * step), lower)


def _as_curvature(hessian: Array, floor: float) -> Array:
    """Return the nearest symmetric matrix whose eigenvalues are at least a floor."""
    symmetric = 0.5 * (hessian + hessian.T)
    if not np.isfinite(symmetric).all():
        # A regularizer that overflows still needs a model.
        return np.asarray(max(floor, 1.0) * np.eye(len(hessian)))
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)


class DensityObjective(Objective):
    """Energy of a density of the user, by its value and gradient."""

    def __init__(self, target: Density) -> None:
        self.target, self.domain, self.dim = target, target.domain, target.dim
        self.basis = np.asarray(target.geometry.basis)
        self.strong_convexity = 0.0
        if target.mu > 0.0:
            self.strong_convexity = target.k * target.mu * target.curvature[0]
            self.is_steep = target.regularizer.name == "entropy"
        self.is_convex = target.is_convex
        name = target.functions.value.name
        kind = "convex" if name == "energy" else "concave"
        gradient = target.functions.gradient
        self.uses_differences = gradient is None
        with_gradient = "" if gradient is None else f" with this {gradient.name}"
        self.assumption = f"{name} is {kind}{with_gradient}"
        if target.mu > 0.0 and target.regularizer.name == "custom":
            self.assumption += ", and the regularizer is as declared"
        self.work = target.new_work()

    def evaluate(
        # The functions of a density declare no kinks.
        self,
        point: Array,
        smoothing: float,
        *,
        wants_hessian: bool = True,
    ) -> Evaluation:
        """Return the energy and its tangent at a point of the domain."""
        del smoothing
        target, slope = self.target, np.empty(self.dim)
        at = target.numbers, target.pieces, np.ascontiguousarray(point), self.work
        value = float(target.calls.energy_gradient(*at, slope))
        digits = EPSILON * (8.0 * self.dim + FUNCTION_ERROR)
        hessian = self._hessian(point) if wants_hessian else None
        excess, error, slope_error = 0.0, digits * abs(value), 0.0
        if self.uses_differences:
            base = self._base(point)
            if base is not point:
                # The minorant is the tangent at the base.
                at = target.numbers, target.pieces, base, self.work
                base_value = float(target.calls.energy_gradient(*at, slope))
                move = point - base
                # The tangent at the base is below V at the point by this much.
                excess = max(value - base_value - float(slope @ move), 0.0)
                error += digits * (abs(base_value) + float(np.abs(slope * move).sum()))
            slope_error = self._difference_error(base, slope)
            # It holds for distances from the base.
            error += slope_error * float(np.linalg.norm(point - base))
        slope_error += digits * float(np.linalg.norm(slope))
        return Evaluation(
            value=value,
            height=value - excess,
            slope=slope,
            hessian=hessian,
            excess=excess,
            error=error,
            slope_error=slope_error,
        )

    def _base(self, point: Array) -> Array:
        """Return the point, or one a little inside, with room for differences.

        At the boundary no difference to both sides is inside. The base is as far away
        as differences are wide, relative to the way to an interior point.
        """
        # A hundredth of the steps for second derivatives, because the error of a slope
        # is at most the second derivative times the step.
        steps = self.target._difference_steps[0] * 1e-2
        size = float(np.max(steps, initial=0.0)) or STEP
        chords = [self.domain.chord(point, axis) for axis in self.basis.T]
        if all(min(high, -low) >= size for low, high in chords):
            return point
        inward = np.asarray(self.domain.interior_point(self.dim)) - point
        distance = float(np.linalg.norm(inward))
        share = min(1e-3, 1e2 * size / distance) if distance > 0.0 else 0.0
        return np.ascontiguousarray(point + share * inward)

    def _moves(self, point: Array, steps: Array) -> Array:
        """Return moves along the basis of the hull, shortened to stay inside."""
        moves = (self.basis * steps).T
        for i, move in enumerate(moves.copy()):
            low, high = self.domain.chord(point, move)
            # Both ends of each move, point + move and point - move, must be inside.
            moves[i] *= min(1.0, 0.5 * high, -0.5 * low)
        return np.ascontiguousarray(moves)

    def _hessian(self, point: Array) -> Array:
        """Return the Hessian by differences of slopes over small steps."""
        steps = self.target._difference_steps[0]
        size = float(np.max(steps, initial=0.0)) or STEP
        moves = self._moves(point, np.full(self.basis.shape[1], size))
        rising = slopes(self.target, point + moves)
        falling = slopes(self.target, point - moves)
        lengths = np.linalg.norm(moves, axis=1)
        # Moves that the boundary made too short give no second derivative.
        # Coordinates of the change of the slope along each axis of the hull.
        inner = (rising - falling) @ self.basis
        inner /= np.maximum(2.0 * lengths, 1e-300)[:, None]
        inner[lengths < 1e-3 * size] = 0.0
        hessian = _as_curvature(inner, 0.0)
        return np.asarray(self.basis @ hessian @ self.basis.T)

    def _difference_error(self, point: Array, slope: Array) -> float:
        """Return a bound of the error of differences, for a convex energy.

        With values at x - h e and x + h e, a convex energy is at least
        V(x) + c z - w |z| at x + z e, where c is the central difference and w half of
        the second difference over h. In several directions the sum of these bounds
        holds, because x - t z is a mean of points on the axes.
        """
        steps = self.target._difference_steps[0] * 1e-2
        size = float(np.max(steps, initial=0.0)) or STEP
        moves = self._moves(point, np.full(self.basis.shape[1], size))
        lengths = np.linalg.norm(moves, axis=1)
        middle = energies(self.target, point[None])[0]
        above = energies(self.target, point + moves)
        below = energies(self.target, point - moves)
        if not (lengths > 0.0).all():
            return math.inf
        # Rounding errors of the three values.
        noise = (
            EPSILON
            * FUNCTION_ERROR
            * np.maximum(np.maximum(np.abs(above), np.abs(below)), abs(middle))
        )
        central = (above - below) / (2.0 * lengths)
        widths = (above + below - 2.0 * middle + 4.0 * noise) / (2.0 * lengths)
        error = np.abs(central - slope @ self.basis) + widths
        return float(np.linalg.norm(error)) if np.isfinite(error).all() else math.inf


def objective_of(target: GibbsTarget | Problem) -> Objective:
    """Return the objective of a target, or the empirical risk of a problem."""
    if isinstance(target, Problem):
        return RecordObjective(target)
    if isinstance(target, Density):
        return DensityObjective(target)
    problem = target.problem  # type: ignore[attr-defined]
    return RecordObjective(
        problem, target.k, target.mu, target.regularizer, target.regularizer_params
    )
