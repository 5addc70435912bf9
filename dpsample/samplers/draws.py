"""Exact draws of the proximal sampler's envelope, as pieces.

Every draw has density proportional to the Gaussian N(mean, spread^2 P^{-1}), times
e^{-psi} where the regularizer is kept, on the domain or a set that contains it.
``normal`` holds a supporting halfspace: dim entries of a unit normal, its offset, and a
flag that is 1 when the halfspace is in use.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dpsample._jit import generator, kernel, matrix, vector
from dpsample.domains import BODY
from dpsample.regularizers import REGULARIZER
from dpsample.samplers.halfspace import DIRECTION, NOISE
from dpsample.samplers.proximal_kernel import PLAN
from dpsample.samplers.restricted import draw_lp, gaussian_in_ball, gaussian_in_box
from dpsample.samplers.univariate import truncated_normal

# (body, regularizer, plan, mean, normal, scratch, rng, out)
DRAW = types.void(BODY, REGULARIZER, PLAN, vector, vector, matrix, generator, vector)
NO_CAP = 2**62
# Coordinates that one call of a draw by rejection may propose: about 20 ms.
MAX_COORDINATES = 200_000


@kernel
def gaussian(body, regularizer, plan, mean, normal, scratch, rng, out):
    """Gaussian, restricted to the supporting halfspace if there is one.

    The coordinate of the noise along factor^T n is a truncated normal, the rest free.
    """
    dim = mean.shape[0]
    noise, direction = scratch[NOISE], scratch[DIRECTION]
    for j in range(dim):
        noise[j] = rng.standard_normal()
    if normal[dim + 1] == 1.0:
        np.dot(normal[:dim], plan.factor, direction)
        size = np.sqrt(np.dot(direction, direction))
        room = normal[dim] - np.dot(normal[:dim], mean)
        along = np.dot(direction, noise) / size
        drawn = truncated_normal(rng, -np.inf, room / (plan.spread * size))
        for j in range(dim):
            noise[j] += (drawn - along) * direction[j] / size
    np.dot(plan.factor, noise, out)
    for j in range(dim):
        out[j] = mean[j] + plan.spread * out[j]


@kernel
def gaussian_ball(body, regularizer, plan, mean, normal, scratch, rng, out):
    """Gaussian with P proportional to I, restricted to a Euclidean ball."""
    deviation = plan.spread * plan.factor[0, 0]
    gaussian_in_ball(rng, mean, deviation, body.center, body.radius, out)


@kernel
def gaussian_box(body, regularizer, plan, mean, normal, scratch, rng, out):
    """Gaussian with diagonal P, restricted to a box."""
    deviations = scratch[NOISE]
    for j in range(mean.shape[0]):
        deviations[j] = plan.spread * plan.factor[j, j]
    gaussian_in_box(rng, mean, deviations, body.lower, body.upper, out)


@kernel
def separable(body, regularizer, plan, mean, normal, scratch, rng, out):
    """Gaussian with P proportional to I times e^{-psi}, psi a squared l_q norm.

    A ball about the regularizer's center and a box are kept exactly; any other domain
    is left to the caller's test. Infinity says that the allowed tries did not suffice:
    they are independent, so the next call goes on with them.
    """
    dim = mean.shape[0]
    radius = body.radius if np.isfinite(body.p) else np.inf
    for j in range(dim):
        if body.center[j] != regularizer.center[j]:
            radius = np.inf
    tries = draw_lp(
        rng,
        mean,
        plan.spread * plan.spread * plan.inverse[0, 0],
        plan.kappa,
        regularizer.exponent,
        regularizer.center,
        body.lower,
        body.upper,
        radius,
        body.p if np.isfinite(body.p) else 2.0,
        max(1, MAX_COORDINATES // dim),
        out,
    )
    if tries == -1:
        out[:] = np.inf
