"""Oracle of small grids: every probability of what a pure draw releases, by sums."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2

import dpsample as dps
from dpsample.numerics.lazy_reals import BitStream
from tests.support.global_cases import CASES, CELL_CASES, prepare_cells
from tests.support.statistics import rejected, spend
from tests.support.tiers import usual

GRIDS = {
    "ball, d = 1": (CASES["ball, d = 1"], 0.25),
    "ball": (CASES["ball"], 0.5),
    "box": (CASES["box"], 0.5),
    "hinge, d = 1": (CELL_CASES["hinge, d = 1"], 0.25),
    "absolute, box": (CELL_CASES["absolute, box"], 0.25),
}


def cells_of(points, step):
    """Whole numbers of steps that are nearest to points, as keys."""
    return [tuple(row) for row in np.floor(points / step + 0.5).astype(int).tolist()]


def masses(case, step):
    """Probability of each cell of the grid, by midpoints of a fine partition."""
    axes = [
        low + (high - low) * (np.arange(case.fine) + 0.5) / case.fine
        for low, high in zip(*case.box, strict=True)
    ]
    points = np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], 1)
    points = points[case.inside(points)]
    energy = case.energy(points)
    weights = np.exp(energy.min() - energy)
    keys, index = np.unique(
        np.floor(points / step + 0.5).astype(int), axis=0, return_inverse=True
    )
    total = np.bincount(index.ravel(), weights=weights)
    shares = (total / total.sum()).tolist()
    return dict(zip(map(tuple, keys.tolist()), shares, strict=True))


def assert_pmf(cells, pmf):
    """Pearson's statistic of released cells, at the level of the suite."""
    names = [name for name, share in pmf.items() if share * len(cells) >= 8.0]
    counts = np.array([cells.count(name) for name in names], float)
    expected = np.array([pmf[name] for name in names]) * len(cells)
    counts = np.r_[counts, len(cells) - counts.sum()]
    expected = np.r_[expected, len(cells) - expected.sum()]
    if expected[-1] < 8.0:
        counts, expected = counts[:-1], expected[:-1]
    statistic = float(((counts - expected) ** 2 / expected).sum())
    bound = float(chi2.isf(spend(is_exact=False), len(counts) - 1))
    assert statistic <= bound, f"cells statistic {statistic:.1f}, bound {bound:.1f}"


@usual("ball, d = 1", "hinge, d = 1")
@pytest.mark.parametrize("name", GRIDS)
def test_released_cells_have_the_probabilities_of_the_oracle(name):
    case, step = GRIDS[name]
    prepared = prepare_cells(case) if name in CELL_CASES else case.prepare()
    decisions = prepared.decisions
    proposals = decisions.draw_proposals(BitStream(np.random.default_rng(15)), 2_500)
    verdicts = decisions.decide(proposals)
    accepted = [proposals[i] for i in np.flatnonzero(verdicts.is_accepted)]
    assert len(accepted) > 900
    pmf = masses(case, step)
    assert_pmf([tuple(decisions.cell(t, step)) for t in accepted], pmf)
    # Cells that are off by one are seen.
    points = np.array([[float(x) for x in decisions.point(t)] for t in accepted])
    with rejected():
        assert_pmf(cells_of(points - step, step), pmf)


def pmf_of_grid(rows, response, k, ridge, radius, step):
    """The exponential mechanism on the multiples of a step in a ball, to 60 digits."""
    real = mpmath.MPContext()
    real.dps = 60
    most = int(Fraction(radius) / Fraction(step))
    weights = {}
    for m in range(-most, most + 1):
        x = real.mpf(m * step)
        risk = sum(
            max(-y * a * x, 0) + real.log1p(real.exp(-abs(a * x)))
            for a, y in zip(rows, response, strict=True)
        )
        weights[m] = real.exp(-k * (risk / len(rows) + ridge * x * x / 2))
    total = sum(weights.values())
    return real, {m: w / total for m, w in weights.items()}


def log_ratios(factor, relation):
    """Log ratios of all grid points for the worst neighbors, k times a factor."""
    rows, response = [1.0] * 12, [1.0, -1.0] * 6
    facts = dps.PublicFacts(
        num_records=12,
        dim=1,
        row_bound=1.0,
        row_norm=2.0,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(2.0),
    )
    budget = dps.Budget(epsilon=1.0, delta=0.0, relation=relation)
    mechanism = dps.calibrate(facts, budget)
    given = factor * mechanism.k, mechanism.mu, 2.0, 0.125
    real, first = pmf_of_grid(rows, response, *given)
    _, second = pmf_of_grid(rows, [-1.0, *response[1:]], *given)
    return np.array([float(real.log(first[m] / second[m])) for m in first])


def test_log_ratios_on_a_grid_are_within_the_budget():
    """The range theorem with counting measure: all points, tight, and a bug."""
    ratios = log_ratios(1.0, "replace_one")
    assert np.abs(ratios).max() <= 1.0
    assert 0.99 < np.ptp(ratios) <= 1.0
    # A k that is too large is seen.
    doubled = log_ratios(2.2, "replace_one")
    assert np.ptp(doubled) > 1.0
