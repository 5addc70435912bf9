# mypy: allow-untyped-defs
"""The target exp(-k (F + mu r)) whose F is the mean loss of records.

The regularizer r has the weight mu, and k is an inverse temperature. `GibbsTarget`
explains what kernels and samplers read of it. Here are the energies that go over
records, which are stored in rows or, if they are few, in tiles.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.core.markup import describe
from dpsample.core.spec import lazy_property
from dpsample.domains import Domain
from dpsample.losses import Loss
from dpsample.problem import records
from dpsample.problem.problem import Problem
from dpsample.problem.records import Data, Work
from dpsample.problem.storage import Fold, MemoryStorage, RecordStorage, Result
from dpsample.regularizers import Regularizer, SquaredNorm
from dpsample.targets.gibbs_target import (
    GibbsTarget,
    TargetFunctions,
    add_penalty,
    penalty_at,
)

# Attributes of a target that depend on its records.
OF_RECORDS = ("data", "storage", "numbers", "pieces", "calls")
# Relative widening of margin intervals, which covers their rounding errors.
MARGIN_SLACK = 1e-9


# Kernels that allocate nothing need no counts of references to arrays.
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


@dataclass(frozen=True, init=False, eq=False)
class Gibbs(GibbsTarget):
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
        # domain than the simplex. The range of a squared norm, which always exists,
        # would take two linear programs for each coordinate of a large polytope.
        if penalty.is_plain_norm:
            penalty.check_on(problem.domain, problem.dim)
        else:
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
    def dim(self) -> int:  # type: ignore[override]
        """Number of coefficients."""
        return self.problem.dim

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """Domain of the problem."""
        return self.problem.domain

    @property
    def feature_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the coefficients."""
        return self.problem.feature_names

    @lazy_property
    def data(self) -> Data:
        """Records with far responses replaced, see `Loss.near_response`.

        This changes energies by a constant, but not the density.
        """
        data, loss = self.problem.data, self.problem.loss
        # In a polytope a bound of the margins takes many linear programs.
        if type(loss).near_response is Loss.near_response:
            return data
        response = loss.near_response(data.response, self.problem.facts.margin_bound)
        if response is data.response or np.array_equal(response, data.response):
            return data
        return data._replace(response=response)

    @lazy_property
    def storage(self) -> RecordStorage:
        """Storage of the records, with responses as in ``data``."""
        storage = self.problem.storage
        if not isinstance(storage, MemoryStorage):
            return NearResponses(storage, self.problem)
        return storage if self.data is storage.data else MemoryStorage(self.data)

    def _kernel_records(self) -> Data:
        """Return the records, with a copy in tiles if they are few."""
        return records.add_tiles(self.data)

    @lazy_property
    def pieces(self) -> TargetFunctions:
        """C functions that kernels call, compiled or loaded at first use."""
        storage = self.problem.storage
        # Whether records are few enough for tiles is known before they are read.
        is_sparse = isinstance(storage, MemoryStorage) and not storage.data.dense.size
        num_features = 0 if is_sparse else storage.num_records * storage.dim
        energy, gradient = OF_TILES if records.has_tiles(num_features) else OF_ROWS
        return self._functions(self.problem.loss.pointers, energy, gradient)

    def new_work(self) -> Work:
        """Return scratch memory for one chain."""
        return records.make_work(self.data)

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.problem.num_records

    @property
    def gradient_work(self) -> float:
        """Number of multiply-adds that take about as long as a gradient."""
        data = self.data
        return 2.0 * (data.dense.size + data.values.size) + 10.0 * data.num_records

    @property
    def evaluation_size(self) -> int:
        """Quantity of numbers that one evaluation of the energy reads."""
        data = self.data
        return int(data.dense.size + data.values.size + data.num_records)

    def identity(self, start: Array) -> list[object]:
        """Return all that defines the target, see `GibbsTarget.identity`.

        Energy and gradient at the start stand for losses that the user has compiled.
        """
        specs = (self.problem.loss, self.domain, self.regularizer)
        texts = [json.dumps(spec.to_dict()) for spec in specs]
        energy, gradient = self.energy(start), self.gradient(start)
        return [start, energy, gradient, *texts]

    def margin_intervals(self) -> tuple[Array, Array]:
        """Return the least and largest margin of each record, rounded outwards."""
        return margin_intervals(self.domain, self.data)

    def _repr_html_(self) -> str:
        """Return the density and its parameters as a table, for notebooks."""
        rows = [
            ("density", "proportional to exp(-k (F + mu r)) on the domain"),
            ("k", f"{self.k:.6g}"),
            ("mu", f"{self.mu:.6g}"),
            ("F", f"mean {self.problem.loss.name} loss of the records"),
            ("r", self.regularizer.describe(self.domain, self.dim)),
            ("problem", repr(self.problem)),
        ]
        return describe("Gibbs", rows)

    def __repr__(self) -> str:
        """Return problem and parameters."""
        numbers = f"k={self.k:.6g}, mu={self.mu:.6g}"
        described = self.regularizer.describe(self.domain, self.dim)
        # A polytope may have several centers, so the one in use is shown.
        if described != repr(self.regularizer):
            numbers += f", regularizer={described}"
        return f"Gibbs({self.problem!r}, {numbers})"


class NearResponses:
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
        """Records in memory, with their own responses."""
        return self.storage.data

    @property
    def pass_bytes(self) -> float:
        """Bytes that one pass reads."""
        return self.storage.pass_bytes

    @property
    def pass_seconds(self) -> float:
        """Seconds that one pass takes."""
        return self.storage.pass_seconds

    def map(self, function: Callable[..., Result], *args: object) -> Iterator[Result]:
        """Call a function with each part, see `RecordStorage.map`."""
        return self.storage.map(*self.start, function, *args)

    def fold(
        self, fold: Fold, function: Callable[..., Result], *args: object
    ) -> Result:
        """Call a function with each part and fold, see `RecordStorage.fold`."""
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
