"""Excess risk of private proximal descent: Corollaries 1 and 2 of Xie et al. (2022)."""

import math
from functools import cache

import numpy as np

import dpsample as dps
from dpsample.experiments import Figure, Metric, Slope, Study
from dpsample.problem.facts import PublicFacts

from . import _heavy_tailed as design

PENALTY, RADIUS = 0.05, 4.0
ZETA = 0.1  # failure probability of the corollaries
# Public facts of the design: the risk's largest curvature in any sample is below the
# first, the mean square of any column below the second.
SMOOTHNESS, MOMENT = 1.3, 1.2
ENTRY_BOUND = 20.0
FRANK_WOLFE = "HTDP-FW"
METHODS = ("DP-SPGD", "DP-SPGD(K)", "DP-SPGD(H)")


def clipped_sum(x):
    """Integral from 0 to x of the integral of Student's distribution function."""
    # Two degrees of freedom: F(x) = (1 + x/sqrt(2 + x^2))/2.
    root = np.sqrt(2.0 + x**2)
    return 0.25 * x**2 + 0.25 * x * root + 0.5 * np.arcsinh(x / math.sqrt(2.0))


def huber_increase(u):
    """E H(u + e) - E H(e), H the Huber loss of threshold 1, e Student with 2 degrees.

    The derivative E clip(u + e, -1, 1) is 1 minus the integral of P(e <= t) over t from
    -1 - u to 1 - u.
    """
    upper = clipped_sum(1.0 - u) - clipped_sum(np.array(1.0))
    return u + upper - clipped_sum(-1.0 - u) + clipped_sum(np.array(-1.0))


def excess_at(distance):
    """Excess Huber risk at a distance from the truth, features standard normal."""
    z = np.linspace(-9.0, 9.0, 2001)
    weights = np.exp(-0.5 * z**2)
    return float(huber_increase(distance * z) @ weights / weights.sum())


def penalized_risk(distance, size, weight):
    """Excess risk plus penalty."""
    return excess_at(distance) + weight * size


@cache
def minimum(weight):
    """Least penalized excess: by symmetry all signals shrink alike, others are 0."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda s: penalized_risk(s * design.SIGNAL, 10.0 * (1.0 - s), weight),
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(found.fun)


def domain_of(params):
    """Ball for proximal steps, or the l1 ball with the coefficients as vertex sums."""
    if params["method"] == FRANK_WOLFE:
        return dps.domains.Ball(10.0, p=1.0)
    return dps.domains.Ball(RADIUS)


def weight_of(params):
    """Weight of the penalty: Frank-Wolfe has a constraint instead."""
    return 0.0 if params["method"] == FRANK_WOLFE else PENALTY


def optimizer_of(params):
    """Batch size of the corollary, T = 5 n^2/m^2 steps."""
    n, p, method = params["n"], params["p"], params["method"]
    if method == FRANK_WOLFE:
        return dps.optimizers.HeavyTailedFrankWolfe(moment_bound=1.0, smoothness=1.0)
    if method == "DP-SPGD(K)":
        size = n ** (2 / 3) * p ** (7 / 6) * params["epsilon"] ** (-1 / 3)
    else:
        size = (n * p) ** (2 / 3) * params["epsilon"] ** (-1 / 3)
    size = min(round(size), n)
    return design.robust(
        method,
        p,
        MOMENT,
        batch_size=size,
        num_steps=math.ceil(5.0 * (n / size) ** 2),
        l1=PENALTY,
        smoothness=SMOOTHNESS,
    )


def budget_of(params):
    """Public budget; delta does not fall with n, so that slopes are those of n."""
    return dps.Budget(epsilon=params["epsilon"], delta=1e-6)


def bound(params):
    """Proved bound of the optimizer, infinite without one."""
    facts = PublicFacts(
        num_records=params["n"],
        dim=params["p"],
        loss=dps.losses.Huber(1.0),
        domain=domain_of(params),
        row_bound=ENTRY_BOUND,
        row_norm=math.inf,
        response_bound=math.inf,
    )
    inputs = optimizer_of(params).recipe(facts, budget_of(params)).inputs
    return float(inputs.get("risk_bound", math.inf))


def printed_bound(params):
    """Corollaries 1 (k = 2) and 2 with constant 1, at failure probability ZETA."""
    n, p, method = params["n"], params["p"], params["method"]
    if method not in ("DP-SPGD(K)", "DP-SPGD(H)"):
        return math.inf
    log, sure = -math.log(budget_of(params).delta), -math.log(ZETA)
    steps, signal = optimizer_of(params).num_steps, n * params["epsilon"]
    if method == "DP-SPGD(K)":
        private = p**1.5 * sure * math.sqrt(math.sqrt(p * log * steps) / signal)
    else:
        private = p * (log * steps) ** 0.25 * math.sqrt(sure / signal)
    return steps**-0.5 + private


def least(problem):
    """Least empirical risk plus penalty, by 60 proximal steps."""
    rows, y = problem.data.dense, problem.data.response
    theta = np.zeros(rows.shape[1])
    for _ in range(60):
        slopes = np.clip(rows @ theta - y, -1.0, 1.0)
        theta = theta - slopes @ rows / (len(y) * SMOOTHNESS)
        shrunk = np.maximum(np.abs(theta) - PENALTY / SMOOTHNESS, 0.0)
        theta = np.sign(theta) * shrunk
    return problem.risk(theta) + PENALTY * float(np.abs(theta).sum())


def cell(params, seed):
    """One fit, its exact excess population risk, and for H that of the records."""
    n, p = params["n"], params["p"]
    data_seed, run_seed = design.seeds_of(seed)
    rng = np.random.default_rng(data_seed)
    rows = rng.standard_normal((n, p))
    truth = np.zeros(p)
    truth[:10] = rng.choice([-1.0, 1.0], 10)
    errors = rng.standard_normal(n) / np.sqrt(rng.chisquare(2.0, n) / 2.0)
    problem = dps.Problem(
        rows,
        rows @ truth + errors,
        loss=dps.losses.Huber(1.0),
        domain=domain_of(params),
        row_bound=ENTRY_BOUND,
        row_norm=math.inf,
        response_bound=math.inf,
    )
    optimizer, budget = optimizer_of(params), budget_of(params)
    theta = dps.minimize(problem, optimizer, budget, seed=run_seed).theta
    weight, size = weight_of(params), float(np.abs(theta).sum())
    distance = float(np.linalg.norm(theta - truth))
    found = {"excess": penalized_risk(distance, size, weight) - minimum(weight)}
    if params["method"] == "DP-SPGD(H)":
        found["empirical"] = problem.risk(theta) + weight * size - least(problem)
    return found


def cells(sweep, sizes, dims):
    """One sweep; Frank-Wolfe has a rate in n, and log p."""
    return {
        "sweep": sweep,
        "n": sizes,
        "p": dims,
        "epsilon": 1.0,
        "method": (*METHODS, FRANK_WOLFE),
    }


study = Study(
    name="heavy_tailed_rates",
    title="Rates of private proximal descent with heavy tails",
    question=(
        "Corollaries 1 and 2 of Xie et al. (2022): excess risk of order p^(7/6)"
        " (n epsilon)^(-1/3) with medians (K, k = 2) and p^(2/3) (n epsilon)^(-1/3)"
        " with soft truncation (H), at their batch sizes and T = 5 n^2/m^2 steps."
        " Student errors with 2 degrees of freedom have no variance, but the Huber loss"
        " has gradients with second moment 1, so all assumptions hold; so do they in an"
        " l2 ball of radius 4, with an l1 penalty of 0.05. Noise is proved for"
        " (1, 1e-6). Plain clipping (DP-SPGD) runs with the batches of H; the paper has"
        " no rate for it. HTDP-FW minimizes over the l1 ball of radius 10, rate"
        " (n epsilon)^(-1/3) by Hu et al. (2022). Excess population risk is exact, by"
        " a one-dimensional integral. Bounds with constants: for HTDP-FW of that risk,"
        " for H of the records' own penalized risk: Theorem 1 with the error of H in"
        " its last term. Printed ones are Corollaries 1 and 2 with constant 1, stated"
        " with probability 0.9, not in the mean. Measured risks are far below all these"
        " bounds, which count noise linearly and forget the start like T^(-1/2). What"
        " is left of the start in the mean of the iterates falls like 1/T, which for H"
        " is p^(4/3) n^(-2/3), and noise enters squared: both fall faster with n and,"
        " until they meet the bound, grow faster with p than it does."
    ),
    answer=(
        "Measured excess is far below every bound and falls faster than it. H grows"
        " with the dimension faster than its bound does (2.00 against 2/3), at 1/50 to"
        " 1/1000 of it: a bound of another order of magnitude is no forecast of an"
        " exponent."
    ),
    grid=(
        cells("n", (4000, 8000, 16_000, 32_000, 64_000), 10),
        cells("p", 32_000, (10, 20, 40, 80)),
    ),
    quick=(cells("n", (4000, 16_000), 10), cells("p", 8000, (10, 40))),
    replicates=16,
    quick_replicates=4,
    cell=cell,
    paired=("method",),
    metrics=(
        Metric(
            "excess",
            label="population",
            bound=lambda p: bound(p) if p["method"] == FRANK_WOLFE else math.inf,
            printed=printed_bound,
        ),
        Metric("empirical", label="records", bound=bound),
    ),
    figures=tuple(
        Figure(
            x=x,
            y=("excess", "empirical"),
            lines="method",
            where={"sweep": x},
            x_label=label,
            y_label="excess risk plus penalty",
            title=title,
        )
        for x, label, title in (
            ("n", "records n", "Private proximal descent, p = 10"),
            ("p", "dimension p", "Private proximal descent, n = 32 000"),
        )
    ),
    slopes=(
        *(
            Slope(
                x="n",
                y="excess",
                where={"sweep": "n", "method": method},
                expected=-1.0 / 3.0,
                theorem=theorem,
            )
            for method, theorem in (
                ("DP-SPGD(K)", "Corollary 1, k = 2"),
                ("DP-SPGD(H)", "Corollary 2 and Remark 4"),
                (FRANK_WOLFE, "Hu et al. (2022)"),
            )
        ),
        *(
            Slope(
                x="p",
                y="excess",
                where={"sweep": "p", "method": method},
                expected=exponent,
                theorem=theorem,
                note="far below its bound; see the question",
            )
            for method, exponent, theorem in (
                ("DP-SPGD(K)", 7.0 / 6.0, "Corollary 1, k = 2"),
                ("DP-SPGD(H)", 2.0 / 3.0, "Corollary 2 and Remark 4"),
            )
        ),
    ),
)
