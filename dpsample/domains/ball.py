"""The l_p ball ``||theta - center||_p <= radius`` and its compiled pieces.

The compiled functions test membership, find the nearest point in l2 (the projection),
and find a chord, the interval of t for which ``theta + t direction`` is in the ball.

All results are inside the ball in double arithmetic, so that a chain of draws never
leaves it. Every algorithm first comes close to the boundary and then moves inside by a
few rounding errors, with the same sum of powers that the membership test computes. The
caller fills ``out`` with NaN. A function that fails leaves it so, and tests are written
such that NaN fails them.

In the projections ``size`` is an array: the absolute values of theta - center. Kernels
with ``counts_references=False`` allocate no memory, and are faster for that.

The ends of a chord are the roots of a quadratic for p = 2, otherwise Newton's method
finds them. The Euclidean ball is by far the most common one. It has compiled functions
of its own, which compile in a fraction of the time.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import SPACING, Array, Values
from dpsample.core.jit import Piece, kernel
from dpsample.core.sparse import Directions
from dpsample.core.spec import freeze
from dpsample.domains.domain import (
    Body,
    Domain,
    as_rows,
    body_around,
    box_facets,
    mean_norm,
)
from dpsample.domains.exits import box_exit, convex_exit, euclidean_exit, l1_exit
from dpsample.numerics.norms import (
    HUGE_SQUARE,
    TINY_SQUARE,
    conversion,
    distance,
    dual,
    norm,
    norm_along,
)
from dpsample.numerics.vectors import copy_into

# Limit of Newton and bisection steps, more than double arithmetic ever needs.
MAX_STEPS = 200
# The exponential of a larger number overflows.
MAX_EXPONENT = 700.0


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def ball_contains(body: Body, theta: Array, out: Array) -> None:
    """Write 1 if the distance to the center is at most the radius."""
    inside = distance(theta, body.center, body.p) <= body.radius
    out[0] = 1.0 if inside else 0.0


@kernel(counts_references=False)
def soft_threshold(size: Array, radius: float) -> tuple[float, float]:
    """Return the largest entry and s with ``sum(max(size - largest - s, 0)) = radius``.

    The projections on the l1 ball and on the simplex subtract ``largest + s`` from all
    entries and set the negative ones to 0. Newton's method from the left on a convex,
    piecewise linear function rises to its root in at most one step for each entry
    (Michelot's algorithm), and no sorting is needed.
    """
    dim = len(size)
    largest = -np.inf
    for i in range(dim):
        largest = max(largest, size[i])
    # Entries are measured from the largest one. Otherwise a sum of entries far above
    # the radius would lose its digits. At s = -radius the largest entry alone gives the
    # radius, so the root is not below.
    shift = -radius
    for _ in range(dim + 1):
        total, count = 0.0, 0
        for i in range(dim):
            if size[i] - largest > shift:
                total += size[i] - largest
                count += 1
        next_shift = (total - radius) / count
        if not next_shift > shift:
            break
        shift = next_shift
    return largest, shift


@kernel(counts_references=False)
def solve_log_root(size: float, weight: float, power: float) -> float:
    """Return log u for the root u > 0 of ``u + weight u**power = size``, size > 0.

    The weight is >= 0. In log u the left side is convex and increasing. So Newton's
    method from a point on the right of the root converges monotonically, for every
    power > 0.
    """
    point = math.log(size)
    if weight == 0.0:
        return point
    # Each summand alone is at most ``size``, which bounds log u twice.
    point = min(point, (point - math.log(weight)) / power)
    for _ in range(MAX_STEPS):
        first = math.exp(point)
        second = weight * math.exp(power * point)
        slope = first + power * second
        step = (first + second - size) / slope if slope > 0.0 else 0.0
        point -= step
        if not abs(step) > SPACING * max(1.0, abs(point)):
            break
    return point


@kernel(counts_references=False)
def shrink_coordinates(
    size: Array, weight: float, p: float, logs: Array
) -> tuple[float, float]:
    """Solve ``u + weight u**(p-1) = size``, return log ||u||_p and its derivative.

    The derivative is in the weight. ``logs`` is filled with log u.
    """
    dim = len(size)
    largest = -np.inf
    for i in range(dim):
        logs[i] = solve_log_root(size[i], weight, p - 1.0) if size[i] > 0.0 else -np.inf
        largest = max(largest, logs[i])
    # The derivative of log u_i in the weight is -1 / (u_i^(2 - p) + weight (p - 1)).
    # The derivative of log ||u||_p is their mean with weights u_i^p. The powers are
    # taken relative to the largest one, so that they neither overflow nor all vanish.
    total, slope = 0.0, 0.0
    for i in range(dim):
        mass = math.exp(p * (logs[i] - largest))
        total += mass
        if mass > 0.0:
            power = min((2.0 - p) * logs[i], MAX_EXPONENT)
            rate = math.exp(power) + weight * (p - 1.0)
            slope -= mass / max(rate, 1e-300)  # so that no quotient overflows
    return largest + math.log(total) / p, slope / total


@kernel(counts_references=False)
def shrink_general(size: Array, radius: float, p: float, out: Array) -> None:
    """Project nonnegative ``size``, outside the ball around 0, for 1 < p < inf.

    The projection u satisfies ``u + s u**(p-1) = size`` with a multiplier s for which
    ``||u||_p = radius``. In units of the radius, s is at most the dual norm of
    ``size``, because s u**(p-1) <= size and the dual norm of u**(p-1) is 1. So s is at
    most the sum of ``size``. Newton's method on the norm as a function of s gives way
    to bisection unless the last step halved the error. ``size`` is overwritten, and
    ``out`` is NaN if the iterations do not suffice.
    """
    dim = len(size)
    low, high = 0.0, 0.0
    for i in range(dim):
        size[i] /= radius
        high += size[i]
    weight, last_error = 0.0, np.inf
    is_converged = False
    log_norm = np.nan
    for _ in range(MAX_STEPS):
        # The last weight is evaluated, too, because the result is taken from ``out``,
        # which is filled with log u here.
        log_norm, slope = shrink_coordinates(size, weight, p, out)
        if is_converged or abs(log_norm) <= SPACING:
            break
        if log_norm > 0.0:
            low = weight
        else:
            high = weight
        next_weight = low
        if slope < 0.0 and abs(log_norm) <= 0.5 * last_error:
            # With N = ||u||_p, (1/N - 1) / (log N)' is Newton's step -(N - 1) / N'.
            gain = math.expm1(min(-log_norm, MAX_EXPONENT))
            next_weight = weight + gain / slope
        if not low < next_weight < high:
            next_weight = 0.5 * (low + high)
        last_error = abs(log_norm)
        is_converged = abs(next_weight - weight) <= SPACING * next_weight
        weight = next_weight
    # Division by the norm removes what is left of the error.
    for i in range(dim):
        out[i] = radius * math.exp(out[i] - log_norm)
    if not (is_converged or abs(log_norm) <= SPACING):
        out[:] = np.nan


@kernel
def shrink_to_norm(size: Array, radius: float, p: float, out: Array) -> None:
    """Project nonnegative ``size`` onto the ball around 0; ``size`` is overwritten."""
    dim = len(size)
    length = distance(size, np.zeros(dim), p)
    if length <= radius:
        copy_into(size, out)
    elif p == 1.0:
        largest, shift = soft_threshold(size, radius)
        for i in range(dim):
            out[i] = max((size[i] - largest) - shift, 0.0)
    elif p == 2.0:
        for i in range(dim):
            out[i] = size[i] * (radius / length)
    elif np.isinf(p):
        for i in range(dim):
            out[i] = min(size[i], radius)
    elif length > radius:  # not if the length is NaN
        shrink_general(size, radius, p, out)


@kernel(counts_references=False)
def pull_point_inside(body: Body, out: Array) -> None:
    """Move a point towards the center until it passes the test of membership.

    It is outside by a few rounding errors, so the first steps usually suffice. A pull
    of 1 moves it to the center, which ends the loop in any case.
    """
    pull = SPACING
    while distance(out, body.center, body.p) > body.radius:
        for i in range(len(out)):
            out[i] = body.center[i] + (out[i] - body.center[i]) * (1.0 - pull)
        pull = min(2.0 * pull, 1.0)


@kernel
def ball_project(body: Body, theta: Array, out: Array) -> None:
    """Write the nearest point, moved inside by a few rounding errors."""
    dim = len(theta)
    length = distance(theta, body.center, body.p)
    if length != length:  # NaN, so that ``out`` keeps its NaN, which reports failure
        return
    if length <= body.radius:
        copy_into(theta, out)
        return
    size = np.empty(dim)
    for i in range(dim):
        size[i] = abs(theta[i] - body.center[i])
    shrink_to_norm(size, body.radius, body.p, out)
    for i in range(dim):
        out[i] = body.center[i] + math.copysign(out[i], theta[i] - body.center[i])
    pull_point_inside(body, out)


@kernel(counts_references=False)
def fill_quadratic_ends(
    theta: Array, direction: Array, size: float, body: Body, out: Array
) -> None:
    """Write both roots t of ``||theta - center + t direction||_2 = radius``.

    ``size`` is the norm of the direction. In units of the radius and of the size the
    equation is t^2 + 2 cross t + excess = 0, and no square overflows.
    """
    cross, excess = 0.0, -1.0
    for i in range(len(theta)):
        offset = (theta[i] - body.center[i]) / body.radius
        cross += (direction[i] / size) * offset
        excess += offset * offset
    root = math.sqrt(max(cross * cross - excess, 0.0))
    # The first root is the one whose terms have one sign, so that no digits cancel.
    # The product of the roots is the excess, which gives the second one.
    first_root = -(cross + math.copysign(root, cross))
    second_root = excess / first_root if first_root != 0.0 else 0.0
    unit = body.radius / size
    out[0] = unit * min(first_root, second_root)
    out[1] = unit * max(first_root, second_root)


@kernel(counts_references=False)
def differentiate_norm_along(
    theta: Array, direction: Array, t: float, center: Array, p: float
) -> float:
    """Return a subgradient in t of ``||theta + t direction - center||_p`` > 0."""
    length = norm_along(theta, direction, t, center, p)
    slope = 0.0
    for i in range(len(theta)):
        offset = (theta[i] + t * direction[i]) - center[i]
        size = abs(offset) / length
        if np.isinf(p):
            if size == 1.0:  # any coordinate that attains the maximum gives one
                return float(math.copysign(1.0, offset) * direction[i])
        elif size > 0.0:
            slope += math.copysign(size ** (p - 1.0), offset) * direction[i]
    return slope


@kernel
def find_outer_end(
    theta: Array, direction: Array, sign: float, center: Array, radius: float, p: float
) -> float:
    """Return an end t of the chord on the side of ``sign``, at or just outside.

    The norm is convex in t. So Newton's method from a point outside approaches the end
    and does not pass it, except by rounding errors.
    """
    # By the triangle inequality the first t is outside.
    reach = norm_along(theta, direction, 0.0, center, p)
    t = sign * (radius + reach) / distance(direction, np.zeros(len(direction)), p)
    for _ in range(MAX_STEPS):
        excess = norm_along(theta, direction, t, center, p) - radius
        slope = sign * differentiate_norm_along(theta, direction, t, center, p)
        # The end is reached, or rounding errors hide where the norm increases.
        if not (excess > 0.0 and slope > 0.0):
            break
        step = min(excess / slope, abs(t))
        t -= sign * step
        if step <= SPACING * abs(t):
            break
    return t


@kernel(counts_references=False)
def pull_end_inside(
    theta: Array, direction: Array, t: float, center: Array, radius: float, p: float
) -> float:
    """Return a t between 0 and the end whose point passes `ball_contains`.

    Steps of doubled length lead inside, and bisection then comes back to the boundary
    up to 16 rounding errors. If only 0 remains, the point itself is on the boundary.
    """
    inside = t
    pull = SPACING
    while not norm_along(theta, direction, inside, center, p) <= radius:
        if pull >= 1.0:
            return 0.0
        inside = t * (1.0 - pull)
        pull *= 2.0
    outside = t
    for _ in range(60):
        if abs(outside - inside) <= 16.0 * SPACING * abs(t):
            break
        middle = 0.5 * (inside + outside)
        if norm_along(theta, direction, middle, center, p) <= radius:
            inside = middle
        else:
            outside = middle
    return inside


@kernel
def ball_chord(body: Body, theta: Array, direction: Array, out: Array) -> None:
    """Write the ends of the chord for p other than 2."""
    center, radius, p = body.center, body.radius, body.p
    size = distance(direction, np.zeros(len(direction)), p)
    if not distance(theta, center, p) + size < np.inf:  # infinite or NaN
        return
    if size == 0.0:  # the point does not move
        out[0] = -np.inf
        out[1] = np.inf
        return
    out[0] = find_outer_end(theta, direction, -1.0, center, radius, p)
    out[1] = find_outer_end(theta, direction, 1.0, center, radius, p)
    out[0] = pull_end_inside(theta, direction, min(out[0], 0.0), center, radius, p)
    out[1] = pull_end_inside(theta, direction, max(out[1], 0.0), center, radius, p)


@kernel(counts_references=False)
def euclidean_project(body: Body, theta: Array, out: Array) -> None:
    """Write the nearest point for p = 2, with the same result as `ball_project`.

    The point is scaled by the length that also decides whether it is outside, so that
    no memory is needed.
    """
    dim = len(theta)
    length = distance(theta, body.center, body.p)
    if length != length:
        return
    if length <= body.radius:
        copy_into(theta, out)
        return
    for i in range(dim):
        size = abs(theta[i] - body.center[i]) * (body.radius / length)
        out[i] = body.center[i] + math.copysign(size, theta[i] - body.center[i])
    pull_point_inside(body, out)


@kernel(counts_references=False)
def euclidean_length(x: Array) -> float:
    """Return the l2 norm, with the same result as `distance` from 0.

    A sum of squares that is tiny or huge has underflowed or may overflow. Then the sum
    is taken in units of the largest entry.
    """
    total, largest = 0.0, 0.0
    for i in range(len(x)):
        size = abs(float(x[i]) + 0.0 * float(x[i]))  # NaN if the entry is infinite
        if size != size:
            return np.nan
        largest = max(largest, size)
        total += size * size
    if largest == 0.0 or TINY_SQUARE < total < HUGE_SQUARE:
        return math.sqrt(total)
    total = 0.0
    for i in range(len(x)):
        total += (abs(x[i]) / largest) ** 2.0
    return float(largest * total**0.5)


@kernel(counts_references=False)
def euclidean_chord(body: Body, theta: Array, direction: Array, out: Array) -> None:
    """Write the ends of the chord for p = 2."""
    center, radius, p = body.center, body.radius, body.p
    size = euclidean_length(direction)
    if not distance(theta, center, p) + size < np.inf:
        return
    if size == 0.0:
        out[0] = -np.inf
        out[1] = np.inf
        return
    fill_quadratic_ends(theta, direction, size, body, out)
    out[0] = pull_end_inside(theta, direction, min(out[0], 0.0), center, radius, p)
    out[1] = pull_end_inside(theta, direction, max(out[1], 0.0), center, radius, p)


@dataclass(frozen=True, eq=False)
class Ball(Domain):
    """Ball ``||theta - center||_p <= radius``.

    Parameters
    ----------
    radius : float
        Radius of the ball, > 0.
    p : float, default 2.0
        Exponent in [1, inf].
    center : array_like, optional
        Center, by default the origin.

    Raises
    ------
    ValueError
        If the radius is not positive, p < 1, or the center is not finite.

    Examples
    --------
    >>> ball = Ball(radius=2.0, p=1.0)
    >>> ball.contains([1.0, -1.0]), ball.contains([1.5, 1.5])
    (True, False)
    >>> ball.project([3.0, 1.0]).tolist(), float(ball.support([3.0, 1.0]))
    ([2.0, 0.0], 6.0)
    """

    name: ClassVar[str] = "ball"
    contains_piece: ClassVar[Piece] = staticmethod(ball_contains)

    radius: float
    _: KW_ONLY
    p: float = 2.0
    center: Any = None

    @property
    def project_piece(self) -> Piece:
        """Compiled projection, for p = 2 the short one."""
        return euclidean_project if self.p == 2.0 else ball_project

    @property
    def chord_piece(self) -> Piece:
        """Compiled chord, for p = 2 the short one."""
        return euclidean_chord if self.p == 2.0 else ball_chord

    def __post_init__(self) -> None:
        """Check and convert the fields."""
        check.positive(radius=self.radius)
        check.at_least(1.0, p=self.p)
        object.__setattr__(self, "radius", float(self.radius))
        object.__setattr__(self, "p", float(self.p))
        if self.center is not None:
            center = check.array("center", self.center, shape=(None,))
            object.__setattr__(self, "center", freeze(center))

    @property
    def lp_exponent(self) -> float:
        """Exponent of the norm."""
        return self.p

    @property
    def ball_radius(self) -> float:
        """Radius in the norm l_p."""
        return self.radius

    @property
    def has_exact_test(self) -> bool:
        """Whether membership is decided without rounding, by `contains_exactly`.

        That needs a norm, or a square of one, that has no roots.
        """
        return self.p in (1.0, 2.0, math.inf)

    def contains_exactly(self, point: Sequence[Decimal]) -> bool:
        """Return whether a point of exact decimals is in the ball."""
        center = self.default_center(len(point)).tolist()
        sizes = [abs(x - Decimal(c)) for x, c in zip(point, center, strict=True)]
        radius = Decimal(self.radius)
        if self.p == 2.0:
            return sum(size * size for size in sizes) <= radius * radius
        return (sum(sizes) if self.p == 1.0 else max(sizes)) <= radius

    def facets(self, dim: int) -> tuple[Array, Array]:
        """Facets of the cube for p = inf, none for other p."""
        return box_facets(self.body(dim)) if self.is_box else super().facets(dim)

    def slacks(self, points: Array) -> Array:
        """Radius less the distance from the center, in one column."""
        offsets = points - self.default_center(points.shape[1])
        norms = np.linalg.norm(offsets, ord=self.p, axis=1)
        return np.asarray(self.radius - norms)[:, None]

    def check(self, dim: int) -> None:
        """Raise unless the center has ``dim`` coordinates."""
        super().check(dim)
        if self.center is not None and len(self.center) != dim:
            check.fail("center", f"of shape ({dim},)", f"shape {self.center.shape}")

    def default_center(self, dim: int) -> Array:
        """Center of the ball."""
        self.check(dim)
        return np.zeros(dim) if self.center is None else np.array(self.center)

    def body(self, dim: int) -> Body:
        """Return the parameters of the compiled functions, in new arrays."""
        center = self.default_center(dim)
        return body_around(
            center,
            lower=center - self.radius,
            upper=center + self.radius,
            radius=self.radius,
            p=self.p,
        )

    def exit_piece(self, dim: int) -> Piece:
        """Return the function that finds where a path leaves the domain."""
        self.check(dim)
        norms: dict[float, Piece] = {1.0: l1_exit, 2.0: euclidean_exit}
        norms[math.inf] = box_exit
        return norms.get(self.p, convex_exit)

    def support(self, directions: Directions) -> Values:
        """Return the exact maxima ``<v, center> + radius ||v||_dual(p)``."""
        rows = as_rows(directions)
        size = self.radius * norm(rows, dual(self.p))
        return size if self.center is None else rows @ self.center + size

    def max_norm(self, p: float, center: ArrayLike, dim: int) -> float:
        """Return the bound of the triangle inequality, exact if the centers agree."""
        middle = self._check_center(p, center, dim)
        offset = float(norm(self.default_center(dim) - middle, p))
        return offset + self.radius * conversion(dim, self.p, p)

    def _gauge_rows(self, rows: Array) -> Array:
        """Return the gauge of every row, the least t >= 0 with the row in t times K.

        It is a ratio of norms if the center c of the ball K is 0, and the root of a
        quadratic for p = 2. Otherwise chords from the origin give it.
        """
        if self.center is None or not self.center.any():
            return np.asarray(norm(rows, self.p) / self.radius)
        if self.p != 2.0:
            return super()._gauge_rows(rows)
        # ||theta - t c|| <= t R in units of R is depth t^2 + 2 cross t >= size with
        # depth = 1 - ||c||^2. The root is written in the form whose terms do not
        # cancel. If squares of a row overflow, it is inf/inf, which counts as inf.
        center = self.center / self.radius
        points = rows / self.radius
        depth = (1.0 - norm(center, 2.0)) * (1.0 + norm(center, 2.0))
        cross, size = points @ center, (points**2).sum(axis=1)
        root = np.sqrt(cross**2 + depth * size)
        is_ahead = cross >= 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where(is_ahead, size / (cross + root), (root - cross) / depth)
        return np.where(size == 0.0, 0.0, np.where(np.isnan(value), np.inf, value))

    def _exact_width(self, dim: int) -> float | None:
        """Return the Gaussian width, the radius times E ||g||_dual(p).

        It does not depend on the center, because E g = 0.
        """
        size = mean_norm(dim, dual(self.p))
        return None if size is None else self.radius * size
