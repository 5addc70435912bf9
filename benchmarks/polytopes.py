"""Polytopes that are hard for walks: Birkhoff, linear programs, rotated thin boxes.

Each is given by inequalities and equations in its natural coordinates, badly scaled
ones included; `reduced` eliminates the equations. Needs NumPy and SciPy only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Array = NDArray[np.float64]
SCALES = 3.0  # columns and widths range from 10^-3 to 10^3


@dataclass(frozen=True, kw_only=True)
class Body:
    """Points with ``facets x <= limits`` and ``equations x = values``.

    ``point`` satisfies all inequalities strictly, and ``cost`` is a linear objective
    that varies by about 1 per coordinate.
    """

    facets: Array
    limits: Array
    equations: Array
    values: Array
    point: Array
    cost: Array


def body(facets: Array, limits: Array, point: Array, cost: Array) -> Body:
    """Body without equations."""
    none = np.zeros((0, len(point)))
    return Body(
        facets=facets,
        limits=limits,
        equations=none,
        values=none[:, 0],
        point=point,
        cost=cost,
    )


def birkhoff(size: int, rng: np.random.Generator) -> Body:
    """Doubly stochastic matrices; the cost is that of an assignment."""
    dim = size * size
    sums = np.vstack(
        [np.kron(np.eye(size), np.ones(size)), np.kron(np.ones(size), np.eye(size))]
    )
    return Body(
        facets=-np.eye(dim),
        limits=np.zeros(dim),
        equations=sums[:-1],  # the last one follows from the others
        values=np.ones(2 * size - 1),
        point=np.full(dim, 1.0 / size),
        cost=rng.random(dim),
    )


def program(dim: int, num_rows: int, rng: np.random.Generator) -> Body:
    """Resources of a linear program, ``x >= 0`` and ``G x <= h``, columns scaled."""
    scales = 10.0 ** rng.permutation(np.linspace(-SCALES, SCALES, dim))
    use = rng.random((num_rows, dim)) * (rng.random((num_rows, dim)) < 0.5)
    use[:, 0] += 0.1
    use = np.vstack([use, np.ones(dim)])  # bounds every coordinate
    point = rng.uniform(0.5, 1.0, dim)
    limits = use @ point * rng.uniform(1.1, 2.0, num_rows + 1)
    facets = np.vstack([-np.eye(dim), use]) / scales
    bounds = np.concatenate([np.zeros(dim), limits])
    return body(facets, bounds, point * scales, rng.standard_normal(dim) / scales)


def flux(dim: int, num_equations: int, rng: np.random.Generator) -> Body:
    """Flows ``0 <= v <= u`` through a network ``S v = s``, capacities scaled."""
    scales = 10.0 ** rng.permutation(np.linspace(-SCALES, SCALES, dim))
    shape = (num_equations, dim)
    network = rng.integers(-2, 3, shape) * (rng.random(shape) < 0.4)
    point = rng.uniform(0.3, 0.7, dim)
    equations = network / scales
    return Body(
        facets=np.vstack([-np.eye(dim), np.eye(dim)]),
        limits=np.concatenate([np.zeros(dim), scales]),
        equations=equations,
        values=equations @ (point * scales),
        point=point * scales,
        cost=rng.standard_normal(dim) / scales,
    )


def thin_box(dim: int, rng: np.random.Generator) -> Body:
    """Box with widths from 10^-3 to 10^3, turned at random."""
    turn = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    widths = 10.0 ** np.linspace(-SCALES, SCALES, dim)
    limits = np.concatenate([widths, widths])
    cost = turn.T @ (rng.standard_normal(dim) / widths)
    return body(np.vstack([turn, -turn]), limits, np.zeros(dim), cost)


def random_facets(dim: int, num_facets: int, rng: np.random.Generator) -> Body:
    """Facets in random directions that touch the unit ball."""
    facets = rng.standard_normal((num_facets, dim))
    facets /= np.linalg.norm(facets, axis=1, keepdims=True)
    return body(facets, np.ones(num_facets), np.zeros(dim), rng.standard_normal(dim))


BODIES: dict[str, Callable[[np.random.Generator], Body]] = {
    "random20": lambda rng: random_facets(20, 200, rng),
    "birkhoff4": lambda rng: birkhoff(4, rng),
    "birkhoff6": lambda rng: birkhoff(6, rng),
    "program12": lambda rng: program(12, 10, rng),
    "program40": lambda rng: program(40, 30, rng),
    "flux24": lambda rng: flux(24, 10, rng),
    "thin10": lambda rng: thin_box(10, rng),
    "thin30": lambda rng: thin_box(30, rng),
}


def reduce_dimension(whole: Body) -> Body:
    """Body in coordinates z of its affine hull: x = point + N z, N orthonormal."""
    if len(whole.values) == 0:
        return whole
    # Rows of one size: otherwise the rank would depend on their units.
    rows = whole.equations / np.linalg.norm(whole.equations, axis=1, keepdims=True)
    basis = linalg.null_space(rows)
    limits = whole.limits - whole.facets @ whole.point
    origin = np.zeros(basis.shape[1])
    return body(whole.facets @ basis, limits, origin, whole.cost @ basis)
