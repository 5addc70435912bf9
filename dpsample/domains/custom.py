# mypy: allow-untyped-defs
"""A convex set of the user, given by a test of membership and one inner point.

Everything else follows from membership. A chord ends where bisection finds the last
point inside, which is exact up to rounding because a line meets a convex set in an
interval. A path of a billiard is cut into pieces. A piece is inside if its two ends and
the point where their tangents meet are inside, since the triangle of these three points
contains the piece. The normal at a boundary point is the gradient of the gauge about
the inner point, by differences of bisected rays, unless the user gives it.

Distances are measured from the inner point, which is the body's center.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numba import types
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.addresses import address_of, function_at
from dpsample.core.arrays import Array, Ints
from dpsample.core.jit import Piece, Pointer, kernel, vector
from dpsample.core.spec import Json, lazy_property
from dpsample.core.user_functions import (
    UserData,
    UserFunction,
    check_function,
    compile_user_function,
    recorded_errors,
)
from dpsample.domains.domain import Body, Domain, body_around
from dpsample.domains.exits import FACET, HAS_NORMAL, OPEN, TIME
from dpsample.numerics.vectors import copy_into

# C functions of the user: (theta, out), with out[0] = 1 inside, and (theta, normal).
IS_INSIDE = types.void(vector, vector)
NORMAL = types.void(vector, vector)
# Entries of `Body.addresses`. The second is 0 without a normal of the user.
MEMBERSHIP_ENTRY = 0
NORMAL_ENTRY = 1
# Largest ratio of the two widths that a random direction through the center may have.
THIN = 1e-6
NUM_DIRECTIONS = 64

membership_at = function_at(IS_INSIDE)
normal_at = function_at(NORMAL)


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def custom_contains(body, theta, out):
    """Write 1 inside and 0 outside; NaN stays if the user's function raised."""
    membership_at(body.addresses[MEMBERSHIP_ENTRY])(theta, out)


@kernel(counts_references=False)
def is_inside(body, theta, out):
    """Return whether a point is inside. A function that raised says no."""
    out[0] = np.nan
    custom_contains(body, theta, out)
    return out[0] == 1.0


@kernel
def find_end(body, start, direction, sign):
    """Return the largest t >= 0 with start + sign t direction inside, or infinity.

    The start is inside, or the result is 0.
    """
    dim = start.shape[0]
    point, out, size = np.empty(dim), np.empty(1), 0.0
    for j in range(dim):
        size += direction[j] * direction[j]
    if size == 0.0:
        return np.inf
    # The first guess is a move of length 1.
    low, high = 0.0, 1.0 / math.sqrt(size)
    # Doubling or halving brackets the end between two powers of 2.
    is_outside = False
    # Halvings after which an interval of doubles has no middle.
    for _ in range(1100):
        for j in range(dim):
            point[j] = start[j] + sign * high * direction[j]
        if is_inside(body, point, out):
            low = high
            if is_outside:
                high = 2.0 * low
                break
            high = 2.0 * high
            if high > 1e150:
                return np.inf
        elif low > 0.0:
            break
        else:
            is_outside = True
            high = 0.5 * high
            if high == 0.0:
                return 0.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        for j in range(dim):
            point[j] = start[j] + sign * middle * direction[j]
        if is_inside(body, point, out):
            low = middle
        else:
            high = middle
    return low


@kernel
def custom_chord(body, theta, direction, out):
    """Write the ends of the chord. A point outside has the chord 0."""
    if not is_inside(body, theta, np.empty(1)):
        out[0], out[1] = 0.0, 0.0
        return
    out[0] = -find_end(body, theta, direction, -1.0)
    out[1] = find_end(body, theta, direction, 1.0)


@kernel
def custom_project(body, theta, out):
    """Write the last point inside on the way from the center; not the nearest."""
    dim = theta.shape[0]
    if is_inside(body, theta, np.empty(1)):
        copy_into(theta, out)
        return
    ray = np.empty(dim)
    for j in range(dim):
        ray[j] = theta[j] - body.center[j]
        if not np.isfinite(ray[j]):
            return
    t = min(find_end(body, body.center, ray, 1.0), 1.0)
    for j in range(dim):
        out[j] = body.center[j] + t * ray[j]
    # Rounding of the sum may lead outside.
    pull = 2.0**-52
    while not is_inside(body, out, np.empty(1)):
        for j in range(dim):
            out[j] = body.center[j] + (out[j] - body.center[j]) * (1.0 - pull)
        pull = min(2.0 * pull, 1.0)


@kernel
def fill_normal(body, theta, normal):
    """Fill the outward normal at a boundary point, of any length."""
    if body.addresses[NORMAL_ENTRY] != 0:
        normal_at(body.addresses[NORMAL_ENTRY])(theta, normal)
        largest = 0.0
        for j in range(normal.shape[0]):
            largest = max(largest, abs(normal[j]))
        # Squares of very long or short normals would overflow, or be 0.
        if 0.0 < largest < 1e-100 or 1e100 < largest < np.inf:
            for j in range(normal.shape[0]):
                normal[j] /= largest
        return
    dim = theta.shape[0]
    ray, square, size = np.empty(dim), 0.0, 0.0
    for j in range(dim):
        ray[j] = theta[j] - body.center[j]
        square += ray[j] * ray[j]
        size = max(size, abs(theta[j]))
    # Step of differences of the gauge, relative to the distance from the center.
    step = max(1e-5 * math.sqrt(square), 1e-11 * size)
    for j in range(dim):
        coordinate = ray[j]
        ray[j] = coordinate + step
        # The end of a ray from the center is 1 / gauge, in units of the ray.
        above = 1.0 / find_end(body, body.center, ray, 1.0)
        ray[j] = coordinate - step
        below = 1.0 / find_end(body, body.center, ray, 1.0)
        ray[j] = coordinate
        normal[j] = above - below


@kernel(counts_references=False)
def fill_meeting_point(theta, velocity, pull, start, stop, point):
    """Fill the point where tangents at two times meet, or for equal times the path."""
    middle, product = 0.5 * (start + stop), 0.5 * start * stop
    for j in range(theta.shape[0]):
        point[j] = theta[j] + (middle * velocity[j] + product * pull[j])


@kernel(counts_references=False)
def is_triangle_inside(body, theta, velocity, pull, start, stop, point, out):
    """Return whether the point where the tangents at two times meet is inside."""
    fill_meeting_point(theta, velocity, pull, start, stop, point)
    return is_inside(body, point, out)


@kernel
def custom_exit(body, theta, velocity, pull, horizon, buffer, normal, out):
    """Find the first time at which a parabola leaves the body.

    Up to the time ``inside_until`` the path is certified to be inside.
    """
    dim, inside, is_curved = theta.shape[0], np.empty(1), False
    point = buffer[:dim]
    for j in range(dim):
        is_curved = is_curved or pull[j] != 0.0
    out[TIME], out[FACET] = np.inf, HAS_NORMAL
    inside_until, width = 0.0, horizon
    # One call tries at most 60 pieces of a path, and the next call goes on from there.
    for _ in range(60):
        stop, is_exit = min(inside_until + width, horizon), False
        if not is_triangle_inside(
            body, theta, velocity, pull, stop, stop, point, inside
        ):
            # Bisection finds a time at which the path leaves, perhaps not the first.
            low, high, is_exit = inside_until, stop, True
            for _ in range(60):
                middle = 0.5 * (low + high)
                if not low < middle < high:
                    break
                if is_triangle_inside(
                    body, theta, velocity, pull, middle, middle, point, inside
                ):
                    low = middle
                else:
                    high = middle
            stop = low
        # A straight piece is inside if both ends are. A curved one needs the triangle.
        if not is_curved or is_triangle_inside(
            body, theta, velocity, pull, inside_until, stop, point, inside
        ):
            if is_exit:
                fill_meeting_point(theta, velocity, pull, stop, stop, point)
                fill_normal(body, point, normal)
                out[TIME] = stop
                return
            # The next piece is longer, because this one was certified.
            inside_until, width = stop, 4.0 * width
            if stop == horizon:
                return
        else:
            width = 0.5 * (stop - inside_until)
    if inside_until > 0.0:
        # The search goes on from what is certified.
        out[TIME], out[FACET] = inside_until, OPEN
    else:
        # The path leaves at once, along the boundary.
        fill_normal(body, theta, normal)
        out[TIME] = 0.0


class BodyFunctions:
    """The user's functions of a body, compiled at first use."""

    def __init__(self, contains: UserFunction, normal: UserFunction | None) -> None:
        self.contains, self.normal = contains, normal

    def __getstate__(self) -> dict[str, object]:
        """Leave out the C functions, which contain addresses of this process."""
        return {"contains": self.contains, "normal": self.normal}

    def __deepcopy__(self, memo: object) -> "BodyFunctions":
        """Return the same functions, which do not change."""
        return self

    @lazy_property
    def pointers(self) -> tuple[Pointer, Pointer | None]:
        """C functions of membership and, if the user gives it, of the normal."""
        membership = compile_user_function(
            {"contains": self.contains},
            IS_INSIDE,
            "theta, out",
            ["out[0] = 1.0 if truth(contains()) else 0.0"],
        )
        if self.normal is None:
            return membership, None
        lines = ["result = np.full(len(theta), np.nan)", "normal()"]
        if not self.normal.arguments:
            lines = ["result = normal()"]
        lines += ["for j in range(len(theta)):", "    out[j] = result[j]"]
        return membership, compile_user_function(
            {"normal": self.normal}, NORMAL, "theta, out", lines
        )

    @lazy_property
    def addresses(self) -> Ints:
        """Addresses of the C functions, as in `Body.addresses`."""
        membership, normal = self.pointers
        last = 0 if normal is None else address_of(normal)
        return np.array([address_of(membership), last], dtype=np.int64)

    def digests(self) -> list[str]:
        """Return texts that change with the functions and their data."""
        functions = [self.contains, *([] if self.normal is None else [self.normal])]
        data = self.contains.data.digest()
        return [*(function.digest() for function in functions), data]


@dataclass(frozen=True, kw_only=True, eq=False)
class CustomBody(Domain):
    """Convex set of the function `custom`. Read from a file, it has only its facts."""

    name: ClassVar[str] = "custom"
    has_public_bounds: ClassVar[bool] = False
    contains_piece: ClassVar[Piece] = staticmethod(custom_contains)
    project_piece: ClassVar[Piece] = staticmethod(custom_project)
    chord_piece: ClassVar[Piece] = staticmethod(custom_chord)

    dim: int
    inner_point: Array
    is_bounded: bool = True
    digests: tuple[str, ...] = ()
    functions: BodyFunctions | None = field(default=None, repr=False)

    def to_dict(self) -> Json:
        """Return the facts, because a file holds no functions."""
        return {
            "name": self.name,
            "dim": self.dim,
            "inner_point": self.inner_point.tolist(),
            "is_bounded": self.is_bounded,
            "digests": list(self.digests),
        }

    def check(self, dim: int) -> None:
        """Raise unless ``dim`` is the dimension that was declared."""
        check.integer(1, dim=dim)
        if dim != self.dim:
            check.fail("dim", f"{self.dim}, as in domains.custom", dim)

    def default_center(self, dim: int) -> Array:
        """Return the inner point."""
        self.check(dim)
        return np.array(self.inner_point)

    def body(self, dim: int) -> Body:
        """Return the parameters of the compiled functions, in new arrays."""
        center = self.default_center(dim)
        if self.functions is None:
            check.fail("domain", "a custom one with its functions", "facts alone")
        return body_around(center, addresses=self.functions.addresses)

    def exit_piece(self, dim: int) -> Piece:
        """Return the function that finds where a path leaves the domain."""
        self.check(dim)
        return custom_exit

    def slacks(self, points: Array) -> Array:
        """Return one column with 1 less the gauge about the inner point."""
        body = self.body(self.dim)
        ways = [
            find_end(body, self.inner_point, x - self.inner_point, 1.0) for x in points
        ]
        return 1.0 - 1.0 / np.array(ways)[:, None]

    def half_widths(self, dim: int) -> Array:
        """Return half of the chord through the center along each axis."""
        center = self.default_center(dim)
        ends = [self.chord(center, axis) for axis in np.eye(dim)]
        return np.array([0.5 * (high - low) for low, high in ends])


def custom(
    contains: Callable[..., bool],
    *,
    dim: int,
    interior_point: ArrayLike,
    data: object = None,
    normal: Callable[..., Any] | None = None,
    is_bounded: bool = True,
) -> CustomBody:
    r"""Make a convex set from a test of membership.

    Parameters
    ----------
    contains : callable
        ``contains(theta)``, or ``contains(theta, data)`` if data are given, returns
        whether a point of shape (dim,) is inside. A plain Python or Numba function that
        returns a bool. The set must be closed, convex and have an interior.
    dim : int
        Number of coefficients.
    interior_point : array_like of shape (dim,)
        A point well inside, from which distances are measured.
    data : array, number, tuple or NamedTuple of them, optional
        What the functions read. Arrays are copied.
    normal : callable, optional
        ``normal(theta[, data])`` returns an outward normal of any length at a boundary
        point, or ``normal(theta[, data], out)`` fills it. Default: differences, which
        take 2 dim bisections.
    is_bounded : bool
        Whether the set is bounded, which is tried along random directions.

    Returns
    -------
    CustomBody
        A domain for `Density`. `Problem` needs bounds of the domain that membership
        does not give, and refuses it.

    Raises
    ------
    ValueError
        If a function has another form or raises, the point is not well inside, rays
        show that the set is not convex, not bounded or has no interior, or the normal
        is another one. Parts that no ray meets stay unseen.

    Examples
    --------
    >>> from dpsample.domains import custom
    >>> disk = custom(lambda theta: theta @ theta <= 1.0, dim=2,
    ...               interior_point=[0.0, 0.0])
    >>> disk.contains([0.6, 0.6]), disk.chord([0.0, 0.0], [2.0, 0.0])
    (True, (-0.5, 0.5))
    """
    check.integer(1, dim=dim)
    check.instance(bool, is_bounded=is_bounded)
    point = check.array("interior_point", interior_point, shape=(dim,))
    copy = UserData(data)
    count, arguments = (2, "theta, data") if copy.is_given else (1, "theta")
    test = check_function("contains", contains, (count,), f"f({arguments})")
    membership = UserFunction("contains", test, copy)
    result = membership.call_python(point)
    if not isinstance(result, bool | np.bool_):
        remedy = "Return a comparison, such as theta @ theta <= 1.0."
        got = check.describe(result)
        check.fail("contains", "a function that returns a bool", got, remedy)
    if not result:
        got = check.describe(point.tolist())
        check.fail("interior_point", "inside the domain", got)
    outward = None
    if normal is not None:
        form = f"f({arguments}) or f({arguments}, out)"
        function = check_function("normal", normal, (count, count + 1), form)
        python = getattr(function, "py_func", function)
        fills = python.__code__.co_argcount > count
        outward = UserFunction("normal", function, copy, ("result",) if fills else ())
    functions = BodyFunctions(membership, outward)
    domain = CustomBody(
        dim=int(dim),
        inner_point=point,
        is_bounded=is_bounded,
        digests=tuple(functions.digests()),
        functions=functions,
    )
    with recorded_errors:
        _try_rays(domain)
        if recorded_errors.last:
            got, remedy = f"one that raises {recorded_errors.last}", "Return False."
            check.fail("contains", "a function that returns a bool", got, remedy)
    return domain


def _try_rays(domain: CustomBody) -> None:
    """Compare a body with what it has to be along random directions."""
    dim, center = domain.dim, domain.default_center(domain.dim)
    rng = np.random.default_rng(0)
    count = max(NUM_DIRECTIONS, 2 * min(dim, 500))
    directions = rng.standard_normal((count, dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions = np.concatenate([directions, np.eye(dim)[:500]])
    ends = np.array([domain.chord(center, direction) for direction in directions])
    ways = np.abs(ends)
    if domain.is_bounded and not np.isfinite(ways).all():
        i = int(np.argmax(~np.isfinite(ways).all(axis=1)))
        got = f"a ray that does not end, along {np.round(directions[i], 3).tolist()}"
        check.fail("contains", "a bounded set", got, "Or say is_bounded=False.")
    finite = ways[np.isfinite(ways)]
    if finite.size == 0:
        return
    remedy = "Choose a point farther from the boundary, or other units."
    if finite.min() <= THIN * finite.max():
        got = f"one {finite.min():.3g} from it and {finite.max():.3g} on another side"
        check.fail("interior_point", "well inside an interior", got, remedy)
    size = float(np.abs(center).max())
    # Smallest distance from the center to the boundary, relative to the center's size,
    # at which differences have enough digits.
    if finite.min() < 1e-9 * size:
        got = f"a distance {finite.min():.3g} from it at a point of size {size:.3g}"
        remedy = "Shift the coordinates, so that the point is near 0."
        check.fail("contains", "a set with digits enough", got, remedy)
    _try_midpoints(domain, center, directions, ends, rng)


def _try_midpoints(
    domain: CustomBody,
    center: Array,
    directions: Array,
    ends: Array,
    rng: np.random.Generator,
) -> None:
    """Fail if a point between two points inside is outside, or a normal is turned."""
    usual = float(np.median(np.abs(ends)[np.isfinite(ends)]))
    reach = np.minimum(ends[:, 1], 10.0 * usual)
    points = center + (1.0 - 1e-9) * reach[:, None] * directions
    partners = points[rng.permutation(len(points))]
    for first, second in zip(points, partners, strict=True):
        share = rng.random()
        middle = share * first + (1.0 - share) * second
        # Within rounding of the boundary a point may be on either side.
        middle = center + (1.0 - 1e-6) * (middle - center)
        if not domain.contains(middle):
            got = (
                f"{np.round(middle, 6).tolist()} outside, between "
                f"{np.round(first, 6).tolist()} and {np.round(second, 6).tolist()}"
            )
            check.fail("contains", "convex", got)
    functions = domain.functions
    if functions is None or functions.normal is None:
        return
    body = domain.body(domain.dim)
    addresses = np.array([body.addresses[MEMBERSHIP_ENTRY], 0], dtype=np.int64)
    derived = body._replace(addresses=addresses)
    num_turned, num_compared = 0, 0
    is_finite = np.isfinite(ends[:, 1])
    for direction, end in zip(directions[is_finite], ends[is_finite, 1], strict=True):
        point = center + end * direction
        normal, other = np.full(domain.dim, np.nan), np.full(domain.dim, np.nan)
        arguments = [normal] if functions.normal.arguments else []
        result = functions.normal.call_python(point, *arguments)
        # A compiled function with another shape would be read past its end.
        if not arguments and np.shape(result) != (domain.dim,):
            condition = f"a function that returns shape ({domain.dim},)"
            check.fail("normal", condition, f"shape {np.shape(result)}")
        fill_normal(body, point, normal)
        fill_normal(derived, point, other)
        length, other_length = np.linalg.norm(normal), np.linalg.norm(other)
        if not (np.isfinite(length) and length > 0.0):
            got = f"{normal.tolist()} at {np.round(point, 6).tolist()}"
            check.fail("normal", "finite and not 0 at the boundary", got)
        cosine = abs(float(normal @ other)) / (length * other_length)
        num_compared += 1
        # At an edge there are many normals, so a few may differ.
        num_turned += not cosine > 1.0 - 1e-4
        if num_compared == NUM_DIRECTIONS // 4:
            break
    if num_turned > num_compared // 2:
        got = f"another direction at {num_turned} of {num_compared} boundary points"
        check.fail("normal", "a normal of the boundary", got)
