"""Excess risks against their explicit bounds: python benchmarks/optimizer_risk.py.

Every optimizer runs on a reference instance of its own class, with its default exact
calibration at (1, 1e-6) and without a budget. Population risks are measured on fresh
records in every run, empirical ones on one data set. Where there is no explicit bound,
the risk has to fall from n to 4n. The exit code is 1 if a measured mean is above its
bound, or fails to fall, by more than 3 standard errors.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpsample as dps
from dpsample import chains
from dpsample.optimizers import optimizer as base

sys.path.insert(0, str(Path(__file__).parent))
import risk_instances as instances  # noqa: E402

Array = NDArray[np.float64]
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
SEED, QUICK_SIZE, ERRORS = 20, 2000, 3.0
MANY_PASSES = (dps.optimizers.NoisySGD, dps.optimizers.ProxGD)  # n/2 passes
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


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table."""

    case: Case
    num_records: int
    dim: int
    epsilon: float
    mean: float
    error: float
    bound: float
    seconds: float
    is_refuted: bool


OPTIMUM = 0.5 * np.array([1.0, -1.0] * 5)
SHORT = np.array([0.9, -0.6, 0.4, 0.0])
SIGNS, BALL = np.sign(OPTIMUM), dps.domains.Ball(2.0)
LOGISTIC, WHOLE = dps.losses.Logistic(), dps.domains.WholeSpace()
STEEP = np.array([2.0, -2.0, 1.0, -1.0])
logistic = instances.axis(LOGISTIC, OPTIMUM, OPTIMUM, BALL)
linear = instances.axis(
    dps.losses.Linear(), OPTIMUM, SIGNS / math.sqrt(10.0), dps.domains.Ball(1.0)
)
hinge = instances.axis(dps.losses.Hinge(), STEEP, np.sign(STEEP), dps.domains.Ball(2.5))
free = instances.axis(LOGISTIC, SHORT, SHORT, WHOLE)
SQUARED, QUARTIC = instances.growth(2.0), instances.growth(4.0)


def lp_ball(p: float) -> instances.Make:
    """Logistic losses on the l_p ball that the minimizer lies on."""
    radius = float(np.linalg.norm(SHORT, p))
    return instances.axis(LOGISTIC, SHORT, SHORT, dps.domains.Ball(radius, p=p))


def growth_of(exponent: float) -> dict[str, float]:
    """Exponent and constant of the instances of growth."""
    made = dps.datasets.growth_regression(1, 4, seed=0, exponent=exponent)
    scale = 0.5 if exponent == 2.0 else 1.0
    return {"exponent": exponent, "constant": scale * made.constant}


def cases() -> list[Case]:
    """All of them; the first three are the quick ones."""
    o, empirical = dps.optimizers, "empirical"
    mirrored = {"smoothness": 1.0 / 16.0}  # F is max_j P(j)/4-smooth in every l_p
    lasso = {"l1": instances.PENALTY, "smoothness": instances.CURVATURE}
    clipped = lasso | {"threshold": instances.CLIP}
    distance = float(np.linalg.norm(SHORT))
    huber = "Huber + l1, Student design"
    rows: list[tuple[Any, ...]] = [
        (o.NoisySGD(), "linear, ball", linear),
        (
            o.DPSGD(sampling_rate=0.05, num_steps=400),
            "linear, ball",
            instances.linear_sample,
            empirical,
        ),
        (o.LocalizedClippedGD(), "growth 2", SQUARED),
        (o.NoisySGD(), "logistic, ball", logistic),
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
        (
            o.PrivateProximalSGD(estimator="bucketed_median", **lasso),
            huber,
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


def excesses(
    case: Case, num_records: int, budget: dps.Budget | None, replicates: int
) -> Array:
    """Excess risks of independent runs, in threads."""
    root = np.random.SeedSequence(SEED)
    if case.risk == "empirical":
        problem, excess = case.make(num_records, np.random.default_rng(root))
        runs = dps.replicate(
            dps.minimize,
            problem,
            case.method,
            budget,
            num_replicates=replicates,
            seed=SEED,
            evaluate=excess,
        )
        assert runs.values is not None  # noqa: S101 - for the type
        return runs.values

    def fresh(seed: np.random.SeedSequence) -> float:
        data, noise = seed.spawn(2)
        problem, excess = case.make(num_records, np.random.default_rng(data))
        fit = dps.minimize(problem, case.method, budget, seed=noise)
        return excess(fit.theta)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.array(list(pool.map(fresh, root.spawn(replicates))))


def measured(case: Case, size: int, replicates: int) -> Iterator[Row]:
    """Rows of a case: one for each budget, or two where there is no bound."""
    for budget in case.budgets:
        problem, _ = case.make(size, np.random.default_rng(SEED))
        bound = case.bound_of(problem.facts, budget)
        before: tuple[float, float] | None = None
        for count in (size,) if math.isfinite(bound) else (size, 4 * size):
            begin = time.perf_counter()
            values = excesses(case, count, budget, replicates)
            mean = float(values.mean())
            error = float(values.std(ddof=1)) / math.sqrt(replicates)
            is_refuted = mean - ERRORS * error > bound
            if before is not None:
                is_refuted = mean - before[0] > ERRORS * math.hypot(error, before[1])
            before = mean, error
            yield Row(
                case=case,
                num_records=count,
                dim=problem.dim,
                epsilon=math.inf if budget is None else budget.epsilon,
                mean=mean,
                error=error,
                bound=bound,
                seconds=time.perf_counter() - begin,
                is_refuted=is_refuted or not math.isfinite(mean),
            )


HEADER = (
    f"{'optimizer':34} {'instance':34} {'risk':10} {'n':>6} {'d':>3} {'eps':>4}"
    f" {'excess':>9} {'+-':>8} {'bound':>9} {'ratio':>7} {'s':>5}"
)


def line(row: Row) -> str:
    """Words of a row below `HEADER`."""
    has_bound = math.isfinite(row.bound)
    bound = f"{row.bound:9.2e}" if has_bound else f"{'-':>9}"
    ratio = f"{row.mean / row.bound:7.4f}" if has_bound else f"{'-':>7}"
    epsilon = "none" if math.isinf(row.epsilon) else f"{row.epsilon:g}"
    return (
        f"{type(row.case.method).__name__:34} {row.case.instance:34}"
        f" {row.case.risk:10} {row.num_records:6} {row.dim:3} {epsilon:>4}"
        f" {row.mean:9.2e} {row.error:8.1e} {bound} {ratio} {row.seconds:5.1f}"
        f"{'  REFUTED' if row.is_refuted else ''}"
    )


def main(arguments: list[str] | None = None, chosen: list[Case] | None = None) -> int:
    """Print the table; return 1 if a bound is refuted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="three small cases")
    given = parser.parse_args(arguments)
    chosen = cases() if chosen is None else chosen
    if given.quick:
        chosen = chosen[:3]
    begin, refuted, total = time.perf_counter(), 0, 0
    print(HEADER)
    with chains.single_threaded_blas():
        for case in chosen:
            size = QUICK_SIZE if given.quick else case.num_records
            for row in measured(case, size, given.replicates):
                print(line(row), flush=True)
                refuted, total = refuted + row.is_refuted, total + 1
    seconds = time.perf_counter() - begin
    print(f"{total} rows, {refuted} refuted, {seconds:.0f} s")
    return int(refuted > 0)


if __name__ == "__main__":
    sys.exit(main())
