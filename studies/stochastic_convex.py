"""Excess risk of private stochastic convex optimization: arXiv:1908.09970."""

import math
from functools import cache

import numpy as np

import dpsample as dps
from dpsample.experiments import Figure, Metric, Slope, Study
from dpsample.problem.facts import PublicFacts

from . import _convex_methods as methods
from ._sign_bounds import corner_floor, minimax

BELOW = 1.0 - 1e-14  # rows of norm 1 are computed a little longer
EASY = 0.5
PRINTED_GD = dps.optimizers.NoisyGD()
PRINTED_TILT = dps.optimizers.ApproximateObjectivePerturbation()
# "noisy SGD" is the paper's name of Algorithm 1, by which the seeds of the cells are
# made. It runs over all records: NoisyGD.
PLANS = {
    "noisy SGD": methods.noisy_gd,
    "objective perturbation": methods.run_perturbed_objective,
    "two halves": methods.run_with_halves,
    "noisy SGD, printed": lambda *given: methods.run_as_printed(PRINTED_GD, *given),
    "two halves, printed": lambda *given: methods.run_as_printed(PRINTED_TILT, *given),
}
PRIVATE, NO_PRIVACY = tuple(PLANS)[:3], "minimum, no privacy"


@cache
def facts_of(n, d):
    """-<w, x> on the unit ball, |x| <= 1: M = L = 1."""
    return PublicFacts(
        num_records=n,
        dim=d,
        loss=dps.losses.Linear(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        row_norm=2.0,
        response_bound=1.0,
    )


def bound(params):
    """Proved bound; the empirical minimizer's is twice E |mean x - E x|."""
    if params["method"] == NO_PRIVACY:
        return 2.0 / math.sqrt(params["n"])
    return plan(params).bound


def plan(params):
    """Optimizer, budget and bounds of a private method."""
    facts = facts_of(params["n"], params["d"])
    return PLANS[params["method"]](facts, params["epsilon"])


def signal_of(params):
    """Return the standard deviation of a coordinate's mean, times sqrt(d)."""
    if params["law"] == "easy":
        return EASY
    return params.get("signal", 1.0) * methods.hard(*place(params))


def place(params):
    """Sizes and epsilon."""
    return params["n"], params["d"], params["epsilon"]


def floor_of(params, *, signal=None, is_gaussian=False):
    """Lower bound at the cell's own law, or over all laws without a signal."""
    n, d, epsilon = place(params)
    is_private = params["method"] != NO_PRIVACY
    budget = methods.budget_of(epsilon) if is_private else None
    given = {"n": n, "d": d, "budget": budget, "is_gaussian": is_gaussian}
    if signal is None:
        return minimax(corner_floor, **given)
    return float(corner_floor(signal, **given))


@cache
def worst(*cell):
    """Lower bounds over all laws, for (eps, delta) and for Gaussian privacy."""
    params = dict(cell)
    return floor_of(params), floor_of(params, is_gaussian=True)


def cell(params, seed):
    """Fresh records of a fresh law, one run, its exact excess population risk."""
    n, d = params["n"], params["d"]
    data, noise = seed.spawn(2)
    rng = np.random.default_rng(data)
    size = 0.5 * (signal_of(params) ** -2 - 1.0)
    means = 2.0 * rng.beta(size, size, d) - 1.0
    rows = np.where(rng.random((n, d)) < 0.5 * (1.0 + means), 1.0, -1.0)
    rows *= BELOW / math.sqrt(d)
    problem = dps.Problem(
        rows,
        np.ones(n),
        loss=dps.losses.Linear(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        response_bound=1.0,
    )
    results = {}
    if params["method"] == NO_PRIVACY:  # the risk is linear
        slope = rows.mean(axis=0)
        theta = slope / np.linalg.norm(slope)
        results["gap"] = np.linalg.norm(slope) - theta @ slope
    else:
        run = plan(params)
        theta = dps.minimize(
            problem, run.optimizer, run.budget, calibration=run.calibration, seed=noise
        ).theta
    results |= {"excess": (np.linalg.norm(means) - theta @ means) / math.sqrt(d)}
    keys = ("n", "d", "epsilon", "method")
    every, gaussian = worst(*((key, params[key]) for key in keys))
    results["minimax"] = every
    if params["method"].startswith("noisy SGD"):
        results["gaussian"] = gaussian
    return results


def cells(sweep, **axes):
    """One mapping for the grid."""
    fixed = {"law": "hard", "epsilon": 1.0, "method": PRIVATE}
    return {"sweep": sweep} | fixed | axes


LAWS = ("hard", "easy")
FOUR = (*PRIVATE, NO_PRIVACY)
FIVE = tuple(PLANS)
EPSILONS = (0.1, 0.2, 0.5, 1.0)
SIGNALS = (0.1, 0.3, 1.0, 3.0, 10.0)
GRID = (
    cells("n", law=LAWS, d=4, n=(3000, 10_000, 30_000, 100_000), method=FOUR),
    cells("n", law=LAWS, d=1024, n=(1000, 2000, 4000), method=FOUR),
    cells("d", d=(16, 64, 256, 1024, 4096), n=1000),
    cells("epsilon", epsilon=EPSILONS, n=4000, d=256, method=FIVE),
    cells("signal", n=30_000, d=4, signal=(*SIGNALS, 30.0)),
    cells("signal", n=4000, d=256, signal=SIGNALS),
)
QUICK = (
    cells("n", law=LAWS, d=4, n=(3000, 10_000)),
    cells("d", d=(16, 64), n=1000),
    cells("epsilon", epsilon=(0.2, 1.0), n=4000, d=256, method=FIVE),
    cells("signal", n=1000, d=(4, 64), signal=(0.3, 1.0, 3.0)),
)
THEOREMS = "Theorems 3.2, 5.3, 5.7"
THEORY = ("excess", "minimax", "gaussian")
LOWER_ORDER = 0.15
SHORT = (
    "the noise of the output has length 0.1 at d = 16 and costs its square there; at"
    " d = 4096 it is longer than the ball's radius"
)


study = Study(
    name="stochastic_convex",
    title="Private stochastic convex optimization",
    question=(
        "Is the excess population risk of Algorithms 1 (noisy SGD), 2 (objective"
        " perturbation) and 3 (two halves of the budget) of Bassily et al."
        " (arXiv:1908.09970) of the order M L max(1/sqrt(n), sqrt(d)/(eps n)), and how"
        " far from bounds and lower bounds? Losses are -<w, x> on the unit ball (M = L"
        " = 1) and x has independent signs over sqrt(d). All runs have the same true"
        " (eps, 1e-10). The hard law's signal is as small as what an algorithm cannot"
        " see, sqrt(1/n + 4 d/(n t)^2), t the gdp of the budget; the easy one's is"
        " 1/2. Excess risks are exact. Lower bound: the least mean, at the law itself,"
        " of any (eps, delta)-private algorithm; 0 is not drawn. Minimax: the same at"
        " the law that is worst for all of them, or for all with a Gaussian trade-off."
        " Printed constants run at the nominal epsilon at which the true one is eps;"
        " printed bounds ask for eps <= 1 and delta <= 1/n^2."
    ),
    answer=(
        "No proved bound is contradicted, and on its hardest law noisy SGD reaches"
        " half of its bound. Exponents of the theorems belong to that law: on an easy"
        " one slopes in n are -0.9 to -1.3 and bounds are up to 580 times too large."
        " Where privacy dominates, objective perturbation errs 1.7 times less than"
        " noisy SGD, although its bound is larger. At equal true epsilon = 1 printed"
        " constants cost noisy SGD 38 % more risk and Algorithm 3 30 %; halves of the"
        " budget cost 1.8 times the risk of a 99 to 1 split. The lower bound here has"
        " proved constants; at n = 1000, d = 4096, epsilon = 1 it is 0.09 for methods"
        " with a Gaussian trade-off, where noisy SGD measures 0.39 and its bound is"
        " 0.75."
    ),
    grid=GRID,
    quick=QUICK,
    replicates=lambda p: 200 if p["d"] <= 16 else 24,
    quick_replicates=10,
    cell=cell,
    metrics=(
        Metric(
            "excess",
            label="excess population risk",
            bound=bound,
            lower=lambda p: floor_of(p, signal=signal_of(p)),
            printed=lambda p: (
                math.inf if p["method"] == NO_PRIVACY else plan(p).printed
            ),
        ),
        Metric("gap", label="duality gap of the minimum", bound=1e-12),
        Metric("minimax", label="minimax lower bound", kind="exact"),
        Metric("gaussian", label="the same, Gaussian privacy", kind="exact"),
    ),
    figures=(
        Figure(
            x="signal",
            y="excess",
            lines="method",
            panels=("n", "d"),
            where={"sweep": "signal"},
            title="Which law is hardest?",
            x_label="signal of the law / that of the hard law",
        ),
        Figure(
            x="n",
            y="excess",
            lines="law",
            panels="method",
            where={"sweep": "n", "d": 4},
            title="The hard law and an easy one, d = 4, eps = 1",
            x_label="records n",
        ),
        Figure(
            x="d",
            y=THEORY,
            panels="method",
            where={"sweep": "d"},
            title="Hard law, n = 1000, eps = 1",
            x_label="dimension d",
            y_label="excess population risk",
        ),
        Figure(
            x="epsilon",
            y=THEORY,
            panels="method",
            where={"sweep": "epsilon"},
            title="Hard law, n = 4000, d = 256",
            x_label="true epsilon",
            y_label="excess population risk",
        ),
    ),
    slopes=(
        *(
            Slope(
                x="n",
                y="excess",
                where={"sweep": "n", "law": "hard", "d": 1024, "method": method},
                expected=-1.0,
                theorem=f"{THEOREMS}: sqrt(d)/(eps n)",
                tolerance=LOWER_ORDER,
                note="1/sqrt(n) is not gone yet",
            )
            for method in PRIVATE
        ),
        Slope(
            x="n",
            y="excess",
            where={"sweep": "n", "law": "hard", "d": 4},
            expected=-0.5,
            theorem=f"{THEOREMS}: 1/sqrt(n)",
        ),
        Slope(
            x="n",
            y="excess",
            where={"sweep": "n", "law": "easy", "d": 4},
            expected=-0.5,
            theorem=f"{THEOREMS}: 1/sqrt(n)",
            note="the exponent is that of the worst law; for a fixed one it is near -1",
        ),
        *(
            Slope(
                x="d",
                y="excess",
                where={"sweep": "d", "method": method},
                expected=0.5,
                theorem=f"{THEOREMS}: sqrt(d)/(eps n)",
                note=SHORT if method == "two halves" else "",
            )
            for method in PRIVATE
        ),
        Slope(
            x="epsilon",
            y="excess",
            where={"sweep": "epsilon"},
            expected=-1.0,
            theorem=f"{THEOREMS}: sqrt(d)/(eps n)",
            tolerance=LOWER_ORDER,
            note="gdp grows more slowly than eps, and 1/sqrt(n) is left",
        ),
    ),
    paired=("method",),
)
