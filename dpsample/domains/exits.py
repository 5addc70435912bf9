# mypy: allow-untyped-defs
r"""Exits: when the path of a billiard leaves a domain, and through which facet.

A path is a parabola or, about a pivot c, a rotation,

    theta + v t + a t^2 / 2,        c + (theta - c) cos t + v sin t.

Rotations are quadratic in u = tan(t / 2), divided by 1 + u^2,

    (theta + 2 u v + u^2 (2 c - theta)) / (1 + u^2).

So both kinds have the same functions. Their argument ``pull`` is the acceleration a.
Functions of rotations get c in its place, and their times and horizons are values of u.
The tangents at two times s and u meet at
theta + (s + u) v / 2 + s u a / 2 and at

    (theta + (s + u) v + s u (2 c - theta)) / (1 + s u).

An exit function writes the time of the first exit before the horizon, or infinity. It
also writes the facet: the coordinate of a facet that is orthogonal to an axis, or one
of the codes below. A point that rounding has put outside counts as on the boundary. A
path only leaves outwards, so the reflection that has just been made is not found again
at the time 0.

Facets need one quadratic equation each. On the Euclidean ball the squared distance is a
quartic polynomial, whose first upward root lies between turning points that are
bracketed in turn. On the l1 ball the norm is one quadratic polynomial between changes
of signs, whose times are kept in a heap. For other norms Newton's method finds an exit,
and triangles around parts of the path prove that there is none before it.
"""

import math

import numpy as np
from numba import types

from dpsample.core.jit import Piece, f8, kernel, vector
from dpsample.domains.domain import BODY
from dpsample.numerics.heaps import sift_down
from dpsample.numerics.norms import lp_normal, reset_rotations, schatten_normal
from dpsample.numerics.vectors import copy_into

# Signature of exit functions: body, point theta, velocity v, acceleration a or pivot c,
# horizon, a buffer of SCRATCH_PER_DIM numbers for each coefficient, and two vectors
# that are written: an outward normal, and the result.
EXIT = types.void(BODY, vector, vector, vector, f8, vector, vector, vector)
# A part of an intersection gets what the intersection does not need, 5 or more.
SCRATCH_PER_DIM = 8
# Entries of the result.
TIME = 0
FACET = 1
# Codes in place of a facet: the outward normal, of any length, was written, or the
# search has come up to the time and has found no exit yet.
HAS_NORMAL = -1.0
OPEN = -2.0
# Maximum number of steps of Newton's method. Usually three to ten are enough.
MAX_STEPS = 100


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def time_to_zero(height, rate, acceleration):
    """Return the time at which height + rate t + acceleration t^2 / 2 falls through 0.

    A negative height counts as 0. The time is infinite if it never falls.
    """
    height = max(height, 0.0)
    square = rate * rate - 2.0 * acceleration * height
    if not square >= 0.0:
        return np.inf
    root = math.sqrt(square)
    if rate > 0.0:
        return (rate + root) / -acceleration if acceleration < 0.0 else np.inf
    # As rate <= 0, this form of the root adds two numbers of one sign, so that no
    # digits cancel.
    if root > rate:
        return 2.0 * height / (root - rate)
    return 0.0 if acceleration < 0.0 else np.inf


@kernel(counts_references=False)
def no_exit(body, theta, velocity, pull, horizon, buffer, normal, out):
    """Find no exit of the whole space."""
    out[TIME], out[FACET] = np.inf, HAS_NORMAL


@kernel(counts_references=False)
def simplex_exit(body, theta, velocity, pull, horizon, buffer, normal, out):
    """Find the first coordinate that falls to 0."""
    time, facet = horizon, -1
    for j in range(len(theta)):
        rate, acceleration = velocity[j], pull[j]
        # Up to the time the coordinate moves by at most this distance. Most coordinates
        # are farther from 0, and need no square root.
        if not theta[j] > time * (abs(rate) + 0.5 * time * abs(acceleration)):
            t = time_to_zero(theta[j], rate, acceleration)
            if t < time:
                time, facet = t, j
    out[TIME], out[FACET] = (time if facet >= 0 else np.inf), facet


@kernel(counts_references=False)
def box_exit(body, theta, velocity, pull, horizon, buffer, normal, out):
    """Find the first coordinate that reaches one of its bounds."""
    time, facet = horizon, -1
    for j in range(len(theta)):
        rate, acceleration = velocity[j], pull[j]
        reach = time * (abs(rate) + 0.5 * time * abs(acceleration))
        above, below = theta[j] - body.lower[j], body.upper[j] - theta[j]
        if not above > reach:
            t = time_to_zero(above, rate, acceleration)
            if t < time:
                time, facet = t, j
        if not below > reach:
            t = time_to_zero(below, -rate, -acceleration)
            if t < time:
                time, facet = t, j
    out[TIME], out[FACET] = (time if facet >= 0 else np.inf), facet


@kernel(counts_references=False)
def rotation_to_zero(height, velocity, height_of_pivot, horizon):
    """Return the first u up to the horizon at which a height falls to 0, or infinity.

    The height of a rotation is (height + 2 velocity u + (2 height_of_pivot - height)
    u^2) / (1 + u^2).
    """
    rate, square = 2.0 * velocity, 2.0 * height_of_pivot - height
    if height > horizon * (abs(rate) + horizon * abs(square)):
        return np.inf
    return time_to_zero(height, rate, 2.0 * square)


@kernel(counts_references=False)
def rotation_simplex_exit(body, theta, velocity, pivot, horizon, buffer, normal, out):
    """Find the first coordinate of a rotation that falls to 0."""
    first, facet = horizon, -1
    for j in range(len(theta)):
        u = rotation_to_zero(theta[j], velocity[j], pivot[j], first)
        if u < first:
            first, facet = u, j
    out[TIME], out[FACET] = (first if facet >= 0 else np.inf), facet


@kernel(counts_references=False)
def rotation_box_exit(body, theta, velocity, pivot, horizon, buffer, normal, out):
    """Find the first coordinate of a rotation that reaches one of its bounds."""
    first, facet = horizon, -1
    for j in range(len(theta)):
        low, high = body.lower[j], body.upper[j]
        u = rotation_to_zero(theta[j] - low, velocity[j], pivot[j] - low, first)
        if u < first:
            first, facet = u, j
        u = rotation_to_zero(high - theta[j], -velocity[j], high - pivot[j], first)
        if u < first:
            first, facet = u, j
    out[TIME], out[FACET] = (first if facet >= 0 else np.inf), facet


@kernel(counts_references=False)
def find_nearest_facet(slacks, rates, accelerations, horizon):
    """Return the first time at which a slack falls to 0, and which one.

    They are infinity and -1 if none does so before the horizon.
    """
    time, facet = horizon, -1
    for i in range(len(slacks)):
        reach = abs(rates[i]) + 0.5 * time * abs(accelerations[i])
        if not slacks[i] > time * reach:
            t = time_to_zero(slacks[i], rates[i], accelerations[i])
            if t < time:
                time, facet = t, i
    return (time if facet >= 0 else np.inf), facet


@kernel(counts_references=False)
def is_low(slack, rate, acceleration, time):
    """Return whether a slack may fall to 0 before a time.

    Without an upward acceleration the slack is concave in time, so it is positive
    before the time if it is so at the time.
    """
    return slack + time * (rate + 0.5 * time * min(acceleration, 0.0)) <= 0.0


@kernel(counts_references=False)
def count_low(slacks, rates, accelerations, time):
    """Return how many slacks may fall to 0 before a time, by a vectorized loop."""
    count = 0
    for i in range(len(slacks)):
        count += is_low(slacks[i], rates[i], accelerations[i], time)
    return count


@kernel(counts_references=False)
def find_nearest_of_many_facets(slacks, rates, accelerations, horizon):
    """Return the result of `find_nearest_facet`, for blocks of 32 facets at once.

    In most blocks no slack may fall to 0 before the time found in the blocks before.
    """
    time, facet, size = horizon, -1, 32
    for k in range((len(slacks) + size - 1) // size):
        # The compiler vectorizes loops over views that begin at 0.
        block = slice(size * k, size * (k + 1))
        heights, own_rates = slacks[block], rates[block]
        own_accelerations = accelerations[block]
        if count_low(heights, own_rates, own_accelerations, time) == 0:
            continue
        for i in range(len(heights)):
            if is_low(heights[i], own_rates[i], own_accelerations[i], time):
                t = time_to_zero(heights[i], own_rates[i], own_accelerations[i])
                if t < time:
                    time, facet = t, size * k + i
    return (time if facet >= 0 else np.inf), facet


@kernel(counts_references=False)
def evaluate_quartic(c0, c1, c2, c3, c4, t):
    """Return value and derivative of a quartic polynomial at t."""
    value = (((c4 * t + c3) * t + c2) * t + c1) * t + c0
    return value, ((4.0 * c4 * t + 3.0 * c3) * t + 2.0 * c2) * t + c1


@kernel(counts_references=False)
def find_root(c0, c1, c2, c3, c4, low, high, is_rising):
    """Return the root of a quartic that changes its sign once from low to high.

    Newton's method, with bisection where it would leave the bracket.
    """
    # Flights between two reflections are short, so cubes of their times hardly count,
    # and a root of c0 + c1 x + c2 x^2 is a good start.
    square = c1 * c1 - 4.0 * c2 * c0
    x = 0.5 * (low + high)
    if square > 0.0 and c2 != 0.0:
        larger = -(c1 + math.copysign(math.sqrt(square), c1))
        is_larger = is_rising == (c1 < 0.0)
        start = larger / (2.0 * c2) if is_larger else 2.0 * c0 / larger
        if low < start < high:
            x = start
    for _ in range(MAX_STEPS):
        value, derivative = evaluate_quartic(c0, c1, c2, c3, c4, x)
        if (value > 0.0) == is_rising:
            high = x
        else:
            low = x
        next_x = x - value / derivative if derivative != 0.0 else low
        if not low < next_x < high:
            next_x = 0.5 * (low + high)
        # The bracket is part of [0, 1], where numbers have this spacing.
        if abs(next_x - x) <= 2.0**-52:
            return next_x
        x = next_x
    return x


@kernel(counts_references=False)
def find_first_rise(c0, c1, c2, c3, c4):
    """Return the first t in [0, 1] at which a quartic rises through 0, from c0 <= 0.

    It is infinite if there is none.
    """
    # The derivative is monotone between the zeros, inner <= outer, of its derivative.
    inner, outer = 0.0, 0.0
    square = 9.0 * c3 * c3 - 24.0 * c2 * c4
    if square > 0.0:
        larger = -(3.0 * c3 + math.copysign(math.sqrt(square), c3))
        inner = larger / (12.0 * c4) if c4 != 0.0 else 0.0
        outer = 2.0 * c2 / larger
        inner, outer = min(inner, outer), max(inner, outer)
    last_maximum, start = 0.0, 0.0
    derivative_at_start = c1
    for k in range(3):
        stop = 1.0
        if k == 0:
            stop = inner
        elif k == 1:
            stop = outer
        if not start < stop <= 1.0:
            continue
        _, derivative = evaluate_quartic(c0, c1, c2, c3, c4, stop)
        # Before a minimum the quartic has fallen from a value below 0, so only a
        # maximum, at which the derivative changes from positive to negative, matters.
        if derivative_at_start > 0.0 and not derivative > 0.0:
            maximum = find_root(
                c1, 2.0 * c2, 3.0 * c3, 4.0 * c4, 0.0, start, stop, False
            )
            if evaluate_quartic(c0, c1, c2, c3, c4, maximum)[0] > 0.0:
                return find_root(c0, c1, c2, c3, c4, last_maximum, maximum, True)
            last_maximum = maximum
        start, derivative_at_start = stop, derivative
    if evaluate_quartic(c0, c1, c2, c3, c4, 1.0)[0] > 0.0:
        return find_root(c0, c1, c2, c3, c4, last_maximum, 1.0, True)
    return np.inf


# The sums of the next function and of `rotation_quartic` may be taken in any order, so
# that the loops are vectorized.
@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def distance_quartic(center, theta, velocity, pull, scale, horizon):
    """Return the squared distance from the center along a parabola, as coefficients.

    Lengths are in units of 1 / scale, times in units of the horizon.
    """
    c0, c1, c2, c3, c4 = 0.0, 0.0, 0.0, 0.0, 0.0
    first, second = horizon * scale, 0.5 * horizon * horizon * scale
    for j in range(len(theta)):
        offset = (theta[j] - center[j]) * scale
        rate, square = first * velocity[j], second * pull[j]
        c0 += offset * offset
        c1 += offset * rate
        c2 += rate * rate + 2.0 * offset * square
        c3 += rate * square
        c4 += square * square
    return c0, 2.0 * c1, c2, 2.0 * c3, c4


@kernel(counts_references=False)
def euclidean_exit(body, theta, velocity, pull, horizon, buffer, normal, out):
    """Find the first time at which the squared distance rises to the squared radius."""
    scale = 1.0 / body.radius
    c0, c1, c2, c3, c4 = distance_quartic(
        body.center, theta, velocity, pull, scale, horizon
    )
    c0 -= 1.0
    out[TIME], out[FACET] = np.inf, HAS_NORMAL
    # This bounds the quartic on [0, 1]. Most flights end far from the boundary, and
    # need no search.
    if c0 + abs(c1) + abs(c2) + abs(c3) + c4 <= 0.0:
        return
    time = horizon * find_first_rise(min(c0, 0.0), c1, c2, c3, c4)
    if time < horizon:
        out[TIME] = time
        for j in range(len(theta)):
            point = theta[j] + time * (velocity[j] + 0.5 * time * pull[j])
            normal[j] = point - body.center[j]


@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def rotation_quartic(center, theta, velocity, pivot, scale, horizon):
    """Return coefficients of (distance^2 - radius^2) (1 + u^2)^2 of a rotation.

    Lengths are in units of the radius 1 / scale, u in units of the horizon.
    """
    c0, c1, c2, c3, c4 = 0.0, 0.0, 0.0, 0.0, 0.0
    first, second = 2.0 * horizon * scale, horizon * horizon
    for j in range(len(theta)):
        offset = (theta[j] - center[j]) * scale
        rate = first * velocity[j]
        square = second * (2.0 * (pivot[j] - center[j]) * scale - offset)
        c0 += offset * offset
        c1 += offset * rate
        c2 += rate * rate + 2.0 * offset * square
        c3 += rate * square
        c4 += square * square
    return c0 - 1.0, 2.0 * c1, c2 - 2.0 * second, 2.0 * c3, c4 - second * second


@kernel(counts_references=False)
def rotation_euclidean_exit(body, theta, velocity, pivot, horizon, buffer, normal, out):
    """Find the first u at which a rotation's distance rises to the radius."""
    c0, c1, c2, c3, c4 = rotation_quartic(
        body.center, theta, velocity, pivot, 1.0 / body.radius, horizon
    )
    out[TIME], out[FACET] = np.inf, HAS_NORMAL
    if c0 + abs(c1) + abs(c2) + abs(c3) + abs(c4) <= 0.0:
        return
    u = horizon * find_first_rise(min(c0, 0.0), c1, c2, c3, c4)
    if u < horizon:
        out[TIME] = u
        cosine, sine = (1.0 - u * u) / (1.0 + u * u), 2.0 * u / (1.0 + u * u)
        for j in range(len(theta)):
            rotated = cosine * (theta[j] - pivot[j]) + sine * velocity[j]
            normal[j] = pivot[j] + rotated - body.center[j]


@kernel(counts_references=False)
def coordinate_motion(body, theta, velocity, pull, rotates, j):
    """Return coordinate j less the center's, its rate and acceleration.

    Those of a rotation are of the product with 1 + u^2.
    """
    offset = theta[j] - body.center[j]
    if rotates:
        pull_offset = pull[j] - body.center[j]
        return offset, 2.0 * velocity[j], 4.0 * pull_offset - 2.0 * offset
    return offset, velocity[j], pull[j]


@kernel(counts_references=False)
def collect_sign_changes(
    body, theta, velocity, pull, rotates, horizon, negated_times, coordinates
):
    """Fill a heap with the times at which coordinates pass the center's.

    The heap has the largest key first, so times are negated. Return their number.
    """
    count = 0
    for j in range(len(theta)):
        offset, rate, acceleration = coordinate_motion(
            body, theta, velocity, pull, rotates, j
        )
        if abs(offset) > horizon * (abs(rate) + 0.5 * horizon * abs(acceleration)):
            continue
        square = rate * rate - 2.0 * acceleration * offset
        if not square > 0.0:
            continue
        # Both roots without cancellation: one by the sum, one by the product of both.
        larger = -(rate + math.copysign(math.sqrt(square), rate))
        other = larger / acceleration if acceleration != 0.0 else np.inf
        for time in (2.0 * offset / larger, other):
            if 0.0 < time < horizon:
                negated_times[count], coordinates[count] = -time, j
                count += 1
    for start in range(count // 2 - 1, -1, -1):
        sift_down(negated_times, coordinates, start, count)
    return count


@kernel(counts_references=False)
def find_l1_exit(body, theta, velocity, pull, rotates, horizon, buffer, normal, out):
    """Find the first time at which the l1 norm rises to the radius.

    Between changes of signs the norm is <s, x - center> with the signs s, which are the
    normal. The slack, radius - norm, is a quadratic polynomial there.
    """
    dim = len(theta)
    out[TIME], out[FACET] = np.inf, HAS_NORMAL
    max_norm, slack, rate, acceleration = 0.0, body.radius, 0.0, 0.0
    if rotates:
        acceleration = 2.0 * body.radius  # second derivative of radius (1 + u^2)
    for j in range(dim):
        offset, own_rate, own_acceleration = coordinate_motion(
            body, theta, velocity, pull, rotates, j
        )
        reach = horizon * (abs(own_rate) + 0.5 * horizon * abs(own_acceleration))
        max_norm += abs(offset) + reach
        # The first derivative that is not 0 gives the sign right after the start.
        signed = own_rate if own_rate != 0.0 else own_acceleration
        signed = offset if offset != 0.0 else signed
        normal[j] = math.copysign(1.0, signed)
        slack -= normal[j] * offset
        rate -= normal[j] * own_rate
        acceleration -= normal[j] * own_acceleration
    if max_norm <= body.radius:
        return
    # The norm is at least <s, x - center> for the signs s at the start, so it reaches
    # the radius no later than this plane is crossed. A little more time is searched,
    # because rounding may put the exit behind the plane.
    plane_time = time_to_zero(slack, rate, acceleration)
    last = min(horizon, (1.0 + 1e-9) * plane_time)
    negated_times, coordinates = buffer[: 2 * dim], buffer[2 * dim : 4 * dim]
    count = collect_sign_changes(
        body, theta, velocity, pull, rotates, last, negated_times, coordinates
    )
    start = 0.0
    while True:
        stop = -negated_times[0] if count > 0 else last
        slack_here = slack + start * (rate + 0.5 * start * acceleration)
        rate_here = rate + start * acceleration
        time = start + time_to_zero(slack_here, rate_here, acceleration)
        # Both are 0 if the path starts outwards on the boundary.
        if time <= stop:
            out[TIME] = time
            return
        if count == 0:
            # Rounding has hidden an exit at which the path hardly leaves the domain. It
            # is at the plane, if that is before the horizon.
            if last < horizon:
                out[TIME] = plane_time
            return
        j, start = int(coordinates[0]), stop
        normal[j] = -normal[j]
        offset, own_rate, own_acceleration = coordinate_motion(
            body, theta, velocity, pull, rotates, j
        )
        slack -= 2.0 * normal[j] * offset
        rate -= 2.0 * normal[j] * own_rate
        acceleration -= 2.0 * normal[j] * own_acceleration
        count -= 1
        negated_times[0], coordinates[0] = negated_times[count], coordinates[count]
        if count > 0:
            sift_down(negated_times, coordinates, 0, count)


@kernel(counts_references=False)
def l1_exit(body, theta, velocity, pull, horizon, buffer, normal, out):
    """Find the first time at which the l1 norm rises to the radius."""
    find_l1_exit(body, theta, velocity, pull, False, horizon, buffer, normal, out)


@kernel(counts_references=False)
def rotation_l1_exit(body, theta, velocity, pivot, horizon, buffer, normal, out):
    """Find the first u at which the l1 norm of a rotation rises to the radius."""
    find_l1_exit(body, theta, velocity, pivot, True, horizon, buffer, normal, out)


@kernel(counts_references=False)
def evaluate_norm(body, theta, velocity, pull, rotates, start, stop, buffer, normal):
    """Return the norm, with a subgradient, where the tangents at two times meet.

    At equal times that is the path's point.
    """
    dim = len(theta)
    offset, middle, product = buffer[:dim], 0.5 * (start + stop), 0.5 * start * stop
    for j in range(dim):
        if rotates:
            square = 2.0 * pull[j] - theta[j]
            point = theta[j] + 2.0 * (middle * velocity[j] + product * square)
            point /= 1.0 + 2.0 * product
        else:
            point = theta[j] + (middle * velocity[j] + product * pull[j])
        offset[j] = point - body.center[j]
    rows, columns = body.num_rows, body.num_columns
    if min(rows, columns) > 1:
        return schatten_normal(offset, rows, columns, body.p, buffer[dim:], normal)
    return lp_normal(offset, body.p, normal)


@kernel(counts_references=False)
def find_plane_crossing(body, theta, velocity, pull, rotates, normal):
    """Return the time at which a path crosses a plane that touches the boundary.

    The plane's normal has dual norm 1.
    """
    slack, rate, acceleration = body.radius, 0.0, 0.0
    for j in range(len(theta)):
        pull_offset = pull[j] - body.center[j] if rotates else pull[j]
        slack -= normal[j] * (theta[j] - body.center[j])
        rate -= normal[j] * velocity[j]
        acceleration -= normal[j] * pull_offset
    if rotates:
        # The slack times 1 + u^2, from its value here and at the pivot.
        slack_of_pivot = body.radius + acceleration
        rate, acceleration = 2.0 * rate, 2.0 * (2.0 * slack_of_pivot - slack)
    return time_to_zero(slack, rate, acceleration)


@kernel(counts_references=False)
def shorten_to_boundary(
    body, theta, velocity, pull, rotates, time, limit, buffer, normal
):
    """Return a time, at most the given one, at which the path is not outside.

    A subgradient at a point outside bounds the norm from below, everywhere. As long as
    its plane is not crossed the path may be inside. Newton's method on such planes
    comes down to a time at which the path leaves.
    """
    for _ in range(MAX_STEPS):
        value = evaluate_norm(
            body, theta, velocity, pull, rotates, time, time, buffer, normal
        )
        if not value > limit:
            break
        earlier = find_plane_crossing(body, theta, velocity, pull, rotates, normal)
        if not earlier < time:
            break
        time = earlier
    return time


@kernel(counts_references=False)
def find_certified_exit(
    body, theta, velocity, pull, rotates, horizon, buffer, normal, out
):
    """Find the first time at which a convex norm rises to the radius, by parts.

    A part of a parabola or an ellipse lies in the triangle of its ends and the point
    where its tangents meet. Parts whose triangle is inside are laid end to end up to an
    exit, and halved until they are. The time is NaN for a start that is outside by more
    than rounding.

    After 50 parts the result is `OPEN`: the path is inside up to a time, from which the
    flight goes on, and the chain may pause. A path must not be rejected because it has
    too many parts, because the reverse path may have fewer, and the chain would not be
    reversible. A path that follows the boundary within a share c of the radius needs
    about c^(-1/2) parts. A share c of the paths does so, so the mean number is finite.
    """
    dim, size, strength = len(theta), body.radius, 0.0
    for j in range(dim):
        size = max(size, abs(body.center[j]))
        strength = max(strength, abs(pull[j]))
    # Rounding errors of a rotation are of the size of its pivot.
    if rotates:
        size, strength = max(size, strength), 1.0
    # A point that is outside by less than the rounding error of its norm, some 2^-47,
    # counts as on the boundary.
    limit = body.radius + 2.0**-47 * size
    other_normal, rest = buffer[:dim], buffer[dim:]
    reset_rotations(min(body.num_rows, body.num_columns), rest[dim:])
    out[TIME], out[FACET] = np.nan, HAS_NORMAL
    # The path is inside up to a time. Its end `stop` is the horizon, or an exit.
    inside_until, width, stop, is_exit = 0.0, horizon, horizon, False
    for _ in range(50):
        time = min(inside_until + width, stop)
        if time < stop or not is_exit:
            end = shorten_to_boundary(
                body, theta, velocity, pull, rotates, time, limit, rest, other_normal
            )
            if end < time:
                time, stop, is_exit = end, end, True
                copy_into(other_normal, normal)
        tip_norm = 0.0
        # Without acceleration the path is a chord of a convex body.
        if strength > 0.0:
            tip_norm = evaluate_norm(
                body,
                theta,
                velocity,
                pull,
                rotates,
                inside_until,
                time,
                rest,
                other_normal,
            )
        if tip_norm <= limit:
            inside_until, width = time, 4.0 * width
            if time == stop:
                out[TIME] = stop if is_exit else np.inf
                return
        else:
            width = 0.5 * (time - inside_until)
    if inside_until > 0.0:
        out[TIME], out[FACET] = inside_until, OPEN


@kernel(counts_references=False)
def convex_exit(body, theta, velocity, pull, horizon, buffer, normal, out):
    """Find the first time at which a convex norm rises to the radius."""
    find_certified_exit(
        body, theta, velocity, pull, False, horizon, buffer, normal, out
    )


@kernel(counts_references=False)
def rotation_convex_exit(body, theta, velocity, pivot, horizon, buffer, normal, out):
    """Find the first u at which a convex norm of a rotation rises to the radius."""
    find_certified_exit(
        body, theta, velocity, pivot, True, horizon, buffer, normal, out
    )


@kernel(counts_references=False)
def polytope_exit(body, theta, velocity, pull, horizon, buffer, normal, out):
    """Find the first inequality of a matrix whose slack falls to 0.

    Flights in a polytope alone follow the slacks, which takes less. This function is
    for a polytope that is a part of an intersection.
    """
    first, facet = horizon, -1
    for i in range(body.matrix.shape[0]):
        slack, rate, acceleration = body.bounds[i], 0.0, 0.0
        for j in range(theta.shape[0]):
            slack -= body.matrix[i, j] * theta[j]
            rate -= body.matrix[i, j] * velocity[j]
            acceleration -= body.matrix[i, j] * pull[j]
        if not slack > first * (abs(rate) + 0.5 * first * abs(acceleration)):
            time = time_to_zero(slack, rate, acceleration)
            if time < first:
                first, facet = time, i
    out[TIME], out[FACET] = np.inf, HAS_NORMAL
    if facet >= 0:
        out[TIME] = first
        copy_into(body.matrix[facet], normal)


def rotation_exit(exit_piece: Piece) -> Piece | None:
    """Return the exit function for rotations in the same domain, or None."""
    rotations: dict[Piece, Piece] = {
        box_exit: rotation_box_exit,
        simplex_exit: rotation_simplex_exit,
        euclidean_exit: rotation_euclidean_exit,
        convex_exit: rotation_convex_exit,
        l1_exit: rotation_l1_exit,
    }
    return rotations.get(exit_piece)
