"""Every public sampler on every kind of domain and loss, started from exact draws."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pytest
from scipy.stats import qmc

import dpsample as dps
from dpsample import samplers
from dpsample.core.jit import entry
from dpsample.samplers.chain import NUM_STATS, PreparedChain
from dpsample.samplers.errors import raise_unless_ok
from dpsample.samplers.gaussian_fit import minimize
from dpsample.targets import gibbs_target
from tests.support.gibbs_cases import Case, example
from tests.support.gibbs_targets import TRIANGLE
from tests.support.tiers import slow

L, D = dps.losses, dps.domains
LOSSES = {"logistic": L.Logistic(), "hinge": L.Hinge(), "absolute": L.Absolute()}
DOMAINS = {
    "whole space": D.WholeSpace(),
    "ball": D.Ball(0.8, center=[0.5, -0.4]),
    "box": D.Box([-0.5, -0.7], [1.0, 0.6]),
    "simplex": D.Simplex(),
    "polytope": D.Polytope(*TRIANGLE),
    "l_1.5 ball": D.Ball(0.9, p=1.5, center=[0.3, -0.5]),
    "l_1 ball": D.Ball(0.9, p=1.0, center=[0.3, -0.5]),
    "schatten ball": D.SchattenBall(1.0, p=1.0, shape=(2, 2)),
}
DIMENSIONS = {"simplex": 3, "schatten ball": 4}
SIDE = 300  # of the jittered grid that stands for a law in two dimensions
# Starts of planted bugs, at most and where fewer suffice with a margin of 1.7; of the
# grid, where a used state serves all of them and where each one needs its own.
MANY, PLANTED, USUAL, FEW = 20_000, 6_000, 6_000, 1_000


@dataclass(frozen=True, eq=False)
class GridCase(Case):
    """A case with exact draws and a law on the simplex and in four dimensions too."""

    @cached_property
    def is_simplex(self):
        return self.domain.name == "simplex"

    def inside(self, points):
        if not self.is_simplex:
            return super().inside(points)
        return (points >= 0.0).all(-1) & (np.abs(points.sum(-1) - 1.0) <= 1e-9)

    @cached_property
    def frame(self):
        """Box of the domain; on R^2 of the points within 40 of the lowest energy."""
        if self.domain.is_bounded:
            return super().frame
        mode = minimize(self.target, tolerance=1e-9)[0]
        angles = np.linspace(0.0, 2.0 * np.pi, 720)
        rays = np.stack((np.cos(angles), np.sin(angles)), axis=-1)
        near, far = np.zeros(720), np.full(720, 100.0)
        for _ in range(40):
            middle = 0.5 * (near + far)
            is_near = self.energy(mode + middle[:, None] * rays) < self.lowest + 40.0
            near = np.where(is_near, middle, near)
            far = np.where(is_near, far, middle)
        ends = mode + 1.05 * far[:, None] * rays
        return ends.min(0), ends.max(0)

    @cached_property
    def lowest(self):
        """Lower bound of the energy: kinks keep the mode's from being that."""
        points = [minimize(self.target, tolerance=1e-9)[0][None]]
        if self.is_simplex:
            points.append(on_triangle(np.random.default_rng(0).random((50_000, 2))))
        return self.energy(np.concatenate(points)).min() - 0.05

    def exact(self, rng, count):
        if not self.is_simplex:
            return super().exact(rng, count)
        kept: list[np.ndarray] = []
        while sum(map(len, kept)) < count:
            points = on_triangle(rng.random((100_000, 2)))
            gap = self.energy(points) - self.lowest
            assert gap.min() >= 0.0
            kept.append(points[rng.standard_exponential(len(points)) >= gap])
        return np.concatenate(kept)[:count]

    @cached_property
    def law(self):
        if self.dim == 4:
            shares = qmc.Sobol(4, rng=np.random.default_rng(1)).random_base2(18)
        else:
            cells = np.stack(np.indices((SIDE, SIDE)), -1).reshape(-1, 2)
            shares = (cells + np.random.default_rng(1).random(cells.shape)) / SIDE
        if self.is_simplex:
            points = on_triangle(shares)
        else:
            lower, upper = self.frame
            points = lower + shares * (upper - lower)
            points = points[self.inside(points)]
        weights = np.exp(self.lowest - self.energy(points))
        kept = weights > 1e-18
        return points[kept], weights[kept] / weights.sum()


def on_triangle(shares):
    """Uniform points of the simplex from uniform points of the square."""
    root = np.sqrt(shares[:, 0])
    parts = np.stack((1.0 - root, root * (1.0 - shares[:, 1])), axis=-1)
    rest = np.maximum(1.0 - parts.sum(-1, keepdims=True), 0.0)
    return np.hstack((parts, rest))


@cache
def grid_case(domain, loss):
    """Target of one cell of the grid, by the names of its domain and loss."""
    made = example(
        LOSSES[loss], DOMAINS[domain], dim=DIMENSIONS.get(domain, 2), k=15.0, mu=0.3
    )
    # Longer rows and smaller responses: the kinks lie inside the domains.
    response = 0.4 * made.response if loss == "absolute" else made.response
    return GridCase(made.loss, made.domain, 1.5 * made.rows, response, made.k, made.mu)


def public_samplers():
    """One of each public sampler with its defaults, by the name of its class."""
    found = {name: getattr(samplers, name) for name in samplers.__all__}
    return {
        name: kind()
        for name, kind in found.items()
        if isinstance(kind, type) and issubclass(kind, samplers.Sampler)
        if kind is not samplers.Sampler
    }


SAMPLERS = public_samplers()
TARGETS = [(domain, loss) for domain in DOMAINS for loss in LOSSES]
ROWS = [(name, domain) for name in SAMPLERS for domain in DOMAINS]


@cache
def supported(name, domain, loss):
    """Whether a sampler supports a cell of the grid, and its words.

    `Localized` says by public facts whether it may work, and by the records whether it
    does.
    """
    found = SAMPLERS[name].supports(grid_case(domain, loss).target)
    if name == "Localized" and found[0]:
        try:
            prepared_cell(name, domain, loss)
        except ValueError as error:
            return False, str(error)
    return found


def supported_losses(name, domain, losses=tuple(LOSSES)):
    """Losses of a row of the grid that the sampler supports."""
    return [loss for loss in losses if supported(name, domain, loss)[0]]


# A cell of each sampler for the default tier; together they see every domain and loss.
USUAL_CELLS = {
    "BallWalk": ("ball", "absolute"),
    "BilliardHMC": ("l_1 ball", "hinge"),
    "CoordinateHitAndRun": ("polytope", "logistic"),
    "Exact": ("ball", "hinge"),
    "FactorizedMetropolis": ("ball", "logistic"),
    "HitAndRun": ("polytope", "absolute"),
    "LaplaceIndependence": ("box", "absolute"),
    "MALA": ("whole space", "logistic"),
    "MirrorLangevin": ("simplex", "hinge"),
    "PreconditionedCrankNicolson": ("box", "hinge"),
    "Proximal": ("l_1.5 ball", "absolute"),
    "RandomWalk": ("simplex", "logistic"),
    "RandomizedSeries": ("schatten ball", "logistic"),
    "TiltedGibbs": ("l_1 ball", "logistic"),
    "TunaMH": ("ball", "absolute"),
    "WhitenedSlice": ("whole space", "hinge"),
}


def rows_by_tier():
    """The usual loss of each sampler's usual domain by default; the rest is slow.

    So are `Global` and `TangentCells`, whose draws take ten times as long. Their laws
    are in `test_global.py` and `test_tangent_cells.py`.
    """
    rows = []
    for name, domain in ROWS:
        place, usual = USUAL_CELLS.get(name, ("ball", "logistic"))
        if domain == place:
            marks = pytest.mark.slow if name in ("Global", "TangentCells") else ()
            cell = (name, domain, (usual,))
            rows.append(pytest.param(*cell, id=f"{name}-{domain}", marks=marks))
        others = tuple(x for x in LOSSES if (domain, x) != (place, usual))
        label = "-".join((name, domain, *others))
        rows.append(slow(name, domain, others, id=label))
    return rows


@cache
def prepared_cell(name, domain, loss):
    """Chain of a sampler on a cell, tuned once, and at night as by day."""
    rng = np.random.Generator(np.random.PCG64(11))
    return SAMPLERS[name].prepare(grid_case(domain, loss).target, rng)


@cache
def exact_starts(domain, loss, count=MANY):
    return grid_case(domain, loss).exact(np.random.default_rng(12), count)


@cache
def stationary(name, domain, loss):
    """Exact starts (count, dim), and three draws from each (count, 3, dim)."""
    starts = exact_starts(domain, loss, USUAL)
    prepared = prepared_cell(name, domain, loss)
    return moved(prepared, starts, np.random.default_rng(13), 3)


def moved(prepared, starts, rng, num_draws):
    """Starts, or as many as the time allows, and the draws of a chain from each."""
    if restart_rule(prepared, starts) is not None:
        return starts, fast_draws(prepared, starts, rng, num_draws)
    starts = starts[:FEW]
    draws = np.full((len(starts), num_draws, starts.shape[1]), np.nan)
    stats = np.empty((num_draws, NUM_STATS))
    advance = prepared.runner()
    for start, out in zip(starts, draws, strict=True):
        advance(prepared.init(start), rng, out, stats)
    return starts, draws


def restart_rule(prepared, starts):
    """How a used state is made fresh at another of the starts, if a loop can do it.

    A fresh state's memory is the same everywhere or the slope there; all else in a
    state holds nothing that survives, or is marked as stale by the memory.
    """
    if not isinstance(prepared, PreparedChain):
        return None
    # Those that are dispersed may all be a mode on a wall, or the starts one point.
    points = [prepared.draw_start(np.random.default_rng(i)) for i in range(3)]
    points += list(starts[:3])
    memories = [prepared.init(x).memory for x in points]
    if all(np.array_equal(memory, memories[0]) for memory in memories):
        return 0
    slopes = [prepared.target.gradient(x) for x in points]
    is_slope = all(map(np.array_equal, memories, slopes))
    return 1 if is_slope else None


def fast_draws(prepared, starts, rng, num_draws, *, run=None, numbers=None):
    """Draws from each start with one state made fresh; `run` may be a planted bug."""
    draws = np.full((len(starts), num_draws, starts.shape[1]), np.nan)
    stats, slope = np.empty((num_draws, NUM_STATS)), np.empty(starts.shape[1])
    run = prepared.run if run is None else run
    numbers = prepared.target.numbers if numbers is None else numbers
    state, pieces = (
        prepared.init(),
        prepared.functions_fn(prepared.target, prepared.plan),
    )
    given = numbers, prepared.target.pieces
    memory, knows_energy = state.memory.copy(), not np.isnan(state.energy[0])
    is_slope = restart_rule(prepared, starts) == 1
    weigh = entry(gibbs_target.energy_gradient, *given, slope, state.work, slope)
    head, tail = (numbers, pieces, prepared.plan, state, rng), prepared.num_steps
    advance = entry(run, *head, tail, draws[0], stats)
    for start, out in zip(starts, draws, strict=True):
        state.position[:], state.memory[:] = start, memory
        if knows_energy or is_slope:
            energy = weigh(*given, start, state.work, slope)
            if knows_energy:
                state.energy[0] = energy
            if is_slope:
                state.memory[:] = slope
        raise_unless_ok(advance(*head, tail, out, stats)[0])
    return draws
