"""One private mean of heavy-tailed vectors: Theorems 2 and 3 of Xie et al. (2022)."""

import math

import numpy as np

import dpsample as dps
from dpsample.experiments import Figure, Metric, Slope, Study
from dpsample.optimizers.algorithms import private_proximal_sgd
from dpsample.optimizers.loop.perturbations import full_batch

from . import _heavy_tailed as design

TAIL = 2.1  # index of the Pareto law: moments of smaller order are finite
ZETA = 0.1
# Larger than any entry: nothing is calibrated to it.
ENTRY_BOUND = 1e30


def budget_of(params):
    """Half an epsilon, so that privacy is most of the error."""
    return dps.Budget(epsilon=params["epsilon"], delta=1e-6)


def noise(params, record_bound):
    """Return the standard deviation of the proved noise of a coordinate."""
    given = {"record_bound": record_bound, "num_records": params["n"]}
    return full_batch(budget_of(params), **given).stddev


def widths(params):
    """Threshold of a method, and its number of buckets."""
    n, p, method = params["n"], params["p"], params["method"]
    unit, is_printed = noise(params, 1.0), params["widths"] == "printed"
    if method == "DP-SPGD":  # minimizes noise sqrt(p) C unit plus bias p/(4 C)
        return {"threshold": math.sqrt(0.25 * math.sqrt(p) / unit)}
    own = {"dim": p, "batch_size": n}
    if method == "DP-SPGD(H)":
        if is_printed:
            scale = private_proximal_sgd.printed_scale(
                budget_of(params),
                batch_size=n,
                moment_bound=1.0,
                failure_probability=ZETA,
            )
        else:
            scale = private_proximal_sgd.catoni_scale(
                multiplier=unit * n,
                moment_bound=1.0,
                precision=math.sqrt(math.log(1.0 / ZETA)),
                failure_probability=ZETA,
                **own,
            )
        return {"threshold": scale}
    buckets = 2 * math.ceil(1.5 * math.log(2.0 * p / ZETA))
    central = 2 * (buckets // 4) if method == "DP-SPGD(K) midmean" else 2
    if is_printed:
        buckets, central = buckets + 1, 1
        width = private_proximal_sgd.printed_width(budget_of(params), order=2.0, **own)
    else:
        width = private_proximal_sgd.median_width(
            multiplier=unit * n,
            ratio=buckets / central,
            moment_bound=1.0,
            order=2.0,
            **own,
        )
    return {"threshold": width, "num_buckets": buckets, "num_central": central}


def optimizer_of(params):
    """One step of size 1 from 0 down the linear loss: minus the private mean."""
    chosen = design.PRIVATE[params["method"]] | widths(params)
    return dps.optimizers.PrivateProximalSGD(
        smoothness=1.0, batch_size=params["n"], num_steps=1, **chosen
    )


def bound(params):
    r"""Bound of the mean error, for coordinates with E x = 0 and E x^2 <= 1.

    Root mean square about the truncated mean, plus the norm of the bias. A record that
    is clipped to C has bias at most p/(4 C), since (t - C)_+ <= t^2/(4 C). A coordinate
    clipped to w/2 has bias at most 1/(2 w); a bucket mean has variance at most Q/n.
    Half of all Q are as far out as their median or farther, so that twice their mean
    square bounds its square; for a mean of j central ones, Q/j times it does. The soft
    truncation: |psi(t) - t| <= t^2/2, |psi(t)| <= |t|, with t spread by 1 + 1/nu.
    """
    n, p, method = params["n"], params["p"], params["method"]
    given = widths(params)
    threshold = given["threshold"]
    if method == "DP-SPGD":
        bias, variance, record = 0.25 * p / threshold, p / n, threshold
    elif method == "DP-SPGD(H)":
        spread = 1.0 + 1.0 / math.sqrt(math.log(1.0 / ZETA))
        bias = 0.5 * math.sqrt(p) * spread / threshold
        variance = p * spread / n
        record = 2.0 * math.sqrt(2.0 * p) / 3.0 * threshold
    else:
        buckets, central = given["num_buckets"], given["num_central"]
        bias = 0.5 * math.sqrt(p) / threshold
        share = 2.0 if central <= 2 else buckets / central
        variance = share * p * buckets / n
        record = 0.5 * threshold * math.sqrt(p) * buckets / central
    return math.sqrt(variance + p * noise(params, record) ** 2) + bias


def cell(params, seed):
    """Error of the private mean of centered Pareto coordinates with variance 1."""
    n, p, tail = params["n"], params["p"], params["tail"]
    data_seed, run_seed = design.seeds_of(seed)
    mean = tail / (tail - 1.0)
    spread = math.sqrt(tail / (tail - 2.0)) / (tail - 1.0)
    draws = 1.0 + np.random.default_rng(data_seed).pareto(tail, (n, p))
    problem = dps.Problem(
        (draws - mean) / spread,
        np.ones(n),
        loss=dps.losses.Linear(),
        domain=dps.domains.WholeSpace(),
        row_bound=ENTRY_BOUND,
        row_norm=math.inf,
    )
    fit = dps.minimize(problem, optimizer_of(params), budget_of(params), seed=run_seed)
    return {"error": float(np.linalg.norm(fit.theta))}


def cells(sweep, sizes, dims, tails=TAIL):
    """Methods with widths of ours, and the printed ones where there are some."""
    shared = {"sweep": sweep, "n": sizes, "p": dims, "tail": tails, "epsilon": 0.5}
    return (
        shared | {"method": tuple(design.PRIVATE), "widths": "ours"},
        shared | {"method": ("DP-SPGD(K)", "DP-SPGD(H)"), "widths": "printed"},
    )


def dimension_exponent(params):
    """Power of p in the leading terms of Theorem 3, or of all others."""
    is_third = params["method"] == "DP-SPGD(H)" and params["widths"] == "printed"
    return 1.0 if is_third else 0.75


SIZES = (1000, 4000, 16_000, 64_000)
DIMS = (10, 20, 40, 80, 160)
TAILS = (2.1, 2.5, 3.0, 5.0, 10.0)

study = Study(
    name="heavy_tailed_means",
    title="Private means of heavy-tailed vectors",
    question=(
        "The robust gradient estimates of Xie et al. (2022) as estimators of a mean:"
        " centered Pareto coordinates of variance 1, tail index 2.1 (variance barely"
        " finite) and lighter, one release with proved noise, (0.5, 1e-6). Theorems 2"
        " (medians of buckets, K) and 3 (soft truncation, H) give exponents for k = 2"
        " moments. 'printed' widths"
        " are those of Corollary 1 and Algorithm 4, 'ours' minimize noise plus bias."
        " Plain clipping (DP-SPGD) at the threshold that minimizes its own bound has"
        " the exponents of both: the claim that clipping bias needs a robust estimator"
        " is not borne out. The upper bounds are proved in the study's file."
    ),
    answer=(
        "All errors are below the bounds and the theorems' exponents are there. Plain"
        " clipping has the smallest error at every tail index from 2.1 to 10, with"
        " slopes -0.49 in n and 0.74 in p. The printed scale of H costs p^1.00, a"
        " better one p^0.75."
    ),
    grid=(
        *cells("n", SIZES, 20),
        *cells("p", 10_000, DIMS),
        *cells("tail", 10_000, 20, TAILS),
    ),
    quick=(
        *cells("n", (1000, 16_000), 20),
        *cells("p", 4000, (10, 80)),
        *cells("tail", 4000, 20, TAILS[::2]),
    ),
    replicates=40,
    quick_replicates=6,
    cell=cell,
    paired=("method", "widths"),
    metrics=(Metric("error", label="l2 error of the mean", bound=bound),),
    figures=tuple(
        Figure(
            x=x,
            y="error",
            lines="method",
            panels="widths",
            where={"sweep": x},
            x_label=label,
            title=title,
        )
        for x, label, title in (
            ("n", "records n", "One private mean, p = 20"),
            ("p", "dimension p", "One private mean, n = 10 000"),
            ("tail", "tail index", "One private mean, n = 10 000, p = 20"),
        )
    ),
    slopes=(
        Slope(
            x="n",
            y="error",
            where={"sweep": "n"},
            expected=-0.5,
            theorem="Theorems 2 and 3; bound of this study",
            tolerance=0.05,
        ),
        Slope(
            x="p",
            y="error",
            where={"sweep": "p"},
            expected=dimension_exponent,
            theorem="Theorems 2 and 3; bound of this study",
            tolerance=0.2,
            note="log(p/zeta) in the number of buckets adds up to 0.2",
        ),
    ),
)
