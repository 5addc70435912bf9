"""Figures 1 and 2 of Xie et al. (2022): unit columns, T = 5 n^2/m^2, their noise."""

import math

import numpy as np

import dpsample as dps
from dpsample.experiments import Figure, Metric, Study
from dpsample.optimizers.algorithms import private_proximal_sgd

from . import _heavy_tailed as design
from .heavy_tailed_regression import DELTA, METHODS, NOTHING, NUM_RECORDS, PRINTED


def optimizer_of(params):
    """Return the method with the published batches, steps and thresholds."""
    model, method, dim = params["model"], params["method"], params["p"]
    # Columns of norm 1 in place of sqrt(n) divide slopes by sqrt(n).
    size = NUM_RECORDS**-0.5
    weights = design.penalty(model, NUM_RECORDS, dim)
    moment = design.MOMENTS[model][method] * size**2
    options = {
        "l1": weights["l1"] * size,
        "smoothness": weights["smoothness"] * size**2,
    }
    options |= {"batch_size": NUM_RECORDS, "num_steps": 5}
    nominal = dps.Budget(epsilon=params["epsilon"], delta=DELTA)
    if method == "DP-SPGD":
        options |= {"batch_size": NUM_RECORDS // 6, "num_steps": 180}
    elif method == "DP-SPGD(K)":
        options["threshold"] = private_proximal_sgd.printed_width(
            nominal, dim=dim, batch_size=NUM_RECORDS, order=2.0
        )
        buckets = math.ceil(3.0 * math.log(2.0 * dim / 0.1))
        options["num_buckets"] = buckets + 1 - buckets % 2  # one value is the median
    else:
        options["threshold"] = private_proximal_sgd.printed_scale(
            nominal,
            batch_size=NUM_RECORDS,
            moment_bound=moment,
            failure_probability=0.1,
        )
    return design.robust(method, dim, moment, **options)


def cell(params, seed):
    """One data set, one fit, its distance from the coefficients, the true epsilon."""
    data_seed, run_seed = design.seeds_of(seed)
    data = design.records(params["model"], NUM_RECORDS, params["p"], data_seed, "unit")
    if params["method"] == NOTHING:
        return {"error": float(np.linalg.norm(data.theta))}
    problem = design.problem(params["model"], data, dps.domains.Ball(design.RADIUS))
    budget = dps.Budget(epsilon=params["epsilon"], delta=DELTA)
    fit = dps.minimize(
        problem, optimizer_of(params), budget, calibration="paper", seed=run_seed
    )
    error = float(np.linalg.norm(fit.theta - data.theta))
    return {"error": error, "proved": fit.certificate.epsilon_proved}


def cells(dims, epsilons):
    """Grid of both models."""
    shared = {"model": tuple(METHODS), "p": dims, "epsilon": epsilons}
    return (shared | {"method": (*PRINTED, NOTHING)},)


def answer(mean):
    """Words about a full run."""
    words = []
    for model in METHODS:
        at = {"model": model, "p": 60, "epsilon": 1.0}
        errors = [f"{m} {mean('error', **at, method=m):.2f}" for m in PRINTED]
        true = [f"{mean('proved', **at, method=m):.2f}" for m in PRINTED]
        words.append(f"{model}: {', '.join(errors)} (true epsilon {', '.join(true)})")
    return (
        "Distance from the coefficients at p = 60 and a nominal epsilon of 1, where the"
        f" answer 0 has 3.16. {'; '.join(words)}. In these columns the responses say"
        " next to nothing of the coefficients. The figures are not reproduced, because"
        " step sizes, the penalty, the threshold C and the distribution of X are not"
        " published (figures-that-were-not-run)."
    )


study = Study(
    name="xie_figures",
    title="Heavy-tailed regression in unit columns, nominal epsilon",
    question=(
        "What do the three methods of Xie et al. (2022) give in the design of Section"
        " 6.1 with their published noise? n = 10,000, columns of norm 1, ten"
        " coefficients +-1, delta = 1/n, T = 5 n^2/m^2, m = n/6 for DP-SPGD and m = n"
        " for the others, Student errors (lasso) and log-logistic errors (signs)."
        " Epsilon is nominal, and the one that the noise truly spends stands next to"
        " it. The rest is ours: normal features, the penalty sqrt(2 log(p))/n, steps"
        " from the smoothness of the risk, C. Figure 3 has no design: columns, step"
        " sizes, thresholds and penalty of its fits are not published. HTP-LASSO and"
        " HTDP-FW have the parameters of another paper and are left out."
    ),
    answer=answer,
    grid=cells((20, 60, 100, 150), (0.5, 1.0, 3.0)),
    quick=cells(20, 1.0),
    replicates=lambda params: 2 if params["method"] == NOTHING else 8,
    quick_replicates=2,
    cell=cell,
    metrics=(
        Metric("error", label="distance from the coefficients"),
        Metric("proved", label="true epsilon of the noise", kind="exact"),
    ),
    figures=(
        *(
            Figure(
                x="p",
                y="error",
                lines="method",
                panels="epsilon",
                where={"model": model},
                x_label="dimension p",
                title=f"Figure {number}: {model}, nominal epsilon",
            )
            for number, model in enumerate(METHODS, start=1)
        ),
        Figure(
            x="epsilon",
            y="proved",
            lines="method",
            panels="model",
            where={"p": 60},
            x_label="nominal epsilon",
            title="Nominal and true epsilon, p = 60",
        ),
    ),
    paired=("method", "epsilon"),
    seed=62,
)
