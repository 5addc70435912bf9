"""Interior rejections on hostile records, and their excess to 80 digits by mpmath."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mpmath
import numpy as np
import scipy.sparse

import dpsample as dps
from dpsample.samplers.localized.exact_rejection import Candidates, ExactRejection
from dpsample.samplers.localized.prepared import Localization

L, D = dps.losses, dps.domains
LOGISTIC, WIDE = L.Logistic(), D.Ball(10.0)
REAL = mpmath.MPContext()
REAL.dps = 80


def _softplus(x: Any) -> Any:
    return max(x, 0) + REAL.log1p(REAL.exp(-abs(x)))


def _smoothed_hinge(u: Any, y: Any, width: Any) -> Any:
    gap = 1 - y * u
    if gap <= 0:
        return REAL.mpf(0)
    return gap - width / 2 if gap >= width else gap**2 / (2 * width)


def _huber(u: Any, y: Any, width: Any) -> Any:
    size = abs(u - y)
    return size**2 / 2 if size <= width else width * size - width**2 / 2


def _capped_logistic(u: Any, y: Any, cap: Any, *_: Any) -> Any:
    end = REAL.log((1 - cap) / cap)
    return _softplus(-max(y * u, end)) + cap * max(end - y * u, 0)


FORMULAS = {
    "calibrated_logistic": lambda u, y: (
        (REAL.exp(-y * u) if y * u > 0 else 1 - y * u) / 2
    ),
    "capped_logistic": _capped_logistic,
    "logistic": lambda u, y: _softplus(-y * u),
    "smoothed_hinge": _smoothed_hinge,
    "huber": _huber,
    "squared": lambda u, y: (u - y) ** 2 / 2,
    "power_four": lambda u, y: (u - y) ** 4,
}


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """Records, each ``copies`` times, so that few of them make many."""

    loss: Any = LOGISTIC
    domain: Any = WIDE
    num_distinct: int = 100
    dim: int = 3
    copies: int = 1
    k: float = 1e3
    mu: float = 1e-2
    scale: float = 1.0  # of rows
    noise: float = 0.5  # of labels
    spread: float = 1.0  # of the columns' scales
    offset: float = 0.0
    is_sparse: bool = False
    gamma: float = 1e-8

    @cached_property
    def records(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(1)
        rows = rng.standard_normal((self.num_distinct, self.dim))
        rows *= np.geomspace(1.0, self.spread, self.dim)
        if self.is_sparse:
            rows *= rng.random(rows.shape) < 0.5
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        margin = rows @ np.linspace(1.0, -1.0, self.dim)
        response = margin + self.noise * rng.standard_normal(len(rows))
        if self.loss.is_classification:
            response = np.where(response > 0.0, 1.0, -1.0)
        offset = self.offset * rng.standard_normal(len(rows))
        return self.scale * rows, np.clip(response, -2.0, 2.0), offset

    @cached_property
    def target(self) -> dps.Gibbs:
        rows, response, offset = (
            np.concatenate([each] * self.copies) for each in self.records
        )
        problem = dps.Problem(
            scipy.sparse.csr_matrix(rows) if self.is_sparse else rows,
            response,
            loss=self.loss,
            domain=self.domain,
            row_bound=self.scale * 1.0001,
            response_bound=2.0,
            offset=offset if self.offset else None,
            offset_bound=10.0 * self.offset,
        )
        return dps.Gibbs(problem, k=self.k, mu=self.mu)

    @cached_property
    def exact(self) -> ExactRejection:
        place = Localization.find(self.target, self.gamma)
        assert place is not None
        found = ExactRejection.from_prepared(place.prepare(np.random.default_rng(0)))
        assert found is not None
        return found

    def tries(self, count: int, seed: int = 2) -> Candidates:
        """Some tries, with budgets that no excess reaches."""
        rng, found = np.random.default_rng(seed), self.exact.draw_candidates
        made = found(rng, 2 * count)
        while len(made.threshold) < count:
            more = found(rng, 2 * count)
            made = Candidates(*map(np.concatenate, zip(made, more, strict=True)))
        return made.part(slice(count))

    def excess(self, tries: Candidates) -> tuple[np.ndarray, np.ndarray]:
        """G by doubles, and the bound of its error."""
        budgets = np.full(len(tries.threshold), np.inf)
        prepared = self.exact.prepared
        found, _ = prepared.evaluate_excess(tries.vectors, budgets, is_checked=False)
        found = found + self.exact._excess_offset(tries.noise)
        return found, self.exact.tolerance(tries._replace(threshold=found))

    def point(self, tries: Candidates, i: int) -> tuple[list[Any], list[Any]]:
        """z and x of a try."""
        exact, real = self.exact, REAL.mpf
        pairs = zip(tries.noise[i], tries.noise_low[i], strict=True)
        noise = [real(float(hi)) + real(float(lo)) for hi, lo in pairs]
        base = exact.prepared.mode.point
        rows = zip(base, exact.shift, exact.root, strict=True)
        point = [
            real(float(x)) + real(float(m)) + REAL.fdot(map(float, row), noise)
            for x, m, row in rows
        ]
        return noise, point

    def energy(self, point: list[Any]) -> Any:
        """V at a point, from its formula."""
        params = [REAL.mpf(float(each)) for each in self.loss.params]
        formula, total = FORMULAS[self.loss.name], REAL.mpf(0)
        for row, y, b in zip(*self.records, strict=True):
            margin = REAL.fdot(map(float, row), point) + float(b)
            total += formula(margin, REAL.mpf(float(y)), *params)
        center = self.domain.default_center(self.dim)
        square = sum((x - float(c)) ** 2 for x, c in zip(point, center, strict=True))
        k, mu = REAL.mpf(self.k), REAL.mpf(self.mu)
        return k * total / self.num_distinct + k * mu * square / 2

    @cached_property
    def base_energy(self) -> Any:
        base = self.exact.prepared.mode.point
        return self.energy([REAL.mpf(float(x)) for x in base])

    def true_excess(self, tries: Candidates, i: int) -> Any:
        """G of a try."""
        noise, point = self.point(tries, i)
        square = sum(z**2 for z in noise)
        height = REAL.mpf(self.exact.height)
        return self.energy(point) - self.base_energy + height - square / 2


HOSTILE = {
    "plain": Hostile(),
    "separable": Hostile(noise=0.0, mu=1e-5, k=3e3, domain=D.Ball(60.0)),
    "tiny mu": Hostile(mu=1e-9, k=1e6, dim=5, num_distinct=300),
    "many": Hostile(copies=1_000, k=1e6, mu=1e-4),
    "cold": Hostile(k=1e12, num_distinct=60),
    "hot": Hostile(k=1e-3, mu=1.0, domain=D.Ball(100.0)),
    "large rows": Hostile(scale=1e6, domain=D.Ball(1e-4), mu=1e9, k=1e3),
    "small rows": Hostile(scale=1e-6, domain=D.Ball(1e8), mu=1e-15, k=1e5),
    "one wide column": Hostile(spread=1e-4, mu=1e-6, k=1e4, domain=D.Ball(300.0)),
    "sparse, offsets": Hostile(is_sparse=True, dim=8, offset=3.0, mu=0.1),
    "whole space": Hostile(domain=D.WholeSpace()),
    "box": Hostile(domain=D.Box(-5.0, 5.0)),
    "l1 ball": Hostile(domain=D.Ball(8.0, p=1.0)),
    "smoothed hinge": Hostile(loss=L.SmoothedHinge(0.3)),
    "calibrated logistic": Hostile(loss=L.CalibratedLogistic()),
    "capped logistic": Hostile(loss=L.CappedLogistic(0.6)),
    "huber": Hostile(loss=L.Huber(0.2)),
    "squared, offsets": Hostile(loss=L.Squared(), offset=0.3),
    "power four": Hostile(loss=L.PowerFour(), domain=D.Ball(2.0)),
}
