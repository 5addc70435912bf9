# mypy: allow-untyped-defs
"""Generalized Gaussian noise: density proportional to exp(-||z||_r^2 / (2 sigma^2)).

The norm of a draw in d coordinates is sigma times a chi variable with d degrees of
freedom. Its direction is independent and follows the *cone measure* of the unit ball of
the norm: for a set of directions, it is the volume of the part of the ball in these
directions, as a share of the ball (`cone`). The file has the options class, functions
that draw arrays, and kernels that fill a vector inside the loop of an algorithm.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, Values
from dpsample.core.jit import kernel
from dpsample.noise.cone import chi, cone_table, cone_vector, scale_to
from dpsample.noise.elementary import Gaussian
from dpsample.noise.noise import Noise, Size, check_rng, checked_size, parts
from dpsample.numerics.norms import norm


@dataclass(frozen=True, eq=False)
class GeneralizedGaussian(Noise):
    r"""Vectors with density proportional to exp(-||z||_r^2 / (2 sigma^2)).

    Its integral is d Vol(B_r) (2 sigma^2)^{d/2} Gamma(d/2) / 2 with the volume of the
    l_r ball, Vol(B_r) = (2 Gamma(1 + 1/r))^d / Gamma(1 + d/r). (Euclidean surface
    area in place of d Vol is right for r = 2 only, erratum gradient-E3.)

    Parameters
    ----------
    r : float
        Exponent in [1, inf]. 2 gives independent normals.
    sigma : float
        Absolute scale > 0. The norm of a draw is sigma times a chi variable.

    Raises
    ------
    ValueError
        If r < 1, sigma is not a finite number > 0, or an argument is not a number.

    Examples
    --------
    >>> noise = GeneralizedGaussian(3.0, sigma=2.0)
    >>> noise.draw(np.random.default_rng(0), (5, 4)).shape
    (5, 4)
    >>> round(noise.norm_moment(2, dim=4), 9)
    16.0
    """

    name: ClassVar[str] = "generalized_gaussian"

    r: float
    sigma: float

    def draw(self, rng: np.random.Generator, size: Size) -> Array:
        """Draw vectors along the last axis (see `generalized_gaussian`)."""
        return generalized_gaussian(rng, size=size, r=self.r, sigma=self.sigma)

    def _as_independent(self, dim: int) -> Noise | None:
        """Gaussian coordinates for r = 2, and for a single one."""
        return Gaussian(self.sigma) if self.r == 2.0 or dim == 1 else None

    def _log_density(self, points: Array) -> Values:
        # All in logarithms, because volumes underflow in a few hundred dimensions.
        dim = points.shape[-1]
        log_volume = log_ball_volume(dim, self.r)
        ratio = norm(points, self.r) / self.sigma
        return -0.5 * ratio**2 - log_radial_constant(dim, log_volume, self.sigma)

    def norm_moment(self, order: float, dim: int) -> float:
        """Return E ||z||_r^order = (sigma sqrt 2)^order G((d + order)/2) / G(d/2).

        ``order`` is >= 0 and < 1e6.
        """
        check.half_open(0.0, 1e6, order=order)
        check.integer(1, dim=dim)
        order, dim = float(order), int(dim)  # NumPy's numbers may overflow
        return _moment(order, log_radial_moment(order, dim, self.sigma))

    def coordinate_moment(self, order: float, dim: int) -> float:
        """Return E |z_i|^order.

        |z_i|^r / ||z||_r^r is a Beta(1/r, (d - 1)/r) variable, independent of the norm.
        For r = inf, |z_i| / ||z|| is 1 with probability 1/d and uniform otherwise.
        """
        check.half_open(0.0, 1e6, order=order)
        check.integer(1, dim=dim)
        order, dim = float(order), int(dim)
        radial = log_radial_moment(order, dim, self.sigma)
        # The moment of the share |z_i| / ||z|| is a ratio of four Gamma functions. By
        # G(x / r) = G(1 + x / r) r / x the powers of r cancel, also for r = inf.
        log_share = math.log((dim + order) / (dim * (1.0 + order)))
        for x, sign in ((1.0 + order, 1), (dim, 1), (1.0, -1), (dim + order, -1)):
            log_share += sign * math.lgamma(1.0 + x / self.r)
        return _moment(order, radial + log_share)

    def mean_square(self, dim: int) -> float:
        """Return E ||z||_2^2 = d E z_i^2."""
        return dim * self.coordinate_moment(2.0, dim)


def generalized_gaussian(
    rng: np.random.Generator, *, size: Size, r: float, sigma: float = 1.0
) -> Array:
    """Draw vectors with density proportional to exp(-||z||_r^2 / (2 sigma^2)).

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    size : int or tuple of int
        Shape of the result. The last axis holds the coordinates of one vector.
    r : float
        Exponent in [1, inf].
    sigma : float, default 1.0
        Factor > 0 of the noise.

    Returns
    -------
    ndarray
        The draws.

    Raises
    ------
    ValueError
        If ``rng`` is not a Generator, ``size`` has no last axis >= 1, r < 1, or sigma
        is not a finite number > 0.

    Notes
    -----
    **Guarantee**: for real arithmetic and ideal random numbers the draws are
    independent and have exactly this distribution, for every r. The norm is sigma times
    a chi variable, and the direction comes from rejection with exact tails.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> generalized_gaussian(rng, size=(2, 3), r=np.inf, sigma=0.1).shape
    (2, 3)
    """
    check_rng(rng)
    shape = checked_size(size, 1)
    check.positive(sigma=sigma)
    out = np.empty(shape)
    table = cone_table(r)
    for rows in parts(out.reshape(-1, shape[-1])):
        fill_rows(rng, table, float(sigma), rows)
    return out


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
        Output. Nothing is allocated.
    """
    for i in range(len(out)):
        out[i] = stddev * rng.standard_normal()


@kernel
def fill_laplace(rng, scale, out):
    """Fill ``out`` with independent Laplace variables of mean absolute value scale.

    Parameters
    ----------
    rng, out
        As in `fill_gaussian`.
    scale : float
        Mean absolute value.
    """
    for i in range(len(out)):
        out[i] = rng.laplace(0.0, scale)


@kernel
def fill_generalized_gaussian(rng, table, sigma, out):
    """Fill ``out`` with one generalized Gaussian vector.

    Parameters
    ----------
    rng, out
        As in `fill_gaussian`.
    table : ConeTable
        Result of `cone_table` for the exponent r.
    sigma : float
        Scale. The norm of the vector is sigma times a chi variable.
    """
    if table.r == 2.0 or len(out) == 1:
        fill_gaussian(rng, sigma, out)
        return
    # The density depends on the norm alone, so norm and direction are independent. The
    # direction has the cone measure. The norm has a density proportional to t^(d-1)
    # exp(-t^2/(2 sigma^2)), as sigma times a chi variable has.
    norm = cone_vector(rng, table, out)
    scale_to(norm, sigma * chi(rng, len(out)), out)


@kernel
def fill_rows(rng, table, sigma, out):
    """Fill every row of ``out`` with one generalized Gaussian vector."""
    for i in range(out.shape[0]):
        fill_generalized_gaussian(rng, table, sigma, out[i])


def log_ball_volume(dim: int, r: float) -> float:
    """Return the log volume of the unit l_r ball, (2 G(1 + 1/r))^d / G(1 + d/r)."""
    corner = math.lgamma(1.0 + 1.0 / r) + math.log(2.0)
    return dim * corner - math.lgamma(1.0 + dim / r)


def log_radial_constant(dim: int, log_volume: float, sigma: float) -> float:
    """Return the logarithm of the integral of exp(-||z||^2 / (2 sigma^2)), any norm.

    The integral is d Vol (2 sigma^2)^(d/2) Gamma(d/2) / 2 for a unit ball of volume
    Vol.
    """
    half = 0.5 * dim
    # d Gamma(d/2) / 2 = Gamma(1 + d/2).
    scale = log_volume + half * math.log(2.0) + dim * math.log(sigma)
    return scale + math.lgamma(1 + half)


def log_radial_moment(order: float, dim: int, sigma: float) -> float:
    """Return the logarithm of the moment E ||z||^order of the norm of a draw."""
    half = 0.5 * dim
    growth = math.lgamma(half + 0.5 * order) - math.lgamma(half)
    return order * (0.5 * math.log(2.0) + math.log(sigma)) + growth


def _moment(order: float, log_value: float) -> float:
    """Return the exponential, or raise if the order is too large for doubles."""
    try:
        return math.exp(log_value)
    except OverflowError:
        check.fail("order", "small enough for a moment that a float holds", order)
