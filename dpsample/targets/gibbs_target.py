# mypy: allow-untyped-defs
"""What samplers read of a density exp(-k (F + mu r)) on a convex domain.

The energy is V = k (F + mu r), where F is the mean loss of records (`Gibbs`) or a
function of the user (`Density`), r a regularizer of weight mu, and k an inverse
temperature. Its (sub)gradient is also called its slope. The chord of a point and a
direction is the interval of t for which theta + t direction is in the domain.

Kernels take two arguments for every target, ``target`` with its numbers (`Target`) and
``pieces`` with the C functions of its energy and its domain (`TargetFunctions`). So one
compiled kernel serves all targets. A C function writes into an array that its caller
has filled with NaN, so NaN reports that it failed.

The functions at the end compute energies, slopes and chords at many points in few
compiled calls, between which Ctrl-C takes effect.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsample.core import check, jit
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address, frame_type
from dpsample.core.jit import (
    Piece,
    PieceType,
    Pointer,
    entry,
    f8,
    kernel,
    pointer,
    vector,
)
from dpsample.core.spec import lazy_property
from dpsample.domains import (
    BODY,
    CHORD,
    CONTAINS,
    PROJECT,
    Body,
    Domain,
)
from dpsample.losses.loss import LOSS_SLOPE, LOSS_VALUE
from dpsample.problem.records import DATA, WORK, Data, Work
from dpsample.regularizers import (
    REG_GRADIENT,
    REG_VALUE,
    REGULARIZER,
    Regularizer,
    RegularizerParams,
)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class Target(NamedTuple):
    """Numbers of a target, one Numba type for all targets."""

    data: Data
    body: Body
    regularizer: RegularizerParams
    k: float
    mu: float

    def without_addresses(self) -> "Target":
        """Return the numbers that are the same in another process, for identities."""
        # Addresses of compiled functions differ between processes.
        addresses = np.zeros_like(self.body.addresses)
        return self._replace(body=self.body._replace(addresses=addresses))


TARGET = frame_type((DATA, BODY, REGULARIZER, f8, f8), Target)


# C functions that `energy` and `energy_gradient` call.
ENERGY = f8(TARGET, PieceType(LOSS_VALUE), PieceType(REG_VALUE), vector, WORK)


ENERGY_GRADIENT = f8(
    TARGET,
    PieceType(LOSS_SLOPE),
    PieceType(REG_VALUE),
    PieceType(REG_GRADIENT),
    *(vector, WORK, vector),
)


@by_address
class TargetFunctions(NamedTuple):
    """C functions of a target, one Numba type for all targets.

    Their signatures are `LOSS_VALUE` and `LOSS_SLOPE` of `losses.loss`, `REG_VALUE` and
    `REG_GRADIENT` of `regularizers`, `CONTAINS` and `PROJECT` of `domains`, and
    `ENERGY` and `ENERGY_GRADIENT`.
    """

    loss_value: Any
    loss_slope: Any
    loss_record: Any
    regularizer_value: Any
    regularizer_gradient: Any
    contains: Any
    project: Any
    energy: Any
    energy_gradient: Any


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def penalty_at(target, regularizer_value, theta, work):
    """Return r(theta)."""
    work.out[0] = np.nan
    regularizer_value(target.regularizer, theta, work.out)
    return work.out[0]


@kernel(counts_references=False)
def regularizer(target, pieces, theta, work):
    """Return r(theta)."""
    return penalty_at(target, pieces.regularizer_value, theta, work)


@kernel(counts_references=False)
def add_penalty(target, risk, value, slope, theta, work, gradient):
    """Return V from the risk, and turn the risk's gradient into the gradient of V."""
    work.vector[:] = 0.0
    # With mu = 0 an infinite slope of the regularizer would give NaN.
    if target.mu > 0.0:
        work.vector[:] = np.nan
        slope(target.regularizer, theta, work.vector)
    for j in range(gradient.shape[0]):
        gradient[j] = target.k * (gradient[j] + target.mu * work.vector[j])
    penalty = penalty_at(target, value, theta, work)
    return target.k * (risk + target.mu * penalty)


@kernel(counts_references=False)
def energy(target, pieces, theta, work):
    """Return V, or NaN if a C function failed."""
    return pieces.energy(
        target, pieces.loss_value, pieces.regularizer_value, theta, work
    )


@kernel(counts_references=False)
def energy_gradient(target, pieces, theta, work, gradient):
    """Return V and fill its (sub)gradient."""
    return pieces.energy_gradient(
        target,
        pieces.loss_slope,
        pieces.regularizer_value,
        pieces.regularizer_gradient,
        theta,
        work,
        gradient,
    )


@kernel(counts_references=False)
def inside(target, pieces, theta, work):
    """Return 1 inside the domain, 0 outside, NaN if the C function failed."""
    work.out[0] = np.nan
    pieces.contains(target.body, theta, work.out)
    return work.out[0]


@kernel(counts_references=False)
def project(target, pieces, theta, out):
    """Fill out with a point of the domain that depends on theta only."""
    out[:] = np.nan
    pieces.project(target.body, theta, out)


@kernel(counts_references=False)
def chord(target, piece, theta, direction, out):
    """Fill out[:2] with the ends of the chord."""
    out[:] = np.nan
    piece(target.body, theta, direction, out)


def chord_of(target: "GibbsTarget") -> Pointer:
    """Return the C function of the domain's chords, which few samplers need."""
    return pointer(target.domain.chord_piece, CHORD)


class Calls(NamedTuple):
    """Machine code of the kernels above, for arguments of a target's types."""

    energy: Callable[..., float]
    energy_gradient: Callable[..., float]
    project: Callable[..., None]


class DomainGeometry(NamedTuple):
    """Properties of a domain in one dimension that algorithms use many times."""

    body: Body
    basis: Array  # (dim, m): orthonormal columns that span the affine hull
    sides: Array  # (num_facets, dim): rows a of `Domain.facets`
    bounds: Array  # (num_facets,): bounds b, <a, theta> <= b
    is_round: bool  # an l2 ball of vectors

    @classmethod
    def from_domain(cls, domain: Domain, dim: int) -> "DomainGeometry":
        """Compute the geometry of a domain."""
        is_round = domain.lp_exponent == 2.0
        basis = domain.hull(dim)[1]
        return cls(domain.body(dim), basis, *domain.facets(dim), is_round)


def spans_all(basis: Array) -> bool:
    """Return whether the hull is the whole space, so that the basis is the identity.

    In 3000 dimensions a product with the identity would take seconds, during which
    Ctrl-C has no effect.
    """
    return bool(basis.shape[0] == basis.shape[1])


def rows_in_basis(rows: Array, basis: Array) -> Array:
    """Return the coordinates of rows in the basis."""
    return rows if spans_all(basis) else rows @ basis


def times_basis(basis: Array, columns: NDArray[Any]) -> Array:
    """Return the vectors of the space that have the columns as coordinates."""
    return columns if spans_all(basis) else basis @ columns


def form_in_basis(matrix: Array, basis: Array) -> Array:
    """Return the matrix of a quadratic form in the basis."""
    return matrix if spans_all(basis) else basis.T @ matrix @ basis


class GibbsTarget:
    """A density exp(-k (F + mu r)) on a domain, as samplers and diagnostics read it.

    Attributes
    ----------
    k, mu : float
        Inverse temperature, and weight of the regularizer.
    regularizer : Regularizer
        The function r.
    domain : Domain
        Convex set of the density.
    dim : int
        Number of coefficients.
    feature_names : tuple of str
        Their names.
    numbers : Target
        Numbers that kernels read.
    pieces : TargetFunctions
        C functions that kernels call, compiled or loaded at first use.
    """

    # Whether the energy may be infinite at points of the domain.
    may_be_infinite: ClassVar[bool] = False

    k: float
    mu: float
    regularizer: Regularizer
    domain: Domain
    dim: int
    feature_names: tuple[str, ...]

    def _kernel_records(self) -> Data:
        """Return the records as kernels read them."""
        raise NotImplementedError

    @lazy_property
    def numbers(self) -> Target:
        """Numbers that kernels read."""
        return Target(
            data=self._kernel_records(),
            body=self.body,
            regularizer=self.regularizer_params,
            k=self.k,
            mu=self.mu,
        )

    @lazy_property
    def pieces(self) -> TargetFunctions:
        """C functions that kernels call, compiled or loaded at first use."""
        raise NotImplementedError

    def _functions(
        self, loss: tuple[Pointer, Pointer, Pointer], energy: Piece, gradient: Piece
    ) -> TargetFunctions:
        """Add the functions of r and of the domain to those of the losses and of V."""
        return TargetFunctions(
            *loss,
            self.regularizer.value_pointer,
            self.regularizer.gradient_pointer,
            pointer(self.domain.contains_piece, CONTAINS),
            pointer(self.domain.project_piece, PROJECT),
            pointer(energy, ENERGY),
            pointer(gradient, ENERGY_GRADIENT),
        )

    @property
    def num_records(self) -> int:
        """Number of records, 0 for a density without any."""
        raise NotImplementedError

    @property
    def evaluation_size(self) -> int:
        """Quantity of numbers that one evaluation of the energy reads."""
        raise NotImplementedError

    @property
    def gradient_work(self) -> float:
        """Number of multiply-adds that take about as long as a gradient."""
        raise NotImplementedError

    def new_work(self) -> Work:
        """Return scratch memory for one chain."""
        raise NotImplementedError

    def describe_failure(self) -> str:
        """Return what is wrong with a function of the user that failed, if known."""
        return ""

    def identity(self, start: Array) -> list[object]:
        """Return arrays, numbers and texts that define the target, for checkpoints.

        ``start`` is a point of the domain at which energies may be compared.
        """
        raise NotImplementedError

    @lazy_property
    def regularizer_params(self) -> RegularizerParams:
        """Center and scales of the regularizer."""
        center = self.domain.default_center(self.dim)
        return self.regularizer.params(self.dim, center)

    @lazy_property
    def body(self) -> Body:
        """Numbers of the domain."""
        return self.domain.body(self.dim)

    @lazy_property
    def geometry(self) -> DomainGeometry:
        """Hull and facets of the domain, as dense matrices."""
        return DomainGeometry.from_domain(self.domain, self.dim)

    @lazy_property
    def curvature(self) -> tuple[float, float]:
        """Least and largest curvature of the regularizer in l2."""
        return self.regularizer.curvature_l2(self.dim)

    @lazy_property
    def calls(self) -> Calls:
        """Kernels for loops in Python, for contiguous points of 64-bit floats."""
        numbers, pieces, point = self.numbers, self.pieces, np.empty(self.dim)
        # The types of the arguments, for which the kernels are compiled.
        at = numbers, pieces, point, self.new_work()
        return Calls(
            energy=entry(energy, *at),
            energy_gradient=entry(energy_gradient, *at, point),
            project=entry(project, numbers, pieces, point, point),
        )

    def _is_inside(self, point: Array) -> bool:
        """Return whether the domain contains a contiguous point, without checks."""
        # To mypy the compiled functions would be methods.
        domain: Any = self.domain
        out = np.full(1, np.nan)
        jit.call(domain.contains_piece, self.body, point, out)
        return bool(out[0] == 1.0)

    def _evaluate_regularizer(self, point: Array) -> tuple[float, Array]:
        """Return the regularizer and its gradient at a contiguous point, unchecked."""
        r: Any = self.regularizer
        params = self.regularizer_params
        value, slope = np.full(1, np.nan), np.full(self.dim, np.nan)
        # A regularizer of the user has C functions, and no kernels.
        if r.name == "custom":
            r.value_piece(params, point, value)
            r.gradient_piece(params, point, slope)
            return float(value[0]), slope
        jit.call(r.value_piece, params, point, value)
        jit.call(r.gradient_piece, params, point, slope)
        return float(value[0]), slope

    def energy(self, theta: ArrayLike) -> float:
        """V = k (F + mu r) at theta of shape (dim,). Not private."""
        point = check.array("theta", theta, shape=(self.dim,))
        work = self.new_work()
        return float(self.calls.energy(self.numbers, self.pieces, point, work))

    def log_density(self, theta: ArrayLike) -> float:
        """Log of the unnormalized density, -infinity outside the domain."""
        point = check.array("theta", theta, shape=(self.dim,))
        if not self.domain.contains(point):
            return -np.inf
        return -self.energy(point)

    def gradient(self, theta: ArrayLike) -> Array:
        """Return a (sub)gradient of V at theta, shape (dim,). Not private."""
        point = check.array("theta", theta, shape=(self.dim,))
        out = np.empty(self.dim)
        work = self.new_work()
        self.calls.energy_gradient(self.numbers, self.pieces, point, work, out)
        return out


# A compiled call reads about this many numbers, so that it ends within a few hundredths
# of a second. One point may need more.
CALL_NUMBERS = 10**7


@kernel(counts_references=False)
def fill_energies(target, pieces, points, work, out):
    """Fill out with V at each row of points.

    V is infinity outside the domain, and NaN if a function failed.
    """
    for i in range(points.shape[0]):
        status = inside(target, pieces, points[i], work)
        out[i] = np.inf
        if status == 1.0:
            out[i] = energy(target, pieces, points[i], work)
        elif np.isnan(status):
            out[i] = np.nan


@kernel(counts_references=False)
def count_points_outside(target, pieces, points, work):
    """Return the number of rows of points that are not inside the domain."""
    count = 0
    for i in range(points.shape[0]):
        if inside(target, pieces, points[i], work) != 1.0:
            count += 1
    return count


@kernel(counts_references=False)
def fill_slopes(target, pieces, points, work, out):
    """Fill the rows of out with (sub)gradients of V at the rows of points."""
    for i in range(points.shape[0]):
        energy_gradient(target, pieces, points[i], work, out[i])


@kernel(counts_references=False)
def fill_chords(target, piece, points, directions, out):
    """Fill the rows of out with both ends of the chords through the points."""
    for i in range(points.shape[0]):
        chord(target, piece, points[i], directions[i], out[i])


def as_kernel_array(array: Array) -> Array:
    """Return an array of the type that kernels take, contiguous and writable."""
    # Kernels are compiled for C order and writable memory, and another layout would
    # compile them again.
    result: Array = array
    # For an array that needs no change, `np.require` is slower than this test.
    if not (result.flags.carray and result.dtype == np.float64):
        result = np.require(result, np.float64, ["C", "W"])
    return result


def _parts(num_points: int, size: int) -> Iterator[slice]:
    """Yield the points of each compiled call, between which Ctrl-C takes effect.

    ``size`` is the quantity of numbers that are read for one point.
    """
    # 1000 numbers stand for the fixed work of one point.
    count = max(1, CALL_NUMBERS // max(size, 1000))
    for start in range(0, num_points, count):
        yield slice(start, start + count)


def _size_of_domain(body: Body) -> int:
    """Return the numbers that are read for a test of membership or a chord."""
    sides = min(body.num_rows, body.num_columns)
    # Singular values take about 100 passes over a matrix for each row or column of its
    # shorter side.
    return int(body.matrix.size + len(body.center) * (1 + 100 * sides))


def energies(target: GibbsTarget, points: Array) -> Array:
    """Return V at each row of points (num_points, dim), infinity outside.

    Not private.
    """
    rows, out, work = as_kernel_array(points), np.empty(len(points)), target.new_work()
    size = target.evaluation_size + _size_of_domain(target.body)
    for part in _parts(len(rows), size):
        fill_energies(target.numbers, target.pieces, rows[part], work, out[part])
    return out


def count_outside(target: GibbsTarget, points: Array) -> int:
    """Return the number of rows of points (num_points, dim) outside the domain."""
    rows, work, count = as_kernel_array(points), target.new_work(), 0
    for part in _parts(len(rows), _size_of_domain(target.body)):
        at = target.numbers, target.pieces, rows[part], work
        count += int(jit.call(count_points_outside, *at))
    return count


def slopes(target: GibbsTarget, points: Array) -> Array:
    """Return (sub)gradients of V at the rows of points (num_points, dim).

    Not private.
    """
    rows, work = as_kernel_array(points), target.new_work()
    out = np.empty_like(rows)
    for part in _parts(len(rows), target.evaluation_size):
        fill_slopes(target.numbers, target.pieces, rows[part], work, out[part])
    return out


def chords(target: GibbsTarget, points: Array, directions: Array) -> Array:
    """Return the ends of the chords of points and directions, (num_points, 2).

    The first end is at most 0, and the second at least 0. ``directions`` has a row for
    each point, or one direction of shape (dim,) for all points.
    """
    rows = as_kernel_array(points)
    steps = as_kernel_array(np.broadcast_to(directions, rows.shape))
    piece, out = chord_of(target), np.empty((len(rows), 2))
    for part in _parts(len(rows), _size_of_domain(target.body)):
        # ``steps`` are the directions, one for each point.
        fill_chords(target.numbers, piece, rows[part], steps[part], out[part])
    return out


def require_target(target: object) -> None:
    """Raise a ValueError unless the argument ``target`` is one."""
    if not isinstance(target, GibbsTarget):
        remedy = "Build a dps.Gibbs or a dps.Density first."
        check.fail("target", "a Gibbs or Density", check.describe(target), remedy)
