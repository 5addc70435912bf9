"""Compiled noise: kernels that fill a vector inside the loop of an algorithm."""

from __future__ import annotations

from dpsample._jit import kernel
from dpsample.noise.cone import chi, cone_vector, scale_to


@kernel
def fill_gaussian(rng, stddev, out):
    """Fill ``out`` with independent N(0, stddev^2).

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    stddev : float
        Standard deviation, absolute.
    out : ndarray, shape (d,)
        Written; nothing is allocated.
    """
    for i in range(len(out)):
        out[i] = stddev * rng.standard_normal()


@kernel
def fill_laplace(rng, scale, out):
    """Fill ``out`` with independent Laplace variables of mean absolute value scale.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    scale : float
        Mean absolute value.
    out : ndarray, shape (d,)
        Written; nothing is allocated.
    """
    for i in range(len(out)):
        out[i] = rng.laplace(0.0, scale)


@kernel
def fill_generalized_gaussian(rng, table, sigma, out):
    """Fill ``out`` with one generalized Gaussian vector.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    table : ConeTable
        Result of `cone_table` for the exponent r.
    sigma : float
        Scale: the norm of the vector is sigma times a chi variable.
    out : ndarray, shape (d,)
        Written; nothing is allocated.
    """
    if table.r == 2.0 or len(out) == 1:
        fill_gaussian(rng, sigma, out)
        return
    norm = cone_vector(rng, table, out)
    scale_to(norm, sigma * chi(rng, len(out)), out)


@kernel
def fill_rows(rng, table, sigma, out):
    """Fill every row of ``out`` with one generalized Gaussian vector."""
    for i in range(out.shape[0]):
        fill_generalized_gaussian(rng, table, sigma, out[i])
