r"""Exact draws of N(0, G) on X >= l by minimax tilting (Botev, arXiv:1603.04166).

With G = L L^T and X = L z the coordinates are proposed in turn, z_i ~ N(mu_i, 1) above
its bound given the earlier ones. The log ratio of target to proposal,

.. math:: \psi(z) = \sum_i \tfrac12 \mu_i^2 - \mu_i z_i + f(x_i(z)), \qquad
          f(x) = \log \Phi(-x),

with Phi the normal distribution function and affine bounds x_i of the noise z_i - mu_i,
is concave in z, because f is. In the code the vector of bounds is x(z) = ``scaled`` -
``steps`` z - mu, where l and the rows of L are divided by the diagonal of L, and
``steps`` is the part below the diagonal. The *hazard* is -f'(x). Every
*tilt* mu is exact. Here it is computed from a center zh, from the last coordinate to
the first, such that psi'(zh) = 0. With xh_i = x_i(zh) and d_i = x_i(z) - xh_i,

.. math:: \psi(\hat z) - \psi(z) = \sum_i D_i \ge 0, \qquad
          D_i = f(\hat x_i) + f'(\hat x_i) d_i - f(\hat x_i + d_i),

is a sum of gaps below tangents of a concave function. A proposal is accepted with
probability e^{-sum D}, which is at most 1 for every zh. The best zh is psi's saddle.
The bound of the first coordinate is constant, so D_1 = 0.

**Rounding.** No large numbers are subtracted, however deep the bounds are in the tail.
Draws use the d_i and the distances above the bounds alone. In a tail f(x) = log M(x) -
x^2 / 2 with M the Mills ratio, and D = d^2 / 2 - [log M(x + d) - log M(x) - (log M)'(x)
d]. Rounded values of xh and zh belong to bounds that differ from l by a few rounding
errors of its terms, and for these bounds the draws are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from dpsample.core.arrays import Array
from dpsample.numerics.stable import tail_excess

# Number of coordinates from which Newton's step eliminates the diagonal block. With
# fewer it is a least-squares solution, which needs singular values. For 3000 it would
# take minutes, in which Ctrl-C is not served. The choice affects the tilt, and so the
# acceptance rate, not the distribution.
MIN_ELIMINATED = 256
# Above this bound the tail is computed by the Mills ratio, as a continued fraction.
DEEP_BOUND = 10.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ExponentialOrthant:
    r"""N(0, G) on X >= l deep in its tail: slacks s = X - l are nearly exponential.

    Their density is :math:`e^{-\langle\lambda, s\rangle - s^\top K s / 2}` with
    :math:`K = G^{-1}` and rates :math:`\lambda = K l > 0`.
    """

    rates: Array  # (r,)
    precision: Array  # (r, r): K

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return rows of slacks of the accepted ones among ``size`` proposals."""
        slacks = rng.standard_exponential((size, len(self.rates))) / self.rates
        lost = 0.5 * np.einsum("ij,jk,ik->i", slacks, self.precision, slacks)
        return np.asarray(slacks[rng.standard_exponential(size) >= lost])


def new_orthant(covariance: Array, lower: Array) -> ExponentialOrthant | TiltedOrthant:
    """Return the better of two samplers of N(0, G) on X >= l."""
    factor = linalg.cho_factor(covariance, lower=True)
    rates = linalg.cho_solve(factor, lower)
    precision = linalg.cho_solve(factor, np.eye(len(lower)))
    if (rates > 0.0).all():
        # The second moments of independent exponential slacks.
        moments = np.outer(1.0 / rates, 1.0 / rates) + np.diag(rates**-2.0)
        # Exponential slacks are accepted often if the mean of the rest of the exponent
        # is small.
        if 0.5 * float(np.sum(precision * moments)) < 0.2:
            return ExponentialOrthant(rates=rates, precision=precision)
    # The search of a tilt may overflow. Then it finds nothing, and no tilt is used.
    with np.errstate(all="ignore"):
        return TiltedOrthant.from_saddle(covariance, lower)


@dataclass(frozen=True, kw_only=True, eq=False)
class TiltedOrthant:
    """N(0, G) on X >= l, in the order in which coordinates are drawn."""

    order: NDArray[np.intp]  # (r,)
    root: Array  # (r, r): L
    steps: Array  # (r, r): strictly lower part of L, with rows divided by the diagonal
    bounds: Array  # (r,): xh
    offsets: Array  # (r,): bounds of z - zh for d = 0
    levels: Array  # (r,): f(xh), or 0 without a tilt
    slopes: Array  # (r,): -f'(xh), or 0 without a tilt

    @classmethod
    def from_saddle(cls, covariance: Array, lower: Array) -> TiltedOrthant:
        """Return the tilt of the saddle. The deepest bounds are drawn first."""
        order = np.argsort(-lower / np.sqrt(np.diag(covariance)))
        root = np.asarray(np.linalg.cholesky(covariance[np.ix_(order, order)]))
        diagonal = np.diag(root)
        scaled, steps = lower[order] / diagonal, np.tril(root / diagonal[:, None], -1)
        saddle = _find_saddle(scaled, steps)
        center = _lowest_point(scaled, steps) if saddle is None else saddle
        tilt, bounds, slopes = _find_tilt(scaled, steps, center)
        levels = special.log_ndtr(-bounds)
        offsets = bounds + tilt - center
        # A center that is not the saddle may be worse than no tilt. Without a tilt psi
        # is at most f at the first bound, which is compared with psi at the center.
        if saddle is None:
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
        """Return rows of slacks X - l of the accepted ones among ``size`` proposals."""
        moves = np.zeros((size, len(self.order)))  # z - zh
        slacks, lost = np.empty_like(moves), np.zeros(size)
        for i, width in enumerate(np.diag(self.root)):
            shift = -(moves[:, :i] @ self.steps[i, :i])
            above = np.empty(size)
            tail_excess(self.bounds[i] + shift, rng, above)
            slacks[:, self.order[i]] = width * above
            moves[:, i] = self.offsets[i] + shift + above
            if i > 0:
                lost += self._gap(i, shift)
        return np.asarray(slacks[rng.standard_exponential(size) >= lost])

    def _gap(self, i: int, shift: Array) -> Array:
        """Return D_i for moves d_i of a bound.

        The module has both formulas. The second one is for deep tails, and uses the
        hazard. Without a tilt its slope is 0, and the first one is right everywhere.
        """
        bound, slope = self.bounds[i], self.slopes[i]
        ends = bound + shift
        if not (bound > DEEP_BOUND and slope > 0.0):
            value = self.levels[i] - slope * shift - special.log_ndtr(-ends)
        else:
            value = (0.5 * shift - _hazard(bound)[1]) * shift
            value += _log_mills(bound) - _log_mills(ends)
        return np.asarray(value)


def _hazard(x: Array) -> tuple[Array, Array]:
    """Return the normal hazard h = -f', and h - x without cancellation of digits."""
    is_deep = x > DEEP_BOUND
    hazard = np.asarray(np.sqrt(2.0 / np.pi) / special.erfcx(x / np.sqrt(2.0)))
    if not is_deep.any():
        return hazard, hazard - x
    # h - x = 1 / (x + 2 / (x + 3 / (x + ...)))
    fraction = base = np.maximum(x, DEEP_BOUND)
    # Above the bound, terms after the fortieth are below the rounding errors.
    for n in range(40, 1, -1):
        fraction = base + n / fraction
    excess = np.where(is_deep, 1.0 / fraction, hazard - x)
    return np.where(is_deep, x + excess, hazard), excess


def _log_mills(x: Array) -> Array:
    """Return the log of the Mills ratio, up to a constant."""
    negative = np.minimum(x, 0.0)
    left = special.log_ndtr(-negative) + 0.5 * negative**2 + np.log(2.0)
    right = np.log(special.erfcx(np.maximum(x, 0.0) / np.sqrt(2.0)))
    return np.asarray(np.where(x > 0.0, right, left))


def _find_tilt(
    scaled: Array, steps: Array, center: Array
) -> tuple[Array, Array, Array]:
    """Return the tilt with psi' = 0 at the center, and bounds and hazards there."""
    tilt, hazard = np.zeros_like(scaled), np.zeros_like(scaled)
    bounds = scaled - steps @ center
    for i in reversed(range(len(scaled))):
        tilt[i] = steps[i + 1 :, i] @ hazard[i + 1 :]
        bounds[i] -= tilt[i]
        hazard[i] = _hazard(bounds[i])[0]
    return tilt, bounds, hazard


def _lowest_point(scaled: Array, steps: Array) -> Array:
    """Return coordinates that are the larger of 0 and the bound given earlier ones."""
    point = np.zeros_like(scaled)
    for i in range(len(scaled)):
        point[i] = max(scaled[i] - steps[i] @ point, 0.0)
    return point


def _find_saddle(scaled: Array, steps: Array) -> Array | None:
    """Return z of the root of psi' = 0 in z and mu, or None if it is not found.

    The last z and mu are 0, because no bound depends on them.
    """
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

    low = _lowest_point(scaled, steps)[:free]
    for start in (np.zeros(2 * free), np.append(low, 0.9 * low), np.append(low, low)):
        root = _solve(equations, start)
        if root is not None:
            return np.append(root[:free], 0.0)
    return None


def _solve(
    equations: Callable[[Array], tuple[Array, Array]], start: Array
) -> Array | None:
    """Return the root, by Newton's method, or None if the iteration stalls.

    Steps are shortened until the residual falls. psi is concave in z and convex in mu,
    so that its saddle is the only root.
    """
    point = start
    with np.errstate(all="ignore"):
        value, slope = equations(point)
        size = float(np.linalg.norm(value))
        # At most 100 Newton steps. Without the saddle, draws are exact, too, but
        # rejected more often.
        for _ in range(100 if np.isfinite(slope).all() else 0):
            # Another step is useless if the residual of the saddle is smaller.
            if size < 1e-9:
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
    """Return Newton's step. In many dimensions the diagonal block is eliminated."""
    half = len(value) // 2
    if half < MIN_ELIMINATED:
        return np.asarray(np.linalg.lstsq(slope, -value, rcond=None)[0])
    cross, diagonal = slope[:half, half:], np.diag(slope[half:, half:])
    scaled = cross / diagonal
    matrix = scaled @ cross.T - slope[:half, :half]
    first = _solve_positive(value[:half] - scaled @ value[half:], matrix)
    return np.append(first, -(value[half:] + cross.T @ first) / diagonal)


def _solve_positive(value: Array, matrix: Array) -> Array:
    """Solve a positive definite system. Return NaN if rounding made it singular."""
    try:
        return np.asarray(linalg.cho_solve(linalg.cho_factor(matrix), value))
    except (linalg.LinAlgError, ValueError):
        return np.full(len(value), np.nan)
