"""Table 1 and Corollaries 2 to 4 of arXiv:2207.08347 on linear losses."""

import math
from functools import cache

import numpy as np

import dpsample as dps
from dpsample.experiments import Figure, Metric, Slope, Study
from dpsample.numerics.norms import dual, norm
from dpsample.privacy.curves.gaussian import gdp_from_budget
from dpsample.problem.facts import PublicFacts

from ._linear_losses import bound, fresh_points, points
from ._table1 import lower_bound, printed_bound

DELTA, SHARE = 1e-6, 0.1
NORMS = (1.0, 1.2, 1.5, 2.0, 3.0, math.inf)
N, SIZES = 100_000, (1000, 10_000, 100_000, 1_000_000)
# Where a bound says most: signals are those of the largest share of it in a pilot run.
COMMON = {
    "empirical": {"n": N, "d": 10, "epsilon": 0.3, "signal": 1.0},
    "population": {"n": N, "d": 10, "epsilon": 0.3, "signal": 0.5},
}
DIMS = {"empirical": (10, 20, 40, 80), "population": (10, 20, 40)}
EPSILONS = (0.1, 0.3, 1.0, 3.0)


def nominal_epsilon(params):
    """Epsilon that the printed k and mu claim where their true one is ``epsilon``.

    Their gdp is 2 epsilon/sqrt(2 log(1/(2 delta))) when one record is replaced (errata
    GLLST-E1 and -E2), for every p and both risks.
    """
    delta = (1.0 - SHARE) * DELTA
    if params["calibration"] == "exact":
        return params["epsilon"]
    gdp = gdp_from_budget(params["epsilon"], delta)
    return 0.5 * gdp * math.sqrt(-2.0 * math.log(2.0 * delta))


@cache
def _mechanism(risk, p, n, d, epsilon, calibration):
    facts = PublicFacts(
        num_records=n,
        dim=d,
        row_bound=1.0 + 1e-12,
        row_norm=dual(p),
        loss=dps.losses.Linear(),
        domain=dps.domains.Ball(1.0, p=p),
    )
    return dps.calibrate(
        facts,
        dps.Budget(epsilon=epsilon, delta=DELTA),
        p=p,
        risk=risk,
        calibration=calibration,
        sampler_share=SHARE,
    )


def mechanism(params):
    """Return the mechanism whose true epsilon is that of the cell."""
    names = ("risk", "p", "n", "d")
    kind = {"exact": "exact", "printed": "paper"}[params["calibration"]]
    return _mechanism(*(params[name] for name in names), nominal_epsilon(params), kind)


def risk_bound(params):
    """Bound of the mean excess risk."""
    return bound(mechanism(params))


def strength(params):
    """Dual norm of the mean: ``signal`` times the bound of the exact calibration."""
    return params["signal"] * risk_bound({**params, "calibration": "exact"})


def population_mean(params):
    """Mean of the records, towards the sharpest point of the l_p sphere."""
    p, d, size = params["p"], params["d"], strength(params)
    if p < 2.0:
        return size * np.eye(d)[0]
    return size * np.full(d, d ** (-1.0 / dual(p)))


def record_mean(params, rng):
    """Mean of n independent records: signs for p <= 2, one sign for p > 2.

    Rows are d^{-1/q} (+-1)^d, or +-e_J with J uniform: those of the lower bounds.
    """
    n, d, p = params["n"], params["d"], params["p"]
    mean = population_mean(params)
    if p <= 2.0:
        scale = d ** (-1.0 / dual(p))
        heads = rng.binomial(n, 0.5 * (1.0 + mean / scale))
        return scale * (2.0 * heads / n - 1.0)
    counts = rng.multinomial(n, np.full(d, 1.0 / d))
    heads = rng.binomial(counts, 0.5 * (1.0 + d * mean))
    return (2.0 * heads - counts) / n


def batch(params, seeds):
    """Excess risks in closed form, one draw for each seed."""
    mechanism_at, mean = mechanism(params), population_mean(params)
    if params["risk"] == "empirical":
        draws = points(mechanism_at, mean, seeds)
    else:
        draws = fresh_points(mechanism_at, lambda rng: record_mean(params, rng), seeds)
    excess = norm(mean, dual(params["p"])) - draws @ mean
    sizes = {"dim": params["d"], "width": params["d"]}
    exact = {
        "printed": printed_bound(
            params, epsilon=nominal_epsilon(params), delta=DELTA, **sizes
        ),
        "lower": lower_bound(params, mechanism_at.gdp, **sizes),
        "claimed": nominal_epsilon(params),
    }
    ones = np.ones(len(seeds))
    numbers = {name: value * ones for name, value in exact.items()}
    return {"excess": excess, "share": excess / risk_bound(params)} | numbers


def cells(risk, *, axis=None, values=(), p=NORMS, calibration="exact"):
    """Cells along one axis through the common one, which is left out without values."""
    axes = COMMON[risk] if axis is None else COMMON[risk] | {axis: values}
    return {"risk": risk, "p": p, **axes, "calibration": calibration}


def beside(risk, axis, values, p=NORMS):
    """Cells along one axis, without the common one."""
    rest = tuple(value for value in values if value != COMMON[risk][axis])
    return cells(risk, axis=axis, values=rest, p=p)


def where(risk, *free):
    """Return the common cell, but for some parameters."""
    fixed = {"risk": risk, **COMMON[risk], "calibration": "exact"}
    return {name: value for name, value in fixed.items() if name not in free}


def exponent(axis, values):
    """Exponent of the proved bound on the cells of an axis, as a function of them."""

    def slope(params):
        bounds = [risk_bound({**params, axis: value}) for value in values]
        return np.polyfit(np.log(values), np.log(bounds), 1)[0]

    return slope


def replicates(params):
    """Draws are cheap on fixed records; fresh ones are prepared anew."""
    if params["risk"] == "population":
        return 100
    return 300 if params["d"] < 80 else 150


def corollary(p):
    """Return the number of the corollary about l_p."""
    if p == 1.0:
        return 3
    return 2 if p <= 2.0 else 4


ON_CELLS = "expected: the exponent of the exact bound on these cells"
NEAR_SPHERE = ON_CELLS + (
    "; near a sphere the excess is (1 + (d-1)/s)/k, s from 1 (a vertex) to 2 (smooth)"
)


def slopes():
    """Every axis of Table 1, for every p."""
    axes = {
        "empirical": {"d": DIMS["empirical"], "n": SIZES[1:], "epsilon": EPSILONS},
        "population": {"d": DIMS["population"], "n": SIZES},
    }
    return tuple(
        Slope(
            x=axis,
            y="excess",
            where=where(risk, axis) | {"p": p},
            expected=exponent(axis, values),
            theorem=f"Theorem {number} behind Corollary {corollary(p)}",
            tolerance=0.05,
            note=NEAR_SPHERE if axis == "d" else ON_CELLS,
        )
        for number, (risk, each) in enumerate(axes.items(), start=3)
        for axis, values in each.items()
        for p in NORMS
    )


ENDS = (1.0, 2.0)
FULL = [
    *(cells(risk) for risk in COMMON),
    *(beside(risk, "d", DIMS[risk]) for risk in COMMON),
    beside("empirical", "n", SIZES[1:]),
    beside("population", "n", SIZES),
    beside("empirical", "epsilon", EPSILONS),
    beside("population", "epsilon", EPSILONS, p=ENDS),
    beside("empirical", "signal", (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)),
    beside("population", "signal", (0.125, 0.25, 0.5, 1.0, 2.0)),
    *(
        cells(risk, axis="epsilon", values=EPSILONS, p=ENDS, calibration="printed")
        for risk in COMMON
    ),
]
QUICK = [
    beside("empirical", "d", (10, 20)),
    *(cells(risk) for risk in COMMON),
    beside("population", "n", (10_000, 100_000), p=(1.0, 2.0, math.inf)),
    beside("empirical", "signal", (0.25, 4.0), p=(1.0, 2.0, math.inf)),
    *(cells(risk, p=ENDS, calibration="printed") for risk in COMMON),
]

study = Study(
    name="regularized_exponential",
    title="Table 1 of the regularized exponential mechanism",
    question=(
        "Records are vectors s of dual norm at most 1, losses are -<s, x> on the unit"
        " l_p ball, and one draw of the regularized exponential mechanism spends"
        " (epsilon, 1e-6) when one record is replaced. How far is the mean excess risk"
        " below the bound of Theorems 3 and 4 with the right constants, below the"
        " printed Corollaries 2 to 4, and above what any method must have? Data are as"
        " hard as they come: their mean points to the sharpest point of the ball, and"
        " its dual norm is `signal` times the proved bound. The lower bound holds for"
        " the worst convex set of the same diameter and every method that is as private"
        " in the sense of Gaussian differential privacy. Printed calibrations stand at"
        " the epsilon that is true of them; `claimed` is the one they claim."
    ),
    answer=(
        "Bounds with the right constants are nearly tight: on the hardest linear"
        " losses that we found the empirical excess is 68 % of the bound at p = 1, 64"
        " % at p = inf, 31 % at p = 2, and the population excess is within 2.4 to 3.7"
        " of it. Printed bounds are 1.1 to 2.1 (empirical) and 2.0 to 3.6 (population)"
        " times ours and still true here. The published calibration"
        " (docs/causes.md) at true epsilon 0.1, 0.3, 1, 3 claims 0.070, 0.197,"
        " 0.606, 1.659. At p = inf the measured excess grows like d and is 44 (d = 10)"
        " to 117 (d = 80) times the lower bound: the gap that the paper leaves open"
        " belongs to the mechanism, not to its analysis. The choice of mu that is best"
        " for the population bound regularizes too much: at p = 2, epsilon = 1 the"
        " printed one has 33 % less risk and a bound 6 % larger."
    ),
    grid=FULL,
    quick=QUICK,
    batch=batch,
    replicates=replicates,
    quick_replicates=20,
    metrics=(
        Metric("excess", label="mean excess risk", bound=risk_bound),
        Metric("share", label="excess risk / proved bound"),
        Metric("printed", label="printed bound", kind="exact"),
        Metric("lower", label="lower bound, worst set", kind="exact"),
        Metric("claimed", label="claimed epsilon", kind="exact"),
    ),
    figures=(
        Figure(
            x="d",
            y=("excess", "printed", "lower"),
            panels="p",
            where=where("empirical", "d"),
            title="Empirical risk, n = 100 000, epsilon = 0.3",
            x_label="dimension d",
            y_label="excess empirical risk",
        ),
        Figure(
            x="n",
            y=("excess", "printed", "lower"),
            panels="p",
            where=where("population", "n"),
            title="Population risk, d = 10, epsilon = 0.3",
            x_label="number of records n",
            y_label="excess population risk",
        ),
        Figure(
            x="signal",
            y="share",
            lines="p",
            panels="risk",
            where={"n": N, "d": 10, "epsilon": 0.3, "calibration": "exact"},
            title="How much of the bound is needed",
            x_label="dual norm of the mean / proved bound",
        ),
    ),
    slopes=slopes(),
    paired=("calibration",),
)
