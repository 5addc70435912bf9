r"""Upper bounds of how far an objective is above its minimum, from a minorant.

A minorant at x, of slope g and excess e, has V(v) >= V(x) - e + <g, v - x> for all v in
the domain K. An `Evaluation` has its value V(x) - e as ``height``, while ``value`` is
the smoothed objective. The smallest value of the minorant on K is

.. math:: V(x) - e - \max_{v \in K} \langle g, x - v \rangle
    = V(x) - e - \langle g, x \rangle - h_K(-g),

where h is the support function. So V(x) - min V <= e + <g, x> + h(-g). For a mean loss
this is the gap between the primal and the Fenchel dual objective, and for a smooth
objective that of Frank and Wolfe. If V - m/2 ||.||^2 is convex the term m/2 ||x - v||^2
is subtracted in the maximum, which is then finite on every domain.

If the domain has no finite bound and m = 0, tangents at points around x may show that
no point outside a parallelepiped is better than x. On it the first bound is used.

Bounds of rounding errors are added, and the sum is rounded upwards.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.arrays import Array
from dpsample.domains import Domain, Intersection
from dpsample.minimum.objectives import EPSILON, Evaluation, Objective
from dpsample.targets.gibbs_target import form_in_basis, times_basis


def round_up(value: float) -> float:
    """Return a number above a sum of a few nonnegative numbers."""
    return float(np.nextafter(value * (1.0 + 16.0 * EPSILON), math.inf))


def support(domain: Domain, direction: Array) -> float:
    """Return a bound of <direction, v> on the domain, infinity if none is known."""
    # The domain is within each part, so that the smallest bound holds.
    if isinstance(domain, Intersection):
        return min(support(part, direction) for part in domain.parts)
    try:
        return float(np.asarray(domain.support(direction[None])).reshape(-1)[0])
    except ValueError:
        if domain.has_public_bounds:
            raise
        return math.inf


def largest_distance(domain: Domain, point: Array) -> float:
    """Return an upper bound of the distance of points of the domain."""
    if isinstance(domain, Intersection):
        return min(largest_distance(part, point) for part in domain.parts)
    try:
        return float(domain.max_norm(2.0, point, len(point)))
    except ValueError:
        if domain.has_public_bounds:
            raise
        return math.inf


def gap_of(
    objective: Objective, point: Array, evaluation: Evaluation, tolerance: float
) -> float:
    """Return an upper bound of the objective at a point minus its minimum.

    Bounds that need evaluations at other points are left out if the others are within
    the tolerance.
    """
    slope = evaluation.slope
    if not (np.isfinite(slope).all() and math.isfinite(evaluation.value)):
        return math.inf
    # Both the value that is shown and the minorant have rounding errors.
    fixed = evaluation.excess + 2.0 * evaluation.error
    falls = [_linear_fall(objective.domain, point, evaluation)]
    if objective.domain.is_product:
        falls.append(_product_fall(objective.domain, point, evaluation))
    # Each of these bounds holds by itself.
    if objective.strong_convexity > 0.0:
        falls.append(_quadratic_fall(objective, point, evaluation))
    fall = min(falls)
    is_within = fixed + fall <= tolerance  # False for NaN
    # A smaller fall is of use if the rest is within the tolerance, or none is known.
    may_help = fixed <= tolerance or math.isinf(fall)
    if not is_within and may_help:
        fall = min(fall, _local_fall(objective, point, evaluation, tolerance))
    return round_up(fixed + fall) if math.isfinite(fall) else math.inf


def _linear_fall(domain: Domain, point: Array, evaluation: Evaluation) -> float:
    """Return a bound of the largest fall of the minorant on the domain."""
    slope = evaluation.slope
    height = support(domain, -slope)
    if not math.isfinite(height):
        return math.inf
    reach = largest_distance(domain, point)
    if not math.isfinite(reach):
        return math.inf
    # A sum of m products errs by at most about m EPSILON times the sum of their sizes.
    terms = float(np.abs(slope * point).sum()) + abs(height)
    rounding = EPSILON * (len(point) + 8.0) * terms
    fall = max(float(slope @ point) + height, 0.0)
    return fall + rounding + evaluation.slope_error * reach


def _quadratic_fall(
    objective: Objective, point: Array, evaluation: Evaluation
) -> float:
    """Return a bound of the largest <g, x - v> - m/2 ||x - v||^2 on the domain.

    It is m/2 times the difference of the squared distances of x - g/m from x and from
    the domain. A hyperplane through the projection proves the second distance.
    """
    m, slope = objective.strong_convexity, evaluation.slope
    move = slope / m
    end = point - move
    if not np.isfinite(end).all():
        # With w = g/m and z = x - w, <g, x - v> - m/2 |x - v|^2 = m/2 (|w|^2 - |z -
        # v|^2).
        return math.inf
    nearest = objective.domain.project(end)
    # <normal, v> <= h(normal) for all v of K. So the distance of z from K is at least
    # (<normal, z> - h) / |normal|, however inaccurate the projection is.
    normal, distance = end - nearest, 0.0
    size = float(np.linalg.norm(normal))
    if size > 0.0:
        height = support(objective.domain, normal)
        if math.isfinite(height):
            terms = float(np.abs(normal * end).sum()) + abs(height)
            rounding = EPSILON * (len(point) + 8.0) * terms
            distance = max((float(normal @ end) - height - rounding) / size, 0.0)
    length = float(np.linalg.norm(move)) * (1.0 + EPSILON * (len(point) + 8.0))
    # (length^2 - distance^2) as a product, which does not cancel.
    fall = 0.5 * m * max(length - distance, 0.0) * (length + distance)
    rounding = EPSILON * m * length * float(np.linalg.norm(point) + length)
    # A slope that errs by e moves the minimizer by at most e / m.
    reach = float(np.linalg.norm(point - nearest)) + evaluation.slope_error / m
    return fall + rounding + evaluation.slope_error * reach


def _product_fall(domain: Domain, point: Array, evaluation: Evaluation) -> float:
    """Return a bound of the largest fall between bounds of single coordinates."""
    body, slope = domain.body(len(point)), evaluation.slope
    above, below = body.upper - point, point - body.lower
    # The true slope of each coordinate is within ``blur`` of the computed one.
    blur = evaluation.slope_error + EPSILON * 8.0 * np.abs(slope)
    # A bound at infinity counts only if the minorant may fall towards it.
    rising, falling = np.maximum(blur - slope, 0.0), np.maximum(slope + blur, 0.0)
    # Infinity times 0 is not used, but NumPy evaluates both branches.
    with np.errstate(invalid="ignore"):
        up = np.where(rising > 0.0, rising * above, 0.0)
        down = np.where(falling > 0.0, falling * below, 0.0)
    return float(np.maximum(up, down).sum()) * (1.0 + EPSILON * len(point))


class _Frame(NamedTuple):
    """Coordinates about a point in which an objective has about the same curvature."""

    basis: Array  # (dim, m): columns in the hull, each of the length of a unit
    smoothing: float
    steps: tuple[float, ...]  # distances of tangents, in units


def _frame(objective: Objective, point: Array, evaluation: Evaluation) -> _Frame | None:
    """Return coordinates in which tangents may exclude far points, None if flat."""
    smoothing = evaluation.smoothing
    hessian = evaluation.hessian
    if hessian is None:
        hessian = objective.evaluate(point, smoothing).hessian
    if hessian is None or not np.isfinite(hessian).all():
        return None
    hull = objective.domain.hull(len(point))[1]
    values, vectors = np.linalg.eigh(form_in_basis(hessian, hull))
    # Along a flat direction no tangent excludes far points.
    if not values[0] > 1e-12 * values[-1]:
        return None
    # With s the smoothing, the Hessian changes where one of the n terms rises by about
    # s, which changes V by s scale / n. In coordinates with the identity as Hessian a
    # move of length t changes V by about t^2. The unit is the t at which both agree.
    unit = 1.0
    if smoothing > 0.0:
        unit = math.sqrt(smoothing * objective.scale / objective.num_terms)
    steps = tuple(unit * share for share in (1.0, 0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4))
    # Columns v_j / sqrt(lambda_j) of eigenvectors turn the Hessian into the identity.
    return _Frame(times_basis(hull, vectors / np.sqrt(values)), smoothing, steps)


def _local_fall(
    objective: Objective, point: Array, evaluation: Evaluation, tolerance: float
) -> float:
    """Return a bound of the fall over the points that tangents do not exclude.

    In coordinates z of x + B z, in which the Hessian is about the identity, the slopes
    of minorants at x +- t B e_j are about +- t e_j. At a better point none of them is
    above V(x), which are linear inequalities for z. If the slopes are +- t (e_j + E_j),
    with ||E_j||_1 <= q < 1, then the largest |z_j| is at most the largest right side
    over t (1 - q).
    """
    frame, best = _frame(objective, point, evaluation), math.inf
    if frame is None:
        return best
    # In the box |z_j| <= reach the minorant falls by at most the sum of its slopes
    # along the axes, times reach.
    falls = np.abs(evaluation.slope @ frame.basis)
    lengths = np.linalg.norm(frame.basis, axis=0)
    rate = float((falls + evaluation.slope_error * lengths).sum())
    for step in frame.steps:
        reach = _largest_coordinate(objective, point, evaluation, frame, step)
        # Smaller steps have smaller reaches, down to those of rounding errors.
        if reach < math.inf and rate * reach > best:
            break
        best = min(best, rate * reach)
        if best <= 0.1 * tolerance:
            break
    return best


def _largest_coordinate(
    objective: Objective,
    point: Array,
    evaluation: Evaluation,
    frame: _Frame,
    step: float,
) -> float:
    """Return a bound of |z_j| of better points, infinity if there is none."""
    largest_side, largest_row = 0.0, 0.0
    lengths = np.linalg.norm(frame.basis, axis=0)
    # A better point v has V(v) <= V(x), and V(x) is at most ``top``.
    top = evaluation.height + evaluation.excess + evaluation.error
    for j, axis in enumerate(frame.basis.T):
        for sign in (1.0, -1.0):
            move = sign * step * axis
            if not objective.domain.contains(point + move):
                return math.inf
            tangent = objective.evaluate(
                point + move, frame.smoothing, wants_hessian=False
            )
            row = sign * (tangent.slope @ frame.basis) / step
            # This is E_j of `_local_fall`, the row's difference from a unit vector.
            row[j] -= 1.0
            blur = tangent.slope_error * float(lengths.sum()) / step
            largest_row = max(largest_row, float(np.abs(row).sum()) + blur)
            # Near 1 the bound below would be of no use.
            if not largest_row < 0.9:
                return math.inf
            # At a better point x + B z, <slope, B z> is at most this number.
            side = top - tangent.height + tangent.error + float(tangent.slope @ move)
            # Rounding errors of the inner product, and of the point itself.
            size = float(np.linalg.norm(tangent.slope)) + tangent.slope_error
            digits = EPSILON * (len(point) + 8.0) * size
            side += digits * float(np.linalg.norm(point) + np.linalg.norm(move))
            side += tangent.slope_error * float(np.linalg.norm(move))
            largest_side = max(largest_side, side / step)
    return largest_side / (1.0 - largest_row)
