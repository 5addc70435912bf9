# mypy: allow-untyped-defs
"""The Gibbs target exp(-k (F + mu r)) on a convex domain, as samplers read it.

F is the empirical risk of the records and r the regularizer. The energy is
V = k (F + mu r), and its (sub)gradient is also called its slope. The chord of a point
and a direction is the interval of t for which theta + t direction is in the domain.

Kernels take two arguments for every target, ``target`` with its numbers (`Target`) and
``pieces`` with the C functions of its loss, regularizer and domain (`TargetFunctions`).
So one compiled kernel serves all targets. A C function writes into an array that its
caller has filled with NaN, so NaN reports that it failed.

The functions at the end compute energies, slopes and chords at many points in few
compiled calls, between which Ctrl-C takes effect.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsample.core import check, jit
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address, frame_type
from dpsample.core.jit import (
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
from dpsample.losses import Loss
from dpsample.losses.loss import LOSS_SLOPE, LOSS_VALUE
from dpsample.problem import records
from dpsample.problem.problem import Problem
from dpsample.problem.records import DATA, WORK, Data, Work
from dpsample.problem.storage import Fold, MemoryStorage, RecordStorage, Result
from dpsample.regularizers import (
    REG_GRADIENT,
    REG_VALUE,
    REGULARIZER,
    Regularizer,
    RegularizerParams,
    SquaredNorm,
)

# Attributes of a target that depend on its records.
OF_RECORDS = ("data", "storage", "numbers", "pieces", "calls")
# Relative widening of margin intervals, which covers their rounding errors.
MARGIN_SLACK = 1e-9


@by_address
class Target(NamedTuple):
    """Numbers of a target, one Numba type for all targets."""

    data: Data
    body: Body
    regularizer: RegularizerParams
    k: float
    mu: float


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
def energy_of_rows(target, loss_value, regularizer_value, theta, work):
    """Return V, of the signature `ENERGY`."""
    risk = records.mean_loss(target.data, loss_value, theta, work)
    penalty = penalty_at(target, regularizer_value, theta, work)
    return target.k * (risk + target.mu * penalty)


@kernel(counts_references=False)
def energy_of_tiles(target, loss_value, regularizer_value, theta, work):
    """Return V for records with a copy in tiles, see `energy_of_rows`."""
    risk = records.mean_loss_of_tiles(target.data, loss_value, theta, work)
    penalty = penalty_at(target, regularizer_value, theta, work)
    return target.k * (risk + target.mu * penalty)


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
def gradient_of_rows(target, loss_slope, value, slope, theta, work, gradient):
    """Return V and fill its (sub)gradient, of the signature `ENERGY_GRADIENT`."""
    risk = records.mean_gradient(target.data, loss_slope, theta, work, gradient)
    return add_penalty(target, risk, value, slope, theta, work, gradient)


@kernel(counts_references=False)
def gradient_of_tiles(target, loss_slope, value, slope, theta, work, gradient):
    """Return V and fill its gradient for records with a copy in tiles."""
    data = target.data
    risk = records.mean_gradient_of_tiles(data, loss_slope, theta, work, gradient)
    return add_penalty(target, risk, value, slope, theta, work, gradient)


# Energy, and energy with gradient. Only the pair that a problem needs is compiled.
OF_ROWS = energy_of_rows, gradient_of_rows
OF_TILES = energy_of_tiles, gradient_of_tiles


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


def chord_of(target: "Gibbs") -> Pointer:
    """Return the C function of the domain's chords, which few samplers need."""
    return pointer(target.problem.domain.chord_piece, CHORD)


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


@dataclass(frozen=True, init=False, eq=False)
class Gibbs:
    r"""Density proportional to :math:`e^{-k(F(\theta) + \mu r(\theta))}` on the domain.

    Parameters
    ----------
    problem : Problem
        Records, loss and domain.
    k : float
        Inverse temperature, > 0.
    mu : float
        Weight of the regularizer, >= 0.
    regularizer : Regularizer, optional
        Default: half the squared Euclidean norm about the domain's center.

    Raises
    ------
    ValueError
        If k or mu is out of range, the density cannot be normalized because the
        domain is unbounded and mu is 0, or the domain is a single point.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[1.0], [0.5]], [1.0, -1.0], loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=2.0), row_bound=1.0)
    >>> target = dps.Gibbs(problem, k=10.0, mu=0.1)
    >>> round(target.energy([0.0]), 4)
    6.9315
    """

    problem: Problem
    k: float
    mu: float
    regularizer: Regularizer

    def __init__(
        self,
        problem: Problem,
        *,
        k: float,
        mu: float,
        regularizer: Regularizer | None = None,
    ) -> None:
        check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
        check.positive(k=k)
        check.non_negative(mu=mu)
        if not problem.domain.is_bounded and mu == 0.0:
            remedy = "Without a regularizer the density may have no finite integral."
            check.fail("mu", "> 0 on an unbounded domain", mu, remedy)
        if problem.domain.affine_dim(problem.dim) < 1:
            remedy = "There is nothing to draw from a single point."
            check.fail("domain", "of dimension >= 1", problem.domain, remedy)
        penalty = SquaredNorm(2.0) if regularizer is None else regularizer
        check.instance(Regularizer, regularizer=penalty)
        # Raises for a center or a shape of another size, and for the entropy on another
        # domain than the simplex.
        penalty.range_on(problem.domain, problem.dim)
        # The attributes are frozen, because numbers are derived from them only once.
        vars(self).update(
            problem=problem, k=float(k), mu=float(mu), regularizer=penalty
        )

    def __getstate__(self) -> dict[str, object]:
        """Leave out the C functions, as another process compiles or loads its own."""
        cached = (*OF_RECORDS, "body", "geometry")
        return {k: v for k, v in self.__dict__.items() if k not in cached}

    def _with_problem(self, problem: Problem) -> "Gibbs":
        """Return the density of other records with the same public facts."""
        # Properties that do not depend on records are computed once for all copies.
        _ = self.regularizer_params, self.curvature
        other = object.__new__(Gibbs)
        shared = {k: v for k, v in vars(self).items() if k not in OF_RECORDS}
        vars(other).update(shared | {"problem": problem})
        return other

    @property
    def dim(self) -> int:
        """Number of coefficients."""
        return self.problem.dim

    @lazy_property
    def data(self) -> Data:
        """Records with far responses replaced, see `Loss.near_response`.

        This changes energies by a constant, but not the density.
        """
        data, loss = self.problem.data, self.problem.loss
        response = loss.near_response(data.response, self.problem.facts.margin_bound)
        if response is data.response or np.array_equal(response, data.response):
            return data
        return data._replace(response=response)

    @lazy_property
    def storage(self) -> RecordStorage:
        """Storage of the records, with responses as in ``data``."""
        storage = self.problem.storage
        if not isinstance(storage, MemoryStorage):
            return _NearResponses(storage, self.problem)
        return storage if self.data is storage.data else MemoryStorage(self.data)

    @lazy_property
    def regularizer_params(self) -> RegularizerParams:
        """Center and scales of the regularizer."""
        center = self.problem.domain.default_center(self.problem.dim)
        return self.regularizer.params(self.problem.dim, center)

    @lazy_property
    def body(self) -> Body:
        """Numbers of the domain."""
        return self.problem.domain.body(self.dim)

    @lazy_property
    def geometry(self) -> DomainGeometry:
        """Hull and facets of the domain, as dense matrices."""
        return DomainGeometry.from_domain(self.problem.domain, self.dim)

    def _is_inside(self, point: Array) -> bool:
        """Return whether the domain contains a contiguous point, without checks."""
        # To mypy the compiled functions would be methods.
        domain: Any = self.problem.domain
        out = np.full(1, np.nan)
        jit.call(domain.contains_piece, self.body, point, out)
        return bool(out[0] == 1.0)

    def _evaluate_regularizer(self, point: Array) -> tuple[float, Array]:
        """Return the regularizer and its gradient at a contiguous point, unchecked."""
        r: Any = self.regularizer
        params = self.regularizer_params
        value, slope = np.full(1, np.nan), np.full(self.dim, np.nan)
        jit.call(r.value_piece, params, point, value)
        jit.call(r.gradient_piece, params, point, slope)
        return float(value[0]), slope

    @lazy_property
    def curvature(self) -> tuple[float, float]:
        """Least and largest curvature of the regularizer in l2."""
        return self.regularizer.curvature_l2(self.dim)

    @lazy_property
    def numbers(self) -> Target:
        """Numbers that kernels read."""
        return Target(
            data=records.add_tiles(self.data),
            body=self.body,
            regularizer=self.regularizer_params,
            k=self.k,
            mu=self.mu,
        )

    @lazy_property
    def pieces(self) -> TargetFunctions:
        """C functions that kernels call, compiled or loaded at first use."""
        value, slope, record = self.problem.loss.pointers
        domain, storage = self.problem.domain, self.problem.storage
        # Whether records are few enough for tiles is known before they are read.
        is_sparse = isinstance(storage, MemoryStorage) and not storage.data.dense.size
        num_features = 0 if is_sparse else storage.num_records * storage.dim
        energy, gradient = OF_TILES if records.has_tiles(num_features) else OF_ROWS
        return TargetFunctions(
            value,
            slope,
            record,
            pointer(self.regularizer.value_piece, REG_VALUE),
            pointer(self.regularizer.gradient_piece, REG_GRADIENT),
            pointer(domain.contains_piece, CONTAINS),
            pointer(domain.project_piece, PROJECT),
            pointer(energy, ENERGY),
            pointer(gradient, ENERGY_GRADIENT),
        )

    @lazy_property
    def calls(self) -> Calls:
        """Kernels for loops in Python, for contiguous points of 64-bit floats."""
        numbers, pieces, point = self.numbers, self.pieces, np.empty(self.dim)
        at = numbers, pieces, point, self.new_work()
        return Calls(
            energy=entry(energy, *at),
            energy_gradient=entry(energy_gradient, *at, point),
            project=entry(project, numbers, pieces, point, point),
        )

    def new_work(self) -> Work:
        """Scratch memory for one chain."""
        return records.make_work(self.data)

    def energy(self, theta: ArrayLike) -> float:
        """V = k (F + mu r) at theta of shape (dim,). Not private."""
        point = check.array("theta", theta, shape=(self.dim,))
        work = self.new_work()
        return float(self.calls.energy(self.numbers, self.pieces, point, work))

    def log_density(self, theta: ArrayLike) -> float:
        """Log of the unnormalized density, -infinity outside the domain."""
        point = check.array("theta", theta, shape=(self.dim,))
        if not self.problem.domain.contains(point):
            return -np.inf
        return -self.energy(point)

    def gradient(self, theta: ArrayLike) -> Array:
        """(Sub)gradient of V at theta, shape (dim,). Not private."""
        point = check.array("theta", theta, shape=(self.dim,))
        out = np.empty(self.dim)
        work = self.new_work()
        self.calls.energy_gradient(self.numbers, self.pieces, point, work, out)
        return out

    def margin_intervals(self) -> tuple[Array, Array]:
        """Return the least and largest margin of each record, rounded outwards."""
        return margin_intervals(self.problem.domain, self.data)

    def __repr__(self) -> str:
        """Problem and parameters."""
        numbers = f"k={self.k:.6g}, mu={self.mu:.6g}"
        described = self.regularizer.describe(self.problem.domain, self.dim)
        # A polytope may have several centers, so the one in use is shown.
        if described != repr(self.regularizer):
            numbers += f", regularizer={described}"
        return f"Gibbs({self.problem!r}, {numbers})"


class _NearResponses:
    """Storage whose far responses are replaced while they are read.

    Sums over records with far responses would lose digits. See `RecordStorage` for the
    methods.
    """

    def __init__(self, storage: RecordStorage, problem: Problem) -> None:
        self.storage, self.num_records, self.dim = (
            storage,
            storage.num_records,
            storage.dim,
        )
        self.start = near_part, problem.loss, problem.facts.margin_bound
        self.is_parallel, self.is_in_memory = storage.is_parallel, storage.is_in_memory

    @property
    def data(self) -> Data:
        return self.storage.data

    @property
    def pass_bytes(self) -> float:
        return self.storage.pass_bytes

    @property
    def pass_seconds(self) -> float:
        return self.storage.pass_seconds

    def map(self, function: Callable[..., Result], *args: object) -> Iterator[Result]:
        return self.storage.map(*self.start, function, *args)

    def fold(
        self, fold: Fold, function: Callable[..., Result], *args: object
    ) -> Result:
        result: Result = self.storage.fold(fold, *self.start, function, *args)
        return result

    def windows(self, *args: int) -> Iterator[tuple[int, Data]]:
        """See `RecordStorage.windows`. Far responses are not replaced."""
        return self.storage.windows(*args)


def near_part(
    part: Data,
    loss: Loss,
    margin_bound: float,
    function: Callable[..., Result],
    *args: object,
) -> Result:
    """Call a function with a part whose far responses are replaced."""
    near_response = loss.near_response(part.response, margin_bound)
    return function(part._replace(response=near_response), *args)


def margin_intervals(domain: Domain, data: Data) -> tuple[Array, Array]:
    """Return the least and largest margin of each record, rounded outwards."""
    if not domain.is_bounded:
        return np.full(data.num_records, -np.inf), np.full(data.num_records, np.inf)
    # The largest margin is the support function of the domain at the row.
    rows = as_rows(data)
    upper = domain.support(rows)
    lower = -domain.support(-rows)
    shift = data.offset if data.offset.size else 0.0
    slack = MARGIN_SLACK * (1.0 + np.maximum(np.abs(lower), np.abs(upper)))
    return lower + shift - slack, upper + shift + slack


def as_rows(data: Data) -> Any:
    """Return the features as an array or a CSR matrix that shares their memory."""
    if data.dense.shape[0] > 0:
        return data.dense
    from scipy import sparse

    shape = (data.num_records, data.dim)
    indices = data.columns.astype(np.int64)
    return sparse.csr_matrix((data.values, indices, data.starts), shape=shape)


# A compiled call reads about this many numbers, so that it ends within a few hundredths
# of a second. One point may need more.
CALL_NUMBERS = 10**7


@kernel(counts_references=False)
def fill_energies(target, pieces, points, work, out):
    """Fill out with V at each row of points, infinity outside the domain."""
    for i in range(points.shape[0]):
        status = inside(target, pieces, points[i], work)
        out[i] = np.inf
        if status == 1.0:
            out[i] = energy(target, pieces, points[i], work)
        elif np.isnan(status):
            out[i] = np.nan


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
    result: Array = array
    # For an array that needs no change, `np.require` is slower than this test.
    if not (result.flags.carray and result.dtype == np.float64):
        result = np.require(result, np.float64, ["C", "W"])
    return result


def _parts(num_points: int, size: int) -> Iterator[slice]:
    """Yield the points of each compiled call, between which Ctrl-C takes effect.

    ``size`` is the quantity of numbers that are read for one point.
    """
    count = max(1, CALL_NUMBERS // max(size, 1000))
    for start in range(0, num_points, count):
        yield slice(start, start + count)


def _size_of_records(data: Data) -> int:
    return int(data.dense.size + data.values.size + data.num_records)


def _size_of_domain(body: Body) -> int:
    """Return the numbers that are read for a test of membership or a chord."""
    sides = min(body.num_rows, body.num_columns)
    # Singular values take about 100 passes over a matrix for each row or column of its
    # shorter side.
    return int(body.matrix.size + len(body.center) * (1 + 100 * sides))


def energies(target: Gibbs, points: Array) -> Array:
    """Return V at each row of points (num_points, dim), infinity outside.

    Not private.
    """
    rows, out, work = as_kernel_array(points), np.empty(len(points)), target.new_work()
    size = _size_of_records(target.data) + _size_of_domain(target.body)
    for part in _parts(len(rows), size):
        fill_energies(target.numbers, target.pieces, rows[part], work, out[part])
    return out


def slopes(target: Gibbs, points: Array) -> Array:
    """Return (sub)gradients of V at the rows of points (num_points, dim).

    Not private.
    """
    rows, work = as_kernel_array(points), target.new_work()
    out = np.empty_like(rows)
    for part in _parts(len(rows), _size_of_records(target.data)):
        fill_slopes(target.numbers, target.pieces, rows[part], work, out[part])
    return out


def chords(target: Gibbs, points: Array, directions: Array) -> Array:
    """Return the ends of the chords of points and directions, (num_points, 2).

    The first end is at most 0, and the second at least 0. ``directions`` has a row for
    each point, or one direction of shape (dim,) for all points.
    """
    rows = as_kernel_array(points)
    steps = as_kernel_array(np.broadcast_to(directions, rows.shape))
    piece, out = chord_of(target), np.empty((len(rows), 2))
    for part in _parts(len(rows), _size_of_domain(target.body)):
        fill_chords(target.numbers, piece, rows[part], steps[part], out[part])
    return out
