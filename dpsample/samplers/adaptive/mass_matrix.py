# mypy: allow-untyped-defs
r"""Mass matrix of Hamiltonian samplers: its inverse Sigma = L L^T, for kernels.

Sigma is about the covariance of the target. Velocities are L xi with xi ~ N(0, I), and
have the kinetic energy |W v|^2 / 2, where W is a left inverse of L. There are two
forms. In the dense form L (dim, rank), W and Sigma are arrays. In many dimensions Sigma
is a diagonal plus low rank: with orthonormal columns Q (dim, m) and D = diag(scale)

    L = D (I + Q diag(stretch - 1) Q^T),    W = (I + Q diag(unstretch - 1) Q^T) D^-1,

so that each product costs O(dim m). A stretch and unstretch of 0 remove a direction
from the velocities. Both forms have one compiled type, in which the arrays of the other
form are empty. A vector is *whitened* by W.

The ``buffer`` of a kernel has `MassMatrix.num_scratch` numbers. In the dense form it
holds one whitened vector. Otherwise it holds dim numbers for products, dim for a
whitened vector, and at its end the m weights Q^T vector.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core.arrays import Array
from dpsample.core.frames import by_address, frame_type
from dpsample.core.jit import kernel, matrix, vector
from dpsample.numerics.vectors import multiply, multiply_rows


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class MassMatrix(NamedTuple):
    """Inverse mass matrix Sigma, dense or a diagonal plus low rank.

    Examples
    --------
    >>> mass = dense([[2.0, 0.0], [1.0, 3.0]])
    >>> mass.rank, mass.covariance.tolist()
    (2, [[4.0, 2.0], [2.0, 10.0]])
    """

    factor: Array  # (dim, rank)
    whiten: Array  # (rank, dim): left inverse of the factor
    covariance: Array  # (dim, dim)
    scale: Array  # (dim,)
    basis: Array  # (dim, m), orthonormal columns
    stretch: Array  # (m,)
    unstretch: Array  # (m,): 1 / stretch, 0 where that is 0

    @property
    def is_dense(self) -> bool:
        """Whether Sigma is an array."""
        return bool(self.factor.shape[0] > 0)

    @property
    def rank(self) -> int:
        """Dimension of the velocities."""
        if self.is_dense:
            return int(self.factor.shape[1])
        return int(self.scale.size - np.count_nonzero(self.stretch == 0.0))

    @property
    def num_white(self) -> int:
        """Number of entries of a whitened vector."""
        return int(self.factor.shape[1] if self.is_dense else self.scale.size)

    def times_root(self, root: Array) -> "MassMatrix":
        """Return the mass matrix with the factor L root, for a dense Sigma."""
        return dense(self.factor @ root, np.linalg.solve(root, self.whiten))

    @property
    def num_scratch(self) -> int:
        """Size of the scratch memory of a kernel."""
        if self.is_dense:
            return int(self.factor.shape[1])
        return int(2 * self.scale.size + self.stretch.size)

    def whiten_rows(self, rows: Array) -> Array:
        """Return rows times W^T, of rank numbers, or of dim if Sigma is not dense."""
        if self.is_dense:
            return np.asarray(rows @ self.whiten.T)
        return self._stretch_rows(rows / self.scale, self.unstretch)

    def spread(self, white: Array) -> Array:
        """Return whitened rows times L^T."""
        if self.is_dense:
            return np.asarray(white @ self.factor.T)
        return self._stretch_rows(white, self.stretch) * self.scale

    def apply(self, rows: Array) -> Array:
        """Return rows times Sigma."""
        if self.is_dense:
            return np.asarray(rows @ self.covariance)
        return self._stretch_rows(rows * self.scale, self.stretch**2) * self.scale

    def _stretch_rows(self, rows: Array, factors: Array) -> Array:
        """Return rows times I + Q diag(factors - 1) Q^T."""
        along = (rows @ self.basis * (factors - 1.0)) @ self.basis.T
        return np.asarray(rows + along)


# Type of the tuple, for signatures.
MASS_MATRIX = frame_type(
    (matrix, matrix, matrix, vector, matrix, vector, vector), MassMatrix
)


def dense(factor: ArrayLike, whiten: ArrayLike | None = None) -> MassMatrix:
    """Return the mass matrix with Sigma = factor factor^T, factor (dim, rank).

    ``whiten`` is the factor's left inverse, if it is known.
    """
    columns = np.array(factor, dtype=np.float64, order="C", ndmin=2)
    inverse = whiten
    if whiten is None:
        # The rows are scaled to length 1 and no singular value is cut off, because rows
        # of very different sizes do not make the rank smaller.
        size = np.linalg.norm(columns, axis=1)
        size[size == 0.0] = 1.0
        inverse = np.linalg.pinv(columns / size[:, None], rcond=0.0) / size
    return MassMatrix(
        factor=columns,
        whiten=np.array(inverse, dtype=np.float64, order="C", ndmin=2),
        covariance=np.ascontiguousarray(columns @ columns.T),
        scale=np.empty(0),
        basis=np.empty((0, 0)),
        stretch=np.empty(0),
        unstretch=np.empty(0),
    )


def low_rank(scale: ArrayLike, basis: ArrayLike, stretch: ArrayLike) -> MassMatrix:
    """Return the mass matrix of a diagonal, orthonormal columns and their stretches."""
    factors = np.array(stretch, dtype=np.float64)
    # A removed direction has the stretch 0 in both factors.
    inverse = np.zeros_like(factors)
    np.divide(1.0, factors, out=inverse, where=factors != 0.0)
    return MassMatrix(
        factor=np.empty((0, 0)),
        whiten=np.empty((0, 0)),
        covariance=np.empty((0, 0)),
        scale=np.array(scale, dtype=np.float64),
        basis=np.array(basis, dtype=np.float64, order="C", ndmin=2),
        stretch=factors,
        unstretch=inverse,
    )


@kernel(counts_references=False, fastmath={"reassoc", "contract"})
def small_product(matrix, vector, out):
    """Fill out with matrix times vector, without the 80 ns of a call of BLAS.

    The compiler may change the order of sums, so that it can vectorize the loop.
    """
    for i in range(out.shape[0]):
        total = 0.0
        for j in range(vector.shape[0]):
            total += matrix[i, j] * vector[j]
        out[i] = total


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def product(matrix, vector, out):
    """Fill out with matrix times vector."""
    # For up to 32 columns a loop is faster than BLAS.
    if vector.shape[0] <= 32:
        small_product(matrix, vector, out)
    else:
        multiply(matrix, vector, out)


@kernel(counts_references=False)
def project_on_basis(mass, vector, buffer):
    """Write the weights Q^T vector to the end of the buffer."""
    weights = buffer[2 * vector.shape[0] :]
    if weights.shape[0] > 0:
        multiply_rows(vector, mass.basis, weights)


@kernel(counts_references=False)
def add_basis(mass, buffer, out):
    """Add Q weights to out."""
    dim = out.shape[0]
    weights, combination = buffer[2 * dim :], buffer[:dim]
    if weights.shape[0] > 0:
        multiply(mass.basis, weights, combination)
        for j in range(dim):
            out[j] += combination[j]


@kernel(counts_references=False)
def stretch_along_basis(mass, factors, power, buffer, out):
    """Multiply out by I + Q diag(factors^power - 1) Q^T.

    The weights, times the factors minus 1, remain at the end of the buffer.
    """
    project_on_basis(mass, out, buffer)
    first = 2 * out.shape[0]
    for k in range(factors.shape[0]):
        buffer[first + k] *= factors[k] ** power - 1.0
    add_basis(mass, buffer, out)


@kernel(counts_references=False)
def half_square(vector):
    """Return half the squared length."""
    total = 0.0
    for j in range(vector.shape[0]):
        total += vector[j] * vector[j]
    return 0.5 * total


@kernel(counts_references=False)
def draw_velocity(mass, rng, buffer, out):
    """Fill out with L xi, xi ~ N(0, I). Return its kinetic energy."""
    if mass.factor.shape[0] > 0:
        for i in range(buffer.shape[0]):
            buffer[i] = rng.standard_normal()
        product(mass.factor, buffer, out)
        return half_square(buffer)
    dim = out.shape[0]
    for j in range(dim):
        out[j] = rng.standard_normal()
    energy = half_square(out)
    stretch_along_basis(mass, mass.stretch, 1, buffer, out)
    for k in range(mass.stretch.shape[0]):
        # A removed direction has the weight -<q, xi>, and no part of the energy.
        if mass.stretch[k] == 0.0:
            energy -= 0.5 * buffer[2 * dim + k] ** 2
    for j in range(dim):
        out[j] *= mass.scale[j]
    return energy


@kernel(counts_references=False)
def kinetic(mass, vector, buffer):
    """Return |W vector|^2 / 2."""
    if mass.factor.shape[0] > 0:
        product(mass.whiten, vector, buffer)
        return half_square(buffer)
    dim = vector.shape[0]
    white = buffer[dim : 2 * dim]
    for j in range(dim):
        white[j] = vector[j] / mass.scale[j]
    stretch_along_basis(mass, mass.unstretch, 1, buffer, white)
    return half_square(white)


@kernel(counts_references=False)
def times(mass, vector, buffer, out):
    """Fill out with Sigma vector."""
    if mass.factor.shape[0] > 0:
        product(mass.covariance, vector, out)
        return
    for j in range(out.shape[0]):
        out[j] = mass.scale[j] * vector[j]
    stretch_along_basis(mass, mass.stretch, 2, buffer, out)
    for j in range(out.shape[0]):
        out[j] *= mass.scale[j]


@kernel(counts_references=False)
def column(mass, axis, buffer, out):
    """Fill out with column ``axis`` of Sigma, in O(dim) or O(dim m)."""
    dim = out.shape[0]
    if mass.factor.shape[0] > 0:
        for j in range(dim):
            out[j] = mass.covariance[axis, j]
        return
    # Sigma e_axis needs no product with Q^T, because Q^T e_axis is a row of Q.
    for k in range(mass.stretch.shape[0]):
        buffer[2 * dim + k] = mass.basis[axis, k] * (mass.stretch[k] ** 2 - 1.0)
    for j in range(dim):
        out[j] = 0.0
    out[axis] = 1.0
    add_basis(mass, buffer, out)
    for j in range(dim):
        out[j] *= mass.scale[j] * mass.scale[axis]
