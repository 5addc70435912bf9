"""Small Gibbs targets with energies, exact draws and laws written in NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import dpsample as dps
from dpsample.samplers.gaussian_fit import minimize

FORMULAS = {
    "linear": lambda u, y, s: -y * u,
    "logistic": lambda u, y, s: np.logaddexp(0.0, -y * u),
    "hinge": lambda u, y, s: np.maximum(0.0, 1.0 - y * u),
    "absolute": lambda u, y, s: np.abs(u - y),
    "quantile": lambda u, y, s: np.maximum(s.level * (y - u), (s.level - 1) * (y - u)),
    "huber": lambda u, y, s: np.where(
        np.abs(u - y) <= s.width,
        0.5 * (u - y) ** 2,
        s.width * (np.abs(u - y) - 0.5 * s.width),
    ),
    "squared": lambda u, y, s: 0.5 * (u - y) ** 2,
    "power_four": lambda u, y, s: (u - y) ** 4,
}
LABELED = ("logistic", "hinge")


@dataclass(frozen=True, eq=False)
class Case:
    """Records, loss, domain, k and mu, with everything that tests compare to."""

    loss: Any
    domain: Any
    rows: np.ndarray
    response: np.ndarray
    k: float
    mu: float
    p: float = 2.0
    offset: np.ndarray | None = None

    @property
    def dim(self):
        return self.rows.shape[1]

    @cached_property
    def target(self):
        problem = dps.Problem(
            self.rows,
            self.response,
            loss=self.loss,
            domain=self.domain,
            row_bound=10.0,
            response_bound=5.0,
            offset=self.offset,
            offset_bound=0.0 if self.offset is None else 20.0,
        )
        regularizer = dps.regularizers.SquaredNorm(self.p)
        return dps.Gibbs(problem, k=self.k, mu=self.mu, regularizer=regularizer)

    @cached_property
    def center(self):
        return self.domain.default_center(self.dim)

    @cached_property
    def shape(self):
        """Scale and exponent of the regularizer, from the table of norms."""
        if self.p >= 2.0:
            return 1.0, 2.0
        if self.p > 1.0:
            return 1.0 / (self.p - 1.0), self.p
        q = np.linspace(1.0, 2.0, 200_001)[1:]
        scales = self.dim ** (2.0 - 2.0 / q) / (q - 1.0)
        best = np.argmin(scales)
        return scales[best], q[best]

    def regularizer(self, points):
        scale, exponent = self.shape
        size = np.linalg.norm(points - self.center, ord=exponent, axis=-1)
        return 0.5 * scale * size**2

    def risk(self, points):
        """Mean loss at every row of points, a few records at a time."""
        total = np.zeros(len(points))
        shift = np.zeros(len(self.rows)) if self.offset is None else self.offset
        for row, b, y in zip(self.rows, shift, self.response, strict=True):
            total += FORMULAS[self.loss.name](points @ row + b, y, self.loss)
        return total / len(self.rows)

    def energy(self, points):
        return self.k * (self.risk(points) + self.mu * self.regularizer(points))

    def inside(self, points):
        domain = self.domain
        if domain.name == "ball":
            radii = np.linalg.norm(points - self.center, ord=domain.p, axis=-1)
            return radii <= domain.radius
        if domain.name == "schatten_ball":
            values = np.linalg.svd(points.reshape(-1, *domain.shape), compute_uv=False)
            return np.linalg.norm(values, ord=domain.p, axis=-1) <= domain.radius
        if domain.name == "box":
            return ((domain.lower <= points) & (points <= domain.upper)).all(-1)
        if domain.name == "polytope":
            return (points @ domain.A.T <= domain.b).all(-1)
        return np.ones(len(points), dtype=bool)

    @cached_property
    def frame(self):
        """Box that holds the domain, or all but e^-40 of the mass of R^d."""
        if self.domain.is_bounded:
            eye = np.eye(self.dim)
            return -self.domain.support(-eye), self.domain.support(eye)
        # V is k mu-strongly convex in l2: |x - x*| sqrt(k mu) has Gaussian tails.
        reach = (np.sqrt(80.0) + np.sqrt(self.dim)) / np.sqrt(self.k * self.mu)
        mode = minimize(self.target, tolerance=1e-9)[0]
        return mode - reach, mode + reach

    @cached_property
    def lowest(self):
        """Lower bound of the energy, for the rejection below."""
        lower, upper = self.frame
        points = np.random.default_rng(0).uniform(lower, upper, (20_000, self.dim))
        mode, energy = minimize(self.target, tolerance=1e-9)
        found = self.energy(np.vstack([points[self.inside(points)], mode])).min()
        assert abs(self.energy(mode[None])[0] - energy) < 1e-9 * (1.0 + abs(energy))
        return found - 1e-3

    def exact(self, rng, count):
        """Independent draws by plain rejection from the uniform law on the frame."""
        lower, upper = self.frame
        kept: list[np.ndarray] = []
        while sum(map(len, kept)) < count:
            points = rng.uniform(lower, upper, (200_000, self.dim))
            points = points[self.inside(points)]
            gap = self.energy(points) - self.lowest
            assert gap.min() >= 0.0
            kept.append(points[rng.standard_exponential(len(points)) >= gap])
        return np.concatenate(kept)[:count]

    @cached_property
    def law(self):
        """Points and weights of the target: one jittered point in each grid cell.

        A coarse grid finds the box of the points that have mass.
        """
        (lower, upper), rng = self.frame, np.random.default_rng(1)
        for sides in {1: (200, 20_000), 2: (100, 400)}[self.dim]:
            cells = np.stack(np.indices((sides,) * self.dim), -1).reshape(-1, self.dim)
            width = (upper - lower) / sides
            points = lower + (cells + rng.random(cells.shape)) * width
            points = points[self.inside(points)]
            weights = np.exp(self.lowest - self.energy(points))
            points, weights = points[weights > 1e-18], weights[weights > 1e-18]
            lower = np.maximum(lower, points.min(axis=0) - 2.0 * width)
            upper = np.minimum(upper, points.max(axis=0) + 2.0 * width)
        return points, weights / weights.sum()


def example(loss, domain, *, dim=2, num_records=6, k=20.0, mu=0.1, seed=1, **rest):
    """Case with random rows of norm about 1 and noisy responses."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(num_records, dim)) / np.sqrt(dim)
    signal = rows @ np.ones(dim) + 0.5 * rng.normal(size=num_records)
    is_labeled = loss.name in LABELED
    response = np.where(signal > 0.0, 1.0, -1.0) if is_labeled else np.tanh(signal)
    return Case(loss, domain, rows, response, k, mu, **rest)
