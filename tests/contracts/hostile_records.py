"""Legal records that no data set should contain, and their exact sums.

Rows lie within the declared bound in exact arithmetic; responses are any finite numbers
within theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import mpmath
import numpy as np
from scipy import sparse

import dpsample as dps
from dpsample.domains import WholeSpace
from dpsample.numerics.norms import norm
from dpsample.optimizers.loop.estimators import (
    BucketedMedian,
    CatoniMean,
    Estimator,
    Mean,
    TruncatedMean,
)
from dpsample.optimizers.loop.optimizer import Loop, Recipe
from dpsample.optimizers.loop.perturbations import GaussianNoise
from dpsample.optimizers.loop.steps import FrankWolfeStep, GradientStep
from tests.contracts.hostile_cases import World
from tests.support.descents import descend

Array = np.ndarray
UNIT = Fraction(1, 2**53)
TINY = Fraction(1, 2**1074)
MAX = float(np.finfo(float).max)
# Of a record: y, which slopes grow with; its cube overflows from 1e103 on.
RESPONSES = (1e103, MAX, -MAX, -1.5e300, 1e200, -1e155, 1e154, -1e103)
RESPONSES += (0.0, -0.0, 1.0, -1.0, 5e-324, -2e-308, 3.7, 1e3)
# Of a row, in units of its bound.
SHAPES: tuple[tuple[float, float], ...] = (
    (0.5, 0.0),
    (0.0, -1.0),
    (1.0, 0.0),
    (0.0, 0.0),
    (-0.0, 0.5),
    (0.6, -0.6),
    (0.7071067811865475, 0.7071067811865475),
    (5e-324, 0.0),
    (1e-170, 1e-170),
    (3e-162, -1e-200),
    (1e-310, 0.5),
    (2.3e-308, -5e-324),
    (0.3, 1e-300),
)
PATTERNS = ("any", "one hostile", "identical")


@dataclass(frozen=True, eq=False)
class Records:
    """Rows, responses and offsets of one data set in a world."""

    world: World
    rows: Array
    response: Array
    offset: Array | None
    is_sparse: bool = False

    def problem(self, *, free: bool = False) -> dps.Problem:
        """The data set; ``free``: on the whole space."""
        rows = sparse.csr_matrix(self.rows) if self.is_sparse else self.rows
        domain = WholeSpace() if free else None
        return self.world.problem(rows, self.response, self.offset, domain)

    def single(self, i: int) -> Records:
        """One record as a data set."""
        part = slice(i, i + 1)
        return replace(
            self,
            world=replace(self.world, num_records=1),
            rows=self.rows[part],
            response=self.response[part],
            offset=None if self.offset is None else self.offset[part],
        )

    def changed(self, i: int, j: int | None) -> Records:
        """A neighbor: record i becomes a copy of record j, or has a zero row.

        Without an intercept the loss of a zero row is a constant, as good as none.
        """
        rows, response = self.rows.copy(), self.response.copy()
        rows[i] = 0.0 if j is None else rows[j]
        response[i] = response[i if j is None else j]
        if j is None and self.world.loss.name == "record_gradient":
            response[i] = 0.0  # whose gradients have it as a factor
        offset = None if self.offset is None else self.offset.copy()
        if offset is not None and j is not None:
            offset[i] = offset[j]
        return replace(self, rows=rows, response=response, offset=offset)


def _row(world: World, shape: tuple[float, float]) -> Array:
    """Row of this shape whose norm is at most the bound, exactly."""
    row = world.row_bound * np.array(shape[: world.width])
    row /= max(1.0, norm(row, world.row_norm) / world.row_bound)
    while not within(as_fractions(row), world.row_norm, Fraction(world.row_bound)):
        row *= 1.0 - 2.0**-52
    return row


@st.composite
def records(draw: Any, world: World) -> Records:
    """Hostile records of a world."""
    n, limit = world.num_records, world.response_limit
    numbers = st.integers(0, 10**4)
    seeds = draw(st.lists(numbers, min_size=3 * n, max_size=3 * n))
    shapes = [SHAPES[s % len(SHAPES)] for s in seeds[:n]]
    legal = [y for y in RESPONSES if abs(y) <= limit] + [limit, -limit]
    if world.loss.is_classification:
        legal = [-1.0, 1.0]
    response = np.array([legal[s % len(legal)] for s in seeds[n : 2 * n]])
    rows = np.array([_row(world, shape) for shape in shapes])
    offset = world.offset_bound * np.array([s % 3 - 1.0 for s in seeds[2 * n :]])
    pattern = draw(st.sampled_from(PATTERNS))
    if pattern == "one hostile":
        rows[1:], offset[1:] = _row(world, (0.5, 0.25)), 0.0
        response[1:] = 1.0 if world.loss.is_classification else 0.0
    elif pattern == "identical":
        rows[1:], response[1:], offset[1:] = rows[0], response[0], offset[0]
    takes_rows = world.loss.name == "record_gradient"
    return Records(
        world,
        rows,
        response,
        offset if world.offset_bound > 0.0 else None,
        is_sparse=not takes_rows and draw(st.booleans()),
    )


def as_fractions(vector: Array) -> list[Fraction]:
    """Exact values; fails if one is not finite."""
    assert np.isfinite(vector).all(), f"not finite: {vector}"
    return [Fraction(float(x)) for x in vector]


def within(vector: list[Fraction], q: float, bound: Fraction) -> bool:
    """Whether the l_q norm is at most the bound, exactly or with 60 digits."""
    sizes = [abs(x) for x in vector]
    if math.isinf(q):
        return max(sizes) <= bound
    if q == int(q):
        return sum(x ** int(q) for x in sizes) <= bound ** int(q)
    with mpmath.workdps(60):
        *parts, limit = (
            (mpmath.mpf(x.numerator) / x.denominator) ** mpmath.mpf(q)
            for x in (*sizes, bound)
        )
        return bool(mpmath.fsum(parts) <= limit * (1 + mpmath.mpf(10) ** -40))


@dataclass(frozen=True, eq=False)
class Query:
    """What one record may add to the sum of a phase's estimator."""

    estimator: Estimator
    recipe: Recipe
    bound: Fraction  # of one record's part, in the l_q norm
    q: float
    rounding: Fraction  # of the part itself, relative to the bound

    def estimate(self, data: Records, theta: Array, seed: int = 5) -> list[Fraction]:
        """The estimate over all records, times their number.

        One step of size 2^k from theta, so long that it drowns theta: an entry of the
        end is the step itself, exactly, unless it is below 2^-100 of the bound, which
        reads as 0. So does the noise of 2^-250, without which no recipe is private.
        """
        k = 200 - int(math.log2(float(self.bound)))
        loop = Loop(
            num_steps=1,
            step=GradientStep(2.0**k),
            estimator=self.estimator,
            noise=GaussianNoise(2.0**-250 * float(self.bound)),
        )
        recipe = Recipe(
            phases=(loop,),
            event=self.recipe.event,  # private, as far as the driver knows
            inputs={},
            start=theta,
            entry_bound=self.recipe.entry_bound,
        )
        rng = np.random.default_rng(seed)
        end = as_fractions(descend(data.problem(free=True), recipe, rng).theta)
        scale = Fraction(data.world.num_records) / Fraction(2) ** k
        return [-x * scale if abs(x) > 2**100 else Fraction(0) for x in end]

    def slack(self, num_records: int, dim: int) -> Fraction:
        """Rounding of a sum of parts, in the l_q norm.

        A sum of n numbers in any order is off by at most (n - 1) u sum |x_i|, up to
        terms of order u^2; each product, the division and the step add one unit.
        """
        units = (num_records + 4) * num_records * dim
        return units * (UNIT * self.bound + TINY) + num_records * self.own_slack

    @property
    def own_slack(self) -> Fraction:
        return self.rounding * self.bound


def query_of(recipe: Recipe, phase: Any, world: World, relation: str) -> Query | None:
    """What is declared of a phase's estimator; None without noise."""
    estimator, dim = phase.estimator, recipe_dim(world)
    # Exact but for plain means, whose bound holds for slopes in real arithmetic: a dot
    # product of d terms, at most a cube, products with the row and of the bound.
    rounding = Fraction(0)
    bound, q = estimator.record_bound(dim), 2.0
    if isinstance(estimator, TruncatedMean):
        q = estimator.q
    if isinstance(getattr(phase, "step", None), FrankWolfeStep):
        q = math.inf
        if isinstance(estimator, CatoniMean):
            bound = estimator.record_bound(1)
        else:  # the bound is that of the entries
            shift = 2.0 if relation == "replace_one" else 1.0
            moved = recipe.inputs["score_sensitivity"] / shift / phase.step.radius
            bound = moved * world.num_records
    if isinstance(estimator, Mean):
        rounding = (4 * dim + 16) * UNIT
    if not math.isfinite(bound):
        return None
    return Query(estimator, recipe, Fraction(bound), q, rounding)


def recipe_dim(world: World) -> int:
    """Number of parameters."""
    return world.width + int(world.intercept)


def starts(world: World) -> list[Array]:
    """Points of the domain where gradients are taken: its center, and a far one."""
    dim = recipe_dim(world)
    center = world.domain.default_center(dim)
    far = world.domain.project(center + 1e6 * np.array([0.8, -0.6][:dim]))
    return [center, far]


def is_additive(estimator: Estimator) -> bool:
    """Whether the estimate is a sum of parts of single records."""
    return not isinstance(estimator, BucketedMedian)
