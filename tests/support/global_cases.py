"""Small targets on bodies, their laws by quadrature, and bugs of global draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import chi2

import dpsample as dps
from dpsample.numerics.lazy_reals import BitStream
from dpsample.samplers.whole_body import branches, decisions, tangent_cells, tangents
from dpsample.samplers.whole_body.decisions import Decisions
from dpsample.samplers.whole_body.global_draws import PreparedGlobal
from tests.support.statistics import spend

L, D = dps.losses, dps.domains


LOGISTIC = L.Logistic()


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def smoothed_hinge(width: float) -> Callable[..., np.ndarray]:
    def value(u: np.ndarray, y: np.ndarray) -> np.ndarray:
        gap = np.maximum(1.0 - y * u, 0.0)
        return np.where(gap < width, gap**2 / (2.0 * width), gap - width / 2.0)

    return value


def huber(width: float) -> Callable[..., np.ndarray]:
    def value(u: np.ndarray, y: np.ndarray) -> np.ndarray:
        size = np.abs(u - y)
        return np.where(size < width, size**2 / 2.0, width * (size - width / 2.0))

    return value


def logistic(u: np.ndarray, y: np.ndarray) -> np.ndarray:
    return softplus(-y * u)


def hinge(u: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum(1.0 - y * u, 0.0)


def absolute(u: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.abs(u - y)


def quantile(u: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(y > u, 0.75 * (y - u), 0.25 * (u - y))


@dataclass(frozen=True, kw_only=True)
class GlobalCase:
    """Target in one or two dimensions, with its energy written again."""

    domain: Any
    box: tuple[list[float], list[float]]  # ends of a box that contains the domain
    k: float
    mu: float
    slope: float = 1.0  # length of the coefficients of the labels
    radius: float  # an ellipsoid with it leaves much of the target outside
    loss: Any = LOGISTIC
    value: Callable[..., np.ndarray] = logistic
    num_records: int = 80
    fine: int = 600  # cells of the quadrature per axis

    @property
    def dim(self) -> int:
        return len(self.box[0])

    @cached_property
    def records(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(3)
        rows = rng.standard_normal((self.num_records, self.dim))
        rows *= np.linspace(0.6, 1.4, self.dim)
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        theta = self.slope * rng.standard_normal(self.dim)
        chance = 1.0 / (1.0 + np.exp(-rows @ theta))
        return rows, np.where(rng.random(len(rows)) < chance, 1.0, -1.0)

    @cached_property
    def target(self) -> dps.Gibbs:
        rows, response = self.records
        problem = dps.Problem(
            rows,
            response,
            loss=self.loss,
            domain=self.domain,
            row_bound=1.0,
            response_bound=None if self.loss.is_classification else 1.0,
        )
        penalty = dps.regularizers.SquaredNorm(2.0, center=np.zeros(self.dim))
        return dps.Gibbs(problem, k=self.k, mu=self.mu, regularizer=penalty)

    def energy(self, points: np.ndarray) -> np.ndarray:
        rows, response = self.records
        risk = np.zeros(len(points))
        for row, y in zip(rows, response, strict=True):
            risk += self.value(points @ row, y) / len(rows)
        return self.k * (risk + 0.5 * self.mu * (points**2).sum(axis=1))

    def inside(self, points: np.ndarray) -> np.ndarray:
        if isinstance(self.domain, D.Ball):
            return np.linalg.norm(points, axis=1) <= self.domain.radius
        if isinstance(self.domain, D.Polytope):
            return (points @ self.domain.A.T <= self.domain.b).all(axis=1)
        low, high = np.asarray(self.domain.lower), np.asarray(self.domain.upper)
        return ((points >= low) & (points <= high)).all(axis=1)

    @cached_property
    def masses(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Edges of 60, 12 or 5 cells per axis, and their masses by midpoints."""
        axes = [
            low + (high - low) * (np.arange(self.fine) + 0.5) / self.fine
            for low, high in zip(*self.box, strict=True)
        ]
        points = np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], 1)
        weights = np.zeros(len(points))
        is_in = self.inside(points)
        energy = self.energy(points[is_in])
        weights[is_in] = np.exp(energy.min() - energy)
        weights = weights.reshape([self.fine] * self.dim) / weights.sum()
        edges = []
        for j, (low, high) in enumerate(zip(*self.box, strict=True)):
            other = tuple(i for i in range(self.dim) if i != j)
            levels = np.cumsum(weights.sum(axis=other))
            number = {1: 60, 2: 12, 3: 5}[self.dim]
            cut = np.searchsorted(levels, np.arange(1, number) / number) + 1
            step = (high - low) / self.fine
            edges.append(np.unique(np.r_[low, low + step * cut, high]))
        cells = weights
        for j, edge in enumerate(edges):
            low, high = self.box[0][j], self.box[1][j]
            starts = np.rint((edge[:-1] - low) / (high - low) * self.fine).astype(int)
            cells = np.add.reduceat(cells, starts, axis=j)
        return edges, cells

    def prepare(self, bug: str = "") -> PreparedGlobal:
        """The sampler with the small ellipsoid, or with one bug."""
        return prepare(self, self.radius, bug)


def prepare(case: GlobalCase, radius: float | None, bug: str = "") -> PreparedGlobal:
    best, level, share = (
        branches._best_radius,
        branches.shell_level,
        decisions._log_share,
    )
    try:
        if radius is not None:
            branches._best_radius = lambda shape: radius
        if bug == "steep":
            branches.shell_level = lambda rho, bregman, *rest: (
                level(rho, bregman, *rest) + branches.Fraction(0.3 * bregman * rho**2)
            )
        if bug == "determinant":
            decisions._log_share = lambda branch: decisions.Decimal(branch.weight).ln()
        prepared = PreparedGlobal.from_target(case.target)
    finally:
        branches._best_radius, branches.shell_level = best, level
        decisions._log_share = share
    law = prepared.decisions
    if bug == "no outside":
        law = replace(law, branches=law.branches[:1], numbers=law.numbers[:1])
    if bug == "factor":
        raised = [
            replace(branch, weight=int(branch.weight * (1.35 if i else 1.0)))
            for i, branch in enumerate(law.branches)
        ]
        law = replace(law, branches=raised)
    return replace(prepared, decisions=law)


def many_draws(law: Decisions, seed: int, num_proposals: int) -> np.ndarray:
    """The accepted points among some proposals."""
    word, points = BitStream(np.random.default_rng(seed)), []
    for _ in range(num_proposals // 256):
        block = law.draw_proposals(word, 256)
        for i in np.flatnonzero(law.decide(block).is_accepted):
            points.append([float(x) for x in law.point(block[i])])
    return np.array(points)


def assert_counts(case: GlobalCase, points: np.ndarray) -> None:
    """Pearson's statistic of the cells, at the level of the suite."""
    edges, masses = case.masses
    counts = np.histogramdd(points, edges)[0].ravel()
    expected = masses.ravel() * len(points)
    is_large = expected >= 10.0
    counts = np.r_[counts[is_large], counts[~is_large].sum()]
    expected = np.r_[expected[is_large], expected[~is_large].sum()]
    if expected[-1] < 10.0:
        counts, expected = counts[:-1], expected[:-1]
    statistic = float(((counts - expected) ** 2 / expected).sum())
    bound = float(chi2.isf(spend(is_exact=False), len(counts) - 1))
    assert statistic <= bound, f"cells statistic {statistic:.1f}, bound {bound:.1f}"


CUBE = ([-2.0, -2.0], [2.0, 2.0])
KITE = D.Polytope(
    [[1.0, 1.0], [-1.0, 2.0], [0.0, -1.0], [-1.0, -1.0]], [1, 1, 0.5, 0.8]
)
SOLID = D.Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.0, 0.0, 1.0])
CASES = {
    "ball, d = 1": GlobalCase(
        domain=D.Ball(2.0),
        box=([-2.0], [2.0]),
        k=40.0,
        mu=0.02,
        radius=1.2,
        fine=60_000,
    ),
    "ball": GlobalCase(
        domain=D.Ball(2.0), box=CUBE, k=60.0, mu=0.01, slope=0.6, radius=1.6
    ),
    "ball, mode on the sphere": GlobalCase(
        domain=D.Ball(1.0),
        box=([-1, -1], [1, 1]),
        k=80.0,
        mu=0.01,
        slope=3.0,
        radius=1.0,
    ),
    "box": GlobalCase(
        domain=D.Box(-2.0, 2.0), box=CUBE, k=60.0, mu=0.01, slope=0.6, radius=1.6
    ),
    "box, mode in a corner": GlobalCase(
        domain=D.Box([-0.8, -0.8], [0.8, 0.8]),
        box=([-0.8, -0.8], [0.8, 0.8]),
        k=100.0,
        mu=0.01,
        slope=3.0,
        radius=0.5,
    ),
    "box, mode on a side": GlobalCase(
        domain=D.Box([-0.3, -0.3], [1.0, 1.0]),
        box=([-0.3, -0.3], [1.0, 1.0]),
        k=300.0,
        mu=0.01,
        radius=1.0,
    ),
    "solid simplex": GlobalCase(
        domain=SOLID, box=([0, 0], [1, 1]), k=150.0, mu=0.01, slope=2.0, radius=0.4
    ),
    "polytope": GlobalCase(
        domain=KITE,
        box=([-1.0, -0.5], [1.5, 1.5]),
        k=100.0,
        mu=0.01,
        slope=2.0,
        radius=0.8,
    ),
    "smoothed hinge": GlobalCase(
        domain=D.Ball(2.0),
        box=CUBE,
        k=40.0,
        mu=0.05,
        radius=1.6,
        loss=L.SmoothedHinge(0.5),
        value=smoothed_hinge(0.5),
    ),
    "huber": GlobalCase(
        domain=D.Ball(2.0),
        box=CUBE,
        k=40.0,
        mu=0.05,
        radius=1.2,
        loss=L.Huber(0.5),
        value=huber(0.5),
    ),
}


def prepare_cells(case: GlobalCase, bug: str = "") -> PreparedGlobal:
    """The sampler by tangents, or with one bug."""
    steep = tangents.CellFrame.lowest
    rates = tangents.log_rates
    try:
        if bug == "steep":
            tangents.CellFrame.lowest = lambda *given: (
                steep(*given) + branches.Fraction(3, 5)
            )
        if bug == "normalizer":
            # A cell's cut of the exponential is left out of its density.
            tangent_cells.log_rates = lambda cell: [
                float(np.log(rate)) if rate else other
                for rate, other in zip(np.abs(cell.rates), rates(cell), strict=True)
            ]
        frame = tangents.new_frame(case.target)
        cells = tangents.find_cells(frame)
        law = tangent_cells.CellDecisions.from_cells(frame, cells)
    finally:
        tangents.CellFrame.lowest = steep
        tangent_cells.log_rates = rates
    if bug in ("no cell", "factor"):
        heavy = int(np.argmax([cell.weight for cell in cells]))
        one = cells[heavy]
        changed = [one._replace(weight=2 * one.weight)] if bug == "factor" else []
        # Constants stay as they were, so the weight is not made up for.
        constants = law.constants
        if bug == "no cell":
            constants = constants[:heavy] + constants[heavy + 1 :]
        cells = cells[:heavy] + changed + cells[heavy + 1 :]
        sums = np.cumsum([cell.weight for cell in cells], dtype=object).tolist()
        law = replace(law, cells=cells, cumulative=sums, constants=constants)
    return PreparedGlobal(mode=None, decisions=law)


CELL_CASES = {
    "hinge, d = 1": GlobalCase(
        domain=D.Ball(2.0),
        box=([-2.0], [2.0]),
        k=40.0,
        mu=0.02,
        radius=0.0,
        loss=L.Hinge(),
        value=hinge,
        fine=60_000,
    ),
    "hinge, ball": GlobalCase(
        domain=D.Ball(2.0),
        box=CUBE,
        k=60.0,
        mu=0.01,
        slope=0.6,
        radius=0.0,
        loss=L.Hinge(),
        value=hinge,
    ),
    "hinge, mode on the sphere": GlobalCase(
        domain=D.Ball(1.0),
        box=([-1, -1], [1, 1]),
        k=80.0,
        mu=0.01,
        slope=3.0,
        radius=0.0,
        loss=L.Hinge(),
        value=hinge,
    ),
    "absolute, box": GlobalCase(
        domain=D.Box([-0.8, -0.4], [0.8, 2.0]),
        box=([-0.8, -0.4], [0.8, 2.0]),
        k=100.0,
        mu=0.01,
        radius=0.0,
        loss=L.Absolute(),
        value=absolute,
    ),
    "quantile, polytope": GlobalCase(
        domain=KITE,
        box=([-1.0, -0.5], [1.5, 1.5]),
        k=60.0,
        mu=0.01,
        radius=0.0,
        loss=L.Quantile(0.75),
        value=quantile,
    ),
    "logistic, simplex": CASES["solid simplex"],
    "hinge, d = 3": GlobalCase(
        domain=D.Ball(1.5),
        box=([-1.5] * 3, [1.5] * 3),
        k=40.0,
        mu=0.01,
        radius=0.0,
        loss=L.Hinge(),
        value=hinge,
        fine=90,
    ),
}
