"""Certified releases of logistic regressions beside Theorem 4 of arXiv:2207.08347."""

import itertools
import math
from functools import cache

import numpy as np

import dpsample as dps
from dpsample.experiments import Figure, Metric, Slope, Study
from dpsample.numerics.norms import dual
from dpsample.privacy.curves.gaussian import gdp_from_budget
from dpsample.problem.facts import PublicFacts

from ._linear_losses import bound
from ._table1 import printed_bound

DELTA, SHARE = 1e-6, 0.1
D, RADIUS = 6, 4.0
BELOW = 1.0 - 1e-14  # norms of rows are computed a little longer
NORMS, SIZES, EPSILONS = (
    (1.0, 1.5, 2.0, 3.0, math.inf),
    (1000, 4000, 16_000),
    (0.3, 1.0, 3.0),
)
SIGNS = np.array(list(itertools.product((-1.0, 1.0), repeat=D)))


def nominal_epsilon(params):
    """Epsilon that the printed k and mu claim where their true one is ``epsilon``.

    Their gdp is 2 epsilon/sqrt(2 log(1/(2 delta))): errata GLLST-E1 and -E2.
    """
    delta = (1.0 - SHARE) * DELTA
    if params["calibration"] == "exact":
        return params["epsilon"]
    gdp = gdp_from_budget(params["epsilon"], delta)
    return 0.5 * gdp * math.sqrt(-2.0 * math.log(2.0 * delta))


def options(params):
    """Budget and options of `calibrate` and `release`."""
    kind = {"exact": "exact", "printed": "paper"}[params["calibration"]]
    budget = dps.Budget(epsilon=nominal_epsilon(params), delta=DELTA)
    return budget, {"p": params["p"], "calibration": kind, "sampler_share": SHARE}


def public(p):
    """Loss, domain and bounds."""
    return {
        "loss": dps.losses.Logistic(),
        "domain": dps.domains.Ball(RADIUS, p=p),
        "row_bound": 1.0,
        "row_norm": dual(p),
    }


@cache
def _mechanism(items):
    params = dict(items)
    facts = PublicFacts(num_records=params["n"], dim=D, **public(params["p"]))
    budget, chosen = options(params)
    return dps.calibrate(facts, budget, **chosen)


def mechanism(params):
    """Return the mechanism of a cell."""
    return _mechanism(tuple(sorted(params.items())))


def population_bound(params):
    """Theorem 4; losses range over [-R, R]."""
    chosen = mechanism(params)
    return chosen.risk_bound + RADIUS * (bound(chosen) - chosen.risk_bound)


def empirical_bound(params):
    """Return mu Theta + d/k of Proposition 4, at the k and mu of Theorem 4."""
    chosen = mechanism(params)
    return chosen.mu * chosen.range_bound + D / chosen.k + 2.0 * RADIUS * chosen.gamma


def atoms(p):
    """Return the 64 possible rows, equally likely, of dual norm 1."""
    return BELOW * D ** (-1.0 / dual(p)) * SIGNS


def truth(p):
    """Coefficients half way to the sphere, which minimize the population risk."""
    return np.full(D, 0.5 * RADIUS * D ** (-1.0 / p))


def population_excess(p, theta):
    """Mean divergence of the labels' laws over the 64 rows: exact."""
    margins, true = atoms(p) @ theta, atoms(p) @ truth(p)
    positive = 1.0 / (1.0 + np.exp(-true))
    loss = np.logaddexp(0.0, margins) - positive * margins
    least = np.logaddexp(0.0, true) - positive * true
    return float(np.mean(loss - least))


def cell(params, seed):
    """One release on fresh records."""
    p, n = params["p"], params["n"]
    records, noise = seed.spawn(2)
    rng = np.random.default_rng(records)
    rows = atoms(p)[rng.integers(len(SIGNS), size=n)]
    labels = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-rows @ truth(p))), 1.0, -1.0)
    problem = dps.Problem(rows, labels, **public(p))
    budget, chosen = options(params)
    answer = dps.release(problem, budget, seed=noise, **chosen)
    best = dps.minimizer(problem, progress=False)
    printed = printed_bound(
        params | {"risk": "population"},
        dim=D,
        width=D,
        epsilon=nominal_epsilon(params),
        delta=DELTA,
    )
    return {
        "population": population_excess(p, answer.theta),
        "empirical": best.excess(problem.risk(answer.theta)) + best.gap,
        "plain": population_excess(p, best.theta),
        "gap": best.gap,
        "printed": RADIUS * printed,
        "claimed": nominal_epsilon(params),
    }


SWEEP = {"p": NORMS, "epsilon": 1.0, "calibration": "exact"}
LINE = {"p": 2.0, "n": 4000}


def exponent(params):
    """Exponent of the proved bound in n on the grid."""
    bounds = [population_bound({**params, "n": n}) for n in SIZES]
    return np.polyfit(np.log(SIZES), np.log(bounds), 1)[0]


study = Study(
    name="logistic_release",
    title="Certified releases of logistic regressions",
    question=(
        "Theorem 4 bounds the excess risk for the worst loss. Here the loss is the"
        " logistic one of 6 coefficients in an l_p ball of radius 4, the model is true"
        " and its coefficients are half way to the sphere. How much better is one"
        " certified draw than its bound, how much does privacy cost beside the"
        " non-private minimizer, and what do printed constants give at the epsilon that"
        " is true of them? The population risk is a sum over the 64 possible rows; the"
        " empirical one is compared with a minimum that a duality gap certifies, which"
        " is added to the excess."
    ),
    answer=(
        "Theorem 4 is for the worst loss; these records are not. Bounds of the"
        " population risk are 10 to 170 times too large and the excess falls like 1/n,"
        " not 1/sqrt(n). At epsilon = 1 privacy costs 4 to 22 times the excess of the"
        " minimizer without privacy. The printed choice of mu has less risk at epsilon"
        " = 3 (0.0021 against 0.0030) and more at 0.3 (0.0152 against 0.0134)."
    ),
    grid=(
        SWEEP | {"n": SIZES},
        LINE | {"epsilon": EPSILONS, "calibration": "printed"},
        LINE | {"epsilon": (0.3, 3.0), "calibration": "exact"},
    ),
    quick=(
        SWEEP | {"p": (1.0, 2.0, math.inf), "n": (1000, 2000)},
        SWEEP | {"p": 2.0, "n": 4000, "calibration": ("exact", "printed")},
    ),
    cell=cell,
    replicates=60,
    quick_replicates=10,
    metrics=(
        Metric("population", label="release", bound=population_bound),
        Metric("empirical", label="excess empirical risk", bound=empirical_bound),
        Metric("plain", label="non-private minimizer"),
        Metric("gap", label="certified gap of the minimum"),
        Metric("printed", label="printed bound", kind="exact"),
        Metric("claimed", label="claimed epsilon", kind="exact"),
    ),
    figures=(
        Figure(
            x="n",
            y=("population", "plain", "printed"),
            panels="p",
            where={"epsilon": 1.0, "calibration": "exact"},
            title="One release of 6 coefficients, epsilon = 1",
            x_label="number of records n",
            y_label="excess population risk",
        ),
        Figure(
            x="epsilon",
            y="population",
            lines="calibration",
            where=LINE,
            title="Calibrations at equal true epsilon",
            x_label="true epsilon",
            y_label="excess population risk",
        ),
    ),
    slopes=(
        Slope(
            x="n",
            y="population",
            where={"epsilon": 1.0, "calibration": "exact"},
            expected=exponent,
            theorem="arXiv:2207.08347, Theorem 4",
            note="an interior minimum with curvature: the worst case has none",
        ),
    ),
    paired=("calibration", "epsilon"),
)
