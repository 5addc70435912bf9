# mypy: allow-untyped-defs
"""Cone measure: directions of l_r balls, of vectors and of singular values.

The *cone measure* of a ball is the distribution of the direction of a uniform point in
it. This file draws vectors with such directions, and matrices by their singular values
(the *spectrum*).

**Vectors.** Coordinates with density proportional to f(y) = exp(-|y|^r / r), divided by
their l_r norm, are independent of that norm and follow the cone measure [1]_. They are
drawn by a ziggurat [2]_, and their powers |y|^r serve the norm as well.

256 layers of equal area v cover the region under f, y >= 0. Layer 0 is the rectangle
[0, x_1] x [0, f(x_1)] together with the tail beyond x_1. Layer i >= 1 is the rectangle
[0, x_i] x [f(x_i), f(x_{i+1})] with x_256 = 0. The one free number, x_1^r / r (the
``tail``), is chosen so that the layers end exactly at f = 1. A draw picks a layer and a
uniform point of it. It is surely under f left of the next edge x_{i+1}.

**Spectra.** On spectra t of m x k matrices, m <= k, the cone measure of the Schatten
ball has the density prod t^(k - m) prod_{i<j} |t_i^2 - t_j^2| / ||t||_r^(m k) in the
direction of t. Three proposals of the same form make exact rejection possible.

- ``wishart``: the spectrum of a Gaussian matrix with a real number ``dof`` of columns.
  Its direction has k replaced by ``dof`` and the norm by the Euclidean one.
- ``operator``: the spectrum of the leading m x k block of a random orthogonal matrix of
  size k + m + 1, which is uniform in the ball of the operator norm.
- ``ordered``: independent t_1 > ... > t_m with density t_i^(k + m - 2 i) exp(-t_i^r),
  since t_i^2 - t_j^2 <= t_i^2 for i < j.

References
----------
.. [1] G. Schechtman and J. Zinn, On the volume of the intersection of two L_p^n balls,
   Proceedings of the AMS 110, 1990.
.. [2] G. Marsaglia and W. W. Tsang, The ziggurat method for generating random
   variables, Journal of Statistical Software 5(8), 2000.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel
from dpsample.numerics.norms import thin_svd, write_product
from dpsample.numerics.vectors import copy_into

NUM_LAYERS = 256


class ConeMethod(NamedTuple):
    """Codes of the methods of a `SchattenPlan`, which the module describes."""

    wishart: int = 0
    operator: int = 1
    ordered: int = 2


METHOD = ConeMethod()


class ConeTable(NamedTuple):
    """Layers of exp(-y^r / r), with one compiled type for every r.

    Attributes
    ----------
    r : float
        Exponent in [1, inf].
    twice : int
        2 r where powers are products, otherwise 0.
    tail : float
        x_1^r / r, where the tail begins.
    layers : ndarray, shape (257, 3)
        Row i has an edge, the quotient of the next edge and it, and a height. The edges
        are v / f(x_1), x_1, ..., x_256 = 0, the heights 0, f(x_1), ..., f(x_256) = 1.

    Examples
    --------
    >>> table = cone_table(2.0)
    >>> table.layers[:3, 0].round(4).tolist()
    [3.9108, 3.6542, 3.4493]
    """

    r: float
    twice: int
    tail: float
    layers: Array


def cone_table(r: float) -> ConeTable:
    """Return the layers for drawing cone measures of l_r balls.

    Parameters
    ----------
    r : float
        Exponent in [1, inf].

    Returns
    -------
    ConeTable
        The layers, in a new array. They are computed once per exponent.

    Raises
    ------
    ValueError
        If r is not a number >= 1.

    Examples
    --------
    >>> rng, out = np.random.default_rng(0), np.empty(3)
    >>> from dpsample.noise import fill_generalized_gaussian
    >>> fill_generalized_gaussian(rng, cone_table(3.0), 1.0, out)
    >>> out.shape
    (3,)
    """
    check.at_least(1.0, r=r)
    # Doubles cannot distinguish the table of a larger exponent from that of r = inf.
    table = _table(math.inf if r > 1e18 else float(r))
    return table._replace(layers=table.layers.copy())


@kernel
def power(y, r, twice):
    """Compute y**r for y >= 0, given ``twice_exponent(r)``.

    Products are several times faster than the general power.
    """
    if twice == 0:
        return y**r
    result = math.sqrt(y) if twice & 1 else 1.0
    count = twice >> 1
    while count > 0:
        if count & 1:
            result *= y
        y *= y
        count >>= 1
    return result


@kernel
def chi(rng, dim):
    """Draw the Euclidean norm of ``dim`` standard normals."""
    return math.sqrt(2.0 * rng.standard_gamma(0.5 * dim))


@kernel
def _outside(rng, r, twice, tail, layer, y, low, high):
    """Finish a draw that is not surely under f.

    Return y and y^r. A negative y means a rejection.
    """
    if layer > 0:
        powered = power(y, r, twice)
        if low + (high - low) * rng.random() < math.exp(-powered / r):
            return y, powered
        return -1.0, powered
    # In s = y^r / r the tail has density s^(1/r - 1) e^-s, below a shifted exponential.
    while True:
        s = tail + rng.standard_exponential()
        if rng.random() < (tail / s) ** (1.0 - 1.0 / r):
            return (r * s) ** (1.0 / r), r * s


@kernel
def scaled_norm(out, r):
    """Return the l_r norm, with the largest magnitude factored out."""
    largest = 0.0
    for i in range(len(out)):
        largest = max(largest, abs(out[i]))
    if r == np.inf:
        return largest
    total = 0.0
    for i in range(len(out)):
        total += (abs(out[i]) / largest) ** r
    return largest * total ** (1.0 / r)


@kernel
def _plain_vector(rng, r, out):
    """Write uniform numbers for r = inf or normals for r = 2, and return the norm."""
    if r == 2.0:
        total = 0.0
        for i in range(len(out)):
            out[i] = rng.standard_normal()
            total += out[i] * out[i]
        return math.sqrt(total)
    largest = 0.0
    for i in range(len(out)):
        # Odd multiples of 2^-53 are symmetric and never 0.
        x = 2.0 * rng.random() - 1.0 + 2.0**-53
        out[i] = x
        largest = max(largest, abs(x))
    return largest


@kernel
def cone_vector(rng, table, out):
    """Write a vector with cone-measure direction, and return its l_r norm > 0."""
    if len(out) == 1:
        out[0] = 1.0 if rng.random() < 0.5 else -1.0
        return 1.0
    r, twice, tail = table.r, table.twice, table.tail
    if r == 2.0 or r == np.inf:
        return _plain_vector(rng, r, out)
    # Passing the array to a function for each coordinate would take longer than the
    # draw, so the first test is made here.
    layers = table.layers
    total = 0.0
    i = 0
    while i < len(out):
        # One uniform number gives one of 256 layers and a sign.
        code = int(512.0 * rng.random())
        layer = code >> 1
        u = 1.0 - rng.random()  # in (0, 1]
        y = u * layers[layer, 0]
        if u < layers[layer, 1]:
            powered = power(y, r, twice)
        else:
            low, high = layers[layer, 2], layers[layer + 1, 2]
            y, powered = _outside(rng, r, twice, tail, layer, y, low, high)
            if y < 0.0:
                continue
        out[i] = y * (1.0 - 2.0 * (code & 1))
        total += powered
        i += 1
    # A sum of tiny powers has lost digits.
    return total ** (1.0 / r) if total > 1e-290 else scaled_norm(out, r)


@kernel
def scale_to(norm, radius, out):
    """Scale a vector of the given norm to the norm ``radius``."""
    factor = radius / norm
    for i in range(len(out)):
        out[i] *= factor


@lru_cache(maxsize=64)
def _table(r: float) -> ConeTable:
    """Compute the layers of an exponent."""
    layers = np.zeros((NUM_LAYERS + 1, 3))
    if math.isinf(r):
        # Directions of the cube need no layers. The types must be the same.
        return ConeTable(r, 0, 0.0, layers)
    tail = _tail(r)
    area, edges, heights = _layers(r, tail)
    layers[:, 0] = [area / heights[0], *edges, 0.0]
    layers[:-1, 1] = layers[1:, 0] / layers[:-1, 0]
    layers[:, 2] = [0.0, *heights, 1.0]
    return ConeTable(r, twice_exponent(r), tail, layers)


def _tail(r: float) -> float:
    """Return x_1^r / r for which the layers end at 1, by bisection."""
    # A longer tail has less area, so a larger x_1 gives lower layers.
    low, high = 1e-3, 50.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        area, edges, heights = _layers(r, middle)
        # Layers that pass 1 too early have too large an area.
        is_short = len(edges) < NUM_LAYERS - 1
        too_large = is_short or heights[-1] + area / edges[-1] > 1.0
        low, high = (middle, high) if too_large else (low, middle)
    return high


def _layers(r: float, tail: float) -> tuple[float, list[float], list[float]]:
    """Return v, x_1 ... x_255 and their heights, or fewer if the layers pass 1."""
    from scipy import special

    # The integral of f beyond x_1 is r^(1/r - 1) Gamma(1/r, x_1^r / r).
    tail_area = special.gammaincc(1.0 / r, tail) * special.gamma(1.0 + 1.0 / r)
    edges = [_edge(r, tail)]
    heights = [math.exp(-tail)]
    area = edges[0] * heights[0] + float(tail_area) * r ** (1.0 / r)
    while len(edges) < NUM_LAYERS - 1:
        height = heights[-1] + area / edges[-1]
        if not height < 1.0:
            break
        heights.append(height)
        edges.append(_edge(r, -math.log(height)))
    return area, edges, heights


def _edge(r: float, level: float) -> float:
    """Return the y with y^r / r = level."""
    return math.exp((math.log(r) + math.log(level)) / r)


def twice_exponent(r: float) -> int:
    """Return 2 r for r = 1/2, 1, ..., 32, whose powers are products, otherwise 0."""
    return int(2.0 * r) if r <= 32.0 and 2.0 * r == math.floor(2.0 * r) else 0


class SchattenPlan(NamedTuple):
    """Proposal of spectra of one shape and exponent (see `schatten_plan`).

    Attributes
    ----------
    r : float
        Exponent of the norm in the density.
    num_rows, num_columns : int
        Shape of the matrices.
    method : int
        Method by which matrices are drawn, as a code of `METHOD`.
    dof : float
        Number of columns of the Gaussian matrix whose spectrum is proposed.
    log_bound : float
        Logarithm of the largest ratio of target and proposal.
    acceptance : float
        Probability that a proposal is accepted.

    Examples
    --------
    >>> from dpsample.noise import schatten_plan
    >>> plan = schatten_plan((2, 2), 4.0)
    >>> plan.method == METHOD.operator, round(plan.acceptance, 6)
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
    if plan.method == METHOD.ordered:
        for i in range(m):
            shape = (k + m - 2 * i - 1) / plan.r
            t[i] = rng.standard_gamma(shape) ** (1.0 / plan.r)
    elif plan.method == METHOD.wishart:
        root = np.empty((m, m))
        _fill_triangle(rng, plan.dof, 0, root)
        copy_into(thin_svd(root.reshape(m * m), m, m)[1], t)
    else:
        # The squares are eigenvalues of A (A + B)^-1 with Wishart A and B of k and m +
        # 1 degrees of freedom, whose roots are stacked.
        roots = np.empty((2 * m, m))
        _fill_triangle(rng, 1.0 * k, 0, roots)
        _fill_triangle(rng, m + 1.0, m, roots)
        top = np.ascontiguousarray(np.linalg.qr(roots)[0][:m])
        copy_into(thin_svd(top.reshape(m * m), m, m)[1], t)


@kernel
def log_acceptance(plan, t):
    """Return the logarithm of the ratio of target and proposal over its upper bound."""
    m = min(plan.num_rows, plan.num_columns)
    k = max(plan.num_rows, plan.num_columns)
    total = 0.0
    if plan.method == METHOD.ordered:
        for i in range(m):
            for j in range(i + 1, m):
                square = (t[j] / t[i]) ** 2
                if not square < 1.0:
                    return -np.inf
                total += math.log1p(-square)
        return total
    log_norm = math.log(scaled_norm(t, plan.r))
    if plan.method == METHOD.operator:
        return m * k * (math.log(scaled_norm(t, np.inf)) - log_norm)
    for i in range(m):
        total += (k - plan.dof) * math.log(t[i]) if plan.dof != k else 0.0
    total += m * (plan.dof * math.log(scaled_norm(t, 2.0)) - k * log_norm)
    return total - plan.log_bound


@kernel
def draw_spectrum(rng, plan, t):
    """Write a spectrum with cone-measure direction, and return its l_r norm."""
    while True:
        _propose(rng, plan, t)
        # An exponential variate is at least -log(a) with probability a.
        if rng.standard_exponential() >= -log_acceptance(plan, t):
            return scaled_norm(t, plan.r)


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
        Scale. The norm of the matrix is sigma times a chi variable.
    out : ndarray, shape (num_rows * num_columns,)
        Output, row by row. LAPACK allocates its workspace.
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
