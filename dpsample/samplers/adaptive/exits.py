# mypy: allow-untyped-defs
r"""Exits: when the parabola theta + v t + a t^2 / 2 leaves a domain, and how.

A piece writes the first time before the horizon into out[0], infinity if there is none,
and what is hit into out[1]: the coordinate of a face that is parallel to an axis, or -1
for a wall whose outward normal, of any length, it then writes too; or -2 where a search
has come so far, and found no wall yet. A point that rounding has put outside counts as
on the wall, and a wall is hit by what moves outwards only: the time is never the 0 at
which a reflection has just begun.

Flat walls ask for one quadratic each. On the Euclidean ball the squared distance is a
quartic, whose first upward root lies between turning points that are bracketed in turn.
On the l1 ball the norm is one quadratic between changes of signs, kept in a heap. For
other norms Newton's method finds an exit, and triangles around pieces of the path show
that there is none before it.

Paths that turn about a pivot c instead, c + (theta - c) cos t + v sin t, are quadratic
in u = tan(t / 2), over 1 + u^2: their pieces get c for a, and times and horizons in u.
Their tangents at two such times s and u meet at

    (theta + (s + u) v + s u (2 c - theta)) / (1 + s u).
"""

import math

import numpy as np
from numba import types

from dpsample.core.jit import Piece, f8, kernel, vector
from dpsample.domains import (
    BODY,
    Ball,
    Box,
    Domain,
    Polytope,
    SchattenBall,
    Simplex,
    WholeSpace,
)
from dpsample.numerics.norms import lp_normal, reset_rotations, schatten_normal
from dpsample.numerics.vectors import copy_into
from dpsample.samplers.univariate.log_concave import sift_down

# Body, point, velocity, acceleration, horizon, scratch memory (ROOM dim), normal, out.
EXIT = types.void(BODY, vector, vector, vector, f8, vector, vector, vector)
ROOM = 5
WALL = -1.0  # in out[1]: the wall has the normal that was written
OPEN = -2.0  # in out[1]: no wall; the path is known up to there only
MAX_STEPS, MAX_PIECES = 100, 50
TOLERANCE = 2.0**-52  # of a root, in units of its bracket
AFTER = 1e-9  # relative: so much later, rounding cannot hide what comes before
ROUNDING = 2.0**-47  # of a norm, as which a point outside is on the wall


@kernel(counts_references=False)
def first_fall(height, rate, bend):
    """Time at which height + rate t + bend t^2 / 2 falls through 0, from above."""
    height = max(height, 0.0)
    square = rate * rate - 2.0 * bend * height
    if not square >= 0.0:
        return np.inf
    root = math.sqrt(square)
    if rate > 0.0:
        return (rate + root) / -bend if bend < 0.0 else np.inf
    if root > rate:  # without cancellation, as rate <= 0
        return 2.0 * height / (root - rate)
    return 0.0 if bend < 0.0 else np.inf


@kernel(counts_references=False)
def no_exit(body, theta, velocity, pull, horizon, room, normal, out):
    """Nothing leaves the whole space."""
    out[0], out[1] = np.inf, WALL


@kernel(counts_references=False)
def simplex_exit(body, theta, velocity, pull, horizon, room, normal, out):
    """First coordinate that falls to 0."""
    time, face = horizon, -1
    for j in range(len(theta)):
        speed, bend = velocity[j], pull[j]
        if not theta[j] > time * (abs(speed) + 0.5 * time * abs(bend)):
            t = first_fall(theta[j], speed, bend)
            if t < time:
                time, face = t, j
    out[0], out[1] = (time if face >= 0 else np.inf), face


@kernel(counts_references=False)
def box_exit(body, theta, velocity, pull, horizon, room, normal, out):
    """First coordinate that reaches one of its bounds."""
    time, face = horizon, -1
    for j in range(len(theta)):
        speed, bend = velocity[j], pull[j]
        reach = time * (abs(speed) + 0.5 * time * abs(bend))
        above, below = theta[j] - body.lower[j], body.upper[j] - theta[j]
        if not above > reach:
            t = first_fall(above, speed, bend)
            if t < time:
                time, face = t, j
        if not below > reach:
            t = first_fall(below, -speed, -bend)
            if t < time:
                time, face = t, j
    out[0], out[1] = (time if face >= 0 else np.inf), face


@kernel(counts_references=False)
def turning_fall(height, speed, above_pivot, reach):
    """First u up to a reach at which a turning height falls to 0; else infinity.

    The height is ``height + 2 speed u + (2 above_pivot - height) u^2`` over 1 + u^2.
    """
    rate, bend = 2.0 * speed, 2.0 * above_pivot - height
    if height > reach * (abs(rate) + reach * abs(bend)):
        return np.inf
    return first_fall(height, rate, 2.0 * bend)


@kernel(counts_references=False)
def turning_simplex_exit(body, theta, velocity, pivot, horizon, room, normal, out):
    """First coordinate that falls to 0, of a turning path."""
    first, face = horizon, -1
    for j in range(len(theta)):
        u = turning_fall(theta[j], velocity[j], pivot[j], first)
        if u < first:
            first, face = u, j
    out[0], out[1] = (first if face >= 0 else np.inf), face


@kernel(counts_references=False)
def turning_box_exit(body, theta, velocity, pivot, horizon, room, normal, out):
    """First coordinate that reaches one of its bounds, of a turning path."""
    first, face = horizon, -1
    for j in range(len(theta)):
        low, high = body.lower[j], body.upper[j]
        u = turning_fall(theta[j] - low, velocity[j], pivot[j] - low, first)
        if u < first:
            first, face = u, j
        u = turning_fall(high - theta[j], -velocity[j], high - pivot[j], first)
        if u < first:
            first, face = u, j
    out[0], out[1] = (first if face >= 0 else np.inf), face


@kernel(counts_references=False)
def nearest_face(slacks, rates, bends, horizon):
    """First time at which a slack falls to 0, and which; infinity and -1 if none."""
    time, face = horizon, -1
    for i in range(len(slacks)):
        if not slacks[i] > time * (abs(rates[i]) + 0.5 * time * abs(bends[i])):
            t = first_fall(slacks[i], rates[i], bends[i])
            if t < time:
                time, face = t, i
    return (time if face >= 0 else np.inf), face


@kernel(counts_references=False)
def quartic(c0, c1, c2, c3, c4, t):
    """Value at t, and slope."""
    value = (((c4 * t + c3) * t + c2) * t + c1) * t + c0
    return value, ((4.0 * c4 * t + 3.0 * c3) * t + 2.0 * c2) * t + c1


@kernel(counts_references=False)
def root_between(c0, c1, c2, c3, c4, low, high, is_rising):
    """Root of a quartic that changes its sign once from low to high."""
    # Flights between two bounces are short: cubes of their times hardly count.
    square = c1 * c1 - 4.0 * c2 * c0
    x = 0.5 * (low + high)
    if square > 0.0 and c2 != 0.0:
        far = -(c1 + math.copysign(math.sqrt(square), c1))
        near = far / (2.0 * c2) if is_rising == (c1 < 0.0) else 2.0 * c0 / far
        if low < near < high:
            x = near
    for _ in range(MAX_STEPS):
        value, slope = quartic(c0, c1, c2, c3, c4, x)
        if (value > 0.0) == is_rising:
            high = x
        else:
            low = x
        following = x - value / slope if slope != 0.0 else low
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - x) <= TOLERANCE:
            return following
        x = following
    return x


@kernel(counts_references=False)
def first_rise(c0, c1, c2, c3, c4):
    """First t in [0, 1] at which a quartic rises through 0, from c0 <= 0."""
    # The slope is monotone between the zeros of its own slope.
    inner, outer = 0.0, 0.0
    square = 9.0 * c3 * c3 - 24.0 * c2 * c4
    if square > 0.0:
        far = -(3.0 * c3 + math.copysign(math.sqrt(square), c3))
        inner = far / (12.0 * c4) if c4 != 0.0 else 0.0
        outer = 2.0 * c2 / far
        inner, outer = min(inner, outer), max(inner, outer)
    before, start = 0.0, 0.0
    at_start = c1
    for piece in range(3):
        stop = inner if piece == 0 else (outer if piece == 1 else 1.0)
        if not start < stop <= 1.0:
            continue
        _, at_stop = quartic(c0, c1, c2, c3, c4, stop)
        # At a minimum it is below 0 as before: only a maximum matters.
        if at_start > 0.0 and not at_stop > 0.0:
            turn = root_between(
                c1, 2.0 * c2, 3.0 * c3, 4.0 * c4, 0.0, start, stop, False
            )
            if quartic(c0, c1, c2, c3, c4, turn)[0] > 0.0:
                return root_between(c0, c1, c2, c3, c4, before, turn, True)
            before = turn
        start, at_start = stop, at_stop
    if quartic(c0, c1, c2, c3, c4, 1.0)[0] > 0.0:
        return root_between(c0, c1, c2, c3, c4, before, 1.0, True)
    return np.inf


@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def distance_quartic(center, theta, velocity, pull, scale, horizon):
    """Coefficients of the squared distance from the center, along the parabola.

    In units of 1 / scale and of the horizon; in any order, so that the loop is
    vectorized.
    """
    c0, c1, c2, c3, c4 = 0.0, 0.0, 0.0, 0.0, 0.0
    first, second = horizon * scale, 0.5 * horizon * horizon * scale
    for j in range(len(theta)):
        place = (theta[j] - center[j]) * scale
        speed, bend = first * velocity[j], second * pull[j]
        c0 += place * place
        c1 += place * speed
        c2 += speed * speed + 2.0 * place * bend
        c3 += speed * bend
        c4 += bend * bend
    return c0, 2.0 * c1, c2, 2.0 * c3, c4


@kernel(counts_references=False)
def euclidean_exit(body, theta, velocity, pull, horizon, room, normal, out):
    """First time at which the squared distance rises to the squared radius."""
    scale = 1.0 / body.radius
    c0, c1, c2, c3, c4 = distance_quartic(
        body.center, theta, velocity, pull, scale, horizon
    )
    c0 -= 1.0
    out[0], out[1] = np.inf, WALL
    if c0 + abs(c1) + abs(c2) + abs(c3) + c4 <= 0.0:
        return
    time = horizon * first_rise(min(c0, 0.0), c1, c2, c3, c4)
    if time < horizon:
        out[0] = time
        for j in range(len(theta)):
            moved = theta[j] + time * (velocity[j] + 0.5 * time * pull[j])
            normal[j] = moved - body.center[j]


@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def turning_quartic(center, theta, velocity, pivot, scale, horizon):
    """Coefficients of (distance^2 - radius^2) (1 + u^2)^2 of a turning path.

    In units of the radius 1 / scale and of the horizon.
    """
    c0, c1, c2, c3, c4 = 0.0, 0.0, 0.0, 0.0, 0.0
    first, second = 2.0 * horizon * scale, horizon * horizon
    for j in range(len(theta)):
        place = (theta[j] - center[j]) * scale
        speed = first * velocity[j]
        bend = second * (2.0 * (pivot[j] - center[j]) * scale - place)
        c0 += place * place
        c1 += place * speed
        c2 += speed * speed + 2.0 * place * bend
        c3 += speed * bend
        c4 += bend * bend
    return c0 - 1.0, 2.0 * c1, c2 - 2.0 * second, 2.0 * c3, c4 - second * second


@kernel(counts_references=False)
def turning_euclidean_exit(body, theta, velocity, pivot, horizon, room, normal, out):
    """First u at which the squared distance of a turning path rises to the radius's."""
    c0, c1, c2, c3, c4 = turning_quartic(
        body.center, theta, velocity, pivot, 1.0 / body.radius, horizon
    )
    out[0], out[1] = np.inf, WALL
    if c0 + abs(c1) + abs(c2) + abs(c3) + abs(c4) <= 0.0:
        return
    u = horizon * first_rise(min(c0, 0.0), c1, c2, c3, c4)
    if u < horizon:
        out[0] = u
        cosine, sine = (1.0 - u * u) / (1.0 + u * u), 2.0 * u / (1.0 + u * u)
        for j in range(len(theta)):
            turned = cosine * (theta[j] - pivot[j]) + sine * velocity[j]
            normal[j] = pivot[j] + turned - body.center[j]


@kernel(counts_references=False)
def motion(body, theta, velocity, pull, turns, j):
    """Coordinate j from the center's, its rate and twice its bend; times 1 + u^2."""
    place = theta[j] - body.center[j]
    if turns:
        return place, 2.0 * velocity[j], 4.0 * (pull[j] - body.center[j]) - 2.0 * place
    return place, velocity[j], pull[j]


@kernel(counts_references=False)
def collect_turns(body, theta, velocity, pull, turns, horizon, before, owners):
    """Fill a heap with the times, negated, at which coordinates pass the center's."""
    count = 0
    for j in range(len(theta)):
        place, speed, bend = motion(body, theta, velocity, pull, turns, j)
        if abs(place) > horizon * (abs(speed) + 0.5 * horizon * abs(bend)):
            continue
        square = speed * speed - 2.0 * bend * place
        if not square > 0.0:
            continue
        far = -(speed + math.copysign(math.sqrt(square), speed))
        for time in (2.0 * place / far, far / bend if bend != 0.0 else np.inf):
            if 0.0 < time < horizon:
                before[count], owners[count] = -time, j
                count += 1
    for start in range(count // 2 - 1, -1, -1):
        sift_down(before, owners, start, count)
    return count


@kernel(counts_references=False)
def signed_exit(body, theta, velocity, pull, turns, horizon, room, normal, out):
    """First time at which the l1 norm rises to the radius; signs are the normal."""
    dim = len(theta)
    out[0], out[1] = np.inf, WALL
    reach, height, rate, bend = 0.0, body.radius, 0.0, 0.0
    if turns:
        bend = 2.0 * body.radius
    for j in range(dim):
        place, speed, turn = motion(body, theta, velocity, pull, turns, j)
        reach += abs(place) + horizon * (abs(speed) + 0.5 * horizon * abs(turn))
        ahead = place if place != 0.0 else (speed if speed != 0.0 else turn)
        normal[j] = math.copysign(1.0, ahead)
        height -= normal[j] * place
        rate -= normal[j] * speed
        bend -= normal[j] * turn
    if reach <= body.radius:
        return
    # The norm reaches the radius no later than the face of the signs here is met.
    met = first_fall(height, rate, bend)
    last = min(horizon, (1.0 + AFTER) * met)
    before, owners = room[: 2 * dim], room[2 * dim : 4 * dim]
    count = collect_turns(body, theta, velocity, pull, turns, last, before, owners)
    start = 0.0
    while True:
        stop = -before[0] if count > 0 else last
        here = height + start * (rate + 0.5 * start * bend)
        time = start + first_fall(here, rate + start * bend, bend)
        if time <= stop:  # equal, at 0, if the path starts outwards from the wall
            out[0] = time
            return
        if count == 0:
            if last < horizon:  # rounding hides a touch, and what comes later counts
                out[0] = met
            return
        j, start = int(owners[0]), stop
        normal[j] = -normal[j]
        place, speed, turn = motion(body, theta, velocity, pull, turns, j)
        height -= 2.0 * normal[j] * place
        rate -= 2.0 * normal[j] * speed
        bend -= 2.0 * normal[j] * turn
        count -= 1
        before[0], owners[0] = before[count], owners[count]
        if count > 0:
            sift_down(before, owners, 0, count)


@kernel(counts_references=False)
def l1_exit(body, theta, velocity, pull, horizon, room, normal, out):
    """First time at which the l1 norm rises to the radius."""
    signed_exit(body, theta, velocity, pull, False, horizon, room, normal, out)


@kernel(counts_references=False)
def turning_l1_exit(body, theta, velocity, pivot, horizon, room, normal, out):
    """First u at which the l1 norm rises to the radius, of a turning path."""
    signed_exit(body, theta, velocity, pivot, True, horizon, room, normal, out)


@kernel(counts_references=False)
def norm_at(body, theta, velocity, pull, turns, start, stop, room, normal):
    """Norm, with a subgradient, where the tangents at two times of a path meet.

    At equal times that is the path's point.
    """
    dim = len(theta)
    offset, middle, product = room[:dim], 0.5 * (start + stop), 0.5 * start * stop
    for j in range(dim):
        if turns:
            bend = 2.0 * pull[j] - theta[j]
            moved = theta[j] + 2.0 * (middle * velocity[j] + product * bend)
            moved /= 1.0 + 2.0 * product
        else:
            moved = theta[j] + (middle * velocity[j] + product * pull[j])
        offset[j] = moved - body.center[j]
    rows, columns = body.num_rows, body.num_columns
    if min(rows, columns) > 1:
        return schatten_normal(offset, rows, columns, body.p, room[dim:], normal)
    return lp_normal(offset, body.p, normal)


@kernel(counts_references=False)
def first_crossing(body, theta, velocity, pull, turns, normal):
    """Time at which a path crosses the plane with a normal of dual norm 1."""
    height, rate, bend = body.radius, 0.0, 0.0
    for j in range(len(theta)):
        height -= normal[j] * (theta[j] - body.center[j])
        rate -= normal[j] * velocity[j]
        bend -= normal[j] * (pull[j] - body.center[j] if turns else pull[j])
    if turns:  # the height times 1 + u^2, from its value here and at the pivot
        rate, bend = 2.0 * rate, 2.0 * (2.0 * (body.radius + bend) - height)
    return first_fall(height, rate, bend)


@kernel(counts_references=False)
def cut_back(body, theta, velocity, pull, turns, time, limit, room, normal):
    """Time, at most the given one, at which a path that ends outside is on the wall.

    A subgradient at a point outside bounds the norm from below, everywhere: as long as
    its plane is not crossed the path may be inside. Newton's method on such planes
    comes down to a time at which the path leaves.
    """
    for _ in range(MAX_STEPS):
        value = norm_at(body, theta, velocity, pull, turns, time, time, room, normal)
        if not value > limit:
            break
        earlier = first_crossing(body, theta, velocity, pull, turns, normal)
        if not earlier < time:
            break
        time = earlier
    return time


@kernel(counts_references=False)
def certified_exit(body, theta, velocity, pull, turns, horizon, room, normal, out):
    """First time at which a convex norm rises to the radius, on certified pieces.

    A piece of a parabola or an ellipse lies in the triangle of its ends and the point
    where its tangents meet. Pieces whose triangle is inside are laid end to end up to
    an exit, and halved until they are. After `MAX_PIECES` the path is `OPEN`: it is
    inside up to a time, from which its flight goes on, and the chain may pause. So no
    path is refused for its pieces, of which the way back may need others: a flight in
    parts is the flight, whatever the parts. A path that follows the wall within a share
    c of the radius needs some c^(-1/2), which has a mean, as a share c of paths does.
    NaN is the time of what starts outside by more than rounding.
    """
    dim, size, strength = len(theta), body.radius, 0.0
    for j in range(dim):
        size = max(size, abs(body.center[j]))
        strength = max(strength, abs(pull[j]))
    if turns:  # rounding errors are those of the pivot
        size, strength = max(size, strength), 1.0
    limit = body.radius + ROUNDING * size
    other, rest = room[:dim], room[dim:]
    reset_rotations(min(body.num_rows, body.num_columns), rest[dim:])
    out[0], out[1] = np.nan, WALL
    known, width, stop, is_hit = 0.0, horizon, horizon, False
    for _ in range(MAX_PIECES):
        time = min(known + width, stop)
        if time < stop or not is_hit:
            end = cut_back(body, theta, velocity, pull, turns, time, limit, rest, other)
            if end < time:
                time, stop, is_hit = end, end, True
                copy_into(other, normal)
        middle = 0.0
        if strength > 0.0:
            middle = norm_at(
                body, theta, velocity, pull, turns, known, time, rest, other
            )
        if middle <= limit:
            known, width = time, 4.0 * width
            if time == stop:
                out[0] = stop if is_hit else np.inf
                return
        else:
            width = 0.5 * (time - known)
    if known > 0.0:
        out[0], out[1] = known, OPEN


@kernel(counts_references=False)
def convex_exit(body, theta, velocity, pull, horizon, room, normal, out):
    """First time at which a convex norm rises to the radius."""
    certified_exit(body, theta, velocity, pull, False, horizon, room, normal, out)


@kernel(counts_references=False)
def turning_convex_exit(body, theta, velocity, pivot, horizon, room, normal, out):
    """First u at which a convex norm rises to the radius, of a turning path."""
    certified_exit(body, theta, velocity, pivot, True, horizon, room, normal, out)


def has_exits(domain: Domain) -> bool:
    """Whether a piece exists for the domain, or its faces are a polytope's."""
    kinds = (WholeSpace, Ball, Box, Simplex, Polytope, SchattenBall)
    return isinstance(domain, kinds)


def find_exit_function(domain: Domain) -> Piece:
    """Piece of a domain; a polytope needs none, its faces come by their slacks."""
    if isinstance(domain, Ball):
        norms: dict[float, Piece]
        norms = {1.0: l1_exit, 2.0: euclidean_exit, np.inf: box_exit}
        return norms.get(domain.p, convex_exit)
    if isinstance(domain, SchattenBall):
        is_round = domain.p == 2.0 or min(domain.shape) == 1
        return euclidean_exit if is_round else convex_exit
    if isinstance(domain, Box | Simplex):
        return box_exit if isinstance(domain, Box) else simplex_exit
    return no_exit


def find_rotation_exit(domain: Domain) -> Piece | None:
    """Piece of a domain for turning paths; None if their exits are not known."""
    known: dict[Piece, Piece] = {
        box_exit: turning_box_exit,
        simplex_exit: turning_simplex_exit,
        euclidean_exit: turning_euclidean_exit,
        convex_exit: turning_convex_exit,
        l1_exit: turning_l1_exit,
    }
    return known.get(find_exit_function(domain))
