"""The l_p ball ``||theta - center||_p <= radius`` and its compiled pieces.

The ends of a chord are the roots of a quadratic for p = 2; Newton's method finds them
otherwise. The Euclidean ball, by far the most common one, has pieces of its own, which
compile in a fraction of the time.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Values
from dpsample.core.jit import Piece, kernel
from dpsample.core.sparse import Directions
from dpsample.core.spec import freeze
from dpsample.domains.domain import Body, Domain, as_rows, body_around, mean_norm
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

EPSILON = 2.0**-52
MAX_STEPS = 200
MAX_EXPONENT = 700.0
TINY = 1e-300


@kernel(counts_references=False)
def ball_contains(body: Body, theta: Array, out: Array) -> None:
    """Write 1 if the distance to the center is at most the radius."""
    inside = distance(theta, body.center, body.p) <= body.radius
    out[0] = 1.0 if inside else 0.0


@kernel(counts_references=False)
def soft_threshold(size: Array, radius: float) -> tuple[float, float]:
    """Return the largest entry and s with ``sum(max(size - largest - s, 0)) = radius``.

    Newton's method on a convex piecewise linear function from the left is monotone and
    ends exactly after finitely many steps (Michelot's algorithm); no sorting is needed.
    """
    dim = len(size)
    largest = -np.inf
    for i in range(dim):
        largest = max(largest, size[i])
    # Measured from the largest entry, cancellation cannot spoil the sum.
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
def log_root(size: float, weight: float, power: float) -> float:
    """Return log u for the root u > 0 of ``u + weight u**power = size``.

    In log u the left side is convex and increasing, so Newton's method from the right
    converges monotonically, for every power > 0.
    """
    point = math.log(size)
    if weight == 0.0:
        return point
    point = min(point, (point - math.log(weight)) / power)
    for _ in range(MAX_STEPS):
        first = math.exp(point)
        second = weight * math.exp(power * point)
        slope = first + power * second
        step = (first + second - size) / slope if slope > 0.0 else 0.0
        point -= step
        if not abs(step) > EPSILON * max(1.0, abs(point)):
            break
    return point


@kernel(counts_references=False)
def shrink_logs(
    size: Array, weight: float, p: float, logs: Array
) -> tuple[float, float]:
    """Solve ``u + weight u**(p-1) = size``; return log ||u||_p and its derivative."""
    dim = len(size)
    largest = -np.inf
    for i in range(dim):
        logs[i] = log_root(size[i], weight, p - 1.0) if size[i] > 0.0 else -np.inf
        largest = max(largest, logs[i])
    total, slope = 0.0, 0.0
    for i in range(dim):
        mass = math.exp(p * (logs[i] - largest))
        total += mass
        if mass > 0.0:
            power = min((2.0 - p) * logs[i], MAX_EXPONENT)
            rate = math.exp(power) + weight * (p - 1.0)
            slope -= mass / max(rate, TINY)
    return largest + math.log(total) / p, slope / total


@kernel(counts_references=False)
def shrink_general(size: Array, radius: float, p: float, out: Array) -> None:
    """Project nonnegative ``size``, outside the ball around 0, for 1 < p < inf.

    The projection solves ``u + s u**(p-1) = size`` with ``||u||_p = radius``; in units
    of the radius, s is at most the dual norm of ``size``. Newton's method on the norm
    gives way to bisection unless it halves the error.
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
        log_norm, slope = shrink_logs(size, weight, p, out)
        if is_converged or abs(log_norm) <= EPSILON:
            break
        if log_norm > 0.0:
            low = weight
        else:
            high = weight
        next_weight = low
        if slope < 0.0 and abs(log_norm) <= 0.5 * last_error:
            gain = math.expm1(min(-log_norm, MAX_EXPONENT))
            next_weight = weight + gain / slope
        if not low < next_weight < high:
            next_weight = 0.5 * (low + high)
        last_error = abs(log_norm)
        is_converged = abs(next_weight - weight) <= EPSILON * next_weight
        weight = next_weight
    for i in range(dim):
        out[i] = radius * math.exp(out[i] - log_norm)
    if not (is_converged or abs(log_norm) <= EPSILON):
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
    elif length > radius:
        shrink_general(size, radius, p, out)


@kernel(counts_references=False)
def pull_inside(body: Body, out: Array) -> None:
    """Pull a point towards the center by what rounding errors have left outside."""
    pull = EPSILON
    while distance(out, body.center, body.p) > body.radius:
        for i in range(len(out)):
            out[i] = body.center[i] + (out[i] - body.center[i]) * (1.0 - pull)
        pull = min(2.0 * pull, 1.0)


@kernel
def ball_project(body: Body, theta: Array, out: Array) -> None:
    """Write the nearest point, pulled in by rounding errors until it is inside."""
    dim = len(theta)
    length = distance(theta, body.center, body.p)
    if length != length:
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
    pull_inside(body, out)


@kernel(counts_references=False)
def quadratic_ends(
    theta: Array, direction: Array, size: float, body: Body, out: Array
) -> None:
    """Write both roots of ``||theta - center + t direction||_2 = radius``.

    Lengths are measured in radii and directions in ``size``, their norm.
    """
    cross, excess = 0.0, -1.0
    for i in range(len(theta)):
        offset = (theta[i] - body.center[i]) / body.radius
        cross += (direction[i] / size) * offset
        excess += offset * offset
    root = math.sqrt(max(cross * cross - excess, 0.0))
    # The sum without cancellation gives one root, the product of the roots the other.
    first_root = -(cross + math.copysign(root, cross))
    second_root = excess / first_root if first_root != 0.0 else 0.0
    unit = body.radius / size
    out[0] = unit * min(first_root, second_root)
    out[1] = unit * max(first_root, second_root)


@kernel(counts_references=False)
def slope_along(
    theta: Array, direction: Array, t: float, center: Array, p: float
) -> float:
    """Subgradient in t of ``||theta + t direction - center||_p``."""
    length = norm_along(theta, direction, t, center, p)
    slope = 0.0
    for i in range(len(theta)):
        offset = (theta[i] + t * direction[i]) - center[i]
        size = abs(offset) / length
        if np.isinf(p):
            if size == 1.0:
                return float(math.copysign(1.0, offset) * direction[i])
        elif size > 0.0:
            slope += math.copysign(size ** (p - 1.0), offset) * direction[i]
    return slope


@kernel
def newton_end(
    theta: Array, direction: Array, sign: float, center: Array, radius: float, p: float
) -> float:
    """Return t with norm at most just above the radius, from outside.

    The norm is convex in t, so Newton's method from outside never enters.
    """
    reach = norm_along(theta, direction, 0.0, center, p)
    t = sign * (radius + reach) / distance(direction, np.zeros(len(direction)), p)
    for _ in range(MAX_STEPS):
        excess = norm_along(theta, direction, t, center, p) - radius
        slope = sign * slope_along(theta, direction, t, center, p)
        if not (excess > 0.0 and slope > 0.0):
            break
        step = min(excess / slope, abs(t))
        t -= sign * step
        if step <= EPSILON * abs(t):
            break
    return t


@kernel(counts_references=False)
def settle(
    theta: Array, direction: Array, t: float, center: Array, radius: float, p: float
) -> float:
    """Return the nearest t towards 0 whose point passes `ball_contains`."""
    inside = t
    pull = EPSILON
    while not norm_along(theta, direction, inside, center, p) <= radius:
        if pull >= 1.0:
            return 0.0
        inside = t * (1.0 - pull)
        pull *= 2.0
    outside = t
    for _ in range(60):
        if abs(outside - inside) <= 16.0 * EPSILON * abs(t):
            break
        middle = 0.5 * (inside + outside)
        if norm_along(theta, direction, middle, center, p) <= radius:
            inside = middle
        else:
            outside = middle
    return inside


@kernel
def ball_chord(body: Body, theta: Array, direction: Array, out: Array) -> None:
    """Write the ends of the chord, p other than 2."""
    center, radius, p = body.center, body.radius, body.p
    size = distance(direction, np.zeros(len(direction)), p)
    if not distance(theta, center, p) + size < np.inf:
        return
    if size == 0.0:
        out[0] = -np.inf
        out[1] = np.inf
        return
    out[0] = newton_end(theta, direction, -1.0, center, radius, p)
    out[1] = newton_end(theta, direction, 1.0, center, radius, p)
    out[0] = settle(theta, direction, min(out[0], 0.0), center, radius, p)
    out[1] = settle(theta, direction, max(out[1], 0.0), center, radius, p)


@kernel(counts_references=False)
def euclidean_project(body: Body, theta: Array, out: Array) -> None:
    """Write the nearest point for p = 2, with the bits of `ball_project`.

    The length that decides whether the point is outside is the one that scales it, so
    that no memory is needed.
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
    pull_inside(body, out)


@kernel(counts_references=False)
def euclidean_length(x: Array) -> float:
    """Return the l2 norm, with the bits of `distance` from 0."""
    total, largest = 0.0, 0.0
    for i in range(len(x)):
        size = abs(float(x[i]) + 0.0 * float(x[i]))
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
    quadratic_ends(theta, direction, size, body, out)
    out[0] = settle(theta, direction, min(out[0], 0.0), center, radius, p)
    out[1] = settle(theta, direction, max(out[1], 0.0), center, radius, p)


@dataclass(frozen=True, eq=False)
class Ball(Domain):
    """Ball ``||theta - center||_p <= radius``.

    Parameters
    ----------
    radius : float
        Radius > 0.
    p : float, default 2.0
        Exponent in [1, inf].
    center : array_like, optional
        Center; the origin by default.

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
        """Compiled projection, that of the Euclidean ball without what p needs."""
        return euclidean_project if self.p == 2.0 else ball_project

    @property
    def chord_piece(self) -> Piece:
        """Compiled chord, that of the Euclidean ball without what p needs."""
        return euclidean_chord if self.p == 2.0 else ball_chord

    def __post_init__(self) -> None:
        """Check the numbers once."""
        check.positive(radius=self.radius)
        check.at_least(1.0, p=self.p)
        object.__setattr__(self, "radius", float(self.radius))
        object.__setattr__(self, "p", float(self.p))
        if self.center is not None:
            center = check.array("center", self.center, shape=(None,))
            object.__setattr__(self, "center", freeze(center))

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
        """Return the parameters of the pieces, in fresh arrays."""
        center = self.default_center(dim)
        return body_around(
            center,
            lower=center - self.radius,
            upper=center + self.radius,
            radius=self.radius,
            p=self.p,
        )

    def support(self, directions: Directions) -> Values:
        """Exact: ``<v, center> + radius ||v||_dual(p)``."""
        rows = as_rows(directions)
        size = self.radius * norm(rows, dual(self.p))
        return size if self.center is None else rows @ self.center + size

    def max_norm(self, p: float, center: ArrayLike, dim: int) -> float:
        """Upper bound by the triangle inequality, exact if the centers agree."""
        middle = self._middle(p, center, dim)
        offset = float(norm(self.default_center(dim) - middle, p))
        return offset + self.radius * conversion(dim, self.p, p)

    def _gauge_rows(self, rows: Array) -> Array:
        """Exact: a ratio of norms around 0, a quadratic for p = 2, else chords."""
        if self.center is None or not self.center.any():
            return np.asarray(norm(rows, self.p) / self.radius)
        if self.p != 2.0:
            return super()._gauge_rows(rows)
        # The least t > 0 with ||theta - t c|| <= t R: depth t^2 + 2 cross t >= size.
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
        """Return the radius times E ||g||_dual(p); the center does not matter."""
        size = mean_norm(dim, dual(self.p))
        return None if size is None else self.radius * size
