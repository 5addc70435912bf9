"""Synthetic records whose bounds hold by construction."""

import math

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.streams import streams
from dpsample.tables.dataset import Dataset

LARGEST_EXPONENT = 1000.0  # powers beyond it overflow


def unit_rows(rng: np.random.Generator, size: tuple[int, int], q: float) -> Array:
    """Gaussian directions, scaled to q-norm 1 but for rounding downwards."""
    rows = rng.standard_normal(size)
    if math.isinf(q):
        norms = np.max(np.abs(rows), axis=1)
    else:
        norms = np.sum(np.abs(rows) ** q, axis=1) ** (1.0 / q)
    return np.asarray(rows / norms[:, None] * (1.0 - 1e-14))


def _draw(
    num_records: int, dim: int, seed: int, *, row_norm: float, signal: float
) -> tuple[np.random.Generator, Array, Array]:
    """Stream, rows and true coefficients of Euclidean norm ``signal``."""
    check.sides(num_records=num_records, dim=dim)
    check.integer(0, most=check.SEED, seed=seed, remedy="Synthetic data need a seed.")
    check.at_least(1.0, row_norm=row_norm)
    if row_norm != math.inf:
        check.half_open(1.0, LARGEST_EXPONENT, row_norm=row_norm)
    check.half_open(0.0, 1.0 / check.SMALL, signal=signal)
    rng = streams(seed, 1)[0]
    rows = unit_rows(rng, (num_records, dim), float(row_norm))
    theta = signal * unit_rows(rng, (1, dim), 2.0)[0]
    return rng, rows, theta


def noise_of(rng: np.random.Generator, number: int, degrees: float) -> Array:
    """Student noise; with infinite degrees of freedom it is Gaussian."""
    noise = rng.standard_normal(number)
    if math.isfinite(degrees):
        noise = noise / np.sqrt(rng.chisquare(degrees, number) / degrees)
    return noise


def dataset_of(
    rows: Array, response: Array, theta: Array, *, source: str, **bounds: float | None
) -> Dataset:
    """Synthetic records with the names x0, x1, ... and by default rows of size 1."""
    return Dataset(
        features=rows,
        response=response,
        feature_names=tuple(f"x{j}" for j in range(rows.shape[1])),
        source=source,
        theta=theta,
        **({"row_bound": 1.0} | bounds),  # type: ignore[arg-type]
    )


@check.plain
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
    with np.errstate(over="ignore"):  # a probability of 0
        positive = rng.random(num_records) < 1.0 / (1.0 + np.exp(-rows @ theta))
    return dataset_of(
        rows,
        np.where(positive, 1.0, -1.0),
        theta,
        row_norm=float(row_norm),
        response_bound=1.0,
        source=f"logistic model, signal {signal:g}, seed {seed}",
    )


@check.plain
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


@check.plain
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
    ``degrees`` degrees of freedom, whose moments of that order are infinite. With a
    response bound the response is clipped to it.

    Parameters
    ----------
    num_records, dim, seed, signal, row_norm
        As in `logistic`.
    noise : float
        Scale s of the noise.
    degrees : float
        Degrees of freedom of Student noise; infinity stands for a Gaussian.
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
