"""Algorithms of Bassily et al. (arXiv:1908.09970) at an equal, true epsilon."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import dpsample as dps

DELTA = 1e-10  # the printed theorems ask for delta <= 1/n^2, here n <= 1e5
LARGEST_NOMINAL = 1.0  # and for epsilon <= 1
o = dps.optimizers


class Run(NamedTuple):
    """What `dps.minimize` gets, the proved bound of its risk and the printed one."""

    optimizer: Any
    budget: dps.Budget
    calibration: str
    bound: float
    printed: float = math.inf


def budget_of(epsilon: float) -> dps.Budget:
    """Budget for replacing one record."""
    return dps.Budget(epsilon=epsilon, delta=DELTA)


def _exact(optimizer: Any, facts: Any, budget: dps.Budget) -> Run:
    inputs = optimizer.recipe(facts, budget).inputs
    return Run(optimizer, budget, "exact", float(inputs["risk_bound"]))


@cache
def noisy_gd(facts: Any, epsilon: float) -> Run:
    """Algorithm 1 over all records, and the bound of Theorem 3.2."""
    budget = budget_of(epsilon)
    run = _exact(o.NoisyGD(), facts, budget)
    if epsilon > LARGEST_NOMINAL:
        return run
    return run._replace(printed=published_bound("Theorem 3.2", facts, budget))


@cache
def run_perturbed_objective(facts: Any, epsilon: float) -> Run:
    """Algorithm 2 on a certified solver, and the bound of Theorem 5.3."""
    optimizer, budget = o.ObjectivePerturbation(), budget_of(epsilon)
    ridge = optimizer.recipe(facts, budget).inputs["ridge"]
    # With the ridge it would find anyway no run searches for it again.
    run = _exact(replace(optimizer, ridge=ridge), facts, budget)
    if epsilon > LARGEST_NOMINAL:
        return run
    return run._replace(printed=published_bound("Theorem 5.3", facts, budget))


@cache
def run_with_halves(facts: Any, epsilon: float) -> Run:
    """Algorithm 3 with its halves of the budget and alpha = lambda M^2/n^2."""
    optimizer, budget = (
        o.ApproximateObjectivePerturbation(share=0.5),
        budget_of(epsilon),
    )
    ridge = optimizer.recipe(facts, budget).inputs["ridge"]
    gap = ridge * (radius(facts) / facts.num_records) ** 2
    return _exact(replace(optimizer, ridge=ridge, gap=gap), facts, budget)


@cache
def run_as_printed(optimizer: Any, facts: Any, epsilon: float) -> Run:
    """Run printed constants at the nominal epsilon that makes the true one this."""

    def true(nominal: float) -> float:
        event = optimizer.recipe(facts, budget_of(nominal), "paper").event
        relation = "replace_one"
        return float(dps.privacy.epsilon_of(event, delta=DELTA, relation=relation))

    low, high = math.log(epsilon) - 3.0, math.log(epsilon) + 3.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (
            (low, middle) if true(math.exp(middle)) > epsilon else (middle, high)
        )
    budget = budget_of(math.exp(low))
    inputs = optimizer.recipe(facts, budget, "paper").inputs
    bound = float(inputs.get("printed_risk_bound", math.inf))
    if budget.epsilon > LARGEST_NOMINAL:
        bound = math.inf
    return Run(optimizer, budget, "paper", float(inputs["risk_bound"]), bound)


def radius(facts: Any) -> float:
    """Return M, about the domain's center."""
    center = facts.domain.default_center(facts.dim)
    return float(facts.domain.max_norm(2.0, center, facts.dim))


def published_bound(item: str, facts: Any, budget: dps.Budget) -> float:
    """Return a published bound of the excess population risk."""
    return dps.papers.bound("bassily", item)(
        n=facts.num_records,
        d=facts.dim,
        epsilon=budget.epsilon,
        delta=budget.delta,
        L=float(facts.lipschitz(2.0)),
        M=radius(facts),
    )


def unit(facts: Any) -> float:
    """Return M L."""
    return radius(facts) * float(facts.lipschitz(2.0))


def hard(n: int, d: int, epsilon: float) -> float:
    """Signal, in units of M L, as large as what an algorithm does not see.

    The root of 1/n + 4 d/(n t)^2, t the gdp of the budget. Points at the angle of a
    signal s and a noise r err by s (1 - s/sqrt(s^2 + r^2)), most near s = r.
    """
    gdp = dps.privacy.gdp_from_budget(epsilon, DELTA)
    return math.sqrt(1.0 / n + 4.0 * d / (n * gdp) ** 2)
