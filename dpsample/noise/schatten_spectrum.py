# mypy: allow-untyped-defs
"""Singular values of matrices with cone-measure direction in a Schatten norm.

On spectra t of m x k matrices the cone measure of the Schatten ball has the density
prod t^(k - m) prod_{i<j} |t_i^2 - t_j^2| / ||t||_r^(m k) in the direction of t. Three
proposals of the same shape make exact rejection possible:

- WISHART: the spectrum of a Gaussian matrix with a real number ``dof`` of columns; the
  direction has k replaced by ``dof`` and the norm by the Euclidean one;
- OPERATOR: the spectrum of the leading m x k block of a random orthogonal matrix of
  size k + m + 1, which is uniform in the ball of the operator norm;
- ORDERED: independent t_1 > ... > t_m with density t_i^(k + m - 2 i) exp(-t_i^r), since
  t_i^2 - t_j^2 <= t_i^2 for i < j.
"""

import math
from typing import NamedTuple

import numpy as np

from dpsample.core.jit import kernel
from dpsample.noise.cone import chi
from dpsample.numerics.norms import thin_svd, write_product

WISHART, OPERATOR, ORDERED = 0, 1, 2


class SchattenPlan(NamedTuple):
    """How spectra of one shape and exponent are proposed; see `schatten_plan`.

    Attributes
    ----------
    r : float
        Exponent.
    num_rows, num_columns : int
        Shape of the matrices.
    method : int
        WISHART, OPERATOR or ORDERED.
    dof : float
        Columns of the Gaussian matrix that proposes.
    log_bound : float
        Logarithm of the largest ratio of target and proposal.
    acceptance : float
        Probability that a proposal is accepted.

    Examples
    --------
    >>> from dpsample.noise import schatten_plan
    >>> plan = schatten_plan((2, 2), 4.0)
    >>> plan.method == OPERATOR, round(plan.acceptance, 6)
    (True, 0.934838)
    """

    r: float
    num_rows: int
    num_columns: int
    method: int
    dof: float
    log_bound: float
    acceptance: float


@kernel
def spectral_norm(t, r):
    """l_r norm of positive numbers."""
    largest = 0.0
    for i in range(len(t)):
        largest = max(largest, t[i])
    if r == np.inf:
        return largest
    total = 0.0
    for i in range(len(t)):
        total += (t[i] / largest) ** r
    return largest * total ** (1.0 / r)


@kernel
def _fill_triangle(rng, dof, first, rows):
    """Write a triangular root of a Wishart matrix of real ``dof`` > m - 1 (Bartlett).

    It fills the m rows of ``rows`` from ``first`` on with the upper triangular root.
    """
    m = rows.shape[1]
    for i in range(m):
        for j in range(m):
            rows[first + i, j] = rng.standard_normal() if i < j else 0.0
        rows[first + i, i] = chi(rng, dof - i)


@kernel
def _propose(rng, plan, t):
    """Write a proposed spectrum."""
    m = min(plan.num_rows, plan.num_columns)
    k = max(plan.num_rows, plan.num_columns)
    if plan.method == ORDERED:
        for i in range(m):
            shape = (k + m - 2 * i - 1) / plan.r
            t[i] = rng.standard_gamma(shape) ** (1.0 / plan.r)
    elif plan.method == WISHART:
        root = np.empty((m, m))
        _fill_triangle(rng, plan.dof, 0, root)
        t[:] = thin_svd(root.reshape(m * m), m, m)[1]
    else:
        # A (A + B)^-1 with Wishart A and B of k and m + 1 degrees of freedom.
        both = np.empty((2 * m, m))
        _fill_triangle(rng, 1.0 * k, 0, both)
        _fill_triangle(rng, m + 1.0, m, both)
        top = np.ascontiguousarray(np.linalg.qr(both)[0][:m])
        t[:] = thin_svd(top.reshape(m * m), m, m)[1]


@kernel
def log_acceptance(plan, t):
    """Logarithm of the ratio of target and proposal over its upper bound."""
    m = min(plan.num_rows, plan.num_columns)
    k = max(plan.num_rows, plan.num_columns)
    total = 0.0
    if plan.method == ORDERED:
        for i in range(m):
            for j in range(i + 1, m):
                square = (t[j] / t[i]) ** 2
                if not square < 1.0:
                    return -np.inf
                total += math.log1p(-square)
        return total
    log_norm = math.log(spectral_norm(t, plan.r))
    if plan.method == OPERATOR:
        return m * k * (math.log(spectral_norm(t, np.inf)) - log_norm)
    for i in range(m):
        total += (k - plan.dof) * math.log(t[i]) if plan.dof != k else 0.0
    total += m * (plan.dof * math.log(spectral_norm(t, 2.0)) - k * log_norm)
    return total - plan.log_bound


@kernel
def draw_spectrum(rng, plan, t):
    """Write a spectrum with cone-measure direction; return its l_r norm."""
    while True:
        _propose(rng, plan, t)
        if rng.standard_exponential() >= -log_acceptance(plan, t):
            return spectral_norm(t, plan.r)


@kernel
def fill_schatten(rng, plan, radius, out):
    """Fill ``out`` with a flattened matrix of Schatten norm ``radius``."""
    t = np.empty(min(plan.num_rows, plan.num_columns))
    factor = radius / draw_spectrum(rng, plan, t)
    for i in range(len(t)):
        t[i] *= factor
    # The singular vectors of a Gaussian matrix are uniform and independent of t.
    for i in range(len(out)):
        out[i] = rng.standard_normal()
    left, _, right = thin_svd(out, plan.num_rows, plan.num_columns)
    write_product(left, t, right, out)


@kernel
def fill_schatten_gaussian(rng, plan, sigma, out):
    """Fill ``out`` with one flattened matrix of Schatten generalized Gaussian noise.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    plan : SchattenPlan
        Result of `schatten_plan` for the shape and the exponent.
    sigma : float
        Scale: the norm of the matrix is sigma times a chi variable.
    out : ndarray, shape (num_rows * num_columns,)
        Written row by row. LAPACK allocates its workspace.
    """
    dim = len(out)
    if plan.r == 2.0 or plan.num_rows == 1 or plan.num_columns == 1:
        for i in range(dim):
            out[i] = sigma * rng.standard_normal()
        return
    fill_schatten(rng, plan, sigma * chi(rng, dim), out)


@kernel
def fill_schatten_rows(rng, plan, sigma, out):
    """Fill every row of ``out`` with one flattened matrix."""
    for i in range(out.shape[0]):
        fill_schatten_gaussian(rng, plan, sigma, out[i])
