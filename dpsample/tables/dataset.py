"""Features, a response and the public bounds they obey."""

from dataclasses import dataclass

from dpsample.core.arrays import Array
from dpsample.core.sparse import Rows
from dpsample.tables.encoding import Encoding


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Records with declared bounds, ready for `dpsample.Problem`.

    Attributes
    ----------
    features : ndarray or scipy.sparse.csr_array of shape (num_records, dim)
        Rows, of ``row_norm``-norm at most ``row_bound``.
    response : ndarray of shape (num_records,)
        Labels -1 and 1, or real responses.
    row_bound : float or None
        Public bound of the rows; None if the file came without bounds.
    row_norm : float
        Exponent of the norm that ``row_bound`` bounds.
    response_bound : float or None
        Public bound of abs(response); None if there is none.
    feature_names : tuple of str
        One name per column.
    source : str
        Where the records come from and how they were encoded.
    columns : tuple of str
        Columns of the table that became features, in its order; empty if there is none.
    rules : tuple of str
        What encoding does to any record, in words: public facts only.
    encoding : Encoding or None
        What turned a table into these rows, and will do so with new records; None for
        synthetic sets.
    theta : ndarray or None
        True coefficients of a synthetic set.

    Examples
    --------
    >>> from dpsample import datasets
    >>> data = datasets.logistic(100, 3, seed=1)
    >>> data
    Dataset(100 records, 3 features, rows of 2-norm <= 1)
    >>> data.feature_names
    ('x0', 'x1', 'x2')
    """

    features: Rows
    response: Array
    row_bound: float | None
    row_norm: float = 2.0
    response_bound: float | None = None
    feature_names: tuple[str, ...]
    source: str
    columns: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    encoding: Encoding | None = None
    theta: Array | None = None

    @property
    def num_records(self) -> int:
        """Number of rows."""
        return int(self.features.shape[0])

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(self.features.shape[1])

    def __repr__(self) -> str:
        """Sizes and the row bound on one line."""
        bound = "" if self.row_bound is None else f" <= {self.row_bound:g}"
        rows = f"rows of {self.row_norm:g}-norm{bound}" if bound else "no row bound"
        return f"Dataset({self.num_records} records, {self.dim} features, {rows})"
