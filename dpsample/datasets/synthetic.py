"""Synthetic records: bounded by construction, or with heavy tails and no bound.

The heavy-tailed ones are those of the experiments of Xie et al. (2022), Statistica
Sinica preprint SS-2022-0282, which "the paper" means below. Codes such as gradient-E33
are those of its errata (``dpsample errata CODE``). Public functions have
`check.unwrap_numpy`, which turns NumPy scalars into Python numbers.
"""

import math

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.streams import streams
from dpsample.tables.read import Dataset
from dpsample.tables.synthetic import LARGEST_EXPONENT, dataset_of, unit_rows

# Number of coefficients of the heavy-tailed models that are not 0.
NUM_SIGNALS = 10


def _draw(
    num_records: int, dim: int, seed: int, *, row_norm: float, signal: float
) -> tuple[np.random.Generator, Array, Array]:
    """Return a stream, rows and true coefficients of Euclidean norm ``signal``."""
    check.array_sides(num_records=num_records, dim=dim)
    check.integer(
        0, maximum=check.MAX_SEED, seed=seed, remedy="Synthetic data need a seed."
    )
    check.at_least(1.0, row_norm=row_norm)
    if row_norm != math.inf:  # powers with larger finite exponents overflow
        check.half_open(1.0, LARGEST_EXPONENT, row_norm=row_norm)
    # Coefficients are at most this long, so that rows @ theta does not overflow.
    check.half_open(0.0, 1.0 / check.MIN_SCALE, signal=signal)
    # The order of the draws is part of the meaning of a seed: rows before coefficients.
    rng = streams(seed, 1)[0]
    rows = unit_rows(rng, (num_records, dim), float(row_norm))
    theta = signal * unit_rows(rng, (1, dim), 2.0)[0]
    return rng, rows, theta


def noise_of(rng: np.random.Generator, number: int, degrees: float) -> Array:
    """Draw Student noise, which is Gaussian with infinite degrees of freedom."""
    noise = rng.standard_normal(number)
    if math.isfinite(degrees):
        noise = noise / np.sqrt(rng.chisquare(degrees, number) / degrees)
    return noise


@check.unwrap_numpy
def logistic(
    num_records: int, dim: int, *, seed: int, signal: float = 5.0, row_norm: float = 2.0
) -> Dataset:
    r"""Draw records of a logistic model.

    Rows are Gaussian directions of norm 1 and
    :math:`P(y = 1 \mid a) = 1 / (1 + e^{-\langle a, \theta\rangle})`.

    Parameters
    ----------
    num_records, dim : int
        Shape of the features.
    seed : int
        Same seed, same records.
    signal : float
        Euclidean norm of the true coefficients.
    row_norm : float
        Exponent, in [1, inf], of the norm in which rows have size 1.

    Returns
    -------
    Dataset
        With ``row_bound`` 1 and labels -1 and 1.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> data = logistic(1000, 20, seed=7)
    >>> data.features.shape, sorted(set(data.response.tolist()))
    ((1000, 20), [-1.0, 1.0])
    """
    rng, rows, theta = _draw(num_records, dim, seed, row_norm=row_norm, signal=signal)
    with np.errstate(over="ignore"):  # an overflow means a probability of 0
        positive = rng.random(num_records) < 1.0 / (1.0 + np.exp(-rows @ theta))
    return dataset_of(
        rows,
        np.where(positive, 1.0, -1.0),
        theta,
        row_norm=float(row_norm),
        response_bound=1.0,
        source=f"logistic model, signal {signal:g}, seed {seed}",
    )


@check.unwrap_numpy
def halfspace(
    num_records: int, dim: int, *, seed: int, flip: float = 0.1, row_norm: float = 2.0
) -> Dataset:
    """Draw records on two sides of a hyperplane, some with the wrong label.

    Parameters
    ----------
    num_records, dim, seed, row_norm
        As in `logistic`.
    flip : float
        Probability, below 1/2, that a label is wrong.

    Returns
    -------
    Dataset
        With ``row_bound`` 1, labels -1 and 1 and the unit normal as ``theta``.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> data = halfspace(500, 4, seed=3, flip=0.0)
    >>> bool(((data.features @ data.theta) * data.response >= 0).all())
    True
    """
    check.half_open(0.0, 0.5, flip=flip)
    rng, rows, theta = _draw(num_records, dim, seed, row_norm=row_norm, signal=1.0)
    side = np.where(rows @ theta >= 0.0, 1.0, -1.0)
    wrong = rng.random(num_records) < flip
    return dataset_of(
        rows,
        np.where(wrong, -side, side),
        theta,
        row_norm=float(row_norm),
        response_bound=1.0,
        source=f"halfspace, flip {flip:g}, seed {seed}",
    )


@check.unwrap_numpy
def regression(
    num_records: int,
    dim: int,
    *,
    seed: int,
    signal: float = 1.0,
    noise: float = 0.1,
    degrees: float = math.inf,
    response_bound: float | None = 1.0,
    row_norm: float = 2.0,
) -> Dataset:
    r"""Draw records of a linear model with Gaussian or heavy-tailed noise.

    :math:`y = \langle a, \theta\rangle + s z` with z Gaussian, or Student with
    ``degrees`` degrees of freedom, whose moments of order ``degrees`` and above are
    infinite. With a response bound the response is clipped to it.

    Parameters
    ----------
    num_records, dim, seed, signal, row_norm
        As in `logistic`.
    noise : float
        Scale s of the noise.
    degrees : float
        Degrees of freedom of Student noise, infinite for Gaussian noise.
    response_bound : float or None
        Bound of abs(response); None leaves the tails as they are.

    Returns
    -------
    Dataset
        With ``row_bound`` 1 and the given response bound.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> data = regression(200, 3, seed=5, degrees=2.0)
    >>> bool((abs(data.response) <= data.response_bound).all())
    True
    """
    check.non_negative(noise=noise)
    # With fewer degrees of freedom a chi-square number may underflow to 0, and then the
    # noise is infinite. At 0.1 that has a probability of 4e-16.
    check.at_least(0.1, degrees=degrees, remedy="Use infinity for Gaussian.")
    if response_bound is not None:
        check.positive(response_bound=response_bound)
    rng, rows, theta = _draw(num_records, dim, seed, row_norm=row_norm, signal=signal)
    y = rows @ theta + noise * noise_of(rng, num_records, degrees)
    if response_bound is not None:
        y = np.clip(y, -response_bound, response_bound)
    return dataset_of(
        rows,
        y,
        theta,
        row_norm=float(row_norm),
        response_bound=response_bound,
        source=f"linear model, noise {noise:g}, degrees {degrees:g}, seed {seed}",
    )


@check.unwrap_numpy
def heavy_tailed_regression(
    num_records: int = 10_000,
    dim: int = 50,
    *,
    seed: int,
    degrees: float = 2.0,
    scale: str = "sqrt_n",
) -> Dataset:
    r"""Draw :math:`y = \langle a, \theta\rangle + e` with Student errors.

    The first ten coefficients are -1 or 1 with equal probability, and the others are 0.
    Features are standard normal, with each column scaled to the same Euclidean norm.
    Errors have ``degrees`` degrees of freedom. The paper has ``+-1`` without saying how
    signs are chosen, and does not state the distribution of features. Both are ours.

    Parameters
    ----------
    num_records, dim : int
        Shape of the features, with at least 10 columns.
    seed : int
        Same seed, same records.
    degrees : float
        Degrees of freedom, > 0. The paper's 2 has an infinite variance, so that
        squared-loss gradients have none of the moments that its theorems assume
        (gradient-E33): use 3, or `dpsample.losses.Huber`.
    scale : {"sqrt_n", "unit"}
        Euclidean norm of a column, the root of n or 1. The paper's 1 leaves a signal of
        0.03 per record at n = 10,000, below any error (gradient-E32).

    Returns
    -------
    Dataset
        ``row_norm`` is infinity, so that ``row_bound`` bounds the entries of a row. It
        is the columns' norm. ``theta`` holds the coefficients. The response has no
        bound: declare infinity.

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
    check.at_least(0.1, degrees=degrees)  # as in `regression`
    rng, rows, theta = _design(num_records, dim, seed=seed, scale=scale)
    return dataset_of(
        rows,
        rows @ theta + noise_of(rng, num_records, degrees),
        theta,
        row_bound=_column_norm(num_records, scale),
        row_norm=math.inf,
        source=f"Student errors, degrees {degrees:g}, columns {scale}, seed {seed}",
    )


@check.unwrap_numpy
def heavy_tailed_logistic(
    num_records: int = 10_000, dim: int = 50, *, seed: int, scale: str = "sqrt_n"
) -> Dataset:
    r"""Draw the sign of :math:`\langle a, \theta\rangle + e`, e log-logistic.

    Features and coefficients are those of `heavy_tailed_regression`. The errors have a
    log-logistic distribution of scale 1/2 and shape 1/2, centered at its median:
    :math:`e = ((\frac{U}{1-U})^2 - 1) / 2`, U uniform. (The paper centers them
    by their mean, which is infinite: gradient-E33.)

    Parameters
    ----------
    num_records, dim, seed, scale
        As in `heavy_tailed_regression`.

    Returns
    -------
    Dataset
        With labels -1 and 1. Entries are at most the columns' norm.

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
    # The median of (U/(1-U))^2 is 1, so the subtraction centers the errors.
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
    """Return a stream, features and coefficients of a heavy-tailed model."""
    check.integer(NUM_SIGNALS, dim=dim)
    check.array_sides(num_records=num_records, dim=dim)
    check.integer(
        0, maximum=check.MAX_SEED, seed=seed, remedy="Synthetic data need a seed."
    )
    check.one_of(("sqrt_n", "unit"), scale=scale)
    rng = streams(seed, 1)[0]
    rows = rng.standard_normal((num_records, dim))
    column_norm = _column_norm(num_records, scale)
    # The last factor keeps the exact norm of a column, and so all its entries, below
    # the stated norm, in spite of rounding errors.
    rows *= column_norm / np.linalg.norm(rows, axis=0) * (1.0 - 1e-14)
    theta = np.zeros(dim)
    theta[:NUM_SIGNALS] = rng.choice([-1.0, 1.0], NUM_SIGNALS)
    return rng, rows, theta


def _column_norm(num_records: int, scale: str) -> float:
    """Return the Euclidean norm that ``scale`` names, a bound of a column's entries."""
    return math.sqrt(num_records) if scale == "sqrt_n" else 1.0
