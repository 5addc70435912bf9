"""Clipping instance: a data set on which clipped gradient descent is unstable.

Xu et al. (2026), Algorithm 2, runs w <- w - eta (clipped mean gradient + lambda (w -
w_0)), and their Algorithm 3 adds noise to its output as if one record moved it by at
most 2 C / (n lambda). That holds for generalized linear models, whose clipped gradient
is the gradient of another convex loss. It fails for other convex smooth losses, as this
instance in the plane shows (entries gradient-E15 and privacy-9 of docs/errata.md). C is
the clipping bound, eta the step size, lambda the ridge and n the number of records.

The records are f(w) = (w - c)^T A (w - c) / 2 with A = [[0.5, -+0.45], [-+0.45, 0.5]],
eigenvalues 0.05 and 0.95: narrow valleys at 45 degrees through the four corners c =
(+-12, +-18). A clipped gradient is C A (w - c) / |A (w - c)|, whose Jacobian is the
rank-one t (A t)^T C / |g|, t orthogonal to the gradient g: not symmetric, and the sum
over the two valley directions has determinant (t_1 x t_2)(A_1 t_1 x A_2 t_2) < 0. So
the start w_0 = 0 is a saddle between two sinks at (0, +-5.4), and one record decides to
which of them the iterates go.
"""

import functools
import math

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.public import dir_of

__all__ = [
    "CLIP",
    "CORNERS",
    "LAST",
    "NUM_RECORDS",
    "RIDGE",
    "clipped_descent",
    "clipped_mean_gradient",
    "printed_release",
    "printed_sensitivity",
    "printed_stddev",
]
__dir__ = dir_of(__all__)

NUM_RECORDS = 100_001
CLIP = 1.0
RIDGE = 0.01
CORNERS = np.array([(12.0, 18.0), (12.0, -18.0), (-12.0, 18.0), (-12.0, -18.0)])
# The record that differs: f(w) = |w - (0, +-100)|^2 / 2.
LAST = 100.0


def clipped_descent(neighbor: bool = False, *, step_size: float = 1.0) -> Array:
    """Return the output of clipped regularized gradient descent before any noise.

    Xu et al. (2026), Algorithm 2, from w_0 = 0 with C = 1, lambda = 0.01 and
    T = 2 log(n) / (eta lambda) steps, as their Algorithm 3 asks for. The data set is
    25,000 records at each of four corners and one more record.

    Parameters
    ----------
    neighbor : bool
        Whether the last record lies at (0, -100) instead of (0, 100).
    step_size : float
        eta, from 0.01 to 1: the losses are 1-smooth.

    Returns
    -------
    ndarray, shape (2,)
        The last iterate, near (0, 5.36), or near (0, -5.36) for the neighbor.

    Raises
    ------
    ValueError
        If ``step_size`` is not inside [0.01, 1], or ``neighbor`` is not a bool.

    Examples
    --------
    >>> print(f"{clipped_descent()[1]:.2f} {clipped_descent(neighbor=True)[1]:.2f}")
    5.36 -5.36
    """
    check.instance(bool, neighbor=neighbor)
    # A lower limit, because the number of steps is inverse to their size.
    check.at_least(0.01, step_size=step_size)
    if step_size > 1.0:
        check.fail("step_size", "<= 1", step_size, "The losses are 1-smooth.")
    return _descend(neighbor, float(step_size)).copy()


def printed_sensitivity() -> float:
    """Return 2 C / (n lambda), the published bound of the effect of one record.

    Examples
    --------
    >>> print(f"{printed_sensitivity():.6f}")
    0.002000
    """
    return 2.0 * CLIP / (NUM_RECORDS * RIDGE)


def printed_stddev(*, epsilon: float, delta: float) -> float:
    """Noise of Xu et al. (2026), Algorithm 3: 8 C sqrt(log(1/delta)) / (n lambda eps).

    Parameters
    ----------
    epsilon : float
        Claimed privacy loss, from 1e-60 to 1e60.
    delta : float
        Claimed probability, > 0 and < 1.

    Returns
    -------
    float
        Standard deviation of the noise in each coordinate.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Examples
    --------
    >>> print(f"{printed_stddev(epsilon=1.0, delta=1e-5):.4f}")
    0.0271
    """
    check.scale(epsilon=epsilon)
    check.open_interval(0.0, 1.0, delta=delta)
    scale = 4.0 * printed_sensitivity() * math.sqrt(math.log(1.0 / delta))
    return scale / epsilon


def printed_release(
    rng: np.random.Generator,
    *,
    size: int,
    neighbor: bool = False,
    epsilon: float,
    delta: float,
) -> Array:
    """Return independent outputs of a phase of Algorithm 3, with the published noise.

    Parameters
    ----------
    rng : Generator
        Source of the noise.
    size : int
        Number of outputs, >= 1.
    neighbor : bool
        Which of the two data sets.
    epsilon, delta : float
        As in `printed_stddev`.

    Returns
    -------
    ndarray, shape (size, 2)

    Raises
    ------
    ValueError
        If a number is out of its range.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> printed_release(rng, size=3, epsilon=1.0, delta=1e-5).shape
    (3, 2)
    """
    check.instance(np.random.Generator, rng=rng)
    check.integer(1, size=size)
    stddev = printed_stddev(epsilon=epsilon, delta=delta)
    return clipped_descent(neighbor) + stddev * rng.standard_normal((size, 2))


def clipped_mean_gradient(w: Array, neighbor: bool = False) -> Array:
    """Return the mean of all records' gradients at ``w``, each clipped to norm C.

    Parameters
    ----------
    w : ndarray, shape (2,)
        Point of the plane, each coordinate at most 1e60 in absolute value.
    neighbor : bool
        Which of the two data sets.

    Returns
    -------
    ndarray, shape (2,)

    Examples
    --------
    >>> print(clipped_mean_gradient(np.zeros(2)) * NUM_RECORDS)
    [ 0. -1.]
    """
    w = check.array("w", w, shape=(2,))
    check.scale(w=max(check.MIN_SCALE, float(np.abs(w).max())))
    check.instance(bool, neighbor=neighbor)
    return _clipped_mean(w, neighbor)


def _clipped_mean(w: Array, neighbor: bool) -> Array:
    """Return `clipped_mean_gradient` without checks."""
    matrices, centers, weights = _records(neighbor)
    gradients = np.einsum("kij,kj->ki", matrices, w - centers)
    norms = np.sqrt((gradients**2).sum(axis=1))
    # Gradients shorter than C are not changed: C / max(|g|, C) = 1.
    scale = weights * CLIP / np.maximum(norms, CLIP)
    return np.asarray(scale @ gradients)


@functools.cache
def _records(neighbor: bool) -> tuple[Array, Array, Array]:
    """Return matrices, centers and relative weights of the five distinct records."""
    matrices = np.empty((5, 2, 2))
    # The valley of a corner runs at 45 degrees through it. The fifth matrix belongs to
    # the record that differs.
    for matrix, corner in zip(matrices, CORNERS, strict=False):
        matrix[:] = [[0.5, 0.0], [0.0, 0.5]]
        matrix[0, 1] = matrix[1, 0] = -0.45 * np.sign(corner[0] * corner[1])
    matrices[4] = np.eye(2)
    last = (0.0, -LAST if neighbor else LAST)
    weights = np.array([(NUM_RECORDS - 1) / 4] * 4 + [1]) / NUM_RECORDS
    return matrices, np.vstack((CORNERS, last)), weights


@functools.lru_cache(maxsize=16)
def _descend(neighbor: bool, step_size: float) -> Array:
    """Return the last iterate of `clipped_descent`."""
    # The start is the saddle w_0 = 0, around which the ridge is centered as well.
    w = np.zeros(2)
    num_steps = math.ceil(2.0 * math.log(NUM_RECORDS) / (step_size * RIDGE))
    for _ in range(num_steps):
        w = w - step_size * (_clipped_mean(w, neighbor) + RIDGE * w)
    return w
