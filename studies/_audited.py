"""Mechanisms with a worst pair of data sets, ready for an audit."""

from typing import Any, NamedTuple

import numpy as np

import dpsample as dps
from dpsample import domains, losses
from dpsample import optimizers as opt
from dpsample.audits import neighbors
from dpsample.numerics.norms import dual
from dpsample.privacy import epsilon_of, gaussian_epsilon
from dpsample.running import descent

WORDS = {"printed": "paper", "proved": "exact"}


class Audited(NamedTuple):
    """What is run, on which two data sets, and the epsilon that is proved of it."""

    mechanism: Any
    pair: tuple[Any, Any]
    proved: float


def public_facts(loss=None, domain=None, num_records=2, *, dim=1, row_bound=1.0):
    """Facts of a tiny problem: one coefficient, no boundary in reach."""
    return dps.PublicFacts(
        num_records=num_records,
        dim=dim,
        row_bound=row_bound,
        row_norm=2.0,
        loss=loss or losses.Linear(),
        domain=domain or domains.WholeSpace(),
    )


def exponential(loss, dim, num_records):
    """Calibrate by Theorem 3 of arXiv:2207.08347; draws are exact."""

    def calibrate(budget, calibration):
        facts = public_facts(loss, domains.Ball(1.0), num_records, dim=dim)
        options = {"risk": "empirical", "sampler_share": 0.0}
        mech = dps.calibrate(facts, budget, calibration=calibration, **options)
        return Audited(mech, neighbors.worst_case(facts), mech.epsilon_proved)

    return calibrate


def additive(factory, **options):
    """Noise added to a vector, which a neighbor shifts along the diagonal."""

    def calibrate(budget, calibration):
        mechanism = factory(budget, sensitivity=1.0, calibration=calibration, **options)
        dim, p = options.get("dim", 1), options.get("p", 2.0)
        shifts = neighbors.shifts(dim, sensitivity=1.0, p=dual(p))
        proved = gaussian_epsilon(budget.delta, mechanism.gdp)
        return Audited(mechanism, shifts[-1], proved)

    return calibrate


def optimizer(algorithm, facts, *, pair="first"):
    """Run an optimizer often; the record that differs comes first or last."""

    def calibrate(budget, calibration):
        recipe = algorithm.recipe(facts, budget, calibration)
        problems = neighbors.worst_case(facts, budget.relation)
        if pair == "first":  # phases read the first records first
            problems = tuple(map(_backwards, problems))
        proved = np.inf
        if recipe.event is not None:
            delta, relation = budget.delta, budget.relation
            proved = epsilon_of(recipe.event, delta=delta, relation=relation)
        return Audited(_runs(recipe), problems, proved)

    return calibrate


def _runs(recipe):
    def run(problem, rng, num_draws):
        program = descent.Program(problem, recipe)
        return np.array([program.run(rng).theta for _ in range(num_draws)])

    return run


def _backwards(problem):
    facts = problem.facts
    return dps.Problem(
        problem.data.dense[::-1].copy(),
        problem.data.response[::-1].copy(),
        loss=facts.loss,
        domain=facts.domain,
        row_bound=facts.row_bound,
        row_norm=facts.row_norm,
    )


FAR = domains.Ball(1e3)
POISSON = {"batch_size": 3, "num_steps": 12, "smoothness": 1.0}
FULL = {"batch_size": 2, "smoothness": 1.0}
MEDIAN = {"estimator": "bucketed_median", "num_buckets": 2, "num_steps": 64}
CATONI = {"estimator": "catoni", "num_steps": 16}
ONE_EPOCH = {"num_steps": 2, "distance": 1.0, "moment": 0.1}
# A bound of rows that truncation makes irrelevant.
TRUNCATED = public_facts(domain=FAR, row_bound=1e4)

DRAWN = {
    "exponential, linear, d = 50": exponential(losses.Linear(), 50, 1000),
    "exponential, hinge, d = 2": exponential(losses.Hinge(), 2, 100),
    "Gaussian noise": additive(dps.noise.gaussian_mechanism),
    "generalized Gaussian, p = 1.2, d = 10": additive(
        dps.noise.generalized_gaussian_mechanism, dim=10, p=1.2, r=3.0
    ),
}
RUN = {
    "proximal SGD, clipped": optimizer(
        opt.PrivateProximalSGD(**POISSON), public_facts(domain=FAR, num_records=4)
    ),
    "proximal SGD, bucketed median": optimizer(
        opt.PrivateProximalSGD(**FULL, **MEDIAN), TRUNCATED
    ),
    "proximal SGD, soft truncation": optimizer(
        opt.PrivateProximalSGD(**FULL, **CATONI), TRUNCATED
    ),
    "accelerated clipped SGD": optimizer(
        opt.AcceleratedClippedSGD(**ONE_EPOCH), public_facts(num_records=4), pair="last"
    ),
    "noisy SGD, all records": optimizer(
        opt.NoisyGD(num_steps=4, step_size=1.0), public_facts()
    ),
    "objective perturbation": optimizer(
        opt.ObjectivePerturbation(), public_facts(domain=FAR)
    ),
}


def calibrated_mechanism(name, budget, calibration):
    """One of the mechanisms, calibrated."""
    return (DRAWN | RUN)[name](budget, WORDS[calibration])
