r"""Exact draws of N(0, G) on X >= l by minimax tilting (Botev, arXiv:1603.04166).

With G = L L^T and X = L z the coordinates are proposed in turn, z_i ~ N(mu_i, 1) above
its bound given those before. The log ratio of target to proposal,

.. math:: \psi(z) = \sum_i \tfrac12 \mu_i^2 - \mu_i z_i + f(x_i(z)), \qquad
          f(x) = \log \Phi(-x),

with affine bounds x_i of the noise z_i - mu_i, is concave in z, for f is. Every mu is
exact. Here it follows from a center zh, from the last coordinate to the first, so that
psi'(zh) = 0. With d_i = x_i(z) - x_i(zh) this leaves

.. math:: \psi(\hat z) - \psi(z) = \sum_i D_i \ge 0, \qquad
          D_i = f(\hat x_i) + f'(\hat x_i) d_i - f(\hat x_i + d_i),

a sum of gaps below tangents of a concave function: a proposal is kept with probability
e^{-sum D}, at most 1 whatever zh is. The best zh is psi's saddle. The bound of the
first coordinate never moves: D_1 = 0.

**Rounding.** No large numbers are subtracted, however deep bounds are. Draws move the
d_i and the distances above bounds alone. In a tail f(x) = log M(x) - x^2 / 2 with M the
Mills ratio, and D = d^2 / 2 - [log M(x + d) - log M(x) - (log M)'(x) d]. Rounded xh
and zh are those of bounds that differ from l by a few rounding errors of its terms: for
these the draws are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from dpsample.core.arrays import Array
from dpsample.numerics.stable import tail_excess

# Residual from which another step gains nothing.
MAX_ITERATIONS, CLOSE = 100, 1e-9
# Sides from which on there are no singular values: for 3000 they take minutes a time,
# deaf to Ctrl-C. Draws keep their law, whatever the tilt is.
MANY = 256
# Bounds above which the Mills ratio stands for the tail, and the terms of its continued
# fraction that leave less than rounding errors there.
DEEP_BOUND, NUM_FRACTIONS = 10.0, 40
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


def orthant(covariance: Array, lower: Array) -> ExponentialOrthant | TiltedOrthant:
    """Draws of N(0, G) on X >= l."""
    factor = linalg.cho_factor(covariance, lower=True)
    rates = linalg.cho_solve(factor, lower)
    precision = linalg.cho_solve(factor, np.eye(len(lower)))
    if (rates > 0.0).all():
        second = np.outer(1.0 / rates, 1.0 / rates) + np.diag(rates**-2.0)
        if 0.5 * float(np.sum(precision * second)) < DEEP:
            return ExponentialOrthant(rates=rates, precision=precision)
    with np.errstate(all="ignore"):  # tilts that lead nowhere
        return TiltedOrthant.of(covariance, lower)


@dataclass(frozen=True, kw_only=True, eq=False)
class TiltedOrthant:
    """N(0, G) on X >= l, in the order in which coordinates are drawn."""

    order: NDArray[np.intp]  # (r,)
    root: Array  # (r, r): L
    steps: Array  # (r, r): strictly lower part of L, rows over the diagonal
    bounds: Array  # (r,): xh
    offsets: Array  # (r,): bounds of z - zh, d = 0
    levels: Array  # (r,): f(xh), and 0 without a tilt
    slopes: Array  # (r,): -f'(xh), and 0 without a tilt

    @classmethod
    def of(cls, covariance: Array, lower: Array) -> TiltedOrthant:
        """Tilt by the saddle; deepest bounds first."""
        order = np.argsort(-lower / np.sqrt(np.diag(covariance)))
        root = np.asarray(np.linalg.cholesky(covariance[np.ix_(order, order)]))
        diagonal = np.diag(root)
        scaled, steps = lower[order] / diagonal, np.tril(root / diagonal[:, None], -1)
        found = _saddle(scaled, steps)
        center = _lowest(scaled, steps) if found is None else found
        tilt, bounds, slopes = _tilted(scaled, steps, center)
        levels = special.log_ndtr(-bounds)
        offsets = bounds + tilt - center
        if found is None:
            height = float(np.sum(tilt * (0.5 * tilt - center) + levels))
            if not height < float(special.log_ndtr(-scaled[0])):
                bounds, offsets = scaled, scaled
                levels, slopes = np.zeros_like(scaled), np.zeros_like(scaled)
        return cls(
            order=order,
            root=root,
            steps=steps,
            bounds=bounds,
            offsets=offsets,
            levels=levels,
            slopes=slopes,
        )

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Slacks X - l of accepted draws among ``size`` tries, each a row."""
        moves = np.zeros((size, len(self.order)))  # z - zh
        slacks, cost = np.empty_like(moves), np.zeros(size)
        for i, width in enumerate(np.diag(self.root)):
            shift = -(moves[:, :i] @ self.steps[i, :i])
            above = np.empty(size)
            tail_excess(self.bounds[i] + shift, rng, above)
            slacks[:, self.order[i]] = width * above
            moves[:, i] = self.offsets[i] + shift + above
            if i > 0:
                cost += self._gap(i, shift)
        return np.asarray(slacks[rng.standard_exponential(size) >= cost])

    def _gap(self, i: int, shift: Array) -> Array:
        """D_i for moves d_i of a bound."""
        bound, slope = self.bounds[i], self.slopes[i]
        ends = bound + shift
        if not (bound > DEEP_BOUND and slope > 0.0):
            value = self.levels[i] - slope * shift - special.log_ndtr(-ends)
        else:
            value = (0.5 * shift - _hazard(bound)[1]) * shift
            value += _log_mills(bound) - _log_mills(ends)
        return np.asarray(value)


def _hazard(x: Array) -> tuple[Array, Array]:
    """Hazard h of the normal law, which is -f', and h - x without cancellation."""
    is_deep = x > DEEP_BOUND
    near = np.asarray(np.sqrt(2.0 / np.pi) / special.erfcx(x / np.sqrt(2.0)))
    if not is_deep.any():
        return near, near - x
    far = base = np.maximum(x, DEEP_BOUND)
    for n in range(NUM_FRACTIONS, 1, -1):
        far = base + n / far
    excess = np.where(is_deep, 1.0 / far, near - x)
    return np.where(is_deep, x + excess, near), excess


def _log_mills(x: Array) -> Array:
    """Logarithm of the Mills ratio, up to a constant."""
    inner = np.minimum(x, 0.0)
    below = special.log_ndtr(-inner) + 0.5 * inner**2 + np.log(2.0)
    above = np.log(special.erfcx(np.maximum(x, 0.0) / np.sqrt(2.0)))
    return np.asarray(np.where(x > 0.0, above, below))


def _tilted(scaled: Array, steps: Array, center: Array) -> tuple[Array, Array, Array]:
    """Tilt with psi' = 0 at the center, bounds x there, and their hazards."""
    tilt, hazard = np.zeros_like(scaled), np.zeros_like(scaled)
    bounds = scaled - steps @ center
    for i in reversed(range(len(scaled))):
        tilt[i] = steps[i + 1 :, i] @ hazard[i + 1 :]
        bounds[i] -= tilt[i]
        hazard[i] = _hazard(bounds[i])[0]
    return tilt, bounds, hazard


def _lowest(scaled: Array, steps: Array) -> Array:
    """Each coordinate at its bound given those before, or at 0 above it."""
    lowest = np.zeros_like(scaled)
    for i in range(len(scaled)):
        lowest[i] = max(scaled[i] - steps[i] @ lowest, 0.0)
    return lowest


def _saddle(scaled: Array, steps: Array) -> Array | None:
    """Center of the root of psi' = 0 in z and mu; None if it is not found."""
    free = len(scaled) - 1
    eye = np.eye(free)
    if free == 0:
        return np.zeros(1)

    def equations(point: Array) -> tuple[Array, Array]:
        z, tilt = np.append(point[:free], 0.0), np.append(point[free:], 0.0)
        hazard, excess = _hazard(scaled - steps @ z - tilt)
        rise = hazard * excess
        value = np.concatenate(
            [(steps.T @ hazard - tilt)[:free], (tilt - z + hazard)[:free]]
        )
        cross = (-(steps.T * rise))[:free, :free] - eye
        slope = np.block(
            [
                [-((steps.T * rise) @ steps)[:free, :free], cross],
                [cross.T, eye - np.diag(rise[:free])],
            ]
        )
        return value, slope

    low = _lowest(scaled, steps)[:free]
    for start in (np.zeros(2 * free), np.append(low, 0.9 * low), np.append(low, low)):
        found = _solved(equations, start)
        if found is not None:
            return np.append(found[:free], 0.0)
    return None


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
    try:
        return np.asarray(linalg.cho_solve(linalg.cho_factor(matrix), value))
    except (linalg.LinAlgError, ValueError):
        return np.full(len(value), np.nan)
