"""Noise, solver accuracy and event of objective perturbation."""

from __future__ import annotations

import math
from typing import NamedTuple

from dpsample.optimizers.estimators import Mean
from dpsample.optimizers.phase import Minimization
from dpsample.optimizers.tilted_risk import TiltScales, best_ridge
from dpsample.privacy.budget import Budget, Relation
from dpsample.privacy.events import ApproximateEvent, Event
from dpsample.privacy.gaussian import gaussian_epsilon, gdp_from_budget
from dpsample.privacy.objective_calibration import approximate_noise, objective_stddev
from dpsample.privacy.objective_perturbation import (
    ASSUMPTIONS,
    THEOREM,
    PerturbedObjective,
)
from dpsample.privacy.output_perturbation import CERTIFIED_GAP, minimizer_error

# Part of the risk bound that the solver may cost by default.
SOLVER_PART = 0.01
# Relative distances below this are rounding errors of a projected gradient step.
RESOLUTION = 1e-13
TWO_PARTS = "the tilt's and the output's (epsilon, delta) add up"
THEOREMS = (THEOREM, TWO_PARTS)
GUARANTEED = (*ASSUMPTIONS[:2], CERTIFIED_GAP)
INEXACT = (
    "the theorem is about the exact minimizer, which no computer returns: nothing is "
    "proved of the computed one without output noise"
)


class Tilt(NamedTuple):
    """Public numbers of one run."""

    ridge: float  # lambda, beyond the strong convexity of the risk
    stddev: float
    gap: float
    output_stddev: float

    def inputs(self, scales: TiltScales) -> dict[str, float | int | str]:
        """For the certificate."""
        found: dict[str, float | int | str] = {
            "lipschitz": scales.lipschitz,
            "smoothness": scales.smoothness,
            "strong_convexity": scales.strong_convexity,
            "ridge": self.ridge,
            "gap": self.gap,
            "tilt_stddev": self.stddev,
            "output_stddev": self.output_stddev,
        }
        bound = self.risk_bound(scales)
        return found | ({"risk_bound": bound} if math.isfinite(bound) else {})

    def risk_bound(self, scales: TiltScales) -> float:
        """Bound of the mean excess risk; infinite on an unbounded domain."""
        error = minimizer_error(
            strong_convexity=scales.convexity(self.ridge), gap=self.gap
        )
        return scales.risk(self.ridge, self.stddev) + scales.release_cost(
            error, self.output_stddev
        )

    def phase(self, scales: TiltScales, solver: str) -> Minimization:
        """Return the minimization, the ridge about the domain's center."""
        return Minimization(
            ridge=scales.convexity(self.ridge),
            smoothness=scales.smoothness,
            gap=self.gap,
            estimator=Mean(lipschitz=scales.lipschitz),
            tilt_stddev=self.stddev,
            is_anchored=True,
            output_stddev=self.output_stddev,
            solver=solver,
        )


def perturbed_objective(
    scales: TiltScales, ridge: float, relation: Relation
) -> PerturbedObjective:
    """Return the objective as privacy sees it: 2 lambda is its strong convexity."""
    return PerturbedObjective(
        lipschitz=scales.lipschitz,
        smoothness=scales.smoothness,
        num_records=scales.num_records,
        ridge=0.5 * scales.convexity(ridge),
        relation=relation,
    )


def proved_tilt(
    scales: TiltScales,
    budget: Budget | None,
    *,
    ridge: float | None,
    gap: float | None,
    share: float,
) -> Tilt:
    """Ridge, noise and accuracy that minimize the bound within the budget."""
    if budget is None:
        if ridge is None:
            ridge = best_ridge(scales, lambda ridge: 0.0, epsilon=math.inf)
        found = gap or default_gap(scales, ridge, 0.0)
        return Tilt(ridge, 0.0, found, 0.0)
    first = Budget(
        epsilon=share * budget.epsilon,
        delta=share * budget.delta,
        relation=budget.relation,
    )

    def stddev_of(ridge: float) -> float:
        objective = perturbed_objective(scales, ridge, budget.relation)
        return objective_stddev(objective, first)

    if ridge is None:
        ridge = best_ridge(scales, stddev_of, epsilon=first.epsilon)
    if gap is None:
        rest = 1.0 - share
        gdp = gdp_from_budget(rest * budget.epsilon, rest * budget.delta)
        gap = default_gap(scales, ridge, stddev_of(ridge), gdp=gdp)
    noise = approximate_noise(
        perturbed_objective(scales, ridge, budget.relation),
        budget,
        gap=gap,
        share=share,
    )
    return Tilt(ridge, noise.stddev, gap, noise.output_stddev)


def default_gap(
    scales: TiltScales, ridge: float, stddev: float, *, gdp: float = math.inf
) -> float:
    """Accuracy whose error and noise cost `SOLVER_PART` of the bound, if resolved.

    The noise is 2 error / gdp in each coordinate, the error sqrt(2 gap / m). At the
    best ridge half of the bound is bias; with a larger one the other half counts.
    """
    m = scales.convexity(ridge)
    top = m + scales.smoothness
    size = scales.radius if math.isfinite(scales.radius) else scales.lipschitz / m
    cost = scales.risk(ridge, stddev)
    spread = 2.0 * scales.spread(ridge, stddev)
    if 0.0 < spread < cost or not math.isfinite(cost):
        cost = spread or scales.lipschitz * size
    per_error = scales.lipschitz * (1.0 + 2.0 * math.sqrt(scales.dim) / gdp)
    wanted = 0.5 * m * (SOLVER_PART * cost / per_error) ** 2
    step = RESOLUTION * (size + scales.lipschitz / top)
    resolved = 0.5 * top**2 / m * step**2
    return max(wanted, resolved)


def tilt_event(scales: TiltScales, tilt: Tilt, budget: Budget) -> Event:
    """Return what is proved of any noise, half of delta going to either part."""
    half = 0.5 * budget.delta
    objective = perturbed_objective(scales, tilt.ridge, budget.relation)
    spent = objective.epsilon(half, stddev=tilt.stddev)
    error = minimizer_error(strong_convexity=scales.convexity(tilt.ridge), gap=tilt.gap)
    spent += gaussian_epsilon(half, 2.0 * error / tilt.output_stddev)
    return ApproximateEvent(epsilon=spent * (1.0 + 1e-12), delta=budget.delta)
