"""Halfspaces that contain a convex domain but not a given point outside it.

The exact draws propose inside such a halfspace when the envelope's mean is outside the
domain, where hardly any unrestricted proposal would fall inside.
"""

from __future__ import annotations

import numpy as np

from dpsample import targets
from dpsample._jit import kernel
from dpsample.samplers.errors import OK, PIECE_FAILED

# Rows of the chain's scratch memory.
NOISE, DIRECTION = 8, 9
# Rounding of a Euclidean projection, relative to the domain's size.
PROJECTION_ERROR = 1e-12


@kernel
def support_ball(plan, body, mean, normal, a, b):
    """Set the unit outward normal of a Euclidean ball at mean's P-projection.

    One secular equation: the projection is c + sum lambda_i a_i / (lambda_i + nu) q_i
    with nu >= 0 such that it lies on the sphere. Any normal gives a valid halfspace,
    so the root need not be exact.
    """
    dim = mean.shape[0]
    for j in range(dim):
        a[j] = mean[j] - body.center[j]
    np.dot(a, plan.basis, b)
    nu = 0.0
    for _ in range(50):
        size, slope = 0.0, 0.0
        for j in range(dim):
            ratio = plan.eigenvalues[j] * b[j] / (plan.eigenvalues[j] + nu)
            size += ratio * ratio
            slope += ratio * ratio / (plan.eigenvalues[j] + nu)
        size = np.sqrt(size)
        change = (size - body.radius) / body.radius * size * size / slope
        nu += change  # Newton on 1/size, which is concave in nu: monotone from below
        if abs(change) <= 1e-10 * nu:
            break
    for j in range(dim):
        a[j] = plan.eigenvalues[j] * b[j] / (plan.eigenvalues[j] + nu)
    np.dot(plan.basis, a, b)
    size = np.sqrt(np.dot(b, b))
    for j in range(dim):
        normal[j] = b[j] / size
    # <n, c> + R is the support of the ball in the direction n
    normal[dim] = np.dot(normal[:dim], body.center) + body.radius
    normal[dim + 1] = 1.0


@kernel
def support_any(target, pieces, plan, mean, normal, a):
    """Halfspace through the Euclidean projection of mean, normal to mean - projection.

    By the variational inequality of a projection it contains the domain.
    """
    dim = mean.shape[0]
    targets.project(target, pieces, mean, a)
    square, scale = 0.0, 2.0 * plan.reach
    for j in range(dim):
        normal[j] = mean[j] - a[j]
        square += normal[j] * normal[j]
        scale += abs(a[j])
    size = np.sqrt(square)
    if not size > 0.0:
        normal[dim + 1] = 0.0
        return
    for j in range(dim):
        normal[j] /= size
    # The projection's rounding turns the normal by its ratio to the distance: outwards
    # by what that can cut off, for the halfspace must contain the domain.
    slack = PROJECTION_ERROR * scale * (1.0 + scale / size)
    normal[dim] = np.dot(normal[:dim], a) + slack
    normal[dim + 1] = 1.0


@kernel
def set_halfspace(target, pieces, plan, state, mean):
    """If mean is outside, store a halfspace that contains the domain but not mean."""
    dim = mean.shape[0]
    state.normal[dim + 1] = 0.0
    if plan.halfspace == 0:
        return OK
    status = targets.inside(target, pieces, mean, state.work)
    if np.isnan(status):
        return PIECE_FAILED
    if status == 0.0:
        a, b = state.scratch[NOISE], state.scratch[DIRECTION]
        if plan.halfspace == 2:
            support_ball(plan, target.body, mean, state.normal, a, b)
        else:
            support_any(target, pieces, plan, mean, state.normal, a)
        if np.isnan(state.normal[0]):
            return PIECE_FAILED
    return OK
