"""Optimizers on worst pairs, as black boxes for audits.

Pairs are the same tiny data but for one record, whose gradients are opposite (or zero)
and as long as the declared bounds allow. The domain is the whole space, or so large
that no projection hides where an iterate went.
"""

from dataclasses import dataclass, replace

import numpy as np

import dpsample as dps
from dpsample.audits import neighbors
from dpsample.domains import Ball, WholeSpace
from dpsample.losses import Hinge, Huber, Linear
from dpsample.optimizers.loop.optimizer import Minimization, Optimizer, Query
from dpsample.optimizers.loop.steps import FrankWolfeStep
from dpsample.running import descent
from tests.support.statistics import spend

BUDGET = dps.Budget(epsilon=2.0, delta=0.05)
HUGE = 1e4  # a bound of rows that truncation makes irrelevant


def facts(loss=None, domain=None, num_records=2, *, row_bound=1.0, bound=None, dim=1):
    return dps.PublicFacts(
        num_records=num_records,
        dim=dim,
        row_bound=row_bound,
        row_norm=2.0,
        loss=loss or Linear(),
        domain=domain or WholeSpace(),
        response_bound=bound,
    )


FREE = facts()
FOUR = facts(num_records=4)
FAR = facts(domain=Ball(1e3))
HINGE = facts(Hinge())
HUBER = facts(Huber(), num_records=4, bound=20.0)
TRUNCATED = facts(domain=Ball(1e3), row_bound=HUGE)


@dataclass(frozen=True)
class Case:
    """An optimizer and the public facts of a worst pair."""

    optimizer: Optimizer
    facts: dps.PublicFacts
    num_draws: int = 3000
    budget: dps.Budget = BUDGET
    pair: str = "first"  # which record differs, or the name of a pair

    def __str__(self):
        variants = ("scheme", "estimator", "batches", "noise", "printed", "tilt")
        words = [getattr(self.optimizer, name, None) for name in variants]
        words = [word for word in words if isinstance(word, str)]
        return "-".join((type(self.optimizer).__name__, *words))

    def problems(self):
        if self.pair == "duplicated":
            return neighbors.copies(self.facts)
        pair = neighbors.worst_case(self.facts, self.budget.relation)
        return pair if self.pair == "last" else tuple(map(backwards, pair))

    def recipe(self, calibration="exact"):
        return self.optimizer.recipe(self.facts, self.budget, calibration)


def backwards(problem):
    """The same records, the last one first: phases read the first half first."""
    known = problem.facts
    return dps.Problem(
        problem.data.dense[::-1].copy(),
        problem.data.response[::-1].copy(),
        loss=known.loss,
        domain=known.domain,
        row_bound=known.row_bound,
        row_norm=known.row_norm,
        response_bound=known.response_bound,
    )


def algorithm(recipe):
    """The compiled algorithm as a black box."""

    def run(problem, rng, num_draws):
        program = descent.Program(problem, recipe)
        return np.array([program.run(rng).theta for _ in range(num_draws)])

    return run


def audit(case, recipe, **options):
    """Test the budget with the draws of a recipe."""
    options |= {"num_draws": case.num_draws, "alpha": spend(), "seed": 1}
    box, pair = algorithm(recipe), case.problems()
    return dps.audit(box, *pair, case.budget, progress=False, **options)


def with_noise(recipe, share):
    """The same recipe with a share of its noise."""
    return replace(recipe, phases=tuple(_less(phase, share) for phase in recipe.phases))


def _less(phase, share):
    if isinstance(phase, Query):
        names = ("matrix_stddev", "vector_stddev")
        return replace(phase, **{name: share * getattr(phase, name) for name in names})
    changes = {"output_stddev": share * phase.output_stddev}
    if isinstance(phase, Minimization):
        for name in ("output_scale", "tilt_scale", "tilt_stddev"):
            changes[name] = share * getattr(phase, name)
        return replace(phase, **changes)
    for size in ("stddev", "sigma"):
        if hasattr(phase.noise, size):
            less = {size: share * getattr(phase.noise, size)}
            changes["noise"] = replace(phase.noise, **less)
    if isinstance(phase.step, FrankWolfeStep):
        epsilon = phase.step.epsilon / share
        changes["step"] = replace(phase.step, epsilon=epsilon)
    return replace(phase, **changes)
