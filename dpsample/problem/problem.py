"""A private convex optimization problem: records, loss, domain, declared bounds.

Bounds are public facts that the user declares. They are checked once, here, against
the records and never computed from them, which would leak. Rows come dense or sparse;
they are copied, measured and, if the user says so, scaled once.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core import columns as columns_module
from dpsample.core.arrays import Array
from dpsample.core.sparse import Directions, Rows, as_csr, is_sparse
from dpsample.domains import Domain, SchattenBall
from dpsample.losses import Custom, Loss, RecordGradient
from dpsample.losses.record_gradient import num_parameters
from dpsample.numerics import norms
from dpsample.problem import records
from dpsample.problem.facts import PublicFacts
from dpsample.tables import Dataset, Encoding
from dpsample.tables.encoding import ROUNDING

HUGE = 1e100  # entries above every declared bound, whose norms might overflow


class Problem:
    r"""Records, a convex loss and a convex domain, with declared public bounds.

    The empirical risk is :math:`F(\theta) = \frac1n \sum_i \varphi(\langle a_i,
    \theta\rangle + b_i, y_i)`.

    Parameters
    ----------
    features : array, scipy.sparse matrix or DataFrame of shape (num_records, dim)
        Rows a_i. Copied once; dense rows are stored in C order, sparse ones as CSR.
    response : array of shape (num_records,)
        Labels -1, 1 or real responses y_i.
    loss : Loss
        One of `dpsample.losses`.
    domain : Domain
        One of `dpsample.domains`; with ``intercept`` it includes the intercept.
    row_bound : float
        Public bound of every possible row's norm, from 1e-60 to 1e60, as all declared
        bounds. A row above it is an error.
    row_norm : float
        Exponent of that norm, in [1, inf]; a Schatten exponent on a `SchattenBall`.
    response_bound : float, optional
        Public bound of abs(response); needed by losses whose slope grows. Infinity, if
        there is none, serves methods that bound gradients themselves.
    intercept : bool
        Append a column of ones (the row bound grows accordingly).
    clip_rows : bool
        Scale rows (and clip responses) that exceed their bound instead of refusing
        them. Privacy then rests on no assumption about the records' sizes; what is
        refused even so (numbers that are not finite, labels other than -1 and 1) is
        listed in the certificate.
    feature_names : sequence of str, optional
        Names of the columns; a DataFrame brings its own.
    offset : array of shape (num_records,), optional
        Known additive part b_i of the margin.
    offset_bound : float
        Public bound of abs(offset).
    encoding : Encoding, optional
        What made these rows from a table (`dpsample.tables`); answers carry it, and
        with it predict from raw tables. See `from_table`.

    Raises
    ------
    ValueError
        If an argument is malformed, or a record exceeds a declared bound; the message
        names the record.

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
        features: Directions,
        response: ArrayLike,
        *,
        loss: Loss,
        domain: Domain,
        row_bound: float,
        row_norm: float = 2.0,
        response_bound: float | None = None,
        intercept: bool = False,
        clip_rows: bool = False,
        feature_names: Sequence[str] | None = None,
        offset: ArrayLike | None = None,
        offset_bound: float = 0.0,
        encoding: Encoding | None = None,
    ) -> None:
        check.instance(bool, intercept=intercept, clip_rows=clip_rows)
        check.instance((Encoding, type(None)), encoding=encoding)
        rows, names = as_features(features)
        num_records, width = rows.shape
        if num_records == 0 or width == 0:
            check.fail("features", "non-empty", f"shape {rows.shape}")
        self.facts = PublicFacts(
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
        self.data = self._checked_data(rows, response, offset)
        names = names if feature_names is None else feature_names
        if encoding is not None:
            encoding = self._own(encoding, names)
            names = encoding.feature_names
        if isinstance(loss, RecordGradient):
            encoding = None  # theta is not linear in the rows
            if feature_names is None and self.dim != width:
                names = None
        self.encoding = encoding
        self.feature_names = self._names(names, self.dim - intercept)
        # What a verb has derived from the problem last, and from which arguments.
        self.plan: tuple[Any, Any] | None = None

    def _checked_data(
        self, rows: Rows, response: ArrayLike, offset: ArrayLike | None
    ) -> records.Data:
        """Check records, of which ``rows`` are ours, and lay them out for kernels."""
        facts, loss = self.facts, self.loss
        width = facts.dim - facts.intercept
        if not isinstance(loss, RecordGradient) and rows.shape[1] != width:
            check.fail("features", f"of {width} columns", f"{rows.shape[1]}")
        if rows.shape[0] != facts.num_records:
            check.fail("features", f"of {facts.num_records} rows", f"{rows.shape[0]}")
        y = check.array("response", response, shape=(facts.num_records,))
        rows, y = self._enforce_bounds(rows, y)
        loss.check_response(y, self._response_bound())
        shift = self._checked_offset(offset, facts.num_records)
        if isinstance(loss, Custom):
            loss.check_at_records(
                facts.margin_bounds(row_norms(rows, facts), shift),
                y,
                margin_bound=facts.margin_bound,
                response_bound=facts.response_bound,
            )
        if isinstance(loss, RecordGradient):
            loss.check_records(rows, shift)
        features = append_ones(rows) if facts.intercept else rows
        return records.make_data(features, y, shift, loss.params)

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
            As of the class.

        Returns
        -------
        Problem
            Answers to it predict from raw tables, if ``data`` was one.

        Raises
        ------
        ValueError
            As by the class; also if ``data`` has no row bound.

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

    def __getstate__(self) -> dict[str, object]:
        """Leave out the plan: another process makes its own."""
        return self.__dict__ | {"plan": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take the records over; joblib hands large ones to workers read-only."""
        self.__dict__.update(state)
        self.data = records.writable(self.data)

    def _own(self, encoding: Encoding, names: Sequence[str] | None) -> Encoding:
        """Return the encoding of rows that this problem may have scaled down, too."""
        bound, norm = self.facts.row_bound, self.facts.row_norm
        if encoding.row_norm != norm:
            check.fail("row_norm", f"{encoding.row_norm:g}, as in the encoding", norm)
        if names is not None and tuple(names) != encoding.feature_names:
            got = check.shown(list(names))
            check.fail("feature_names", "those of the encoding, in its order", got)
        if encoding.row_bound == bound:
            return encoding
        is_clipped = self.clip_rows or encoding.clip
        return replace(encoding, row_bound=bound, clip=is_clipped)

    def _response_bound(self) -> float | None:
        linear = self.facts.loss.name == "linear"
        return 1.0 if linear and self.response_bound is None else self.response_bound

    def _enforce_bounds(self, rows: Rows, y: Array) -> tuple[Rows, Array]:
        entries = rows if isinstance(rows, np.ndarray) else rows.data
        is_huge = float(np.abs(entries).max(initial=0.0)) > HUGE
        largest = np.asarray(norms.norm(rows, np.inf)) if is_huge else np.empty(0)
        if is_huge and self.clip_rows:
            scale_rows(rows, np.minimum(1.0, HUGE / np.maximum(largest, 1.0)))
        is_refused = is_huge and not self.clip_rows
        sizes = largest if is_refused else row_norms(rows, self.facts)
        bound = self.facts.row_bound
        above = np.flatnonzero(sizes > bound * (1.0 + ROUNDING))
        if above.size and not self.clip_rows:
            i = int(above[0])
            wanted = (
                f"rows of {self.facts.row_norm:g}-norm at most row_bound = {bound:g}"
            )
            got = f"{sizes[i]:.10g} in record {i} ({above.size} records are above)"
            remedy = "Declare the public bound that holds, or pass clip_rows=True."
            check.fail("features", wanted, got, remedy)
        if above.size:
            scale_rows(rows, np.minimum(1.0, bound / np.maximum(sizes, 1e-300)))
        limit = self._response_bound()
        if self.clip_rows and limit is not None and not self.loss.is_classification:
            y = np.clip(y, -limit, limit)
        return rows, y

    def _checked_offset(self, offset: ArrayLike | None, size: int) -> Array | None:
        if offset is None:
            return None
        shift = check.array("offset", offset, shape=(size,))
        bound = self.facts.offset_bound
        remedy = "Declare the public bound of the offsets."
        for i in np.flatnonzero(np.abs(shift) > bound)[:1]:
            wanted = f"within offset_bound = {bound:g} in absolute value"
            check.fail("offset", wanted, f"{shift[i]:g} in record {i}", remedy)
        return shift

    def _names(self, names: Sequence[str] | None, width: int) -> tuple[str, ...]:
        if names is None:
            names = [str(j) for j in range(width)]
        given = unique(names)
        if len(given) != width:
            check.fail("feature_names", f"of length {width}", f"length {len(given)}")
        extra = ("intercept",) if self.facts.intercept else ()
        return tuple(unique((*given, *extra)))

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
        """Number of records; public."""
        return self.facts.num_records

    @property
    def dim(self) -> int:
        """Number of coefficients, the intercept included."""
        return self.facts.dim

    def lipschitz(self, p: float) -> float:
        """Lipschitz constant of one record's loss; see `PublicFacts.lipschitz`."""
        return self.facts.lipschitz(p)

    def diff_lipschitz(self, p: float, relation: str = "replace_one") -> float:
        """Constant of the change between neighbors; `PublicFacts.diff_lipschitz`."""
        return self.facts.diff_lipschitz(p, relation)

    def risk(self, theta: ArrayLike) -> float:
        """Empirical risk F at theta of shape (dim,). Not private."""
        point = check.array("theta", theta, shape=(self.dim,))
        return float(self._risks(point[None])[0])

    def _risks(self, points: Array) -> Array:
        """Empirical risk at each row of points, shape (num_points, dim)."""
        if isinstance(self.loss, RecordGradient):
            fixed = self.data.dense, self.data.response
            return np.array([self.loss.risk(*fixed, point) for point in points])
        risks, work = np.empty(len(points)), records.make_work(self.data)
        size = self.data.dense.size + self.data.values.size
        count = max(1, records.GRAM_NUMBERS // max(size, self.num_records))
        for start in range(0, len(points), count):  # Ctrl-C is heard in between
            part, value = slice(start, start + count), self.loss.pointers[0]
            records.fill_risks(self.data, value, points[part], work, risks[part])
        return risks

    def with_records(
        self,
        features: Directions,
        response: ArrayLike,
        offset: ArrayLike | None = None,
    ) -> Self:
        """Build a problem of other records with the same public facts.

        Parameters
        ----------
        features, response, offset
            As of the class, and as many as there are.

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
        made = copy(self)
        made.plan = None
        made.data = self._checked_data(as_features(features)[0], response, offset)
        return made

    def margins(self, theta: ArrayLike) -> Array:
        """Margins <a_i, theta> + b_i of all records, shape (num_records,)."""
        point = check.array("theta", theta, shape=(self.dim,))
        out = np.empty(self.num_records)
        records.margins_of(self.data, point, 0, self.num_records, out)
        return out

    def __repr__(self) -> str:
        """Sizes, loss and domain on one line."""
        return (
            f"Problem({self.num_records} records, {self.dim} coefficients, "
            f"{self.loss.name} loss, domain {self.domain.name})"
        )


def as_features(features: Directions) -> tuple[Rows, Sequence[str] | None]:
    """Fresh float64 features, dense (C order) or CSR, and column names if any."""
    if is_sparse(features):
        return as_csr("features", features), None
    columns = getattr(features, "columns", None)
    remedy = "Encode categories and drop or fill missing values first."
    names = None if columns is None else unique([str(c) for c in columns])
    dense = check.array("features", features, shape=(None, None), remedy=remedy)
    return dense, names


def unique(names: Iterable[object]) -> list[str]:
    """Names of columns as text, each of which stands for one column only."""
    is_list = isinstance(names, Sequence) or getattr(names, "ndim", 0) == 1
    if isinstance(names, str | bytes) or not is_list:
        check.fail("feature_names", "a sequence of names", check.shown(names))
    text = [str(name) for name in names]
    columns_module.distinct("feature_names", text)
    return text


def row_norms(features: Rows, facts: PublicFacts) -> Array:
    """Norm of each row, in the declared norm."""
    if isinstance(facts.domain, SchattenBall) and facts.row_norm != 2.0:
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        return np.asarray(norms.schatten(dense, facts.row_norm, facts.domain.shape))
    return np.asarray(norms.norm(features, facts.row_norm))


def scale_rows(features: Rows, factors: Array) -> None:
    """Multiply each row by its factor, in place."""
    if not isinstance(features, np.ndarray):
        features.data *= np.repeat(factors, np.diff(features.indptr))
    else:
        features *= factors[:, None]


def append_ones(features: Rows) -> Rows:
    """Append the intercept's column."""
    if not isinstance(features, np.ndarray):
        from scipy import sparse

        ones = sparse.csr_matrix(np.ones((features.shape[0], 1)))
        rows: Rows = sparse.hstack([features, ones], format="csr")
        return rows
    return np.ascontiguousarray(np.column_stack([features, np.ones(len(features))]))
