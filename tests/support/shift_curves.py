"""Privacy curves of shifted generalized Gaussian noise, by midpoint sums on a grid."""

import itertools
import math

import numpy as np
from scipy.optimize import brentq

from dpsample.privacy import gaussian_delta

# exp(-9^2/2) is 3e-18; in d <= 3 the mass outside a box of this half-width is < 1e-15
# for r = 2, and the l_r norm of a point outside is at least its largest coordinate.
HALF_WIDTH = 9.0


def log_constant(dim, r):
    """Log of the integral of exp(-||z||_r^2/2)."""
    log_volume = dim * (math.log(2.0) + math.lgamma(1.0 + 1.0 / r))
    log_volume -= math.lgamma(1.0 + dim / r)
    return log_volume + 0.5 * dim * math.log(2.0) + math.lgamma(1.0 + dim / 2.0)


def densities(points, shift, r):
    """Density at sigma = 1 and the shifted one; points come as a grid's axes."""
    dim = len(points)
    pair = []
    for move in (np.zeros(dim), shift):
        powers = [np.abs(x - m) ** r for x, m in zip(points, move, strict=True)]
        total = powers[0]
        for power in powers[1:]:
            total = total[..., None] + power
        pair.append(np.exp(-0.5 * total ** (2.0 / r) - log_constant(dim, r)))
    return pair


def positive_parts(points, shift, r, epsilons):
    """Array of (q - e^eps p)_+, epsilons first."""
    p, q = densities(points, shift, r)
    return np.stack([np.maximum(q - math.exp(eps) * p, 0.0) for eps in epsilons])


def slabs(step):
    """Coarse cells' midpoints of one axis, in slices that fit into memory."""
    half = math.ceil(HALF_WIDTH / (2.0 * step))
    return (np.arange(-half, half) + 0.5) * 2.0 * step


def shift_curve(shift, r, epsilons, *, step):
    """Deltas at sigma = 1, and a bound of their error.

    Every cell of side 2 step is summed by its midpoint and by its 2^d parts. Halving
    divides the error of a cell by about 4, so what is left after it is about a third of
    the difference. The bound takes the differences without their signs.
    """
    shift = np.asarray(shift, dtype=float)
    dim, axis = len(shift), slabs(step)
    fine_total = np.zeros(len(epsilons))
    bound = np.zeros(len(epsilons))
    chunk = max(1, 400_000 // len(axis) ** (dim - 1))
    for begin in range(0, len(axis), chunk):
        axes = [axis[begin : begin + chunk], *[axis] * (dim - 1)]
        coarse = positive_parts(axes, shift, r, epsilons)
        fine = np.zeros_like(coarse)
        for signs in itertools.product((-0.5, 0.5), repeat=dim):
            moved = [x + s * step for x, s in zip(axes, signs, strict=True)]
            fine += positive_parts(moved, shift, r, epsilons)
        fine /= 2.0**dim
        over = tuple(range(1, dim + 1))
        fine_total += fine.sum(axis=over)
        bound += np.abs(fine - coarse).sum(axis=over)
    volume = (2.0 * step) ** dim
    return fine_total * volume, bound * volume / 3.0 + 1e-12


def scaled_shift(direction, r, gdp):
    """Shift along ``direction`` whose gdp at sigma = 1 is ``gdp``."""
    direction = np.asarray(direction, dtype=float)
    size = (np.abs(direction) ** r).sum() ** (1.0 / r)
    return gdp / math.sqrt(r - 1.0) / size * direction


def equivalent_gdp(epsilon, delta):
    """Distance of the two Gaussians with this point on their curve."""
    return brentq(lambda gdp: gaussian_delta(epsilon, gdp) - delta, 1e-6, 20.0)
