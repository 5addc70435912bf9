"""Reference cases of every optimizer, for `optimizer_risk.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import risk_instances as instances

import dpsample as dps
from dpsample.optimizers.loop import optimizer as base

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
MANY_PASSES = (dps.optimizers.NoisyGD, dps.optimizers.ProxGD)  # n/2 of them
Bound = Callable[[Any, dps.Budget | None], float]


@dataclass(frozen=True, kw_only=True)
class Case:
    """An optimizer and its instance."""

    method: base.Optimizer
    instance: str
    make: instances.Make
    num_records: int = 20_000
    risk: str = "population"
    growth: dict[str, float] | None = None
    bound: Bound | None = None
    budgets: tuple[dps.Budget | None, ...] = (BUDGET, None)

    def bound_of(self, facts: Any, budget: dps.Budget | None) -> float:
        """Explicit bound of the mean excess risk; infinite if there is none."""
        if self.bound is not None:
            return self.bound(facts, budget)
        if hasattr(self.method, "risk_bound"):
            return float(self.method.risk_bound(facts, budget, **(self.growth or {})))
        inputs = self.method.recipe(facts, budget).inputs
        return float(inputs.get("risk_bound", math.inf))


OPTIMUM = 0.5 * np.array([1.0, -1.0] * 5)
SHORT = np.array([0.9, -0.6, 0.4, 0.0])
SIGNS, BALL = np.sign(OPTIMUM), dps.domains.Ball(2.0)
LOGISTIC = dps.losses.Logistic()
WHOLE = dps.domains.WholeSpace()
STEEP = np.array([2.0, -2.0, 1.0, -1.0])
logistic = instances.axis(LOGISTIC, OPTIMUM, OPTIMUM, BALL)
linear = instances.axis(
    dps.losses.Linear(), OPTIMUM, SIGNS / math.sqrt(10.0), dps.domains.Ball(1.0)
)
hinge = instances.axis(dps.losses.Hinge(), STEEP, np.sign(STEEP), dps.domains.Ball(2.5))
free = instances.axis(LOGISTIC, SHORT, SHORT, WHOLE)
SQUARED = instances.growth(2.0)
QUARTIC = instances.growth(4.0)


def lp_ball(p: float) -> instances.Make:
    """Logistic losses on the l_p ball that the minimizer lies on."""
    radius = float(np.linalg.norm(SHORT, p))
    return instances.axis(LOGISTIC, SHORT, SHORT, dps.domains.Ball(radius, p=p))


def growth_of(exponent: float) -> dict[str, float]:
    """Exponent and constant of the instances of growth."""
    sample = dps.datasets.growth_regression(1, 4, seed=0, exponent=exponent)
    scale = 0.5 if exponent == 2.0 else 1.0
    return {"exponent": exponent, "constant": scale * sample.constant}


def cases() -> list[Case]:
    """All of them; the first three are the quick ones."""
    o, empirical = dps.optimizers, "empirical"
    mirrored = {"smoothness": 1.0 / 16.0}  # F is max_j P(j)/4-smooth in every l_p
    lasso = {"l1": instances.PENALTY, "smoothness": instances.CURVATURE}
    clipped = lasso | {"threshold": instances.CLIP}
    distance = float(np.linalg.norm(SHORT))
    huber = "Huber + l1, Student design"
    rows: list[tuple[Any, ...]] = [
        (o.NoisyGD(), "linear, ball", linear),
        (
            o.DPSGD(sampling_rate=0.05, num_steps=400),
            "linear, ball",
            instances.linear_sample,
            empirical,
        ),
        (o.LocalizedClippedGD(), "growth 2", SQUARED),
        (o.NoisyGD(), "logistic, ball", logistic),
        (
            o.NoisySGD(num_steps=400, batch_size=1000, risk="empirical"),
            "linear, ball",
            instances.linear_sample,
            empirical,
        ),
        (o.ProxGD(), "hinge, ball", hinge),
        (o.ObjectivePerturbation(), "logistic, ball", logistic),
        (
            o.ApproximateObjectivePerturbation(strong_convexity=1.0),
            "mean estimation",
            instances.mean_estimation,
        ),
        (o.SVRG(), "logistic, ball", logistic),
        (o.PhasedSGD(), "linear, ball", linear),
        (o.PhasedSGD(distance=distance), "logistic, whole space", free),
        (
            o.NoisyMirrorDescent(p=1.5, distance=float(np.linalg.norm(SHORT, 1.5))),
            "logistic, p = 1.5",
            free,
        ),
        (o.TruncatedMirrorDescent(**mirrored), "logistic, l1.2 ball", lp_ball(1.2)),
        (o.TruncatedMirrorDescent(**mirrored), "logistic, l1.5 ball", lp_ball(1.5)),
        (
            o.TruncatedMirrorDescent(scheme="shuffle", **mirrored),
            "logistic, l4 ball",
            lp_ball(4.0),
        ),
        (o.AdaSSP(), "growth 2", SQUARED),
        (o.ClippedGD(num_steps=200, clip=1.0), "growth 2", SQUARED),
        (o.PrivateStochasticApproximation(), "growth 2", SQUARED),
        (o.IteratedLocalizedClippedGD(), "growth 2", SQUARED),
        (o.IteratedLocalizedClippedGD(), "growth 4", QUARTIC),
        (o.AcceleratedClippedSGD(scheme="disjoint"), "growth 2", SQUARED),
        (o.AcceleratedClippedSGD(), "growth 2", instances.interpolation, empirical),
        (o.IteratedAcceleratedClippedSGD(scheme="disjoint"), "growth 2", SQUARED),
        (o.IteratedAcceleratedClippedSGD(scheme="disjoint"), "growth 4", QUARTIC),
        (
            o.PrivateProximalSGD(**clipped),
            f"{huber}, clipped",
            instances.huber_lasso(instances.CLIP),
            empirical,
        ),
        (  # columns have norm sqrt(n), so E g_j^2 <= 1 for these records
            o.PrivateProximalSGD(estimator="catoni", **lasso),
            f"{huber}, catoni",
            instances.huber_lasso(math.inf),
            empirical,
        ),
        (
            o.PrivateProximalSGD(estimator="bucketed_median", **lasso),
            f"{huber}, medians",
            instances.huber_lasso(math.inf),
            empirical,
        ),
        (
            o.ProximalSGD(**lasso),
            "squares + l1, Student errors",
            instances.student(instances.PENALTY),
        ),
        (
            # E a_j^2 (<a, v> - e)^2 <= 3 |v|^2 + 3, |v| <= 2
            o.HeavyTailedFrankWolfe(moment_bound=15.0, smoothness=1.0),
            "squares, l1 ball, Student errors",
            instances.student(),
        ),
        (
            o.HeavyTailedLasso(entry_bound=instances.ENTRY),
            "the same, clipped",
            instances.clipped_lasso,
            empirical,
        ),
    ]
    return [_case(*row) for row in rows]


def _case(
    method: Any, instance: str, make: instances.Make, risk: str = "population"
) -> Case:
    """Case with the growth and the budgets that its method needs."""
    iterated = type(method).__name__.startswith("Iterated")
    private = type(method) is not dps.optimizers.ProximalSGD
    return Case(
        method=method,
        instance=instance,
        make=make,
        risk=risk,
        num_records=4000 if isinstance(method, MANY_PASSES) else 20_000,
        growth=growth_of(float(instance.split()[-1])) if iterated else None,
        budgets=(BUDGET, None) if private else (None,),
    )
