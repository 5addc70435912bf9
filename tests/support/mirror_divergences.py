"""Bregman divergences of mirror maps."""

import numpy as np

from dpsample.numerics.norms import norm
from tests.support.mirror_cases import bregman


def divergence_ratios(p, dim, s, kappa):
    """D(y, x) over half the squared l_p distance, for near and far, flat and spiky."""
    rng = np.random.default_rng(4)
    ratios = []
    for spread in (0.01, 1.0, 100.0):
        for _ in range(300):
            x = np.sign(rng.standard_normal(dim)) * rng.random(dim) ** rng.choice(
                [1, 9]
            )
            y = x + spread * rng.standard_normal(dim) * (rng.random(dim) < 0.5)
            if (far := norm(y - x, p)) > 0.0:
                ratios.append(bregman(y, x, s, kappa) / (0.5 * far**2))
    return np.array(ratios)
