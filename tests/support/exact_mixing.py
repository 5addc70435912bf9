"""Laws of chains after t steps: autoregressions in closed form, kernels on a grid."""

from __future__ import annotations

import numpy as np
from scipy.stats import ncx2, norm

import dpsample as dps

NUM_CELLS = 401


def standard_normal(dim):
    """Target N(0, I): no loss, k mu = 1."""
    problem = dps.Problem(
        np.zeros((1, dim)),
        [0.0],
        loss=dps.losses.Linear(),
        domain=dps.domains.WholeSpace(),
        row_bound=1.0,
        response_bound=1.0,
    )
    return dps.Gibbs(problem, k=10.0, mu=0.1)


def autoregressive_tv(t, ratio, start):
    """TV of N(ratio^t start, (1 - ratio^2t) I) to N(0, I).

    The density ratio exceeds 1 inside a ball, whose masses are noncentral chi-square.
    """
    if t == 0:
        return 1.0
    dim = len(start)
    mean, variance = ratio**t * start, 1.0 - ratio ** (2 * t)
    center = mean / (1.0 - variance)
    square = mean @ mean + variance * dim * np.log(variance)
    radius = center @ center - square / (1.0 - variance)
    away = (mean - center) @ (mean - center) / variance
    inside = ncx2.cdf(radius / variance, dim, away)
    found = inside - ncx2.cdf(radius, dim, center @ center)
    if np.isfinite(found):
        return found
    # Far out SciPy gives up: Pinsker's bound serves.
    return 0.5 * np.sqrt(dim * (variance - 1.0 - np.log(variance)) + mean @ mean)


class GridChain:
    """A chain in one dimension as a matrix on equal cells of the frame."""

    def __init__(self, case, name, prepared):
        lower, upper = (float(end[0]) for end in case.frame)
        self.edges = np.linspace(lower, upper, NUM_CELLS + 1)
        self.nodes = 0.5 * (self.edges[1:] + self.edges[:-1])
        energy = case.energy(self.nodes[:, None])
        weights = np.exp(energy.min() - energy)
        self.law = weights / weights.sum()
        if name == "Proximal":
            self.matrix = self.alternating(prepared)
        else:
            self.matrix = self.metropolis(case, name, prepared.plan, energy)

    def cells(self, mean, spread):
        """Probability of each cell under N(mean_i, spread^2), one row per mean."""
        return np.diff(norm.cdf((self.edges - mean[:, None]) / spread), axis=1)

    def metropolis(self, case, name, plan, energy):
        """Accepted moves; what is refused or leaves the domain stays."""
        x, scale = self.nodes, abs(plan.factor[0, 0])
        if name == "RandomWalk":
            mean, spread = x, plan.step * scale
        elif name == "MALA":
            slope = np.array([case.target.gradient([v])[0] for v in x])
            mean = x - plan.step * scale**2 * slope
            spread = np.sqrt(2.0 * plan.step) * scale
        else:
            center = plan.center[0]
            mean = center + np.sqrt(1.0 - plan.step**2) * (x - center)
            spread = plan.step * scale
        log_density = -0.5 * ((x - mean[:, None]) / spread) ** 2
        log_ratio = energy[:, None] - energy + log_density.T - log_density
        moves = self.cells(mean, spread) * np.exp(np.minimum(log_ratio, 0.0))
        np.fill_diagonal(moves, 0.0)
        return moves + np.diag(1.0 - moves.sum(axis=1))

    def alternating(self, prepared):
        """A Gaussian step y, then the exact conditional law."""
        plan = prepared.metric.plan(prepared.trial.step)
        spread = np.sqrt(plan.step * plan.inverse[0, 0])
        reach = 8.0 * spread
        y = np.linspace(self.edges[0] - reach, self.edges[-1] + reach, 2 * NUM_CELLS)
        density = norm.pdf((y - self.nodes[:, None]) / spread)
        forth = density / density.sum(axis=1, keepdims=True)
        back = density.T * self.law
        return forth @ (back / back.sum(axis=1, keepdims=True))

    def after(self, t, start):
        """Law of the cells t steps after a node."""
        row = np.zeros(NUM_CELLS)
        row[start] = 1.0
        for _ in range(t):
            row = row @ self.matrix
        return row

    def tv(self, t, start):
        """Total variation to the target after t steps."""
        return 0.5 * np.abs(self.after(t, start) - self.law).sum()

    def cdf(self, t, start):
        """Distribution function after t steps."""
        heights = np.concatenate(([0.0], np.cumsum(self.after(t, start))))
        return lambda x: np.interp(x, self.edges, heights)
