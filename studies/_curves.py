"""Pairs of data sets with a given gdp and room, and exact curves of their targets."""

import math

import numpy as np
from scipy.optimize import brentq

import dpsample as dps
from dpsample import domains, losses
from dpsample.audits import neighbors
from dpsample.numerics.norms import dual, norm
from dpsample.privacy import gdp_from_budget
from dpsample.samplers.quadrature import discretize, mean_and_factor
from dpsample.targets.gibbs import Gibbs

NUM_RECORDS, DELTA, LARGE_DELTA = 20, 1e-6, 1e-3
EPSILON = 1.0
GDP = gdp_from_budget(EPSILON, DELTA)
PANELS = 32
RADIUS = 2.0

TRIANGLE = domains.Polytope([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0, 1.0, 1.0])
# Domain, number of coefficients, norm of the mechanism.
BODIES = {
    "interval": (domains.Ball(RADIUS), 1, 2.0),
    "disk": (domains.Ball(RADIUS), 2, 2.0),
    "square": (domains.Box(-RADIUS, RADIUS), 2, math.inf),
    "triangle": (TRIANGLE, 2, 2.0),
    "l1.5 ball": (domains.Ball(RADIUS, p=1.5), 2, 1.5),
    "l1 ball": (domains.Ball(RADIUS, p=1.0), 2, 1.0),
    "simplex, entropy": (domains.Simplex(), 3, 1.0),
}
NORMS = {domain: p for domain, _, p in BODIES.values()}
LOSSES = {
    "linear": losses.Linear(),
    "hinge": losses.Hinge(),
    "absolute": losses.Absolute(),
    "logistic": losses.Logistic(),
}


def public_facts(body, loss):
    """Facts of a few records on one of the bodies."""
    domain, dim, p = BODIES[body]
    return dps.PublicFacts(
        num_records=NUM_RECORDS,
        dim=dim,
        row_bound=1.0,
        row_norm=dual(p),
        response_bound=1.0,
        loss=LOSSES[loss],
        domain=domain,
    )


def problems(facts, rows, responses):
    """Two problems that differ in the last row: of the last two rows each has one."""
    public = {
        name: getattr(facts, name)
        for name in ("loss", "domain", "row_bound", "row_norm", "response_bound")
    }
    both = (np.r_[:NUM_RECORDS], np.r_[: NUM_RECORDS - 1, NUM_RECORDS])
    return tuple(dps.Problem(rows[own], responses[own], **public) for own in both)


def alternating(facts):
    """Oppose the largest rows with entries of both signs; the others are zero."""
    row = np.where(np.arange(facts.dim) % 2 == 0, 1.0, -1.0)
    row /= norm(row, facts.row_norm)
    rows, responses = np.zeros((NUM_RECORDS + 1, facts.dim)), np.ones(NUM_RECORDS + 1)
    rows[-2:], responses[-1] = row, -1.0
    return problems(facts, rows, responses)


def random_pair(facts, rng):
    """Draw records on the bound of the norm, or zero; the last has two versions."""
    rows = rng.normal(size=(facts.num_records + 1, facts.dim))
    if rng.random() < 0.5:  # along the axes
        rows *= np.abs(rows) == np.abs(rows).max(axis=1, keepdims=True)
    rows /= norm(rows, facts.row_norm)[:, None]
    rows[: int(rng.integers(facts.num_records))] = 0.0
    return problems(facts, rows, rng.choice([-1.0, 1.0], size=len(rows)))


PAIRS = {
    "opposite": neighbors.opposite,
    "opposite, (1, -1, ...)": alternating,
    "duplicated": neighbors.copies,
    "at a kink": neighbors.at_kink,
    "one and none": neighbors.zero_out,
}


def targets(facts, pair, *, room, relation):
    """Densities with the gdp of (1, 1e-6) and this room."""
    budget = dps.Budget(epsilon=EPSILON, delta=DELTA, relation=relation)
    mech = dps.calibrate(facts, budget, p=NORMS[facts.domain])
    strength = room / math.sqrt(2.0 * mech.range_bound)  # sqrt(k mu)
    ratio = facts.num_records * GDP / mech.diff_lipschitz  # sqrt(k / mu)
    shared = {"k": strength * ratio, "mu": strength / ratio}
    return [Gibbs(own, regularizer=mech.regularizer, **shared) for own in pair]


def curve_of(p, q):
    """Delta at an epsilon, from the masses of the points of a grid: both directions."""
    return lambda epsilon: max(
        float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum())
        for a, b in ((p, q), (q, p))
    )


def epsilon_at(delta, curve):
    """Smallest epsilon with curve(epsilon) <= delta."""
    if curve(0.0) <= delta:
        return 0.0
    high = 1.0
    while curve(high) > delta:
        high *= 2.0
    return float(brentq(lambda e: curve(e) - delta, 0.0, high, xtol=1e-9))


def curves(pair, panels=(PANELS // 2, PANELS)):
    """Exact curves on a coarse and a fine grid."""
    origin, factor = mean_and_factor(pair)
    return [
        curve_of(*discretize(pair, origin, factor, num_panels=n)[1]) for n in panels
    ]
