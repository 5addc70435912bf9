"""Simulated regressions with heavy tails: designs of Xie et al. (2022), section 6.1."""

import math

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.streams import streams
from dpsample.datasets.synthetic import dataset_of, noise_of
from dpsample.tables.dataset import Dataset

NUM_SIGNALS = 10
# Columns computed to norm 1 stay below it in exact arithmetic.
BELOW = 1.0 - 1e-14


@check.plain
def heavy_tailed_regression(
    num_records: int = 10_000,
    dim: int = 50,
    *,
    seed: int,
    degrees: float = 2.0,
    scale: str = "sqrt_n",
) -> Dataset:
    r"""Draw :math:`y = \langle a, \theta\rangle + e` with Student errors.

    Ten coefficients are -1 or 1 at random (ours: the paper says ``+-1``), the others
    are 0. Features are standard normal (ours: not stated in the paper), their columns
    scaled to one norm; errors have ``degrees`` degrees of freedom.

    Parameters
    ----------
    num_records, dim : int
        Shape of the features; at least 10 columns.
    seed : int
        Same seed, same records.
    degrees : float
        Degrees of freedom, > 0. The paper's 2 has an infinite variance, so that
        squared-loss gradients have none of the moments that its theorems assume
        (gradient-E33): use 3, or `dpsample.losses.Huber`.
    scale : {"sqrt_n", "unit"}
        Norm of a column. The paper's 1 leaves a signal of 0.03 per record at n = 10
        000, below any error (gradient-E32).

    Returns
    -------
    Dataset
        Entries, and therefore ``row_bound``, are at most the columns' norm; ``theta``
        holds the coefficients. The response has no bound: declare infinity.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> import math
    >>> import dpsample as dps
    >>> data = dps.datasets.heavy_tailed_regression(1000, 20, seed=1, degrees=3.0)
    >>> problem = dps.Problem(
    ...     data.features, data.response, row_bound=data.row_bound,
    ...     row_norm=data.row_norm, response_bound=math.inf,
    ...     loss=dps.losses.Squared(), domain=dps.domains.Ball(10.0),
    ... )
    >>> problem.dim, int(abs(data.theta).sum())
    (20, 10)
    """
    check.at_least(0.1, degrees=degrees)
    rng, rows, theta = _design(num_records, dim, seed=seed, scale=scale)
    return dataset_of(
        rows,
        rows @ theta + noise_of(rng, num_records, degrees),
        theta,
        row_bound=_column_norm(num_records, scale),
        row_norm=math.inf,
        source=f"Student errors, degrees {degrees:g}, columns {scale}, seed {seed}",
    )


@check.plain
def heavy_tailed_logistic(
    num_records: int = 10_000, dim: int = 50, *, seed: int, scale: str = "sqrt_n"
) -> Dataset:
    r"""Draw the sign of :math:`\langle a, \theta\rangle + e`, e log-logistic.

    Features and coefficients are those of `heavy_tailed_regression`. The errors have
    scale and shape 1/2 and are centered at their median (their mean, by which the paper
    centers them, is infinite: gradient-E33): :math:`e = \frac12 (\frac{U}{1-U})^2 -
    \frac12`, U uniform.

    Parameters
    ----------
    num_records, dim, seed, scale
        As in `heavy_tailed_regression`.

    Returns
    -------
    Dataset
        With labels -1 and 1; entries are at most the columns' norm.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> data = heavy_tailed_logistic(1000, 20, seed=1)
    >>> sorted(set(data.response.tolist()))
    [-1.0, 1.0]
    """
    rng, rows, theta = _design(num_records, dim, seed=seed, scale=scale)
    uniform = rng.random(num_records)
    errors = 0.5 * (uniform / (1.0 - uniform)) ** 2 - 0.5
    return dataset_of(
        rows,
        np.where(rows @ theta + errors > 0.0, 1.0, -1.0),
        theta,
        row_bound=_column_norm(num_records, scale),
        row_norm=math.inf,
        response_bound=1.0,
        source=f"log-logistic errors, columns {scale}, seed {seed}",
    )


def _design(
    num_records: int, dim: int, *, seed: int, scale: str
) -> tuple[np.random.Generator, Array, Array]:
    """Stream, features and coefficients."""
    check.integer(NUM_SIGNALS, dim=dim)
    check.sides(num_records=num_records, dim=dim)
    check.integer(0, most=check.SEED, seed=seed, remedy="Synthetic data need a seed.")
    check.one_of(("sqrt_n", "unit"), scale=scale)
    rng = streams(seed, 1)[0]
    rows = rng.standard_normal((num_records, dim))
    rows *= _column_norm(num_records, scale) / np.linalg.norm(rows, axis=0) * BELOW
    theta = np.zeros(dim)
    theta[:NUM_SIGNALS] = rng.choice([-1.0, 1.0], NUM_SIGNALS)
    return rng, rows, theta


def _column_norm(num_records: int, scale: str) -> float:
    return math.sqrt(num_records) if scale == "sqrt_n" else 1.0
