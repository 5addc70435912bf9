r"""Exact draws of N(0, G) on X >= l by minimax tilting (Botev, arXiv:1603.04166).

With G = L L^T and X = L z the coordinates are proposed in turn, z_i ~ N(mu_i, 1) above
its bound given those before. The log ratio of target to proposal,

.. math:: \psi(z) = \sum_i \tfrac12 \mu_i^2 - \mu_i z_i + \log \Phi(\mu_i - \ell_i(z)),

is concave in z, for log Phi is and the bounds are affine. Every mu is exact: at any
point zh, psi(z) <= psi(zh) + <psi'(zh), z - zh> <= psi(zh) + ||psi'(zh)|| reach where
||z - zh|| <= reach. Draws farther away lie outside the localized region and are
refused. With mu = 0, psi <= 0 needs no point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from dpsample.core.arrays import Array
from dpsample.numerics.stable import tail_excess

# Rounding of psi, relative to the sum of its terms' sizes.
ROUNDING, SLOPE_ROUNDING = 1e-12, 1e-14
# Slope, or residual, from which another step gains nothing.
MAX_ITERATIONS, CLOSE = 100, 1e-9
# Sides from which on there are no singular values: for 3000 they take minutes a time,
# deaf to Ctrl-C. Draws keep their law, whatever the tilt is.
MANY = 256
# An envelope that is this much above its point is no better than none.
MAX_SLACK = 0.1
# Mean of the exponent that exponential slacks leave to the acceptance, at most.
DEEP = 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class ExponentialOrthant:
    r"""N(0, G) on X >= l deep in its tail: slacks s = X - l are nearly exponential.

    Their density is :math:`e^{-\langle\lambda, s\rangle - s^\top K s / 2}` with
    :math:`K = G^{-1}` and rates :math:`\lambda = K l > 0`.
    """

    rates: Array  # (r,)
    precision: Array  # (r, r): K

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Slacks of accepted draws among ``size`` tries, each a row."""
        slacks = rng.standard_exponential((size, len(self.rates))) / self.rates
        cost = 0.5 * np.einsum("ij,jk,ik->i", slacks, self.precision, slacks)
        return np.asarray(slacks[rng.standard_exponential(size) >= cost])


def orthant(
    covariance: Array, lower: Array, size: float
) -> ExponentialOrthant | TiltedOrthant:
    """Draws of N(0, G) on X >= l of length at most ``size``."""
    factor = linalg.cho_factor(covariance, lower=True)
    rates = linalg.cho_solve(factor, lower)
    precision = linalg.cho_solve(factor, np.eye(len(lower)))
    if (rates > 0.0).all():
        second = np.outer(1.0 / rates, 1.0 / rates) + np.diag(rates**-2.0)
        if 0.5 * float(np.sum(precision * second)) < DEEP:
            return ExponentialOrthant(rates=rates, precision=precision)
    with np.errstate(all="ignore"):  # tilts that lead nowhere
        return TiltedOrthant.of(covariance, lower, size)


@dataclass(frozen=True, kw_only=True, eq=False)
class TiltedOrthant:
    """N(0, G) on X >= l, in the order in which coordinates are drawn."""

    order: NDArray[np.intp]  # (r,)
    root: Array  # (r, r): L
    scaled: Array  # (r,): l / diag(L)
    steps: Array  # (r, r): strictly lower part of L, rows over the diagonal
    tilt: Array  # (r,): mu, the last one 0
    center: Array  # (r,): zh
    reach: float
    log_bound: float  # of psi within reach of zh

    @classmethod
    def of(cls, covariance: Array, lower: Array, size: float) -> TiltedOrthant:
        """Tilt for draws with ||X|| <= size; deepest bounds first."""
        order = np.argsort(-lower / np.sqrt(np.diag(covariance)))
        root = np.asarray(np.linalg.cholesky(covariance[np.ix_(order, order)]))
        diagonal = np.diag(root)
        inverse = linalg.solve_triangular(root, np.eye(len(root)), lower=True)
        is_many = len(root) > MANY
        reach = float(np.linalg.norm(inverse, "fro" if is_many else 2)) * size

        def made(
            tilt: Array, center: Array, distance: float, bound: float
        ) -> TiltedOrthant:
            return cls(
                order=order,
                root=root,
                scaled=lower[order] / diagonal,
                steps=np.tril(root / diagonal[:, None], -1),
                tilt=tilt,
                center=center,
                reach=distance,
                log_bound=bound,
            )

        zeros = np.zeros(len(order))
        untilted = made(zeros, zeros, np.inf, 0.0)
        for start, tilt in untilted._saddles():
            trial = made(tilt, zeros, np.inf, 0.0)
            center, slope = trial._peak(start)
            distance = reach + float(np.linalg.norm(center))
            value, terms = trial._log_ratio(center[None])
            slack = slope * distance + ROUNDING * (1.0 + float(terms[0]))
            bound = float(value[0]) + slack
            if slack < MAX_SLACK and bound < 0.0:
                return made(tilt, center, distance, bound)
        return untilted

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Slacks X - l of accepted draws among ``size`` tries, each a row."""
        z = np.zeros((size, len(self.order)))
        slacks = np.empty_like(z)
        for i, width in enumerate(np.diag(self.root)):
            low = self.scaled[i] - z[:, :i] @ self.steps[i, :i] - self.tilt[i]
            above = np.empty(size)
            tail_excess(np.ascontiguousarray(low), rng, above)
            slacks[:, self.order[i]] = width * above
            z[:, i] = low + above + self.tilt[i]
        excess = self._log_ratio(z)[0] - self.log_bound
        is_kept = rng.standard_exponential(size) >= -excess
        is_kept &= np.linalg.norm(z - self.center, axis=1) <= self.reach
        return np.asarray(slacks[is_kept])

    def _bounds(self, z: Array) -> Array:
        return np.asarray(self.scaled - z @ self.steps.T - self.tilt)

    def _log_ratio(self, z: Array) -> tuple[Array, Array]:
        """Psi at each row of z, and the sum of its terms' sizes."""
        linear = 0.5 * self.tilt**2 - z * self.tilt
        tails = special.log_ndtr(-self._bounds(z))
        return (linear + tails).sum(axis=1), (np.abs(linear) + np.abs(tails)).sum(
            axis=1
        )

    def _hazard(self, z: Array) -> tuple[Array, Array]:
        """Hazard of the normal law at the bounds, and its derivative."""
        x = self._bounds(z)
        hazard = np.sqrt(2.0 / np.pi) / special.erfcx(x / np.sqrt(2.0))
        return hazard, hazard * (hazard - x)

    def _peak(self, start: Array) -> tuple[Array, float]:
        """Maximizer of psi over z, whose last entry is free, and the slope left.

        A step is taken if psi rises, or, where it cannot by its rounding, the slope
        falls.
        """
        z, free = start.copy(), len(start) - 1

        def slope_at(z: Array) -> tuple[float, Array, Array]:
            hazard, rise = self._hazard(z)
            slope = (self.steps.T @ hazard - self.tilt)[:free]
            return float(self._log_ratio(z[None])[0][0]), slope, rise

        with np.errstate(all="ignore"):
            value, slope, rise = slope_at(z)
            for _ in range(MAX_ITERATIONS if free else 0):
                curvature = ((self.steps.T * rise) @ self.steps)[:free, :free]
                if not (np.isfinite(curvature).all() and np.isfinite(slope).all()):
                    return z, np.inf
                if float(np.linalg.norm(slope)) < CLOSE:
                    break
                ridge = 1e-14 * float(np.trace(curvature)) + 1e-300
                move = _divided(slope, curvature + ridge * np.eye(free))
                scale, size = 1.0, float(np.linalg.norm(slope))
                while scale > 1e-8:
                    trial = z.copy()
                    trial[:free] += scale * move
                    after, slope_after, rise_after = slope_at(trial)
                    rounding = ROUNDING * (1.0 + abs(value))
                    falls = float(np.linalg.norm(slope_after)) < 0.9 * size
                    if after > value + rounding or (after > value - rounding and falls):
                        break
                    scale *= 0.5
                else:
                    break
                z, value, slope, rise = trial, after, slope_after, rise_after
        terms = np.abs(self.steps.T) @ self._hazard(z)[0] + np.abs(self.tilt)
        rounding = SLOPE_ROUNDING * float(np.linalg.norm(terms))
        return z, float(np.linalg.norm(slope)) + rounding

    def _saddles(self) -> list[tuple[Array, Array]]:
        """Return candidates (z, mu): the root of psi' = 0 in both, and mu = 0."""
        rank = len(self.order)
        lowest = np.zeros(rank)
        for i in range(rank):
            lowest[i] = max(self.scaled[i] - self.steps[i] @ lowest, 0.0)
        lowest[-1] = 0.0
        without = lowest, np.zeros(rank)
        if rank == 1:
            return [without]
        free = rank - 1
        eye = np.eye(rank)[:free, :free]

        def equations(point: Array) -> tuple[Array, Array]:
            z, tilt = np.append(point[:free], 0.0), np.append(point[free:], 0.0)
            x = self.scaled - self.steps @ z - tilt
            hazard = np.sqrt(2.0 / np.pi) / special.erfcx(x / np.sqrt(2.0))
            rise = hazard * (hazard - x)
            value = np.concatenate(
                [(self.steps.T @ hazard - tilt)[:free], (tilt - z + hazard)[:free]]
            )
            cross = (-(self.steps.T * rise))[:free, :free] - eye
            slope = np.block(
                [
                    [-((self.steps.T * rise) @ self.steps)[:free, :free], cross],
                    [cross.T, eye - np.diag(rise[:free])],
                ]
            )
            return value, slope

        low = lowest[:free]
        for start in (
            np.zeros(2 * free),
            np.append(low, 0.9 * low),
            np.append(low, low),
        ):
            found = _solved(equations, start)
            if found is not None:
                root = np.append(found[:free], 0.0), np.append(found[free:], 0.0)
                return [root, without]
        return [without]


def _solved(
    equations: Callable[[Array], tuple[Array, Array]], start: Array
) -> Array | None:
    """Root by Newton's method, damped until the residual falls; None if it stalls.

    Psi is concave in z and convex in mu: its saddle is the only root.
    """
    point = start
    with np.errstate(all="ignore"):
        value, slope = equations(point)
        size = float(np.linalg.norm(value))
        for _ in range(MAX_ITERATIONS if np.isfinite(slope).all() else 0):
            if size < CLOSE:
                break
            move, scale = _move(value, slope), 1.0
            while scale > 1e-8:
                trial = point + scale * move
                value, slope = equations(trial)
                after = float(np.linalg.norm(value))
                if after < (1.0 - 0.1 * scale) * size and np.isfinite(slope).all():
                    break
                scale *= 0.5
            else:
                return point if size < 1e-6 * (1.0 + np.abs(point).max()) else None
            point, size = trial, after
    return point


def _move(value: Array, slope: Array) -> Array:
    """Newton's step: of many sides by blocks, since the last one is diagonal."""
    half = len(value) // 2
    if half < MANY:
        return np.asarray(np.linalg.lstsq(slope, -value, rcond=None)[0])
    cross, last = slope[:half, half:], np.diag(slope[half:, half:])
    scaled = cross / last
    matrix = scaled @ cross.T - slope[:half, :half]
    first = _divided(value[:half] - scaled @ value[half:], matrix)
    return np.append(first, -(value[half:] + cross.T @ first) / last)


def _divided(value: Array, matrix: Array) -> Array:
    """Solve for a matrix that is positive definite, or NaN if rounding made it not."""
    if len(matrix) < MANY:
        return np.asarray(linalg.lstsq(matrix, value)[0])
    try:
        return np.asarray(linalg.cho_solve(linalg.cho_factor(matrix), value))
    except (linalg.LinAlgError, ValueError):
        return np.full(len(value), np.nan)
