"""Many draws of one kernel in a compiled loop, and the law of truncated normals."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from dpsample.core.jit import kernel
from dpsample.samplers.proximal import ball_gaussian, lp_tilt

INF = np.inf


def interpreted(function):
    """Python function of a kernel; with NUMBA_DISABLE_JIT it is the kernel itself."""
    return getattr(function, "py_func", function)


def truncated_normal_cdf(lower: float, upper: float):
    """Closed form by expm1 of log-probability differences, on the safe side of 0."""
    if lower > 0.0:
        mirrored = truncated_normal_cdf(-upper, -lower)
        return lambda x: 1.0 - mirrored(-x)

    def cdf(x):
        low, high = log_ndtr(lower), log_ndtr(upper)
        return (
            np.exp(log_ndtr(x) - high)
            * np.expm1(low - log_ndtr(x))
            / np.expm1(low - high)
        )

    return cdf


@kernel
def _ball_draws(rng, mean, stddev, center, radius, out):
    for i in range(out.shape[0]):
        if (
            ball_gaussian.gaussian_in_ball(rng, mean, stddev, center, radius, out[i])
            != 1.0
        ):
            return i
    return out.shape[0]


@kernel
def box_loop(rng, mean, stddevs, lower, upper, out):
    for i in range(out.shape[0]):
        if (
            ball_gaussian.gaussian_in_box(rng, mean, stddevs, lower, upper, out[i])
            != 1.0
        ):
            return i
    return out.shape[0]


@kernel
def _lp_draws(rng, v, variance, kappa, q, center, lower, upper, radius, ball_p, out):
    tries = 0
    for i in range(out.shape[0]):
        count = lp_tilt.draw_lp(
            rng,
            v,
            variance,
            kappa,
            q,
            center,
            lower,
            upper,
            radius,
            ball_p,
            10**6,
            out[i],
        )
        if count < 0:
            return count
        tries += count
    return tries


def ball_draws(seed, mean, stddev, center, radius, num_draws):
    out = np.full((num_draws, len(mean)), np.nan)
    rng = np.random.default_rng(seed)
    assert _ball_draws(rng, mean, stddev, center, float(radius), out) == num_draws
    return out


def lp_draws(
    seed, v, *, variance, kappa, q, num_draws, center=None, lower=-INF, upper=INF,
    radius=INF, ball_p=2.0,
):  # fmt: skip
    """Draws and the share of accepted proposals."""
    v = np.asarray(v, dtype=float)
    center = np.zeros_like(v) if center is None else np.asarray(center, dtype=float)
    lower, upper = np.full_like(v, lower), np.full_like(v, upper)
    out = np.full((num_draws, len(v)), np.nan)
    rng = np.random.default_rng(seed)
    numbers = map(float, (variance, kappa, q))
    tries = _lp_draws(
        rng, v, *numbers, center, lower, upper, float(radius), float(ball_p), out
    )
    assert tries >= num_draws
    return out, num_draws / tries
