"""Coverage of private confidence intervals, and their widths beside classical ones."""

import math
import warnings
from functools import cache

import numpy as np
from scipy.special import expit, ndtri

import dpsample as dps
from dpsample.api.intervals import Sandwich, weights
from dpsample.experiments import Figure, Metric, Study

RADIUS, BANDWIDTH, LEVEL = 20.0, 0.3, 0.95
LOSSES = {
    "logistic": dps.losses.Logistic(),
    "huber": dps.losses.Huber(1.0),
    "median": dps.losses.Quantile(0.5),
}
POPULATION, PART = 2_000_000, 100_000  # records from which a minimizer is found


def truth(params):
    """Coefficients of the law."""
    return np.linspace(-2.0, 2.0, params["d"])


def records(params, n, rng):
    """Rows in the unit ball, and responses whose law is that of the loss or is not."""
    d, law = params["d"], params["law"]
    rows = rng.uniform(-1.0, 1.0, (n, d))
    rows[:, 0] = 1.0
    if law == "anisotropic":
        rows *= np.geomspace(1.0, 0.5, d)
    rows /= math.sqrt(d)
    margins = rows @ truth(params)
    if law == "misspecified":
        margins = margins + 2.0 * rows[:, 1] * rows[:, -1]
    if params["loss"] == "logistic":
        chance = expit(margins)
        if law == "misspecified":
            chance = 0.1 + 0.8 * chance
        return rows, np.where(rng.random(n) < chance, 1.0, -1.0)
    size = 0.5 + (rows[:, 1] if law == "misspecified" else 0.0)
    return rows, margins + np.abs(size) * rng.standard_normal(n)


def problem_of(params, n, rng):
    """Fresh records of the law."""
    rows, response = records(params, n, rng)
    domain = dps.domains.Ball(RADIUS)
    loss = LOSSES[params["loss"]]
    return dps.Problem(rows, response, loss=loss, domain=domain, row_bound=1.0)


def classical(params, problem, theta):
    """Curvature and variance of scores at theta, and the mean gradient."""
    rows, n = problem.data.dense, problem.num_records
    width = BANDWIDTH if params["loss"] == "median" else None
    sandwich = Sandwich(base="noisy_gd", share=0.5, robust=True, bandwidth=width)
    curved, scored = weights(sandwich, problem, theta)
    slope = problem.loss.slope(problem.margins(theta), problem.data.response)
    return (
        (rows.T * curved) @ rows / n,
        (rows.T * scored) @ rows / n,
        rows.T @ slope / n,
    )


@cache
def minimizer(loss, d, law):
    """Minimizer of the population risk: the law's own, or Newton's on many records."""
    params = {"loss": loss, "d": d, "law": law}
    theta = truth(params)
    if law != "misspecified":
        return theta
    for _ in range(6):
        rng = np.random.default_rng(5)  # the same records in every step
        parts = [
            classical(params, problem_of(params, PART, rng), theta)
            for _ in range(POPULATION // PART)
        ]
        curvature, _, gradient = (sum(each) for each in zip(*parts, strict=True))
        theta = theta - np.linalg.solve(curvature, gradient)
    return theta


def cell(params, seed):
    """Private intervals on fresh records, against the minimizer."""
    data, noise = seed.spawn(2)
    problem = problem_of(params, params["n"], np.random.default_rng(data))
    theta = minimizer(params["loss"], params["d"], params["law"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bars = dps.intervals(
            problem,
            dps.Budget(epsilon=params["epsilon"], delta=1e-6),
            base=params.get("base"),
            level=LEVEL,
            # Without robustness the model of the records has to be right.
            robust=params["loss"] != "logistic" or params["law"] == "misspecified",
            bandwidth=BANDWIDTH if params["loss"] == "median" else None,
            seed=noise,
        )
    # The sandwich covariance of a fit without privacy, at the true coefficients.
    curvature, variance, _ = classical(params, problem, theta)
    half = np.linalg.solve(curvature, variance)
    diagonal = np.diag(np.linalg.solve(curvature, half.T)) / params["n"]
    widths = bars.upper - bars.lower
    return {
        "coverage": np.mean((bars.lower <= theta) & (theta <= bars.upper)),
        # An infinite interval is as wide as the ball.
        "width": np.mean(np.minimum(widths, 2.0 * RADIUS)),
        "classical": 2.0 * ndtri(0.5 + 0.5 * LEVEL) * np.sqrt(diagonal).mean(),
        "flagged": float(bool(bars.diagnostics["flags"])),
    }


FAMILIES = (
    ("logistic", "model"),
    ("logistic", "misspecified"),
    ("logistic", "anisotropic"),
    ("huber", "misspecified"),
    ("median", "model"),
)


def cells(families, **axes):
    """Return mappings for the grid, one of each loss and law."""
    return tuple({"loss": loss, "law": law} | axes for loss, law in families)


study = Study(
    name="intervals_coverage",
    title="Coverage of private confidence intervals",
    question=(
        "dps.intervals adds the mechanism's noise to the sandwich covariance and takes"
        " both matrices with noise. Do its 95 % intervals cover, and how wide are they"
        " beside classical ones? Rows are (1, uniform)/sqrt(d), of the anisotropic law"
        " with scales from 1 to 1/2; coefficients reach from -2 to 2. Misspecified:"
        " products of columns, flipped labels, errors whose size depends on a column;"
        " then the target is the minimizer on two million records. Logistic intervals"
        " are robust there only. Losses with kinks take noisy descent, others objective"
        " perturbation. delta = 1e-6, one record replaced. Coverage is the mean over"
        " coefficients, flagged the share of runs with a warning."
    ),
    answer=(
        "114 of the 120 cells cover 93 to 97 %: all 60 with 20000 records, 54 with"
        " 5000, and all 86 in which no run was flagged. The other six, d = 10 and 20,"
        " are flagged in every run and cover 97.2 to 99.8 %. Where under half of the"
        " runs are flagged, widths at epsilon = 1 are 1.2 to 2.6 times the classical"
        " ones with 5000 records, 1.0 to 1.9 times with 20000."
    ),
    grid=cells(FAMILIES, n=(5000, 20000), d=(3, 5, 10, 20), epsilon=(0.5, 1.0, 3.0)),
    quick=cells(FAMILIES[::2], n=5000, d=3, epsilon=(1.0, 3.0)),
    replicates=400,
    quick_replicates=4,
    cell=cell,
    metrics=(
        Metric("coverage"),
        Metric("width", label="mean width"),
        Metric("classical", label="width without privacy (NOT PRIVATE)"),
        Metric("flagged", kind="rate", label="runs with a warning"),
    ),
    figures=(
        Figure(
            x="epsilon",
            y="coverage",
            lines="d",
            panels=("n", "loss"),
            where={"law": "model"},
            # Coverages below 0.9 would be worth a study of their own. There are none.
            level=0.95,
            y_limits=(0.9, 1.0),
            y_label="share of intervals that cover",
        ),
        Figure(
            x="epsilon",
            y="width",
            lines="d",
            panels=("n", "loss"),
            where={"law": "model"},
        ),
    ),
)
