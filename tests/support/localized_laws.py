"""Laws on localized regions by quadrature: along lines, and in polar coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import linalg

import dpsample as dps
from dpsample.samplers.localized.columns import RecordColumns, map_columns
from dpsample.samplers.localized.prepared import Localization, PreparedLocalized
from tests.support.gibbs_cases import FORMULAS, Case

FORMULAS.setdefault(
    "smoothed_hinge",
    lambda u, y, s: np.where(
        y * u <= 1.0 - s.width,
        1.0 - y * u - 0.5 * s.width,
        0.5 * np.maximum(1.0 - y * u, 0.0) ** 2 / s.width,
    ),
)
# Energies above the lowest one that count as no mass.
FALL = 45.0


@dataclass(frozen=True, eq=False)
class LocalCase(Case):
    """Case whose law is computed around its mode, however small the region is."""

    gamma: float = 1e-8

    entropy: Any = None

    @cached_property
    def target(self) -> Any:
        plain = Case.target.func(self)
        if self.entropy is None:
            return plain
        return dps.Gibbs(plain.problem, k=self.k, mu=self.mu, regularizer=self.entropy)

    @cached_property
    def place(self) -> Localization:
        place = Localization.find(self.target, self.gamma)
        assert place is not None
        return place

    @property
    def columns(self) -> RecordColumns:
        """Columns of the records at the mode."""
        return next(map_columns(self.target, self.place.mode, lambda columns: columns))

    def prepared(self, **changes: Any) -> PreparedLocalized:
        """Sampler of the place, some of whose parts may be replaced by wrong ones."""
        place = Localization(
            target=self.target,
            mode=changes.get("mode", self.place.mode),
            region=changes.get("region", self.place.region),
        )
        prepared = place.prepare(np.random.default_rng(0))
        assert prepared is not None
        return prepared

    def regularizer(self, points):
        if self.entropy is None:
            return super().regularizer(points)
        safe = np.where(points > 0.0, points, 1.0)
        return (safe * np.log(safe)).sum(axis=-1)

    def inside(self, points):
        if self.domain.name == "simplex":
            on_plane = np.abs(points.sum(axis=-1) - 1.0) <= 1e-9
            return (points >= 0.0).all(axis=-1) & on_plane
        return super().inside(points)

    def at(self, points):
        """Energy of points in an array of any shape; infinite outside the domain."""
        flat = points.reshape(-1, self.dim)
        values = np.where(self.inside(flat), self.energy(flat), np.inf)
        return values.reshape(points.shape[:-1])

    @cached_property
    def law(self):
        """Points and weights of a law in the plane, on rays from the mode."""
        num_angles, num_radii = 3_000, 60
        rng, mode = np.random.default_rng(1), self.place.mode
        angles = (np.arange(num_angles) + rng.random(num_angles)) / num_angles
        circle = np.stack([np.cos(2 * np.pi * angles), np.sin(2 * np.pi * angles)])
        root = self.place.region.root
        rays = linalg.solve_triangular(root, circle, lower=True, trans="T").T
        start = mode.point
        lowest = self.energy(start[None])[0]

        def falls(reach):
            values = self.at(start + reach[:, None] * rays) - lowest
            return ~(values <= FALL)

        ends = _last(falls, np.full(num_angles, 1e3))
        radii = (np.arange(num_radii) + rng.random((num_angles, num_radii))) / num_radii
        # Squares of ranks: more nodes near the mode.
        lengths = ends[:, None] * radii**2
        points = start + lengths[..., None] * rays[:, None, :]
        values = self.at(points) - lowest
        weights = np.exp(-values) * lengths * ends[:, None] * radii
        points, weights = points.reshape(-1, 2), weights.reshape(-1)
        kept = weights > 0.0
        return points[kept], weights[kept] / weights.sum()


def _last(falls, high):
    """Largest numbers up to which rays stay inside, from below."""
    low = np.zeros_like(high)
    for _ in range(50):
        middle = 0.5 * (low + high)
        is_out = falls(middle)
        high = np.where(is_out, middle, high)
        low = np.where(is_out, low, middle)
    return low


def accepted(prepared: PreparedLocalized, rng, count: int) -> np.ndarray:
    """Accepted tries of whole blocks, at least ``count``."""
    found: list[np.ndarray] = []
    while sum(map(len, found)) < count:
        vectors, budgets = prepared.draw_candidates(rng, 1_000)
        excess, _ = prepared.evaluate_excess(vectors, budgets)
        found.append(prepared.to_points(vectors[excess <= budgets]))
    return np.concatenate(found)


def line_levels(case: LocalCase, sample: np.ndarray, direction) -> np.ndarray:
    """Levels of draws in their laws along lines of one direction: uniform if right."""
    v = np.asarray(direction, dtype=float)
    base = case.energy(sample)
    ends = []
    for sign in (-1.0, 1.0):

        def falls(t, sign=sign):
            points = sample + (sign * t)[:, None] * v
            return ~(case.at(points) - base <= FALL)

        far = np.full(len(sample), 1e-9)
        while not falls(far).all():
            far = np.where(falls(far), far, 4.0 * far)
        ends.append(sign * _last(falls, far))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    masses = []
    for end in ends:
        total = np.zeros(len(sample))
        edges = np.linspace(0.0, 1.0, 17) ** 2
        for first, last in pairwise(edges):
            share = 0.5 * (first + last) + 0.5 * (last - first) * nodes
            t = end[:, None] * share
            values = case.energy(
                (sample[:, None, :] + t[..., None] * v).reshape(-1, case.dim)
            ).reshape(t.shape)
            total += 0.5 * (last - first) * (np.exp(base[:, None] - values) @ weights)
        masses.append(np.abs(end) * total)
    return masses[0] / (masses[0] + masses[1])
