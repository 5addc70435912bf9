"""What a regularizer declares, compared with its values on domains it accepts."""

from __future__ import annotations

import json
import math

import numpy as np

from dpsample import regularizers
from dpsample.domains import Ball, Box, Polytope, SchattenBall, Simplex
from dpsample.numerics import norms

DIMS = (2, 5)
EPS = np.finfo(float).eps


def shape_of(regularizer, dim):
    return getattr(regularizer, "shape", (dim, 1))


def cases(regularizer):
    """The regularizer with a dimension, and domains on which it has a range."""
    made = []
    center = getattr(regularizer, "center", None)
    sides = getattr(regularizer, "shape", None)
    fitting = DIMS if sides is None else (math.prod(sides),)
    for dim in fitting if center is None else (len(center),):
        kept = []
        bodies = [Simplex(), Box(-1.0, 2.0), Ball(0.7), Ball(1.3, p=1.0)]
        bodies += [Ball(1.3, p=math.inf), Ball(0.7, center=np.linspace(0.0, 1.0, dim))]
        bodies += [SchattenBall(0.7, p=p, shape=sides or (dim, 1)) for p in (1.0, 3.0)]
        for domain in bodies:
            try:
                regularizer.range_on(domain, dim)
            except ValueError:
                continue
            kept.append(domain)
        if kept:
            made.append((regularizer, dim, kept))
    return made


def points(domain, dim, seed=1, count=12):
    """Points of a domain: vertices, the middle, the surface and inside."""
    rng, middle = np.random.default_rng(seed), domain.default_center(dim)
    far = [9.0 * np.eye(dim), -9.0 * np.eye(dim), 9.0 * np.ones((1, dim))]
    far += [-far[2], rng.normal(size=(count, dim)) * rng.choice([0.2, 9.0], (count, 1))]
    images = [domain.project(middle + each) for each in np.concatenate(far)]
    images, shares = np.array(images), rng.random((len(images), 1))
    return np.concatenate([images, middle + shares * (images - middle), [middle]])


def size(regularizer, v, p=None):
    """Norm in which strong convexity is promised."""
    p = regularizer.p if p is None else p
    if hasattr(regularizer, "shape"):
        return norms.schatten(v, p, regularizer.shape)
    return norms.norm(v, p)


def pairs(domain, dim):
    """Pairs of points far from each other and close, and steps of alternate sign."""
    xs = points(domain, dim)
    rng = np.random.default_rng(2)
    for x, y in zip(xs, rng.permutation(xs), strict=True):
        yield x, y
        yield x, x + 0.01 * (y - x)
    step = np.where(np.arange(dim) % 2, 1.0, -1.0) * 0.05 / dim
    steps = [step, 0.05 * np.eye(dim)[0], np.diag(np.full(dim, 0.05))[-1]]
    middle = domain.default_center(dim)
    for move in [step] if isinstance(domain, Simplex) else steps:
        x = middle + 2.0 * move
        if domain.contains(x) and domain.contains(middle - move):
            yield x, middle - move


def value(regularizer, dim, kept):
    """Finite on its domains, convex, and its slopes are those of the gradient."""
    share = 1e-4
    for domain in kept:
        center, seen = domain.default_center(dim), points(domain, dim)
        for x in 0.5 * (seen[::4] + center):
            r, g = regularizer.value(x, center), regularizer.gradient(x, center)
            assert math.isfinite(r)
            if not np.isfinite(g).all():
                continue
            for move in share * (seen[::9] - x):
                rise = regularizer.value(x + move, center) - r
                back = regularizer.value(x - move, center) - r
                slack = 64.0 * EPS * (1.0 + abs(r))
                # Between the tangent and, by convexity, its mirror image.
                assert g @ move - slack <= rise <= g @ move + rise + back + 2.0 * slack


def strong_convexity(regularizer, dim, kept):
    """The constant 1 in the norm that is named."""
    for domain in kept:
        center = domain.default_center(dim)
        for x, y in pairs(domain, dim):
            quadratic = 0.125 * size(regularizer, x - y) ** 2
            ends = [regularizer.value(v, center) for v in (x, y)]
            gap = 0.5 * sum(ends) - regularizer.value(0.5 * (x + y), center)
            slack = 64.0 * EPS * (1.0 + abs(ends[0]) + abs(ends[1]))
            assert gap >= quadratic * (1.0 - 1e-9) - slack


def range_on(regularizer, dim, kept):
    """No two values on a domain differ by more."""
    for domain in kept:
        middle = domain.default_center(dim)
        own = getattr(regularizer, "center", None)
        xs = [*points(domain, dim), domain.project(middle if own is None else own)]
        values = [regularizer.value(x, middle) for x in xs]
        declared = regularizer.range_on(domain, dim)
        assert max(values) - min(values) <= declared * (1.0 + 1e-9)


def curvature_l2(regularizer, dim, kept):
    """Gradients grow within the bounds of the Hessian."""
    low, high = regularizer.curvature_l2(dim)
    assert 0.0 <= low <= high
    for domain in kept:
        center = domain.default_center(dim)
        for x, y in pairs(domain, dim):
            first, second = (0.9 * v + 0.1 * center for v in (x, y))
            gap = regularizer.gradient(first, center) - regularizer.gradient(
                second, center
            )
            if np.isfinite(gap).all():
                move = first - second
                slack = 1e-9 * np.abs(gap).max() * np.abs(move).max() + 1e-14
                assert gap @ move >= low * (move @ move) - slack
                assert high == math.inf or gap @ move <= high * (move @ move) + slack


def describe(regularizer, dim, kept):
    """The words of a domain with one center are the representation."""
    assert all(regularizer.describe(d, dim) == repr(regularizer) for d in kept)
    square = Polytope(np.vstack([np.eye(2), -np.eye(2)]), [3.0, 1.0, 1.0, 1.0])
    if dim == 2 and getattr(regularizer, "center", True) is None:
        center = f"center={square.default_center(2).tolist()}"
        assert center in regularizer.describe(square, 2)


def travels(regularizer, dim, kept):
    """Name and fields are all that a file needs to make the regularizer again."""
    text = json.dumps(regularizer.to_dict(), allow_nan=False)
    again = regularizers.from_dict(json.loads(text))
    assert again.to_dict() == regularizer.to_dict()
    for x in points(kept[0], dim):
        assert again.value(x) == regularizer.value(x)


def is_plain_norm(regularizer, dim, kept):
    """Only then the value is that of an l_q norm without weights."""
    center = kept[0].default_center(dim)
    params, x = regularizer.params(dim, center), center + np.linspace(0.1, 0.7, dim)
    plain = 0.5 * params.scale * norms.norm(x - params.center, params.exponent) ** 2
    is_equal = math.isclose(regularizer.value(x, center), plain, rel_tol=1e-12)
    assert regularizer.is_plain_norm <= is_equal


PROMISES = {
    "is_plain_norm": is_plain_norm,
    "value": value,
    "gradient": value,
    "p": strong_convexity,
    "params": strong_convexity,
    "range_on": range_on,
    "curvature_l2": curvature_l2,
    "describe": describe,
    "to_dict": travels,
}
NO_PROMISES = {"value_piece", "gradient_piece", "name"}
NO_PROMISES |= {"value_pointer", "gradient_pointer", "check_on"}


def planted(regularizer, dim, kept, factor):
    """Pairs of a name and a false version of it, by a factor below 1."""
    kind, low = type(regularizer), regularizer.curvature_l2(dim)[0]

    def less(name):
        return lambda self, *a: factor * getattr(kind, name)(self, *a)

    yield "value", less("value")
    yield "gradient", less("gradient")
    yield "range_on", less("range_on")
    if not isinstance(kept[0], Simplex):  # the entropy has no scale

        def too_flat(self, dim, center):
            params = kind.params(self, dim, center)
            return params._replace(scale=factor * params.scale)

        yield "params", too_flat
    high = regularizer.curvature_l2(dim)[1]
    # At the middle of the simplex the Hessian of its regularizer is at least dim.
    more = (dim if isinstance(kept[0], Simplex) else low) / factor + 0.01
    yield "curvature_l2", lambda self, dim: (more, max(high, more))
    least = factor * low if math.isfinite(high) else 0.5 * low
    yield "curvature_l2", lambda self, dim: (least, least)
    yield "describe", lambda self, *a: kind.describe(self, *a).lower()
    other = regularizers.SquaredNorm(7.0, center=np.full(dim, 0.3))
    yield "to_dict", lambda self: other.to_dict()
