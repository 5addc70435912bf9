"""Regularizers on which every claim about regularizers is tested."""

from __future__ import annotations

import math

import numpy as np

from dpsample.numerics import norms
from dpsample.regularizers import Entropy, SchattenSquared, SquaredNorm

SHAPE = (4, 6)
DIM = 24
EXPONENTS = (1.0, 1.05, 1.4, 2.0, 3.0, math.inf)
VECTORS = [SquaredNorm(p) for p in EXPONENTS]
MATRICES = [SchattenSquared(p, shape=SHAPE) for p in EXPONENTS]
PRINTED = [
    SquaredNorm(1.0, variant="printed"),
    SchattenSquared(1.0, shape=SHAPE, variant="printed"),
]
CENTERED = [
    SquaredNorm(1.4, center=np.linspace(-1, 1, DIM)),
    SchattenSquared(1.4, shape=SHAPE, center=np.linspace(-1, 1, DIM)),
]
WEIGHTED = [SquaredNorm(p, weights=np.linspace(1.0, 5.0, DIM)) for p in (1.0, 1.4, 2.0)]
EVERY = [*VECTORS, *MATRICES, *PRINTED, *CENTERED, *WEIGHTED, Entropy()]


def distance(regularizer, v):
    """Norm in which the regularizer claims strong convexity."""
    if regularizer.name == "schatten_squared":
        return norms.schatten(v, regularizer.p, SHAPE)
    return norms.norm(v, regularizer.p)


def random_point(regularizer, rng):
    """Point of the domain of the regularizer, sometimes with tiny coordinates."""
    if regularizer.name == "entropy":
        weights = rng.gamma(0.3, size=DIM)
        return weights / weights.sum()
    return rng.normal(size=DIM) * rng.choice([1e-6, 0.1, 1.0], size=DIM)


def regularizer_center(regularizer):
    """Center of the regularizer, 0 by default."""
    own = getattr(regularizer, "center", None)
    return np.zeros(DIM) if own is None else own
