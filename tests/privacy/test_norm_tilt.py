"""Pure objective perturbation: exact log ratios of neighbors, and planted errors."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.special import gammaincc

import dpsample as dps
from dpsample import domains, losses
from dpsample.optimizers import ObjectivePerturbation
from dpsample.privacy.curves.norm_tilt import (
    NormTilt,
    log_range,
    max_tilt_length,
    norm_tilt_scale,
)
from dpsample.privacy.curves.objective_perturbation import PerturbedObjective
from dpsample.problem.facts import RELATIONS, PublicFacts, smoothness
from tests.support.norm_tilts import Records
from tests.support.tiers import by_turns

DOMAINS = {
    "line": (1, domains.WholeSpace()),
    "interval": (1, domains.Box(-0.7, 1.3)),
    "plane": (2, domains.WholeSpace()),
    "disc": (2, domains.Ball(1.0, center=(0.2, -0.3))),
    "square": (2, domains.Box(-1.0, 1.0)),
    "diamond": (2, domains.Ball(1.5, p=1.0)),
    "simplex": (2, domains.Simplex()),
}


def log_density(domain, records, u):
    """Log densities at a random inner of each kind, by the numbers u."""
    if domain == "line" or domain == "plane":
        return records.log_inside(4.0 * u[: records.rows.shape[1]])
    if domain == "interval":
        inner = 0.3 + np.tanh(u[:1])
        if u[2] > 0.5:
            return records.log_edge(np.array([1.3]), np.array([1.0]))
        if u[2] < -0.5:
            return records.log_edge(np.array([-0.7]), np.array([-1.0]))
        return records.log_inside(inner)
    if domain == "disc":
        normal = u[:2] / (np.linalg.norm(u[:2]) + 1e-300)
        if u[2] > 0.0:
            return records.log_edge(np.array([0.2, -0.3]) + normal, normal, bend=1.0)
        radius = 1.0 / (1.0 + math.exp(-u[3]))
        return records.log_inside(np.array([0.2, -0.3]) + radius * normal)
    if domain == "simplex":
        share = 1.0 / (1.0 + math.exp(-u[0]))
        return records.log_line(np.array([share, 1.0 - share]), np.ones(2) / 2**0.5)
    # Outer normals of the sides, in turn.
    angles = np.pi * (0.5 * np.arange(4) + (0.0 if domain == "square" else 0.25))
    normals = np.column_stack([np.cos(angles), np.sin(angles)])
    limit = 1.0 if domain == "square" else 1.5 / math.sqrt(2.0)
    side = int(4.0 * (0.5 + 0.499 * math.tanh(u[2])))
    normal, after = normals[side], normals[(side + 1) % 4]
    corner = np.linalg.solve(np.stack([normal, after]), np.full(2, limit))
    if u[3] > 1.0:
        return records.log_corner(corner, normal, after)
    along = math.tanh(u[0])
    if u[3] > 0.0:
        tangent = np.array([-normal[1], normal[0]])
        return records.log_edge(limit * (normal + along * tangent), normal)
    before = limit * normal + math.tanh(u[1]) * (corner - limit * normal)
    return records.log_inside(along * before)


def responses(loss, rng):
    if loss.is_classification:
        return float(rng.choice([-1.0, 1.0]))
    return float(rng.choice([-1.0, 1.0, rng.uniform(-1.0, 1.0)]))


def row(rng, dim, row_norm):
    """A row within the bound, often at it."""
    a = rng.normal(size=dim)
    if row_norm == math.inf:
        a = np.sign(a) * np.minimum(1.0, rng.exponential(size=dim))
    else:
        a /= np.linalg.norm(a)
    return a * (1.0 if rng.random() < 0.7 else rng.random())


@cache
def public_facts(loss, domain, num_records, row_norm):
    dim, body = DOMAINS[domain]
    return PublicFacts(
        num_records=num_records,
        dim=dim,
        row_bound=1.0,
        row_norm=row_norm,
        loss=loss,
        domain=body,
        response_bound=1.0,
    )


def supports(loss, domain):
    """Squared losses and fourth powers have no bound on unbounded domains."""
    is_free = DOMAINS[domain][1].is_whole_space
    return not (is_free and isinstance(loss, losses.Squared | losses.PowerFour))


def smooth_losses():
    return (
        losses.Linear(),
        losses.Logistic(),
        losses.CappedLogistic(0.3),
        losses.CappedLogistic(0.7),
        losses.CalibratedLogistic(),
        losses.SmoothedHinge(0.3),
        losses.Huber(0.25),
        losses.Huber(4.0),
        losses.Squared(),
        losses.PowerFour(),
    )


def loss_domains():
    return [(x, body) for x in smooth_losses() for body in DOMAINS if supports(x, body)]


def worst_ratio(loss, domain, relation, *, pairs, steps, seed, mistake=""):
    """Largest |log ratio| over the epsilon of the tilt, over climbed pairs."""
    rng, worst = np.random.default_rng(seed), 0.0
    for _ in range(pairs):
        n, row_norm = int(rng.integers(1, 5)), float(rng.choice([2.0, math.inf]))
        facts = public_facts(loss, domain, n, row_norm)
        epsilon = 10.0 ** rng.uniform(-1.0, 1.0)
        beta = smoothness(facts)
        ridge = 10.0 ** rng.uniform(-2.0, 0.5) / n
        if beta > 0.0:
            ridge = beta / (2 * n * math.expm1(rng.uniform(0.05, 0.9) * epsilon))
        budget = dps.Budget(epsilon=epsilon, delta=0.0, relation=relation)
        inputs = ObjectivePerturbation(ridge=ridge).recipe(facts, budget).inputs
        scale, proved = inputs["tilt_scale"], epsilon - inputs["output_epsilon"]
        if mistake == "no determinant":
            proved = epsilon * 0.99 - inputs["log_determinant"]
        if mistake == "half the sensitivity":
            scale *= 0.5
        if mistake == "half the curvature":
            proved -= inputs["log_determinant"]
            proved += math.log1p(0.5 * math.expm1(inputs["log_determinant"]))

        def log_ratio(pair, point, n=n, ridge=ridge, scale=scale, facts=facts, o=None):
            laws = []
            for a, y in pair:
                rows, response = o[0].copy(), o[1].copy()
                rows[0], response[0] = a, y
                laws.append(
                    Records(
                        loss,
                        rows,
                        response,
                        np.ones(n),
                        facts.center,
                        2 * n * ridge,
                        scale,
                    )
                )
            if relation == "zero_out":
                laws[1] = laws[0].without(0)
            return abs(
                log_density(domain, laws[0], point)
                - log_density(domain, laws[1], point)
            )

        dim = facts.dim
        others = (
            np.array([row(rng, dim, row_norm) for _ in range(n)]),
            np.array([responses(loss, rng) for _ in range(n)]),
        )
        pair = [(row(rng, dim, row_norm), responses(loss, rng)) for _ in range(2)]
        point = rng.normal(size=4)
        best = log_ratio(pair, point, o=others)
        for step in range(steps):
            size = 0.96**step
            trial = [
                (row(rng, dim, row_norm), responses(loss, rng))
                if rng.random() < 0.2
                else (into_ball(a + size * rng.normal(size=dim), row_norm), y)
                for a, y in pair
            ]
            next_point = point + size * rng.normal(size=4) * rng.choice([0.1, 1.0])
            value = log_ratio(trial, next_point, o=others)
            if value > best:
                best, pair, point = value, trial, next_point
        worst = max(worst, best / proved)
    return worst


def into_ball(a, row_norm):
    if row_norm == math.inf:
        return np.clip(a, -1.0, 1.0)
    return a / max(1.0, np.linalg.norm(a))


@pytest.mark.parametrize(
    ("loss", "domain"),
    by_turns(loss_domains(), turns=15),
    ids=lambda v: getattr(v, "name", v),
)
def test_no_log_ratio_of_neighbors_exceeds_the_tilts_epsilon(loss, domain):
    for relation in RELATIONS:
        worst = worst_ratio(loss, domain, relation, pairs=3, steps=12, seed=1)
        assert worst <= 1.0 + 1e-9


@pytest.mark.parametrize(
    "mistake", ["no determinant", "half the sensitivity", "half the curvature"]
)
def test_planted_errors_are_found(mistake):
    climbs = {"pairs": 12, "steps": 60, "seed": 1}
    huber = losses.Huber(0.25)
    for relation in RELATIONS:
        assert worst_ratio(huber, "interval", relation, **climbs) <= 1.0 + 1e-9
        ratio = worst_ratio(huber, "interval", relation, **climbs, mistake=mistake)
        assert ratio > 1.1


def linear_objective(relation="replace_one"):
    """100 records of slope up to 1 on a line, n m = 2."""
    return PerturbedObjective(
        lipschitz=1.0, smoothness=0.0, num_records=100, ridge=0.01, relation=relation
    )


def tilt_of(epsilon, *, radius, error=1e-3, length=None):
    """Numbers of a run on a line, whose parts add up to epsilon."""
    objective = linear_objective()
    scale = norm_tilt_scale(objective, 0.9 * epsilon)
    output = 2.0 * error / (0.1 * (1.0 - 1e-9) * epsilon)
    if length is None:
        kappa = log_range(1, radius, output)
        length = max_tilt_length(1, kappa, 1e-11 * epsilon)
    return NormTilt(
        objective=objective,
        dim=1,
        radius=radius,
        scale=scale,
        max_length=scale * length,
        error=error,
        output_scale=output,
    )


def log_outputs(tilt, total, wrong, outputs):
    """Log density of noisy outputs, up to a constant, for slopes with this sum.

    The minimizer for the tilt b is -(b + total)/(n m), or the nearest point of the
    interval. The computed one is off by ``wrong`` of the largest error, and b may be
    shortened.
    """
    ends = tilt.max_length * np.array([-1.0, 1.0])
    knots = [-total - 2.0 * tilt.radius, -total + 2.0 * tilt.radius, 0.0, *ends]
    knots += list(-total - 2.0 * outputs)  # where the noise has its kink
    spread = tilt.scale * np.linspace(-60.0, 60.0, 4001)
    edges = np.unique(np.concatenate([spread, knots, spread[[0, -1]] + ends]))
    nodes, weights = np.polynomial.legendre.leggauss(6)
    half = 0.5 * np.diff(edges)[:, None]
    b = (edges[:-1, None] + half * (nodes + 1.0)).ravel()
    log_weights = (np.log(half + 1e-300) + np.log(weights)).ravel() - abs(
        b
    ) / tilt.scale
    points = np.clip(-(np.clip(b, *ends) + total) / 2.0, -tilt.radius, tilt.radius)
    points = points + wrong * tilt.error
    gaps = abs(outputs[:, None] - points) / tilt.output_scale
    return np.logaddexp.reduce(log_weights - gaps, axis=1)


def test_noisy_outputs_of_a_wrong_solver_keep_epsilon():
    for epsilon in (0.1, 1.0, 5.0):
        tilt = tilt_of(epsilon, radius=0.5)
        assert epsilon * (1.0 - 1e-6) <= tilt.epsilon <= epsilon
        outputs = np.linspace(-1.0, 1.0, 31)
        worst = 0.0
        for wrong in ((1, -1), (-1, 1), (0, 0)):
            first = log_outputs(tilt, 1.0, wrong[0], outputs)
            second = log_outputs(tilt, -1.0, wrong[1], outputs)
            worst = max(worst, abs(first - second).max())
        assert 0.9 * epsilon < worst <= epsilon * (1.0 + 1e-6)


def test_a_tilt_that_is_cut_at_twelve_deviations_is_not_private():
    # The support of the minimizer moves with the records, and thin noise tells it.
    cut = tilt_of(1.0, radius=100.0, length=12.0)
    assert cut.epsilon > 1e3  # the formula knows
    end = 0.5 * cut.max_length
    outputs = np.linspace(-end - 1.0, -end + 1.0, 41)
    first, second = (log_outputs(cut, total, 0, outputs) for total in (1.0, -1.0))
    assert abs(first - second).max() > 10.0
    whole = tilt_of(1.0, radius=100.0)
    first, second = (log_outputs(whole, total, 0, outputs) for total in (1.0, -1.0))
    assert abs(first - second).max() <= 1.0 + 1e-6


@pytest.mark.parametrize("dim", [1, 3, 40])
@pytest.mark.parametrize("kappa", [0.0, 5.0, 300.0])
def test_shortened_tilts_cost_what_is_stated(dim, kappa):
    for epsilon in (1e-3, 1e-12):
        length = max_tilt_length(dim, kappa, epsilon)
        tail = gammaincc(dim, length)  # it may underflow, which is safe
        assert length >= dim and 2.0 * tail * math.exp(kappa) <= epsilon
    output = log_range(dim, 1.0, 1.0) / max(kappa, 1e-3)
    tilt = NormTilt(
        objective=linear_objective(),
        dim=dim,
        radius=1.0,
        scale=2.0,
        max_length=2.0 * length,
        error=0.0,
        output_scale=output,
    )
    assert 2.0 * tail * math.exp(kappa) <= tilt.cut_epsilon <= epsilon


def test_the_smallest_scale_spends_epsilon():
    for relation in RELATIONS:
        objective = PerturbedObjective(
            lipschitz=2.0,
            smoothness=0.25,
            num_records=100,
            ridge=0.01,
            relation=relation,
        )
        shift = 4.0 if relation == "replace_one" else 2.0
        scale = norm_tilt_scale(objective, 1.0)
        assert scale == pytest.approx(shift / (1.0 - math.log1p(0.125)), rel=1e-12)
        tilt = NormTilt(
            objective=objective,
            dim=2,
            radius=math.inf,
            scale=scale,
            max_length=math.inf,
            error=0.0,
            output_scale=1.0,
        )
        assert 1.0 - 1e-12 <= tilt.epsilon <= 1.0
    with pytest.raises(ValueError, match="ridge must be > "):
        norm_tilt_scale(objective, math.log1p(0.125))
