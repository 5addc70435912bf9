"""Schatten noise on matrices: density proportional to exp(-||Z||^2 / (2 sigma^2)).

||Z|| is the Schatten norm, the l_r norm of the singular values t (the *spectrum*). With
D entries, the norm of a draw is sigma times a chi variable with D degrees of freedom,
and its direction independently follows the cone measure of the unit ball, which is the
distribution of Z / ||Z|| for a uniform point Z of the ball (see `cone`).
`schatten_plan` chooses the proposal for spectra with the best acceptance rate, which is
a ratio of volumes of balls.

The singular values t of an m x k matrix, m <= k, have the volume element

    C prod_i t_i^(k - m) prod_{i<j} |t_i^2 - t_j^2| dt

on all t >= 0, in any order. C depends on m and k (see `log_schatten_volume`). The
integrals below are without C. The one against exp(-sum t_i^r) is Selberg's for r = 2.
For every other r it is a Pfaffian of incomplete beta functions by de Bruijn's formula
[1]_. On [0, 1]^m, the ball of r = inf, it is Selberg's again.

References
----------
.. [1] N. G. de Bruijn, On some multiple integrals involving determinants, Journal of
   the Indian Mathematical Society 19, 1955.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Values
from dpsample.domains import SchattenBall
from dpsample.noise.cone import (
    METHOD,
    SchattenPlan,
    fill_schatten_rows,
)
from dpsample.noise.elementary import Gaussian
from dpsample.noise.generalized_gaussian import log_radial_constant
from dpsample.noise.noise import Noise, Size, check_rng, checked_size, parts
from dpsample.numerics.norms import schatten

_LOG_GAMMA_3_2 = math.lgamma(1.5)


class Option(NamedTuple):
    """Proposal of spectra. The largest option is the one that accepts most."""

    log_acceptance: float
    method: int  # a code of `cone.METHOD`
    dof: float  # degrees of freedom of METHOD.wishart
    log_bound: float  # log of the largest ratio of densities, target to proposal


@dataclass(frozen=True, eq=False)
class SchattenGaussian(Noise):
    """Flattened matrices with density proportional to exp(-||Z||_Sr^2 / (2 sigma^2)).

    ||Z||_Sr is the l_r norm of the singular values.

    Parameters
    ----------
    r : float
        Exponent in [1, inf]. 1 is the nuclear, 2 the Frobenius, inf the operator norm.
    sigma : float
        Absolute scale > 0. The norm of a draw is sigma times a chi variable.
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
        super().__post_init__()
        # The ball checks r and the shape, which becomes a pair of ints.
        sides = SchattenBall(1.0, p=self.r, shape=self.shape).shape
        object.__setattr__(self, "shape", sides)

    @property
    def dim(self) -> int:
        """Number of entries of a matrix."""
        return self.shape[0] * self.shape[1]

    def draw(self, rng: np.random.Generator, size: Size) -> Array:
        """Draw matrices flattened row by row (see `schatten_gaussian`)."""
        shape = checked_size(size, 1)
        if shape[-1] != self.dim:
            check.fail("size", f"of shape (..., {self.dim})", size)
        sides = (*shape[:-1], *self.shape)
        draws = schatten_gaussian(rng, size=sides, r=self.r, sigma=self.sigma)
        return draws.reshape(shape)

    def _as_independent(self, dim: int) -> Noise | None:
        """Return Gaussian noise for r = 2 and for a single row or column, else None."""
        del dim  # follows from the shape
        return Gaussian(self.sigma) if self.r == 2.0 or min(self.shape) == 1 else None

    # The square of the norm may overflow. Then the log density is minus infinity.
    @np.errstate(over="ignore")
    def log_density(self, z: ArrayLike) -> Values:
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
    rng: np.random.Generator, *, size: Size, r: float, sigma: float = 1.0
) -> Array:
    """Draw matrices with density proportional to exp(-||Z||_Sr^2 / (2 sigma^2)).

    Parameters
    ----------
    rng, r, sigma
        As in `generalized_gaussian`.
    size : tuple of int
        Shape of the result. The last two axes hold one matrix.

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
    independent and have exactly this distribution. Singular values are drawn by
    rejection, and singular vectors are taken from a Gaussian matrix. For r < 2 the
    bound of the rejection may be a maximum that was found numerically, with a margin
    (see `wishart_bound`).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> schatten_gaussian(rng, size=(5, 2, 3), r=np.inf).shape
    (5, 2, 3)
    """
    check_rng(rng)
    shape = checked_size(size, 2)
    check.positive(sigma=sigma)
    plan = schatten_plan((shape[-2], shape[-1]), r)
    out = np.empty(shape)
    cost = math.ceil(min(shape[-2:]) / plan.acceptance)
    for rows in parts(out.reshape(-1, shape[-2] * shape[-1]), cost=cost):
        fill_schatten_rows(rng, plan, float(sigma), rows)
    return out


@np.errstate(under="ignore")  # powers with huge exponents become 0
def schatten_plan(shape: tuple[int, int], r: float) -> SchattenPlan:
    """Return the best proposal for Schatten cone-measure directions.

    Parameters
    ----------
    shape : tuple of two int
        Rows and columns of a matrix.
    r : float
        Exponent in [1, inf].

    Returns
    -------
    SchattenPlan
        The proposal with the largest acceptance, and that acceptance.

    Raises
    ------
    ValueError
        If r < 1, ``shape`` is not a pair of positive integers, or no exact method
        accepts one in 10,000 proposals.

    Notes
    -----
    r = 2 and r = inf accept always, at every size. The acceptance is the ratio of two
    volumes. It falls as the smaller side of the matrix grows.

    Examples
    --------
    >>> plan = schatten_plan((2, 2), 1.0)
    >>> round(plan.acceptance, 6)
    0.75
    """
    check.at_least(1.0, r=r)
    sides = SchattenBall(1.0, p=r, shape=shape).shape
    return _plan(sides, float(r))


@lru_cache(maxsize=256)
def _plan(shape: tuple[int, int], r: float) -> SchattenPlan:
    """Compute a plan, once for each shape and exponent."""
    m, k = sorted(shape)
    if r == 2.0 or m == 1:  # all norms of a single singular value agree
        return SchattenPlan(
            2.0 if m == 1 else r, *shape, METHOD.wishart, float(k), 0.0, 1.0
        )
    if math.isinf(r):
        return SchattenPlan(r, *shape, METHOD.operator, float(k), 0.0, 1.0)
    options = _large_exponent(m, k, r) if r > 2.0 else _small_exponent(m, k, r)
    best = max(options)
    # Below this rate a draw would need more than 10,000 proposals on average.
    if not best.log_acceptance >= math.log(1e-4):  # NaN, too
        remedy = (
            "Use r = 2 or r = inf, which are exact at every size, or Gaussian noise."
        )
        condition = f"small enough for exact Schatten noise with r = {r:g}"
        check.fail("shape", condition, shape, remedy)
    acceptance = math.exp(best.log_acceptance)
    return SchattenPlan(r, *shape, best.method, best.dof, best.log_bound, acceptance)


def _large_exponent(m: int, k: int, r: float) -> list[Option]:
    """Return the proposals for r > 2."""
    dim = m * k
    # The ratio of densities of directions is (||t||_2 / ||t||_r)^dim. It is largest for
    # equal singular values.
    log_bound = dim * (0.5 - 1.0 / r) * math.log(m)
    log_target = _log_direction(log_power_spectrum(m, k, r), dim, r)
    log_wishart = _log_direction(log_gaussian_spectrum(m, k), dim, 2.0)
    # For r = inf, the integral over directions is dim times the one over the cube.
    log_operator = log_cube_spectrum(m, k) + math.log(dim)
    # The acceptance is the mean of the ratio over its bound. If the volume is not known
    # accurately, the smallest value of the ratio gives a lower bound. It is 1 for
    # the Wishart method. For the operator method the ratio is
    # (||t||_inf / ||t||_r)^dim >= m^(-dim / r).
    if math.isnan(log_target):
        wishart, operator = -log_bound, -dim * math.log(m) / r
    else:
        wishart = log_target - log_wishart - log_bound
        operator = log_target - log_operator
    return [
        Option(wishart, METHOD.wishart, float(k), log_bound),
        Option(operator, METHOD.operator, float(k), 0.0),
    ]


def _small_exponent(m: int, k: int, r: float) -> list[Option]:
    """Return the proposals for r < 2."""
    dim = m * k
    power = log_power_spectrum(m, k, r)
    if math.isnan(power):
        worst = -dim * (1.0 / r - 0.5) * math.log(m)  # for equal singular values
        return [Option(worst, METHOD.wishart, float(k), 0.0)]
    # For t_1 >= ... >= t_m the volume element is at most the product of the powers
    # t_i^(k + m - 2 i), because t_i^2 - t_j^2 <= t_i^2. So t_i^r are proposed as gamma
    # variables of these shapes.
    gamma_shapes = (k + m + 1.0 - 2.0 * np.arange(1, m + 1)) / r
    single = sum(math.lgamma(a) for a in gamma_shapes) - m * math.log(r)
    ordered = power - math.lgamma(m + 1.0) - single
    options = [Option(ordered, METHOD.ordered, float(k), 0.0)]
    # Fewer degrees of freedom than k may fit better. The best of 24 is taken.
    for dof in np.linspace(m, k, 24 if k > m else 1).tolist():
        bound = wishart_bound(m, k, dof, r)
        proposal = _log_direction(log_gaussian_spectrum(m, dof), m * dof, 2.0)
        log_acceptance = _log_direction(power, dim, r) - proposal - bound
        options.append(Option(log_acceptance, METHOD.wishart, dof, bound))
    return options


def _log_direction(log_integral: float, dim: float, r: float) -> float:
    """Return the log integral over directions, given that over all spectra.

    The given one is of exp(-||t||_r^r). Its part along a direction is the integral of
    exp(-s^r) s^(dim - 1) over s > 0, which is Gamma(dim / r) / r.
    """
    return log_integral - math.lgamma(dim / r) + math.log(r)


def wishart_bound(m: int, k: int, dof: float, r: float) -> float:
    """Bound (k - dof) sum log t + m dof log||t||_2 - m k log||t||_r from above, r < 2.

    This is the log ratio of densities of directions, of the target and of the Wishart
    method. At a maximum each t_i solves a + b t^2 - c t^r = 0 with a >= 0 and
    b, c > 0. The left side is convex in t^r, so the t_i have at most two values. One
    dimension is left, in which q of them are 1 and the others are x <= 1.
    """
    best = -math.inf
    for q in range(1, m + 1):
        # The first grid is uniform in log x.
        grid = np.exp(np.linspace(-40.0, 0.0, 2001))
        for _ in range(6):  # each grid is 20 times finer than the last
            values = _two_values(grid, q, m, k, dof, r)
            i = int(np.argmax(values))
            best = max(best, float(values[i]))
            low, high = grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]
            grid = np.linspace(low, high, 41)
    # The maximum is found numerically, so a margin is added.
    return best + 1e-9 * max(1.0, abs(best))


def _two_values(x: Array, q: int, m: int, k: int, dof: float, r: float) -> Array:
    """Return the function of `wishart_bound` for q values of 1 and m - q of x."""
    square = np.log(q + (m - q) * x**2)
    power = np.log(q + (m - q) * x**r)
    logs = (k - dof) * (m - q) * np.log(x)
    return np.asarray(logs + 0.5 * m * dof * square - m * k / r * power)


def log_gaussian_spectrum(m: int, k: float) -> float:
    """Return the log integral of exp(-sum t_i^2) over the spectrum, k > m - 1 real.

    It is the Laguerre form of Selberg's integral in w = t^2, without C.
    """
    total = -m * math.log(2.0)
    for j in range(m):
        total += math.lgamma(0.5 * (k - m + 1 + j)) + math.lgamma(0.5 * (j + 3))
    return total - m * _LOG_GAMMA_3_2


def log_cube_spectrum(m: int, k: int) -> float:
    """Return the log integral over t in [0, 1]^m, without C."""
    a = 0.5 * (k - m + 1)
    total = -m * math.log(2.0)
    for j in range(m):
        total += math.lgamma(a + 0.5 * j) + math.lgamma(1.0 + 0.5 * j)
        total += math.lgamma(0.5 * (j + 3)) - math.lgamma(a + 0.5 * (m + j + 1))
    return total - m * _LOG_GAMMA_3_2


def log_power_spectrum(m: int, k: int, r: float) -> float:
    """Return the log integral of exp(-sum t_i^r), r < inf, without C.

    It is NaN if it is not accurate.
    """
    from scipy import special

    if r == 2.0:
        return log_gaussian_spectrum(m, k)
    if m == 1:
        return math.lgamma(k / r) - math.log(r)
    if m > 40:  # no Pfaffian of this size has been accurate
        return math.nan
    a = (k - m + 1.0 + 2.0 * np.arange(m)) / r
    if float(a[0]) < check.MIN_NORMAL:  # r is so large that digits are lost
        return math.nan
    # de Bruijn's formula: a Pfaffian of P(x < y) - P(x > y) for Gamma variables.
    ratios = special.betainc(a[:, None], a[None, :], 0.5)
    entries = np.asarray(2.0 * ratios - 1.0, dtype=np.float64)
    entries = 0.5 * (entries - entries.T)
    if m % 2 == 1:  # a border of ones makes the size even
        border = np.ones((m, 1))
        entries = np.block([[entries, border], [-border.T, np.zeros((1, 1))]])
    log_pfaffian = _log_abs_pfaffian(entries)
    # A relative error of 1e-6 of the integral is accepted.
    if not math.isfinite(log_pfaffian) or _log_error(entries) > 1e-6:
        return math.nan
    single = float(special.gammaln(a).sum()) - m * math.log(r)
    return math.lgamma(m + 1.0) + single + log_pfaffian


def _log_abs_pfaffian(matrix: Array) -> float:
    """Return log |Pf| by skew elimination with pivots (Parlett and Reid)."""
    # Exchanging two rows and the same columns changes the sign of a Pfaffian only. A
    # step removes two rows and columns, and their entry is a factor.
    a = np.array(matrix)
    total = 0.0
    for i in range(0, len(a), 2):
        pivot = i + 1 + int(np.argmax(np.abs(a[i + 1 :, i])))
        a[[i + 1, pivot]] = a[[pivot, i + 1]]
        a[:, [i + 1, pivot]] = a[:, [pivot, i + 1]]
        if a[i, i + 1] == 0.0:
            return -math.inf
        total += math.log(abs(a[i, i + 1]))
        ratio = a[i, i + 2 :] / a[i, i + 1]
        step = np.outer(ratio, a[i + 2 :, i + 1])
        a[i + 2 :, i + 2 :] += step - step.T
    return total


def _log_error(matrix: Array) -> float:
    """Return a first-order bound of the error of log |Pf|.

    d log Pf = tr(A^-1 dA) / 2, and entries are accurate to about 1e-15.
    """
    return 0.5 * 1e-15 * float(np.abs(np.linalg.inv(matrix)).sum())


def log_schatten_volume(shape: tuple[int, int], r: float) -> float:
    """Return the log volume of the Schatten-r unit ball, in the entries' coordinates.

    Raises
    ------
    ValueError
        If the matrices are so large that the Pfaffian cancels.

    Examples
    --------
    >>> round(math.exp(log_schatten_volume((2, 2), math.inf)), 6)
    6.579736
    """
    m, k = sorted(shape)
    dim = m * k
    # C follows from the Gaussian integral over all entries, pi^(dim/2).
    log_c = 0.5 * dim * math.log(math.pi) - log_gaussian_spectrum(m, k)
    if math.isinf(r):
        return log_c + log_cube_spectrum(m, k)
    log_integral = log_power_spectrum(m, k, r)
    if math.isnan(log_integral):
        remedy = f"The constant of r = {r:g} needs smaller matrices, or r = 2 or inf."
        check.fail("shape", "small enough for an accurate volume", shape, remedy)
    return log_c + log_integral - math.lgamma(1.0 + dim / r)
