"""Additive mechanisms of every kind, for tests."""

import numpy as np

from dpsample.domains import Ball, Polytope
from dpsample.noise import (
    gaussian_mechanism,
    generalized_gaussian_mechanism,
    geometric_mechanism,
    k_norm_mechanism,
    laplace_mechanism,
    schatten_gaussian_mechanism,
)
from dpsample.privacy import Budget

BUDGET = Budget(epsilon=0.9, delta=1e-5)
SHAPE = (2, 3)
DIAMOND = Polytope([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], np.ones(4))


def mechanisms():
    """Every kind of mechanism with the length of its query."""
    powers = {"dim": 4, "sensitivity": 0.5}
    return {
        "gaussian": (gaussian_mechanism(BUDGET, sensitivity=0.5), 4),
        "least noisy": (generalized_gaussian_mechanism(BUDGET, **powers, p=1.5), 4),
        "cubic": (generalized_gaussian_mechanism(BUDGET, **powers, p=1.5, r=3.0), 4),
        "high power": (
            generalized_gaussian_mechanism(BUDGET, **powers, p=1.0, r=9.0),
            4,
        ),
        "schatten": (
            schatten_gaussian_mechanism(
                BUDGET, shape=SHAPE, sensitivity=0.5, p=1.0, r=4.0
            ),
            6,
        ),
        "laplace": (laplace_mechanism(BUDGET, sensitivity=0.5), 4),
        "k-norm": (
            k_norm_mechanism(BUDGET, domain=Ball(2.0, p=3.0), dim=4, sensitivity=0.25),
            4,
        ),
        "polytope": (
            k_norm_mechanism(BUDGET, domain=DIAMOND, dim=2, sensitivity=0.5),
            2,
        ),
    }


MECHANISMS = mechanisms()
# Of integers, which agree by chance: `tests/noise/test_noise_integers.py` tests it.
WHOLE = {"geometric": (geometric_mechanism(BUDGET, sensitivity=1), 4)}
