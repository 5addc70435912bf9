"""Strongly convex losses, confidence and generalization: arXiv:2207.08347."""

import math
from functools import cache

import numpy as np

import dpsample as dps
from dpsample.core.streams import streams
from dpsample.experiments import Figure, Metric, Slope, Study
from dpsample.privacy import gdp_from_budget
from dpsample.problem.facts import PublicFacts

from ._linear_losses import Draws, points

DELTA, RIDGE, CONFIDENCE, MEAN = 1e-6, 1.0, 0.9, 0.5
DRAW, PLAIN = "one draw", "one draw, no ridge"
SURE = (DRAW, PLAIN)


def nominal_epsilon(params):
    """Epsilon that Theorems 5 and 6 claim where their true one is ``epsilon``."""
    gdp = gdp_from_budget(params["epsilon"], DELTA)
    return 0.5 * gdp * math.sqrt(-2.0 * math.log(2.0 * DELTA))


@cache
def plan(risk, n, d, epsilon):
    """Calibrated mechanism on the unit ball."""
    facts = PublicFacts(
        num_records=n,
        dim=d,
        row_bound=1.0,
        row_norm=2.0,
        loss=dps.losses.Linear(),
        domain=dps.domains.Ball(1.0),
    )
    return dps.calibrate(
        facts,
        dps.Budget(epsilon=epsilon, delta=DELTA),
        risk="population" if risk == "population" else "empirical",
        strong_convexity=0.0 if risk == PLAIN else RIDGE,
        confidence=CONFIDENCE if risk in SURE else None,
    )


def mechanism_of(params):
    """Mechanism of a cell."""
    return plan(*(params[name] for name in ("risk", "n", "d", "epsilon")))


def record_mean(params, rng):
    """Mean of n independent signs times e_1, each of mean MEAN."""
    heads = rng.binomial(params["n"], 0.5 * (1.0 + MEAN)) / params["n"]
    return (2.0 * heads - 1.0) * np.eye(params["d"])[0]


def batch(params, seeds):
    """Excess risks in closed form, one draw for each seed."""
    found, center = mechanism_of(params), MEAN * np.eye(params["d"])[0]
    if params["risk"] == "population":
        drawn, means = [], []
        for seed in seeds:
            records, pilot, chain = streams(seed, 3)
            means.append(record_mean(params, records))
            drawn.append(Draws(found, means[-1], pilot).draw(chain))
        away = np.array(drawn) - center
        # F_pop - F_D; the center itself would add no more than scatter.
        gap = ((np.array(means) - center) * away).sum(axis=1)
        return {"excess": 0.5 * (away**2).sum(axis=1), "gap": gap}
    away = points(found, center, seeds) - center
    excess = 0.5 * (away**2).sum(axis=1)
    if params["risk"] == PLAIN:
        excess = MEAN * (1.0 - MEAN) - away @ center  # the minimizer is e_1
    if params["risk"] not in SURE:
        return {"excess": excess}
    return {"beyond": np.where(excess > found.risk_bound, 1.0, 0.0)}


def bound(params):
    """Proved bound of the mean excess risk."""
    return mechanism_of(params).risk_bound


def printed_bound(params):
    """Theorems 5 and 6 at the epsilon that they claim, G = 1 and mu = RIDGE."""
    if params["risk"] in SURE:
        return math.inf
    item = "Theorem 6" if params["risk"] == "population" else "Theorem 5"
    sizes = {"n": params["n"], "d": params["d"], "epsilon": nominal_epsilon(params)}
    return dps.papers.bound("gopi", item)(**sizes, delta=DELTA, G=1.0, mu=RIDGE)


def gap_bound(params):
    """Corollary 1: G times 2 G/n over mu; one record moves n F by 2 G."""
    return 2.0 / (params["n"] * RIDGE)


def cells(**axes):
    """One mapping for the grid."""
    fixed = {"n": 10_000, "d": 10, "epsilon": 0.3}
    return {"risk": ("empirical", "population")} | fixed | axes


def answer(mean):
    """Words about a full run."""
    at = {"n": 10_000, "d": 10, "epsilon": 0.3}
    risk, gap = mean("excess", risk="empirical", **at), mean("gap", **at)
    beyond = max(mean("beyond", risk=kind, d=2, n=10_000) for kind in SURE)
    share = risk / bound(at | {"risk": "empirical"})
    return (
        f"Theorems 5 and 6 hold: the empirical excess is {share:.2f} of the bound, for"
        " parabolas a half, in every cell, and printed k are ours at the epsilon that"
        " is true of them. The generalization gap is (1 - 1/4)/n: at n = 10 000"
        f" {gap * 1e4:.2f}/n, below G^2/(n mu) as printed, which it attains for signs"
        f" of mean 0, and below 2 G^2/(n mu), which is proved. At most {beyond:.3f} of"
        " draws pass the bound that is stated with confidence 0.9."
    )


SIZES, DIMS, EPSILONS = (1000, 3000, 100_000), (2, 50), (0.1, 1.0)
study = Study(
    name="strong_convexity",
    title="Strongly convex losses, confidence, generalization",
    question=(
        "Theorems 5 and 6, Lemma 5 and Corollary 1 of arXiv:2207.08347, for losses -<s,"
        " x> + |x|^2/2 on the unit ball, signs s = +-e_1 of mean 1/2 (all share the"
        " ridge, so G = 1; Assumption 2 would say 2), one draw, true"
        " (epsilon, 1e-6), replace one. Is the mean excess risk below the bounds, ours"
        " and the printed ones at the epsilon that they claim (then k is the same, the"
        " largest that is private)? Is the population risk"
        " of a draw above the empirical one ('gap') by less than Corollary 1 allows,"
        " with the right sensitivity 2 G/n and with the printed G/n? Does one draw in"
        " ten at most pass the bound that `confidence=0.9` states, with the ridge and"
        " without it (Lemma 5 where it says more than the energy's own tail)?"
    ),
    answer=answer,
    grid=(
        cells(),
        cells(n=SIZES),
        cells(d=DIMS),
        cells(epsilon=EPSILONS),
        cells(risk=SURE, d=(2, 10, 50), n=(100, 10_000)),
    ),
    quick=(
        cells(n=(1000, 10_000)),
        cells(risk=SURE, d=(2, 50), n=100),
    ),
    batch=batch,
    replicates=1000,
    quick_replicates=100,
    block=200,
    metrics=(
        Metric(
            "excess",
            label="excess risk",
            bound=bound,
            printed=printed_bound,
            baseline=0.5 * MEAN**2,
        ),
        Metric(
            "gap",
            label="population minus empirical risk",
            bound=gap_bound,
            printed=lambda p: 1.0 / (p["n"] * RIDGE),
        ),
        Metric(
            "beyond",
            label="draws beyond the 0.9 bound",
            kind="rate",
            bound=1.0 - CONFIDENCE,
        ),
    ),
    figures=tuple(
        Figure(
            x=x,
            y="excess",
            lines="risk",
            where=fixed,
            x_label=label,
            title=f"Strongly convex losses, by {x}",
        )
        for x, fixed, label in (
            ("n", {"d": 10, "epsilon": 0.3}, "records n"),
            ("d", {"n": 10_000, "epsilon": 0.3}, "dimension d"),
            ("epsilon", {"n": 10_000, "d": 10}, "true epsilon"),
        )
    )
    + (
        Figure(
            x="n",
            y="gap",
            where={"risk": "population", "d": 10, "epsilon": 0.3},
            x_label="records n",
            title="Corollary 1: generalization of one draw",
        ),
    ),
    slopes=(
        Slope(
            x="n",
            y="excess",
            where={"risk": "empirical", "d": 10},
            expected=-2.0,
            theorem="Theorem 5: 1/n^2",
            tolerance=0.05,
        ),
        Slope(
            x="d",
            y="excess",
            where={"risk": "empirical", "n": 10_000},
            expected=1.0,
            theorem="Theorem 5: d",
            tolerance=0.05,
        ),
        Slope(
            x="n",
            y="gap",
            where={"d": 10},
            expected=-1.0,
            theorem="Corollary 1: 1/n",
            tolerance=0.05,
        ),
    ),
)
