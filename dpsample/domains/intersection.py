# mypy: allow-untyped-defs
"""Intersection of any number of convex sets.

The body is an array of addresses, a row for each part: its body, and its C functions of
membership, projection, chords and exits. A chord is the intersection of the parts'
chords, and a path leaves where it first leaves a part.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.addresses import address_of, frame_at, function_at
from dpsample.core.arrays import Array
from dpsample.core.jit import Piece, Pointer, kernel, pointer
from dpsample.core.spec import Json
from dpsample.domains.domain import (
    BODY,
    CHORD,
    CONTAINS,
    PROJECT,
    Body,
    Domain,
    body_around,
)
from dpsample.domains.exits import EXIT, FACET, HAS_NORMAL, TIME
from dpsample.numerics.vectors import copy_into

# Rounds of projections on the parts in turn.
NUM_ROUNDS = 200
# Shares by which parts are shrunk about their centers, to find a common inner point.
SHARES = (0.5, 0.2, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10)


class PartEntry(NamedTuple):
    """Positions in a part's row of addresses."""

    body: int = 0
    contains: int = 1
    project: int = 2
    chord: int = 3
    exit: int = 4


ENTRY = PartEntry()
NUM_ENTRIES = len(ENTRY)

body_at = frame_at(BODY)
contains_at = function_at(CONTAINS)
project_at = function_at(PROJECT)
chord_at = function_at(CHORD)
exit_at = function_at(EXIT)


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def intersection_contains(body, theta, out):
    """Write 1 if all parts contain the point, otherwise 0."""
    addresses, inside = body.addresses, 1.0
    for i in range(0, addresses.shape[0], NUM_ENTRIES):
        out[0] = np.nan
        part = body_at(addresses[i + ENTRY.body])
        contains_at(addresses[i + ENTRY.contains])(part, theta, out)
        # NaN, if a part's function raised, stays.
        if out[0] != 1.0:
            inside = out[0]
            break
    out[0] = inside


@kernel(counts_references=False)
def intersection_chord(body, theta, direction, out):
    """Write the intersection of the parts' chords."""
    addresses, low, high = body.addresses, -np.inf, np.inf
    for i in range(0, addresses.shape[0], NUM_ENTRIES):
        out[0] = out[1] = np.nan
        part = body_at(addresses[i + ENTRY.body])
        chord_at(addresses[i + ENTRY.chord])(part, theta, direction, out)
        if not out[0] <= out[1]:
            out[0] = out[1] = np.nan
            return
        low, high = max(low, out[0]), min(high, out[1])
    out[0], out[1] = min(low, 0.0), max(high, 0.0)


@kernel
def intersection_project(body, theta, out):
    """Write a point inside near theta: projections in turn, then a pull to the center.

    It is theta itself inside, otherwise not always the nearest point.
    """
    dim, addresses = theta.shape[0], body.addresses
    point, status, ends = theta.copy(), np.empty(1), np.empty(2)
    for _ in range(NUM_ROUNDS):
        intersection_contains(body, point, status)
        if status[0] == 1.0:
            copy_into(point, out)
            return
        for i in range(0, addresses.shape[0], NUM_ENTRIES):
            for j in range(dim):
                out[j] = np.nan
            part = body_at(addresses[i + ENTRY.body])
            project_at(addresses[i + ENTRY.project])(part, point, out)
            copy_into(out, point)
    # Projections in turn converge to the boundary from outside, and may never be inside
    # in floating point. The rest is a walk on the segment to the center.
    for j in range(dim):
        out[j] = np.nan
        point[j] -= body.center[j]
    intersection_chord(body, body.center, point, ends)
    share = min(ends[1], 1.0)
    pull = 2.0**-52
    while share > 0.0:
        for j in range(dim):
            out[j] = body.center[j] + share * point[j]
        intersection_contains(body, out, status)
        if status[0] == 1.0:
            return
        share *= 1.0 - pull
        pull = min(2.0 * pull, 1.0)
    copy_into(body.center, out)


@kernel(counts_references=False)
def intersection_exit(body, theta, velocity, pull, horizon, buffer, normal, out):
    """Find the first time at which a path leaves one of the parts."""
    # The buffer is shared. What is left of it is the buffer of the part.
    dim, addresses = theta.shape[0], body.addresses
    part_normal, result = buffer[:dim], buffer[dim : dim + 2]
    rest = buffer[dim + 2 :]
    first, facet = np.inf, HAS_NORMAL
    for i in range(0, addresses.shape[0], NUM_ENTRIES):
        result[0] = result[1] = np.nan
        part = body_at(addresses[i + ENTRY.body])
        # A part's exit counts only before the first one so far.
        exit_at(addresses[i + ENTRY.exit])(
            part,
            theta,
            velocity,
            pull,
            min(first, horizon),
            rest,
            part_normal,
            result,
        )
        if np.isnan(result[TIME]):
            out[TIME] = np.nan
            return
        if result[TIME] < first:
            first, facet = result[TIME], result[FACET]
            copy_into(part_normal, normal)
    out[TIME], out[FACET] = first, facet


class Part(NamedTuple):
    """A part's body and C functions, which live as long as this tuple."""

    body: Body
    functions: tuple[Pointer, Pointer, Pointer, Pointer]

    @property
    def addresses(self) -> list[int]:
        """Row of addresses, in the order of `PartEntry`."""
        return [address_of(value) for value in (self.body, *self.functions)]


@dataclass(frozen=True, init=False, eq=False)
class Intersection(Domain):
    """Intersection of convex sets, for a `Density`.

    Parameters
    ----------
    *parts : Domain
        Two or more domains of the same dimension, each with an interior. An
        intersection among them counts as its parts.
    interior_point : array_like of shape (dim,), optional
        A point well inside all parts. Default: it is searched by projections on the
        parts in turn, shrunk about their centers by less and less.

    Raises
    ------
    ValueError
        If a part has no interior, parts have other dimensions, the point is outside of
        a part, or none was found.

    Examples
    --------
    >>> from dpsample.domains import Ball, Box, Intersection
    >>> domain = Intersection(Ball(1.0), Box(0.0, 2.0))
    >>> domain.contains([0.5, 0.5]), domain.contains([-0.1, 0.5])
    (True, False)
    """

    name: ClassVar[str] = "intersection"
    has_public_bounds: ClassVar[bool] = False
    contains_piece: ClassVar[Piece] = staticmethod(intersection_contains)
    project_piece: ClassVar[Piece] = staticmethod(intersection_project)
    chord_piece: ClassVar[Piece] = staticmethod(intersection_chord)

    parts: tuple[Domain, ...]
    inner_point: Array | None

    def __init__(self, *parts: Domain, interior_point: ArrayLike | None = None) -> None:
        flat = list[Domain]()
        for part in parts:
            check.instance(Domain, part=part, remedy="Use domains of dps.domains.")
            flat += part.parts if isinstance(part, Intersection) else [part]
        if len(flat) < 2:
            check.fail("parts", "two or more domains", f"{len(flat)}")
        point = None
        if interior_point is not None:
            point = check.array("interior_point", interior_point, shape=(None,))
        vars(self).update(parts=tuple(flat), inner_point=point, _by_dim={})

    def __getstate__(self) -> dict[str, object]:
        """Leave out what holds addresses of this process."""
        return {"parts": self.parts, "inner_point": self.inner_point, "_by_dim": {}}

    def __repr__(self) -> str:
        """Return the parts."""
        return f"Intersection({', '.join(map(repr, self.parts))})"

    def to_dict(self) -> Json:
        """Return the parts, ready for ``json.dumps``."""
        point = None if self.inner_point is None else self.inner_point.tolist()
        parts = [part.to_dict() for part in self.parts]
        return {"name": self.name, "parts": parts, "interior_point": point}

    @property
    def is_bounded(self) -> bool:
        """Whether a part is bounded. Unbounded ones may bound each other, too."""
        return any(part.is_bounded for part in self.parts)

    def check(self, dim: int) -> None:
        """Raise unless all parts are sets with an interior in ``dim`` dimensions."""
        for part in self.parts:
            part.check(dim)
            if part.affine_dim(dim) < dim:
                remedy = "Give equalities to one Polytope, by A_eq and b_eq."
                check.fail("parts", "sets with an interior", part, remedy)

    def _prepare_parts(self, dim: int) -> tuple[list[Part], Array]:
        """Return the parts for kernels, and the inner point."""
        check.integer(1, dim=dim)
        parts_by_dim: dict[int, tuple[list[Part], Array]] = vars(self)["_by_dim"]
        if dim not in parts_by_dim:
            self.check(dim)
            parts = [_prepare(part, dim) for part in self.parts]
            parts_by_dim[dim] = parts, self._find_inner_point(dim)
        return parts_by_dim[dim]

    def _find_inner_point(self, dim: int) -> Array:
        if self.inner_point is not None:
            point = check.array("interior_point", self.inner_point, shape=(dim,))
            for part in self.parts:
                if not part.contains(point):
                    check.fail("interior_point", f"inside {part!r}", point.tolist())
            return point
        centers = [part.interior_point(dim) for part in self.parts]
        for share in SHARES:
            point = np.mean(centers, axis=0)
            for _ in range(NUM_ROUNDS):
                before = point
                for part, center in zip(self.parts, centers, strict=True):
                    point = _project_shrunk(part, center, point, 1.0 - share)
                if np.allclose(point, before, rtol=0.0, atol=1e-14):
                    break
            # The projections are on parts shrunk by the share. A point that is in parts
            # shrunk by half of it has a distance from all boundaries.
            slack = 1.0 - 0.5 * share
            if all(
                part.contains(center + (point - center) / slack)
                for part, center in zip(self.parts, centers, strict=True)
            ):
                return np.asarray(point)
        remedy = "Give interior_point=..., if there is one."
        got = "parts between which none was found"
        return check.fail("parts", "sets with a common inner point", got, remedy)

    def default_center(self, dim: int) -> Array:
        """Return the common inner point."""
        return np.array(self._prepare_parts(dim)[1])

    def body(self, dim: int) -> Body:
        """Return the parameters of the compiled functions, in new arrays."""
        parts, point = self._prepare_parts(dim)
        rows = [address for part in parts for address in part.addresses]
        return body_around(np.array(point), addresses=np.array(rows, dtype=np.int64))

    def exit_piece(self, dim: int) -> Piece:
        """Return the function that finds where a path leaves the domain."""
        self.check(dim)
        return intersection_exit

    def slacks(self, points: Array) -> Array:
        """Return the slacks of all parts, in their order."""
        return np.concatenate([part.slacks(points) for part in self.parts], axis=1)

    def half_widths(self, dim: int) -> Array:
        """Return the smallest half width of the parts along each axis."""
        self.check(dim)
        return np.asarray(np.min([p.half_widths(dim) for p in self.parts], axis=0))


def _prepare(part: Domain, dim: int) -> Part:
    """Return the numbers and the C functions of a part."""
    return Part(
        part.body(dim),
        (
            pointer(part.contains_piece, CONTAINS),
            pointer(part.project_piece, PROJECT),
            pointer(part.chord_piece, CHORD),
            pointer(part.exit_piece(dim), EXIT),
        ),
    )


def _project_shrunk(part: Domain, center: Array, point: Array, share: float) -> Array:
    """Return the projection on a part that is shrunk about its center."""
    nearest = part.project(center + (point - center) / share)
    return np.asarray(center + share * (nearest - center))
