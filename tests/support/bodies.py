"""Domains on which every claim about domains is tested, and points of them."""

from __future__ import annotations

import math

import numpy as np

from dpsample.domains import Ball, Box, Polytope, SchattenBall, Simplex

EXPONENTS = (1.0, 1.05, 1.5, 2.0, 3.0, 12.0, math.inf)


def random_polytope(dim, num_rows, *, seed):
    """Cube cut by random half-spaces, with a repeated and a redundant row."""
    rng = np.random.default_rng(seed)
    cuts = rng.normal(size=(num_rows, dim))
    rows = np.vstack([cuts, np.eye(dim), -np.eye(dim), cuts[:1], np.eye(dim)[:1]])
    limits = rng.uniform(0.1, 1.0, size=num_rows)
    ends = [limits, np.full(2 * dim, 2.0), limits[:1], [7.0]]
    return Polytope(rows, np.concatenate(ends))


def bounded():
    """Pairs of a bounded domain and a dimension that fits."""
    pairs = [(Ball(1.0, p=p), dim) for p in EXPONENTS for dim in (1, 2, 7)]
    off = [0.3, -2.0, 1.0, 0.0]
    pairs += [(Ball(0.5, p=p, center=off), 4) for p in EXPONENTS]
    pairs += [(Box(-1.0, 2.0), 3), (Box([-1.0, 0.0], [0.0, 5.0]), 2)]
    pairs += [(Simplex(), dim) for dim in (2, 5, 40)]
    pairs += [(random_polytope(d, m, seed=d), d) for d, m in ((2, 3), (5, 20), (9, 3))]
    pairs += [
        (SchattenBall(1.5, p=p, shape=shape), shape[0] * shape[1])
        for p in (1.0, 1.3, 2.0, 3.0, math.inf)
        for shape in ((3, 2), (1, 4), (2, 2))
    ]
    return pairs


def label(pair):
    """Short name of a test case."""
    domain, dim = pair
    exponent = getattr(domain, "p", "")
    moved = "moved" if getattr(domain, "center", None) is not None else ""
    shape = getattr(domain, "shape", "")
    return f"{domain.name}{exponent}{moved}{shape}-{dim}"


def far_points(domain, dim, rng, count):
    """Points near and far, some with coordinates that need no move."""
    middle = domain.interior_point(dim)
    points = (
        middle
        + rng.normal(size=(count, dim)) * rng.choice([0.3, 2.0, 50.0], count)[:, None]
    )
    points[::5, rng.integers(dim)] = middle[0]
    return points


def direction_in(domain, dim, rng):
    """Direction along the affine hull."""
    direction = rng.normal(size=dim)
    return direction - direction.mean() if domain.name == "simplex" else direction


def inside_points(domain, dim, rng, count):
    """Points of the domain: on random chords, every third one on the surface."""
    points = []
    for k in range(count):
        direction = direction_in(domain, dim, rng)
        ends = domain.chord(domain.interior_point(dim), direction)
        t = ends[1] if k % 3 == 0 else rng.uniform(*ends)
        points.append(domain.interior_point(dim) + t * direction)
    return np.array(points)


def by_definition(domain, theta, slack):
    """Membership with a relative tolerance, written with NumPy only."""
    if domain.name in ("ball", "schatten_ball"):
        if domain.name == "ball":
            offset = theta if domain.center is None else theta - domain.center
        else:
            offset = np.linalg.svd(theta.reshape(domain.shape), compute_uv=False)
        return np.linalg.norm(offset, ord=domain.p) <= domain.radius * (1.0 + slack)
    if domain.name == "box":
        width = slack * (domain.upper - domain.lower)
        low, high = domain.lower - width, domain.upper + width
        return bool(((low <= theta) & (theta <= high)).all())
    if domain.name == "simplex":
        return theta.min() >= -slack and abs(theta.sum() - 1.0) <= 1e-9 + slack
    return bool((domain.A @ theta <= domain.b + slack).all())
