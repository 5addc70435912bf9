"""Simulations of Xie et al. (2022), section 6.1, at equal and true privacy."""

import math
from functools import lru_cache

import numpy as np

import dpsample as dps
from dpsample.experiments import Figure, Metric, Study
from dpsample.optimizers.algorithms import private_proximal_sgd
from dpsample.optimizers.loop import perturbations

from . import _heavy_tailed as design
from ._certified import minimum

NUM_RECORDS = 10_000
DELTA = 1.0 / NUM_RECORDS
STEPS = 40
DIMS = (20, 40, 60, 80, 100, 150)
EPSILONS = (0.5, 1.0, 3.0)
NO_PRIVACY, NOTHING, BEST = "minimum, no privacy", "answer 0", "risk minimizer"
PRINTED = ("DP-SPGD", "DP-SPGD(K)", "DP-SPGD(H)")
PLAN, UNIT = "printed plan", "unit columns"
# The last letter says that the l1 ball has the radius of the true coefficients.
VERTICES = {
    "HTP-LASSO": (dps.optimizers.HeavyTailedLasso(), 1.0),
    "HTP-LASSO(O)": (dps.optimizers.HeavyTailedLasso(), 10.0),
    "HTDP-FW": (dps.optimizers.HeavyTailedFrankWolfe(moment_bound=0.25), 1.0),
    "HTDP-FW(O)": (dps.optimizers.HeavyTailedFrankWolfe(moment_bound=0.25), 10.0),
}
METHODS = {
    "lasso": (*design.PRIVATE, "HTP-LASSO", "HTP-LASSO(O)", NO_PRIVACY, NOTHING),
    "logistic": (*design.PRIVATE, "HTDP-FW", "HTDP-FW(O)", NO_PRIVACY, NOTHING, BEST),
}


def printed_plan(model, method, dim, budget):
    """Batches, steps and thresholds of the paper, and the epsilon it would claim.

    Its noise is the square root of log(1/delta) over epsilon, in units of a record's
    bound (Algorithm 1) or of twice that. So the noise that is proved for the budget is
    what the paper prints for some smaller epsilon.
    """
    if method == "DP-SPGD":  # T = 5 n^2 / m^2
        plan = {"batch_size": NUM_RECORDS // 6, "num_steps": 180}
        rate = plan["batch_size"] / NUM_RECORDS
    else:
        plan, rate = {"batch_size": NUM_RECORDS, "num_steps": 5}, 1.0
    given = {"record_bound": 1.0, "num_records": NUM_RECORDS}
    given["num_steps"] = plan["num_steps"]
    if rate < 1.0:
        noise = perturbations.poisson(budget, sampling_rate=rate, **given)
    else:
        noise = perturbations.full_batch(budget, **given)
    units = 1.0 if method == "DP-SPGD" else 2.0
    multiplier = noise.stddev * plan["batch_size"]
    claimed = units * math.sqrt(math.log(1.0 / DELTA)) / multiplier
    own = dps.Budget(epsilon=claimed, delta=DELTA)
    if method == "DP-SPGD(K)":
        plan["threshold"] = private_proximal_sgd.printed_width(
            own, dim=dim, batch_size=NUM_RECORDS, order=2.0
        )
        buckets = math.ceil(3.0 * math.log(2.0 * dim / 0.1))
        plan["num_buckets"] = buckets + 1 - buckets % 2  # one value is the median
    elif method == "DP-SPGD(H)":
        plan["threshold"] = private_proximal_sgd.printed_scale(
            own,
            batch_size=NUM_RECORDS,
            moment_bound=design.MOMENTS[model][method],
            failure_probability=0.1,
        )
    return plan, claimed


def fit_coefficients(params, data, seed):
    """Coefficients, record gradients, and the epsilon of the paper if it is printed."""
    model, dim, method = params["model"], params["p"], params["method"]
    size = column_size(params)
    budget = dps.Budget(epsilon=params["epsilon"], delta=DELTA)
    if method in VERTICES:
        optimizer, radius = VERTICES[method]
        problem = design.problem(model, data, dps.domains.Ball(radius, p=1.0))
        return dps.minimize(problem, optimizer, budget, seed=seed), None
    problem = design.problem(model, data, dps.domains.Ball(design.RADIUS))
    options = design.penalty(model, NUM_RECORDS, dim)
    options = {
        "l1": options["l1"] * size,
        "smoothness": options["smoothness"] * size**2,
    }
    plan, claimed = {"batch_size": NUM_RECORDS, "num_steps": STEPS}, None
    if params["setting"] == PLAN:
        plan, claimed = printed_plan(model, method, dim, budget)
    moment = design.MOMENTS[model][method] * size**2
    optimizer = design.robust(method, dim, moment, **options, **plan)
    return dps.minimize(problem, optimizer, budget, seed=seed), claimed


def scale_of(params):
    """Norm of the columns, as the data sets call it."""
    return "unit" if params["setting"] == UNIT else "sqrt_n"


def column_size(params):
    """Size of a feature over that of ours."""
    return NUM_RECORDS**-0.5 if params["setting"] == UNIT else 1.0


@lru_cache(maxsize=32)  # what no epsilon changes
def reference(model, dim, scale, l1, seed):
    """Certified minimizer of the penalized risk, its duality gap, and the risk of 0."""
    data = design.records(model, NUM_RECORDS, dim, seed, scale)
    problem = design.problem(model, data, dps.domains.Ball(design.RADIUS))
    return *minimum(problem, l1), problem.risk(np.zeros(dim))


def cell(params, seed):
    """One data set, one fit, its distance from the truth and its excess risk."""
    model = params["model"]
    data_seed, run_seed = design.seeds_of(seed)
    dim, scale = params["p"], scale_of(params)
    data = design.records(model, NUM_RECORDS, dim, data_seed, scale)
    found = {}
    if params["method"] in (NOTHING, BEST):
        norm = 0.0
        if params["method"] == BEST:
            norm = design.logistic_minimum()[0]
        theta = norm / design.SIGNAL * data.theta
    elif params["method"] == NO_PRIVACY:
        l1 = column_size(params) * design.penalty(model, NUM_RECORDS, dim)["l1"]
        theta, gap, zero = reference(model, dim, scale, l1, data_seed)
        found["gap"] = gap / zero
    else:
        fit, claimed = fit_coefficients(params, data, run_seed)
        theta = fit.theta
        if dim == 50:
            found["gradients"] = fit.num_gradients
        if claimed is not None:
            found["claimed"] = claimed
    found["error"] = float(np.linalg.norm(theta - data.theta))
    if model == "logistic" and params["method"] != BEST:  # 0, but for rounding
        found["excess"] = design.excess(model, theta, data.theta)
    return found


def replicates(params):
    """Return two where nothing is random, 20 as in the paper for its methods."""
    if params["method"] in (NOTHING, BEST):
        return 2
    return 20 if params["method"] in (*PRINTED, *VERTICES) else 12


def cells(model, dims, epsilons, methods, setting="ours"):
    """One mapping for the grid."""
    return {
        "model": model,
        "p": dims,
        "epsilon": epsilons,
        "method": methods,
        "setting": setting,
    }


def answer(mean):
    """Words about a full run."""
    methods = ("DP-SPGD", "DP-SPGD(H)", "DP-SPGD(K)", NO_PRIVACY, NOTHING)
    at = {"metric": "error", "model": "lasso", "p": 50, "epsilon": 1.0}
    clip, h, k, best, zero = (mean(**at, setting="ours", method=m) for m in methods)
    unit = [mean(**at, setting=UNIT, method=m) for m in methods if m in PRINTED]
    least = mean(**at, setting=UNIT, method=NO_PRIVACY)
    return (
        "Our design is not that of figures 1 and 2. At equal true epsilon, larger rows"
        " and thresholds that are tuned for all, the order is clipping, H, K."
        " Distance from the coefficients, lasso, p ="
        f" 50, epsilon = 1: clipping {clip:.2f}, H {h:.2f}, K {k:.2f}, the certified"
        f" minimum without privacy {best:.2f}, the answer 0 {zero:.2f}. With the"
        f" paper's unit columns the same methods have {min(unit):.1f} to"
        f" {max(unit):.1f} and the minimum {least:.1f}: all are worse than the answer"
        " 0 there."
        " K is worse than the answer 0 at p = 150 for epsilon <= 1, HTP-LASSO(O) in"
        " most cells. The gap between clipping and H closes at epsilon = 3, p = 20. The"
        " distance from the true coefficients says little of logistic losses: their"
        " minimizer is 1.34 away."
    )


study = Study(
    name="heavy_tailed_regression",
    title="Heavy-tailed regression at equal privacy",
    question=(
        "Figures 1 and 2 and Table 1 of Xie et al. (2022): n = 10 000 records, ten"
        " coefficients +-1, Student errors with 2 degrees of freedom (lasso) or"
        " log-logistic errors (signs, l1-penalized logistic regression). Every method"
        " spends the same true (epsilon, 1/n) under replacement; the printed noise"
        " would spend 2.4 to 8.5 times what it says. Which one is best? The paper's"
        " columns have unit norm, which leaves no signal (gradient-E32); ours have norm"
        " sqrt(n). What it leaves open is ours: weight sqrt(2 log(p)/n), all records in"
        " 40 steps; thresholds are the best on pilot data with known truth (study"
        " heavy_tailed_tuning), the same for all p and epsilon. 'Unit columns' are the"
        " paper's: features are divided by sqrt(n), and penalty, steps and thresholds"
        " follow. 'Minimum, no privacy' is the certified minimum of the penalized risk"
        " on the ball of radius 10, with its duality gap. With infinite error variance"
        " the theorems do not"
        " apply to the square loss, so no bound is shown here; study heavy_tailed_rates"
        " has them. An answer of 0 is off by 3.16; the minimizer of the logistic risk,"
        " known in closed form, is itself 1.34 from the coefficients, so only excess"
        " risk says who solves that problem. 'Printed plan' has the"
        " paper's T = 5 n^2/m^2, batches and thresholds, with noise that is proved;"
        " 'claimed' is the epsilon the paper would state for it. Gradients: record"
        " evaluations of a fit. Seconds by `python benchmarks/optimizers.py --only"
        " heavy_tailed` at p = 50 and the paper's T, beside those of Table 1: clipping"
        " 0.0095 (31.3), K 0.0034 (20.1), H 0.0108 (28.9), HTP-LASSO 0.0074 (202.9) and"
        " HTDP-FW 0.0041 (1.5)."
    ),
    answer=answer,
    grid=(
        *(cells(m, DIMS, EPSILONS, METHODS[m]) for m in METHODS),
        *(cells(m, 50, EPSILONS, METHODS[m]) for m in METHODS),
        *(cells(m, (20, 50, 150), EPSILONS, PRINTED, PLAN) for m in METHODS),
        cells("lasso", 50, EPSILONS, (*PRINTED, NO_PRIVACY, NOTHING), UNIT),
        cells("lasso", (20, 150), 1.0, (*PRINTED, NO_PRIVACY, NOTHING), UNIT),
    ),
    quick=(
        *(cells(m, (20, 50), 1.0, METHODS[m]) for m in METHODS),
        *(cells(m, 50, 1.0, PRINTED, PLAN) for m in METHODS),
        cells("lasso", 50, 1.0, (*PRINTED, NO_PRIVACY), UNIT),
    ),
    replicates=replicates,
    quick_replicates=2,
    cell=cell,
    paired=("method", "epsilon", "setting"),
    metrics=(
        Metric("error", label="distance from the coefficients"),
        Metric("excess", label="excess logistic risk"),
        Metric("gap", label="duality gap over the risk of 0", bound=1e-6),
        Metric("claimed", label="epsilon that the paper claims", kind="exact"),
        Metric("gradients", label="record gradients"),
    ),
    figures=(
        *(
            Figure(
                x="p",
                y=metric,
                lines="method",
                panels="epsilon",
                where={"model": model, "setting": "ours"},
                log_log=(model, metric) != ("logistic", "error"),
                x_label="dimension p",
                title=title,
            )
            for model, metric, title in (
                ("lasso", "error", "Figure 1: lasso, Student errors, 2 degrees"),
                ("logistic", "error", "Figure 2: l1-penalized logistic regression"),
                ("logistic", "excess", "Figure 2 by excess risk"),
            )
        ),
        Figure(
            x="epsilon",
            y="error",
            lines="method",
            panels="setting",
            where={"model": "lasso", "p": 50},
            x_label="true epsilon",
            title="Lasso, p = 50: our plan; the paper's, noise proved; its columns",
        ),
        *(
            Figure(
                x="p",
                y=metric,
                lines="method",
                panels="epsilon",
                where={"model": model, "setting": setting},
                x_label="dimension p",
                title=title,
            )
            for model, metric, setting, title in (
                ("lasso", "error", PLAN, "Figure 1 with the paper's T, noise proved"),
                ("logistic", "excess", PLAN, "Figure 2 with the paper's T"),
                ("lasso", "error", UNIT, "Figure 1 with columns of unit norm"),
            )
        ),
    ),
)
