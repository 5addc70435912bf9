"""Generalized Gaussian noise on matrices: exp(-||Z||^2 / (2 sigma^2)), Schatten norm.

With D entries, the norm of a draw is sigma times a chi variable with D degrees of
freedom, and its direction follows the cone measure of the unit ball, independently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsample import _check as check
from dpsample.domains import SchattenBall
from dpsample.noise._base import Noise
from dpsample.noise.generalized_gaussian import log_radial_constant
from dpsample.noise.schatten_constant import log_schatten_volume
from dpsample.noise.schatten_plan import schatten_plan
from dpsample.noise.schatten_spectrum import fill_schatten_rows
from dpsample.noise.sizes import Vector, checked_rng, checked_size, parts
from dpsample.norms import schatten


@dataclass(frozen=True, eq=False)
class SchattenGaussian(Noise):
    """Flattened matrices with density proportional to exp(-||Z||_Sr^2 / (2 sigma^2)).

    ||Z||_Sr is the l_r norm of the singular values.

    Parameters
    ----------
    r : float
        Exponent in [1, inf]: 1 is the nuclear, 2 the Frobenius, inf the operator norm.
    sigma : float
        Scale > 0, absolute: the norm of a draw is sigma times a chi variable.
    shape : tuple of two int
        Rows and columns of a matrix.

    Raises
    ------
    ValueError
        If r < 1, sigma is not a finite number > 0, or ``shape`` is not a pair.

    Examples
    --------
    >>> noise = SchattenGaussian(1.0, sigma=1.0, shape=(2, 3))
    >>> noise.draw(np.random.default_rng(0), (10, 6)).shape
    (10, 6)
    >>> float(SchattenGaussian(2.0, 1.0, (1, 1)).log_density([0.0]).round(6))
    -0.918939
    """

    name: ClassVar[str] = "schatten_gaussian"

    r: float
    sigma: float
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        """Check the numbers once."""
        check.at_least(1.0, r=self.r)
        check.positive(sigma=self.sigma)
        object.__setattr__(self, "r", float(self.r))
        object.__setattr__(self, "sigma", float(self.sigma))
        sides = SchattenBall(1.0, p=self.r, shape=self.shape).shape
        object.__setattr__(self, "shape", sides)

    @property
    def dim(self) -> int:
        """Number of entries of a matrix."""
        return self.shape[0] * self.shape[1]

    def draw(self, rng: np.random.Generator, size: Any) -> Vector:
        """Draw matrices flattened row by row; see `schatten_gaussian`."""
        shape = checked_size(size, 1)
        if shape[-1] != self.dim:
            check.fail("size", f"of shape (..., {self.dim})", size)
        sides = (*shape[:-1], *self.shape)
        draws = schatten_gaussian(rng, size=sides, r=self.r, sigma=self.sigma)
        return draws.reshape(shape)

    @np.errstate(over="ignore")  # minus infinity
    def log_density(self, z: Any) -> Any:
        """Return the normalized log density of the flattened matrices.

        Raises
        ------
        ValueError
            If the last axis has another length, or the matrices are so large that the
            closed form of the constant cancels (r other than 2 and inf).
        """
        points = check.vectors("z", z, dim=self.dim)
        log_volume = log_schatten_volume(self.shape, self.r)
        ratio = schatten(points, self.r, self.shape) / self.sigma
        return -0.5 * ratio**2 - log_radial_constant(self.dim, log_volume, self.sigma)


def schatten_gaussian(
    rng: np.random.Generator, *, size: Any, r: float, sigma: float = 1.0
) -> Vector:
    """Draw matrices with density proportional to exp(-||Z||_Sr^2 / (2 sigma^2)).

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    size : tuple of int
        Shape of the result; the last two axes hold one matrix.
    r : float
        Exponent in [1, inf].
    sigma : float, default 1.0
        Scale > 0.

    Returns
    -------
    ndarray
        The draws.

    Raises
    ------
    ValueError
        If ``rng`` is not a Generator, ``size`` has no two last axes >= 1, r < 1, sigma
        is not a finite number > 0, or the matrices are too large for exact rejection
        (see `schatten_plan`).

    Notes
    -----
    **Guarantee**: for real arithmetic and ideal random numbers the draws are
    independent and exactly of this law: singular values by rejection, singular vectors
    those of a Gaussian matrix.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> schatten_gaussian(rng, size=(5, 2, 3), r=np.inf).shape
    (5, 2, 3)
    """
    generator = checked_rng(rng)
    shape = checked_size(size, 2)
    check.positive(sigma=sigma)
    plan = schatten_plan(shape[-2:], r)
    out = np.empty(shape)
    for rows in parts(out.reshape(-1, shape[-2] * shape[-1]), cost=min(shape[-2:])):
        fill_schatten_rows(generator, plan, float(sigma), rows)
    return out
