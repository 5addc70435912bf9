r"""Vector and Schatten norms, their duals, the constants between them, and regularity.

``||v||_p = (sum |v_i|^p)^(1/p)`` for p in [1, inf]. A Schatten norm is the same norm of
the singular values. Largest magnitudes are factored out, so that no power overflows.

**Regularity** measures how close a norm is to one whose square is smooth. A norm is
kappa-regular if another one, ||.||_+, satisfies for all x, y

    ||x + y||_+^2 <= ||x||_+^2 + <grad ||x||_+^2, y> + kappa_+ ||y||_+^2,
    ||x||^2 <= ||x||_+^2 <= (kappa/kappa_+) ||x||^2

(Juditsky and Nemirovski, 2008). For the norm l_q, ||.||_+ is a multiple of l_r with r
>= 2.

Smoothness. On a line that misses the origin, f(t) = ||x + t y||_r^2/2 = S^{2/r}/2 with
S = sum |x_i + t y_i|^r is twice differentiable, and since 2/r <= 1 and by Hölder

    f'' <= S^{2/r - 1} S''/r = (r-1) S^{2/r - 1} sum |x_i + t y_i|^{r-2} y_i^2
        <= (r-1) ||y||_r^2;

through the origin f'' = ||y||_r^2. Hence kappa_+ = r - 1. For Schatten norms the same
constant is the theorem of Ball, Carlen and Lieb (1994) on 2-uniform smoothness.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Values
from dpsample.core.jit import kernel
from dpsample.core.sparse import CSR, Directions, as_csr, is_sparse

# Sums of squares in this range have neither lost small terms nor overflowed. Doubles
# are from 1e-308 to 1e308, so a term that underflowed is below 1e-18 of the sum.
TINY_SQUARE = 1e-290
HUGE_SQUARE = 1e290
# Jacobi's method rotates pairs of rows whose cosine is above this number, eight times
# the rounding error of 1. Smaller cosines may be rounding errors.
ORTHOGONAL = 2.0**-50


@check.unwrap_numpy
def dual(p: float) -> float:
    """Return the exponent of the dual norm: ``1/p + 1/dual(p) = 1``, p in [1, inf].

    Examples
    --------
    >>> dual(1.0), dual(2.0), dual(3.0)
    (inf, 2.0, 1.5)
    """
    check.at_least(1.0, p=p)
    if p == 1.0:
        return math.inf
    return 1.0 if math.isinf(p) else float(p / (p - 1.0))


@check.unwrap_numpy
def conversion(dim: int, from_p: float, to_p: float) -> float:
    """Return the smallest c with ``||a||_to <= c ||a||_from`` for a of length ``dim``.

    It is 1 if ``to_p >= from_p`` and ``dim**(1/to_p - 1/from_p)`` otherwise, for
    exponents in [1, inf]. For Schatten norms ``dim`` is the smaller side of the matrix.

    Examples
    --------
    >>> conversion(4, 2.0, 1.0), conversion(4, 1.0, 2.0)
    (2.0, 1.0)
    """
    check.integer(1, dim=dim)
    check.at_least(1.0, from_p=from_p, to_p=to_p)
    return 1.0 if to_p >= from_p else float(dim ** (1.0 / to_p - 1.0 / from_p))


def norm(v: Directions, p: float, axis: int = -1) -> Values:
    """Return the norm with exponent ``p`` in [1, inf] along ``axis``.

    For a sparse matrix these are the norms of the rows.

    Examples
    --------
    >>> norm([[3.0, 4.0], [1.0, -1.0]], 2.0).round(3).tolist()
    [5.0, 1.414]
    """
    check.at_least(1.0, p=p)
    if is_sparse(v):
        return _sparse_row_norms(as_csr("rows", v), p)
    values = np.asarray(v, dtype=np.float64)
    # The most frequent case has a kernel, which needs no temporary arrays.
    if p in (2.0, math.inf) and values.ndim == 2 and axis in (-1, 1):
        lengths = np.empty(len(values))
        fill_row_norms(np.ascontiguousarray(values), p == 2.0, lengths)
        return lengths
    size = np.abs(values)
    if p == 1.0:
        total: Values = size.sum(axis=axis)
        return total
    largest = size.max(axis=axis, keepdims=True, initial=0.0)
    if not math.isinf(p):
        # Zero, infinity and NaN are no divisors, and the result is what they are.
        unit = np.where((largest > 0.0) & np.isfinite(largest), largest, 1.0)
        power = ((size / unit) ** p).sum(axis=axis, keepdims=True)
        largest = unit * power ** (1.0 / p)
    return np.asarray(largest).squeeze(axis=axis)[()]  # a number if there is no axis


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def fill_row_norms(rows: Array, is_euclidean: bool, out: Array) -> None:
    """Fill out with the l2 norm of each row, or with its largest magnitude."""
    for i in range(rows.shape[0]):
        largest = 0.0
        for j in range(rows.shape[1]):
            size = abs(rows[i, j])
            if size > largest or size != size:
                largest = size
        out[i] = largest
        if is_euclidean and 0.0 < largest < np.inf:
            total = 0.0
            for j in range(rows.shape[1]):
                total += (rows[i, j] / largest) ** 2
            out[i] = largest * np.sqrt(total)


def _sparse_row_norms(rows: CSR, p: float) -> Array:
    """Return the norms of the rows of a matrix, which `as_csr` has found finite."""
    size = abs(rows)
    if p == 1.0:
        return np.asarray(size.sum(axis=1), dtype=np.float64).reshape(-1)
    largest = np.asarray(size.max(axis=1).todense(), dtype=np.float64).reshape(-1)
    if math.isinf(p):
        return largest
    unit = np.where(largest > 0.0, largest, 1.0)
    size.data = (size.data / np.repeat(unit, np.diff(size.indptr))) ** p
    power = np.asarray(size.sum(axis=1), dtype=np.float64).reshape(-1)
    return np.asarray(unit * power ** (1.0 / p))


def schatten(v: ArrayLike, p: float, shape: tuple[int, int]) -> Values:
    """Return the norm with exponent ``p`` in [1, inf] of the singular values.

    Matrices of this ``shape`` are flattened row by row along the last axis of ``v``.
    The exponents 1, 2 and inf give the nuclear, Frobenius and operator norm.

    Examples
    --------
    >>> float(schatten([3.0, 0.0, 0.0, 4.0], 1.0, (2, 2)))
    7.0
    """
    flat = np.asarray(v, dtype=np.float64)
    matrices = flat.reshape(*flat.shape[:-1], *shape)
    return norm(np.linalg.svd(matrices, compute_uv=False), p)


@kernel(counts_references=False)
def norm_along(x: Array, direction: Array, t: float, center: Array, p: float) -> float:
    """Return ``||x + t direction - center||_p`` without allocating."""
    dim = len(x)
    total, largest = 0.0, 0.0
    for i in range(dim):
        # In an interpreted kernel NumPy's floats would warn when they overflow, so they
        # are converted to Python's.
        size = abs((float(x[i]) + t * float(direction[i])) - float(center[i]))
        if size != size:
            return np.nan
        largest = max(largest, size)
        total += size if p == 1.0 else size * size
    if p == 1.0:
        return total
    if np.isinf(p) or largest == 0.0 or np.isinf(largest):
        return largest
    if p == 2.0 and TINY_SQUARE < total < HUGE_SQUARE:
        return math.sqrt(total)
    total = 0.0
    for i in range(dim):
        total += (abs((x[i] + t * direction[i]) - center[i]) / largest) ** p
    return float(largest * total ** (1.0 / p))


@kernel(counts_references=False)
def distance(x: Array, center: Array, p: float) -> float:
    """Return ``||x - center||_p`` without allocating; NaN unless x is finite."""
    return float(norm_along(x, x, 0.0, center, p))


@kernel(counts_references=False)
def lp_normal(offset: Array, p: float, normal: Array) -> float:
    """Return the norm of a vector, and fill ``normal`` with a subgradient.

    The dual norm of the subgradient is 1. At 0 every vector of dual norm 1 is one, and
    all entries are equal. For p = inf, powers of shares below 1 are 0.
    """
    largest, total = 0.0, 0.0
    for j in range(len(offset)):
        largest = max(largest, abs(offset[j]))
    for j in range(len(offset)):
        share = abs(offset[j]) / largest if largest > 0.0 else 1.0
        power = share ** (p - 1.0)
        total += share * power
        normal[j] = math.copysign(power, offset[j])
    root = total ** (1.0 / p)
    for j in range(len(offset)):
        normal[j] *= root / total
    return float(largest * root)


@kernel(counts_references=False)
def rotate_pair(first: Array, second: Array, tangent: float) -> None:
    """Rotate two vectors by the angle with this tangent."""
    cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
    for k in range(len(first)):
        x, y = first[k], second[k]
        first[k] = cosine * (x - tangent * y)
        second[k] = cosine * (y + tangent * x)


@kernel(counts_references=False)
def orthogonalize(rows: Array, rotations: Array) -> None:
    """Make rows orthogonal by Jacobi's rotations (Hestenes, 1958).

    Their lengths are then the singular values, accurate to a few rounding errors. The
    same rotations are applied to the rows of ``rotations``.
    """
    # Maximum number of rounds over all pairs. Convergence is quadratic, so ten are
    # usual.
    for _ in range(60):
        is_done = True
        for i in range(len(rows)):
            for j in range(i):
                square_i, square_j, product = 0.0, 0.0, 0.0
                for k in range(rows.shape[1]):
                    square_i += rows[i, k] * rows[i, k]
                    square_j += rows[j, k] * rows[j, k]
                    product += rows[i, k] * rows[j, k]
                low, high = min(square_i, square_j), max(square_i, square_j)
                # These are squares. A row that is shorter than ORTHOGONAL times another
                # one stands for a singular value that is 0 up to rounding.
                if low <= ORTHOGONAL**2 * high:
                    continue
                if abs(product) > ORTHOGONAL * math.sqrt(square_i * square_j):
                    # The tangent t solves t^2 + 2 half t = 1. The smaller root is the
                    # smaller angle, and this form of it does not cancel.
                    half = 0.5 * (square_j - square_i) / product
                    denominator = abs(half) + math.sqrt(1.0 + half * half)
                    tangent = math.copysign(1.0 / denominator, half)
                    rotate_pair(rows[i], rows[j], tangent)
                    rotate_pair(rotations[i], rotations[j], tangent)
                    is_done = False
        if is_done:
            return


@kernel(counts_references=False)
def reset_rotations(short: int, workspace: Array) -> None:
    """Write the identity to the workspace of `schatten_normal`, for a first matrix.

    ``short`` is the smaller side of the matrix.
    """
    for k in range(short * short):
        workspace[k] = 1.0 if k % (short + 1) == 0 else 0.0


@kernel(counts_references=False)
def schatten_normal(
    flat: Array,
    num_rows: int,
    num_columns: int,
    p: float,
    workspace: Array,
    normal: Array,
) -> float:
    """Return the Schatten norm of a matrix, and fill ``normal`` with a subgradient.

    The dual norm of the subgradient is 1. The matrix is flattened row by row. The
    workspace begins with the rotations that made an earlier matrix orthogonal, because
    a matrix nearby needs few more. It has three times the matrix's size plus 1, which
    holds the rotations (short, short), rows (short, long), and two vectors (short,).
    """
    # The rows that are made orthogonal are those of the matrix or of its transpose,
    # whichever are fewer. Entry k of row j is flat[k * column_stride + j * row_stride].
    long, short, column_stride, row_stride = num_rows, num_columns, num_columns, 1
    if long < short:
        long, short, column_stride, row_stride = short, long, 1, short
    square, largest, longest = short * short, 0.0, 0.0
    rotations = workspace[:square].reshape((short, short))
    rows = workspace[square : square + short * long].reshape((short, long))
    sizes = workspace[square + short * long : square + short * (long + 1)]
    weights = workspace[square + short * (long + 1) : square + short * (long + 2)]
    for j in range(len(flat)):
        largest = max(largest, abs(flat[j]))
    # Entries are scaled to at most 1, unless the factor itself might overflow.
    scale = 1.0 / largest if 1.0 / HUGE_SQUARE < largest else 1.0
    for i in range(short):
        for k in range(long):
            total = 0.0
            for j in range(short):
                entry = flat[k * column_stride + j * row_stride]
                total += rotations[i, j] * (scale * entry)
            rows[i, k] = total
    orthogonalize(rows, rotations)
    for i in range(short):
        square_length = 0.0
        for k in range(long):
            square_length += rows[i, k] * rows[i, k]
        sizes[i] = math.sqrt(square_length)
        longest = max(longest, sizes[i])
    value = lp_normal(sizes, p, weights)
    for j in range(len(flat)):
        normal[j] = 0.0
    # The subgradient has the same singular vectors, and the subgradient of the norm of
    # the singular values as its singular values.
    for i in range(short):
        if weights[i] > 0.0 and sizes[i] > ORTHOGONAL * longest:
            weight = weights[i] / sizes[i]
            for k in range(long):
                for j in range(short):
                    part = weight * rows[i, k] * rotations[i, j]
                    normal[k * column_stride + j * row_stride] += part
    return float(value / scale)


@kernel
def thin_svd(
    flat: Array, num_rows: int, num_columns: int
) -> tuple[Array, Array, Array]:
    """Return the singular value decomposition of a finite row-major matrix."""
    # The thin one: False is NumPy's ``full_matrices``.
    return np.linalg.svd(flat.reshape((num_rows, num_columns)), False)


@kernel(counts_references=False)
def write_product(left: Array, values: Array, right: Array, out: Array) -> None:
    """Write ``left diag(values) right`` row by row."""
    columns = right.shape[1]
    out[:] = 0.0
    for i in range(left.shape[0]):
        for k in range(len(values)):
            factor = left[i, k] * values[k]
            for j in range(columns):
                out[i * columns + j] += factor * right[k, j]


class Regularity(NamedTuple):
    """Constants of the dual norm l_q, q = p/(p-1), on vectors of length ``dim``.

    Examples
    --------
    >>> regularity(2.0, dim=5).kappa
    1.0
    """

    dim: int  # the smaller side for Schatten norms
    q: float  # exponent of the norm that is compared
    r: float  # exponent >= 2 of the smooth norm
    scale: float  # ||x||_+ = scale ||x||_r; 1 whenever r <= q
    equivalence: float  # smallest c with ||x||_+ <= c ||x||_q
    kappa: float  # (r - 1) equivalence**2


def regularity(
    p: float, *, dim: int, r: float | Literal["best", "printed"] = "best"
) -> Regularity:
    r"""Return constants with which the dual of l_p (of Schatten-p) is kappa-regular.

    :math:`\kappa_+ = r-1`, :math:`c = d^{1/r-1/q}` and :math:`\kappa = (r-1)c^2` for
    2 <= r <= q = p/(p-1); if q < 2 the norm is :math:`d^{1/q-1/r}\|\cdot\|_r`.

    Parameters
    ----------
    p : float
        Exponent in [1, inf] of the space of parameters; gradients have norm l_q.
    dim : int
        Length of the vectors (for Schatten norms: the smaller side of the matrix).
    r : float or {"best", "printed"}
        Exponent of the smooth norm, >= 2 and finite. "best" minimizes kappa: with
        L = log(dim) it is min{q, L + sqrt(L^2 - 2L)}, or 2 if L <= 2. "printed" is
        min{q, 2L + 1}, at least 2, of arXiv:0807.2245 and Definition 3 of
        arXiv:2303.18047.

    Returns
    -------
    Regularity
        The constants.

    Raises
    ------
    ValueError
        If p < 1, dim < 1, or r is a number below 2 or not finite.

    Guarantee
    ---------
    kappa <= min{1/(p-1), 2e log(dim)} for p <= 2 and dim >= 2, with either word for
    r. arXiv:2303.18047 writes 2 log(dim) for the duals: the factor e is missing
    (errata gradient-E4, privacy-5).

    Examples
    --------
    >>> found = regularity(1.0, dim=1000)
    >>> print(f"{found.r:.3f} {found.kappa:.2f}")
    12.730 34.72
    >>> print(f"{regularity(1.0, dim=1000, r='printed').kappa:.2f}")
    35.10
    >>> regularity(1.5, dim=1000).r
    3.0
    """
    q = dual(p)
    check.integer(1, dim=dim)
    exponent = smooth_exponent(q, dim, r)
    scale = conversion(dim, exponent, q)
    equivalence = scale * conversion(dim, q, exponent)
    kappa = (exponent - 1.0) * equivalence**2
    return Regularity(dim, q, exponent, scale, equivalence, kappa)


def printed_kappa(*, dim: int, p: float) -> float:
    """Return min{1/(p-1), 2 log(dim)} of arXiv:2303.18047 (gradient-E4).

    `regularity` has the constant for p >= 2. A ValueError is raised unless p is in
    [1, 2] and dim >= 2, because the paper states no others.

    Examples
    --------
    >>> printed_kappa(dim=100, p=1.5)
    2.0
    """
    remedy = "The printed constants are stated for 1 <= p <= 2 and dim >= 2."
    check.integer(2, dim=dim, remedy=remedy)
    check.at_least(1.0, p=p, remedy=remedy)
    if p > 2.0:
        check.fail("p", "<= 2", float(p), remedy)
    log_bound = 2.0 * math.log(dim)
    return log_bound if p == 1.0 else min(1.0 / (p - 1.0), log_bound)


def smooth_exponent(q: float, dim: int, r: float | str) -> float:
    """Return the exponent that a keyword for r means, or check the number."""
    log_dim = math.log(dim)
    if isinstance(r, str):
        check.one_of(("best", "printed"), r=r)
        largest = 2.0 * log_dim + 1.0
        if r == "best":
            # d log kappa / dr = 1/(r-1) - 2 log(dim)/r^2 has its upper root here.
            largest = log_dim + math.sqrt(max(log_dim * (log_dim - 2.0), 0.0))
            largest = largest if log_dim > 2.0 else 2.0
        return max(2.0, min(q, largest))
    check.at_least(2.0, r=r, remedy="Squares of l_r norms are not smooth for r < 2.")
    if math.isinf(r):
        check.fail("r", "finite", r, "The square of the maximum norm is not smooth.")
    return float(r)
