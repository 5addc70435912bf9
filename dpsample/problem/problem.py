"""A private convex optimization problem, with records, loss, domain and bounds.

Bounds are public facts that the user declares. They are checked here against the
records. They are never computed from the records, because that would reveal something
about them. Dense or sparse rows are copied once, checked, and scaled down to their
bounds if the user allows it.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from os import PathLike
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core import columns as columns_module
from dpsample.core.arrays import Array
from dpsample.core.markup import describe, shorten
from dpsample.core.sparse import as_csr, is_sparse
from dpsample.domains import Domain
from dpsample.losses import Loss, RecordGradient
from dpsample.losses.record_gradient import num_parameters
from dpsample.problem import cluster, records, storage
from dpsample.problem.facts import PublicFacts
from dpsample.problem.records import Data
from dpsample.problem.sources import FileTable, is_large, open_parquet
from dpsample.problem.storage import Features, RecordRules, RecordStorage, Response
from dpsample.tables import Dataset, Encoding

Plan = TypeVar("Plan")


class Problem:
    r"""Records, a convex loss and a convex domain, with declared public bounds.

    The empirical risk is :math:`F(\theta) = \frac1n \sum_i \varphi(\langle a_i,
    \theta\rangle + b_i, y_i)`.

    Parameters
    ----------
    features : array, scipy.sparse matrix or DataFrame of shape (num_records, dim)
        Rows a_i. Dense rows are copied in C order, sparse rows as CSR, and many rows of
        float32 without conversion. A ``numpy.memmap`` or the path of a Parquet file may
        be larger than memory, as it is read in every pass. An array or DataFrame of
        Dask stays on its cluster and is checked in every pass.
    response : array of shape (num_records,), or a column's name (Parquet, Dask)
        Labels -1, 1 or real responses y_i.
    loss : Loss
        Loss of one record, one of `dpsample.losses` or your own.
    domain : Domain
        One of `dpsample.domains`. With ``intercept`` it includes the intercept.
    row_bound : float
        Public bound of every possible row's norm, from 1e-60 to 1e60, as all declared
        bounds. A row above it is an error.
    row_norm : float
        Exponent of that norm, in [1, inf]. On a `SchattenBall`, of a Schatten norm.
    response_bound : float, optional
        Public bound of abs(response), for losses whose slope is not bounded. Infinity,
        if there is no bound, is for methods that bound gradients themselves.
    intercept : bool
        Append a column of ones (the row bound grows accordingly).
    clip_rows : bool
        Scale rows and clip responses that exceed their bound, instead of raising. Then
        privacy rests on no assumption about the records' sizes. Numbers that are not
        finite, and labels other than -1 and 1, still raise, as the certificate says.
        An answer with an ``encoding`` then also scales the rows that it predicts.
    feature_names : sequence of str, optional
        Names of the columns. A DataFrame has its own.
    offset : array of shape (num_records,), or a column's name, optional
        Known additive part b_i of the margin.
    offset_bound : float
        Public bound of abs(offset).
    encoding : Encoding, optional
        Encoding that made these rows from a table (`dpsample.tables`). Answers carry
        it, so that they predict from raw tables. See `from_table`.

    Raises
    ------
    ValueError
        If an argument is malformed, or a record exceeds a declared bound. The message
        has the number of the record.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[0.6, 0.8], [1.0, 0.0]], [1.0, -1.0],
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=1.0), row_bound=1.0)
    >>> problem
    Problem(2 records, 2 coefficients, logistic loss, domain ball)
    >>> problem.lipschitz(2.0)
    1.0
    >>> round(problem.risk([0.0, 0.0]), 4)
    0.6931
    """

    def __init__(
        self,
        features: Features,
        response: Response,
        *,
        loss: Loss,
        domain: Domain,
        row_bound: float,
        row_norm: float = 2.0,
        response_bound: float | None = None,
        intercept: bool = False,
        clip_rows: bool = False,
        feature_names: Sequence[str] | None = None,
        offset: Response | None = None,
        offset_bound: float = 0.0,
        encoding: Encoding | None = None,
    ) -> None:
        check.instance(bool, intercept=intercept, clip_rows=clip_rows)
        check.instance((Encoding, type(None)), encoding=encoding)
        # Here features become an array or a table, for their shape and names. `_store`
        # compares records with bounds only after the facts are checked, so that errors
        # about facts do not depend on them.
        rows, names, response, offset = as_records(features, response, offset)
        num_records, width = rows.shape
        if num_records == 0 or width == 0:
            check.fail("features", "non-empty", f"shape {rows.shape}")
        self.facts: PublicFacts = PublicFacts(
            num_records=num_records,
            dim=num_parameters(loss, width) + int(intercept),
            loss=loss,
            domain=domain,
            row_bound=row_bound,
            row_norm=row_norm,
            response_bound=response_bound,
            offset_bound=offset_bound,
            intercept=intercept,
        )
        self.clip_rows = clip_rows
        self.storage: RecordStorage = self._store(rows, response, offset)
        names = names if feature_names is None else feature_names
        if encoding is not None:
            encoding = self._adapt_encoding(encoding, names)
            names = encoding.feature_names
        if isinstance(loss, RecordGradient):
            loss.check_records(rows, self.data.offset)
            encoding = None  # theta is not linear in the rows
            # Names of columns are not names of coefficients if their numbers differ.
            if feature_names is None and self.dim != width:
                names = None
        self.encoding: Encoding | None = encoding
        self.feature_names: tuple[str, ...] = self._complete_names(
            names, self.dim - intercept
        )
        # Arguments and result of the last `_reuse_plan`.
        self.plan: tuple[Any, Any] | None = None

    def _store(
        self, features: object, response: object, offset: object
    ) -> RecordStorage:
        """Check records and store them, within their bounds."""
        # Without a bound, responses of the linear loss are within [-1, 1].
        is_linear = self.loss.name == "linear" and self.response_bound is None
        rules = RecordRules(
            facts=self.facts,
            clip_rows=self.clip_rows,
            response_limit=1.0 if is_linear else self.response_bound,
        )
        return store_records(features, response, offset, rules)

    @classmethod
    def from_table(
        cls,
        data: Dataset,
        *,
        loss: Loss,
        domain: Domain,
        intercept: bool = False,
        clip_rows: bool = False,
    ) -> Self:
        """Build the problem of records that come with their public bounds.

        Parameters
        ----------
        data : Dataset
            As `dpsample.tables.read_table` and the data sets return it.
        loss, domain, intercept, clip_rows
            As in the class.

        Returns
        -------
        Problem
            Answers to it predict from raw tables, if ``data`` was one.

        Raises
        ------
        ValueError
            As by the class, also if ``data`` has no row bound.

        Examples
        --------
        >>> import pandas as pd
        >>> import dpsample as dps
        >>> frame = pd.DataFrame({"age": [20, 70], "ill": ["no", "yes"]})
        >>> bounds = dps.tables.Schema(
        ...     numeric={"age": (0, 100)}, categorical={"ill": ("no", "yes")})
        >>> data = dps.tables.from_frame(frame, target="ill", bounds=bounds)
        >>> problem = dps.Problem.from_table(
        ...     data, loss=dps.losses.Logistic(), domain=dps.domains.Ball(radius=1.0))
        >>> problem.feature_names, problem.facts.row_bound
        (('age',), 1.0)
        """
        check.instance(Dataset, data=data)
        if data.row_bound is None:
            remedy = "Read the table with bounds, or declare a row_bound."
            check.fail("row_bound", "declared", "None", remedy)
        return cls(
            data.features,
            data.response,
            loss=loss,
            domain=domain,
            row_bound=data.row_bound,
            row_norm=data.row_norm,
            response_bound=data.response_bound,
            intercept=intercept,
            clip_rows=clip_rows,
            feature_names=data.feature_names if data.encoding is None else None,
            encoding=data.encoding,
        )

    def _reuse_plan(
        self, key: tuple[object, ...], make_plan: Callable[[Self], Plan]
    ) -> Plan:
        """Return the last plan of a top-level function, or a new one for another key.

        ``make_plan`` is called with a copy of the problem, which has no plan. If plan
        and problem referred to each other, the records would stay in memory after their
        last use.
        """
        last_plan = self.plan  # read once, because another thread may replace it
        if last_plan is not None and last_plan[0] == key:
            return cast(Plan, last_plan[1])
        plan = make_plan(copy(self))  # `__getstate__` leaves the plan out of copies
        self.plan = key, plan
        return plan

    def __getstate__(self) -> dict[str, object]:
        """Leave out the plan, as another process makes its own."""
        return self.__dict__ | {"plan": None}

    def _adapt_encoding(
        self, encoding: Encoding, names: Sequence[str] | None
    ) -> Encoding:
        """Return the encoding that also describes how this problem scales rows."""
        bound, norm = self.facts.row_bound, self.facts.row_norm
        if encoding.row_norm != norm:
            check.fail("row_norm", f"{encoding.row_norm:g}, as in the encoding", norm)
        if names is not None and tuple(names) != encoding.feature_names:
            got = check.describe(list(names))
            check.fail("feature_names", "those of the encoding, in its order", got)
        # An encoding that scales rows to a smaller bound needs no second scaling.
        is_within = encoding.row_bound is not None and encoding.row_bound <= bound
        if encoding.row_bound == bound or (encoding.clip and is_within):
            return encoding
        is_clipped = self.clip_rows or encoding.clip
        return replace(encoding, row_bound=bound, clip=is_clipped)

    def _complete_names(
        self, names: Sequence[str] | None, width: int
    ) -> tuple[str, ...]:
        """Return names of ``width`` coefficients, and of the intercept if there is one.

        By default they are positions: "0", "1" and so on.
        """
        if names is None:
            names = [str(j) for j in range(width)]
        labels = unique(names)
        if len(labels) != width:
            check.fail("feature_names", f"of length {width}", f"length {len(labels)}")
        extra = ("intercept",) if self.facts.intercept else ()
        return tuple(unique((*labels, *extra)))

    @property
    def data(self) -> Data:
        """Records in memory, as kernels read them. Raises for records on a cluster."""
        return self.storage.data

    @property
    def loss(self) -> Loss:
        """Loss of one record."""
        return self.facts.loss

    @property
    def domain(self) -> Domain:
        """Convex set of parameters."""
        return self.facts.domain

    @property
    def response_bound(self) -> float | None:
        """Declared bound of the response."""
        return self.facts.response_bound

    @property
    def num_records(self) -> int:
        """Number of records, which is public."""
        return self.facts.num_records

    @property
    def dim(self) -> int:
        """Number of coefficients, the intercept included."""
        return self.facts.dim

    @property
    def pass_bytes(self) -> float:
        """Bytes that one pass over the records reads, by their number and type.

        A release by rejection takes about ten passes, and a gradient step one.
        """
        return self.storage.pass_bytes

    def lipschitz(self, p: float) -> float:
        """Return a constant of one record's loss, see `PublicFacts.lipschitz`."""
        return self.facts.lipschitz(p)

    def diff_lipschitz(self, p: float, relation: str = "replace_one") -> float:
        """Return a constant of the change between neighboring data sets.

        See `PublicFacts.diff_lipschitz`.
        """
        return self.facts.diff_lipschitz(p, relation)

    def risk(self, theta: ArrayLike) -> float:
        """Return the empirical risk F at theta of shape (dim,). Not private."""
        point = check.array("theta", theta, shape=(self.dim,))
        return float(self._risks(point[None])[0])

    def _risks(self, points: Array) -> Array:
        """Return empirical risks at points (any, dim), by one pass. Not private."""
        if isinstance(self.loss, RecordGradient):
            arrays = self.data.dense, self.data.response
            return np.array([self.loss.risk(*arrays, point) for point in points])
        share = self.loss, points, self.num_records
        (risks,) = self.storage.fold(storage.add_entries, risks_of, *share)
        return np.asarray(risks)

    def with_records(
        self,
        features: Features,
        response: Response,
        offset: Response | None = None,
    ) -> Self:
        """Build a problem of other records with the same public facts.

        Parameters
        ----------
        features, response, offset
            As in the class, and of the same number of records. Columns with names must
            be in the same order as here.

        Returns
        -------
        Problem
            It shares loss, domain, bounds and names.

        Raises
        ------
        ValueError
            As by the class.

        Examples
        --------
        >>> import dpsample as dps
        >>> problem = dps.Problem([[0.6], [1.0]], [1.0, -1.0], row_bound=1.0,
        ...     loss=dps.losses.Logistic(), domain=dps.domains.Ball(radius=1.0))
        >>> problem.with_records([[0.5], [0.1]], [1.0, 1.0]).facts == problem.facts
        True
        """
        rows, names, response, offset = as_records(features, response, offset)
        width = self.dim - self.facts.intercept
        if self.loss.has_margin:
            if rows.shape[1] != width:
                check.fail("features", f"of {width} columns", f"{rows.shape[1]}")
            # Names that are positions only, as "0", "1", say nothing about the order.
            own_names, other_names = self.feature_names[:width], tuple(names or ())
            if not any(map(columns_module.are_positions, (own_names, other_names))):
                columns_module.find_positions("features", other_names, own_names)
                if other_names != own_names:
                    order = f"in the order {columns_module.list_names(own_names)}"
                    got = columns_module.list_names(other_names)
                    check.fail("columns of features", order, got)
        if rows.shape[0] != self.num_records:
            check.fail("features", f"of {self.num_records} rows", f"{rows.shape[0]}")
        other = copy(self)
        # `_store` reads only the facts and `clip_rows`, which both problems share.
        other.plan, other.storage = None, self._store(rows, response, offset)
        if isinstance(self.loss, RecordGradient):
            self.loss.check_records(rows, other.data.offset)
        return other

    def with_model(self, loss: Loss, domain: Domain) -> Self:
        """Build the problem of the same records with another loss or domain.

        Parameters
        ----------
        loss : Loss
            A loss of the margin, for the same kind of responses.
        domain : Domain
            Set of allowed coefficients.

        Returns
        -------
        Problem
            It shares bounds, names and encoding.

        Raises
        ------
        ValueError
            If records are not in memory, or the class refuses them with this loss.

        Examples
        --------
        >>> import dpsample as dps
        >>> problem = dps.Problem([[0.6], [1.0]], [1.0, -1.0], row_bound=1.0,
        ...     loss=dps.losses.Logistic(), domain=dps.domains.WholeSpace())
        >>> problem.with_model(dps.losses.Hinge(), dps.domains.Ball(2.0))
        Problem(2 records, 1 coefficients, hinge loss, domain ball)
        """
        return self._rebuild(loss=loss, domain=domain)

    def _rebuild(
        self, *, positions: slice | list[int] = slice(None), **changes: object
    ) -> Self:
        """Return the problem of the same records with other options of the class."""
        if not self.storage.is_in_memory:
            remedy = "Build the problem with this loss and domain."
            check.fail("problem", "one of records in memory", self, remedy)
        facts, data = self.facts, self.data
        width = self.dim - int(facts.intercept)
        # The last column of records with an intercept is a 1 that the class appends.
        rows: Any = data.dense[:, :width]
        if data.dense.shape[0] == 0:  # the records are sparse, and those arrays CSR
            from scipy import sparse

            parts = data.values, data.columns.astype(np.int64), data.starts
            shape = (self.num_records, self.dim)
            rows = sparse.csr_array(parts, shape=shape)[:, :width]
        options: dict[str, Any] = {
            "loss": facts.loss,
            "domain": facts.domain,
            "feature_names": None if self.encoding else self.feature_names[:width],
            "encoding": self.encoding,
        } | changes
        return type(self)(
            rows[:, positions],
            data.response,
            row_bound=facts.row_bound,
            row_norm=facts.row_norm,
            response_bound=facts.response_bound,
            intercept=facts.intercept,
            clip_rows=self.clip_rows,
            offset=data.offset if data.offset.size else None,
            offset_bound=facts.offset_bound,
            **options,
        )

    def margins(self, theta: ArrayLike) -> Array:
        """Return margins <a_i, theta> + b_i of all records, shape (num_records,)."""
        point = check.array("theta", theta, shape=(self.dim,))
        return np.concatenate(list(self.storage.map(margins_of, point)))

    def _repr_html_(self) -> str:
        """Return public facts as a table, for notebooks."""
        return describe("Problem", self._rows())

    def _rows(self) -> list[tuple[str, object]]:
        """Return names and values of public facts. None depends on the records."""
        names, first = self.feature_names, 6
        others = f", and {len(names) - first} more" if len(names) > first else ""
        return [
            ("records", f"{self.num_records:,}"),
            ("coefficients", f"{self.dim:,}"),
            ("loss", self.loss),
            ("domain", self.domain),
            ("declared", self.facts.rows()[1][1]),  # a line with n, d and the bounds
            ("features", ", ".join(shorten(name) for name in names[:first]) + others),
        ]

    def __repr__(self) -> str:
        """Return sizes, loss and domain on one line."""
        return (
            f"Problem({self.num_records} records, {self.dim} coefficients, "
            f"{self.loss.name} loss, domain {self.domain.name})"
        )


def with_columns(
    problem: Problem, positions: Sequence[int], encoding: Encoding
) -> Problem:
    """Return the problem of some columns of the same records, in memory.

    ``encoding`` makes these columns of a table.
    """
    return problem._rebuild(positions=[*positions], encoding=encoding)


@np.errstate(all="ignore")  # whether it would warn depends on the records
def store_records(
    features: Any, response: Any, offset: Any, rules: RecordRules
) -> RecordStorage:
    """Store records that `as_records` has looked at, with their bounds enforced."""
    if not cluster.is_dask(features):
        return storage.store_here(features, response, offset, rules)
    # A small collection is fetched, and stored as other records in memory.
    if not is_large(features):
        y, shift = (
            c.compute() if cluster.is_dask(c) else c for c in (response, offset)
        )
        rows = check.real_array("features", features.compute(), storage.ENCODE)
        return storage.store_here(rows, y, shift, rules)
    if not rules.facts.loss.has_margin:
        check.fail("features", "in memory for a record gradient", "a cluster")
    stored = cluster.ClusterStorage(features, response, offset, rules)
    # Workers count the rows above their bound, and the error is raised here.
    rules.enforce(stored.check())
    return stored


def risks_of(part: Data, loss: Loss, points: Array, num_records: int) -> tuple[Array]:
    """Return the contribution of a part to the empirical risks at points.

    ``num_records`` is that of all parts. The contribution is the part's mean times its
    share of the records.
    """
    # One call reads the part for a block of points, with at most GRAM_NUMBERS products
    # unless a single point has more.
    risks, work = np.empty(len(points)), records.make_work(part)
    value = loss.value_pointer
    size = part.dense.size + part.values.size + part.num_records
    count = max(1, records.GRAM_NUMBERS // size)
    for start in range(0, len(points), count):  # Ctrl-C takes effect between calls
        block = slice(start, start + count)
        records.fill_risks(part, value, points[block], work, risks[block])
    return (risks * (part.num_records / num_records),)


def margins_of(part: Data, theta: Array) -> Array:
    """Return the margins of a part's records."""
    out = np.empty(part.num_records)
    records.margins_of(part, theta, 0, part.num_records, out)
    return out


def unique(names: Iterable[object]) -> list[str]:
    """Return names of columns as text, or raise if a name occurs twice."""
    is_list = isinstance(names, Sequence) or getattr(names, "ndim", 0) == 1
    if isinstance(names, str | bytes) or not is_list:
        check.fail("feature_names", "a sequence of names", check.describe(names))
    text = [str(name) for name in names]
    columns_module.require_distinct("feature_names", text)
    return text


def as_records(
    features: object, response: object, offset: object
) -> tuple[Any, Sequence[str] | None, Any, Any]:
    """Return features, names of their columns if known, response and offset.

    Arrays may be in the caller's memory.
    """
    if is_sparse(features):
        return as_csr("features", features), None, response, offset
    if isinstance(features, str | PathLike):
        return open_parquet(features, response, offset)
    if cluster.is_dask(features):
        return cluster.split_columns(features, response, offset)
    labels = columns_module.labels_of(features)
    names = None if labels is None else unique([str(label) for label in labels])
    if isinstance(features, np.memmap) and FileTable.can_read(features):
        return FileTable.from_memmap(features), None, response, offset
    rows = check.real_array("features", features, storage.ENCODE)
    if rows.ndim != 2:
        condition, got = "of shape (any, any)", f"shape {rows.shape}"
        check.fail("features", condition, got, storage.ENCODE)
    return rows, names, response, offset
