"""What an effective draw costs: record evaluations where nothing has to be proved."""

import numpy as np

from dpsample.core.streams import streams
from dpsample.experiments import Figure, Inapplicable, Metric, Slope, Study
from dpsample.running.convergence import effective_size
from dpsample.samplers import (
    CoordinateHitAndRun,
    FactorizedMetropolis,
    LaplaceIndependence,
    Proximal,
    RandomizedSeries,
    TunaMH,
)

from . import _queries as queries
from ._queries import KINKS, SMOOTH

SERIES, ANCHORED = "series", "series, anchored"
THINNED, FULL, FACTORIZED = "thinned", "full batch", "factorized"
LAPLACE, COORDINATES, TUNA = "Laplace independence", "coordinates", "TunaMH"
# Each with the draws of a chain; a step of the series is very short.
SAMPLERS = {
    SERIES: (RandomizedSeries(max_steps=10**15), 100_000),
    ANCHORED: (RandomizedSeries(anchored=True, max_steps=10**15), 100_000),
    THINNED: (Proximal("thinned"), 4000),
    FULL: (Proximal(), 4000),
    LAPLACE: (LaplaceIndependence(), 2000),
    COORDINATES: (CoordinateHitAndRun(), 1000),
    FACTORIZED: (FactorizedMetropolis(), 10_000),
    TUNA: (TunaMH(), 20_000),
}
NUM_CHAINS = 2


def cell(params, seed):
    """Count evaluations per effective draw of chains that start at the mode."""
    records, pilot, *chains = streams(seed, 2 + NUM_CHAINS)
    density, _ = queries.target(params, records)
    sampler, number = SAMPLERS[params["sampler"]]
    prepared, kept, read = sampler.prepare(density, pilot), [], 0.0
    for rng in chains:
        state = prepared.init()
        # The first fifth of the draws is thrown away and not counted.
        queries.walk(prepared, state, rng, int(0.2 * number))
        draws, evaluations = queries.walk(prepared, state, rng, number)
        kept.append(draws)
        read += evaluations
    points, total = np.array(kept), NUM_CHAINS * number
    size = effective_size(points)
    result = {"evaluations": read / size, "step": read / total, "draws": total / size}
    if isinstance(sampler, Proximal):
        h = prepared.trial.step
        result["proved"] = (2.0 + h) / h * read / total
        result["shrinkage"] = (1.0 + h) * lag_one(points)
    return result


def lag_one(draws):
    """Autocorrelation at lag 1, averaged over coefficients and chains."""
    centered = draws - draws.mean(axis=1, keepdims=True)
    products = np.sum(centered[:, 1:] * centered[:, :-1], axis=1)
    return float(np.mean(products / np.sum(centered**2, axis=1)))


COMMON = {"d": 5, "p": 2.0, "epsilon": 1.0}
SMOOTH_ONES = (THINNED, FULL, LAPLACE, FACTORIZED)
KINKED_ONES = (THINNED, FULL, COORDINATES, TUNA)
SIZES = (100, 316, 1000, 3162, 10_000)
EPSILONS = (0.125, 0.25, 0.5, 2.0, 4.0, 8.0)


def sweep(records, samplers, **values):
    """Cells of one kind of records."""
    return COMMON | {"records": records, "sampler": samplers} | values


def slope(sampler, records, expected, theorem, **options):
    """Exponent in the number of records."""
    where = COMMON | {"sampler": sampler, "records": records}
    options = {"tolerance": 0.15} | options
    return Slope(
        x="n",
        y="evaluations",
        where=where,
        expected=expected,
        theorem=theorem,
        **options,
    )


study = Study(
    name="effective_queries",
    title="Record evaluations of an effective draw",
    question=(
        "The targets of the study query_complexity, without a proof: how many losses or"
        " slopes of single records does a sampler evaluate per effective draw? That is"
        " the smaller one of the effective sample sizes of theta and of"
        " (theta - mean)^2, at the worst coefficient. The bound is that of a chain"
        " whose operator shrinks every function of mean 0 by 1 + h, h the step in the"
        " metric in which the energy is 1-strongly convex: (2 + h)/h steps."
        " Chains of the series hold a handful of effective draws at n = 100: its cost"
        " there is a lower bound rather than an estimate."
    ),
    answer=(
        "Without a proof draws are cheap. Logistic losses: factorized Metropolis"
        " reads 0.35 to 1.1 records per effective draw for n from 100 to 10 000 (14 at"
        " d = 50) and wins everywhere, Laplace independence reads 1.1 passes, full-"
        " batch proximal draws 3 to 8. Kinks: TunaMH reads 3300 to 3500 records from"
        " n = 316 on, and 2300 at n = 100; fewer than coordinate hit-and-run from"
        " n = 200 on and below d = 12. With kinks the certificate is 20 000 times too"
        " careful at n = 10 000: it ignores what kinks add to the convexity."
    ),
    grid=(
        sweep(SMOOTH, SERIES, n=(30, 100)),
        sweep(KINKS, SERIES, n=(30, 100)),
        sweep(SMOOTH, ANCHORED, n=(30, 100)),
        sweep(SMOOTH, SMOOTH_ONES, n=SIZES),
        sweep(KINKS, KINKED_ONES, n=SIZES),
        sweep(SMOOTH, SMOOTH_ONES, n=1000, epsilon=EPSILONS),
        sweep(KINKS, KINKED_ONES, n=1000, epsilon=EPSILONS),
        sweep(SMOOTH, SMOOTH_ONES, n=1000, d=(2, 10, 20, 50)),
        sweep(KINKS, KINKED_ONES, n=1000, d=(2, 10, 20, 50)),
    ),
    quick=(
        sweep(SMOOTH, SMOOTH_ONES, n=(100, 1000)),
        sweep(KINKS, KINKED_ONES, n=(100, 1000)),
    ),
    replicates=4,
    quick_replicates=lambda p: 1 if p["sampler"] == TUNA else 2,
    cell=cell,
    paired=("sampler", "epsilon"),
    metrics=(
        Metric(
            "evaluations",
            label="evaluations per effective draw",
            bound="proved",
            # The smallest of ten estimates of effective sizes.
            tolerance=0.1,
        ),
        Metric("step", label="evaluations per draw"),
        Metric("draws", label="draws per effective draw"),
        Metric("proved", label="bound from the step"),
        Metric("shrinkage", label="lag-1 autocorrelation, times 1 + h", bound=1.0),
    ),
    inapplicable=(
        Inapplicable(
            when=lambda params: params["sampler"] not in (THINNED, FULL),
            reason="the contraction is that of exact conditional draws",
        ),
        Inapplicable(
            when=lambda params: params["d"] > 5,
            reason=(
                "the worst of many estimates of effective sizes is too small; the"
                " autocorrelation at lag 1 checks the same bound"
            ),
            metrics=("evaluations",),
        ),
    ),
    figures=(
        Figure(
            x="n",
            y="evaluations",
            lines="sampler",
            panels="records",
            where=COMMON,
            title="Evaluations per effective draw, d = 5, epsilon = 1",
            x_label="number of records n",
        ),
        Figure(
            x="d",
            y="evaluations",
            lines="sampler",
            panels="records",
            where={"n": 1000, "epsilon": 1.0},
            title="Evaluations per effective draw, n = 1000, epsilon = 1",
            x_label="dimension d",
            bound=False,
        ),
        Figure(
            x="epsilon",
            y="evaluations",
            lines="sampler",
            panels="records",
            where={"n": 1000, "d": 5},
            title="Evaluations per effective draw, n = 1000, d = 5",
            bound=False,
        ),
    ),
    slopes=(
        slope(
            SERIES,
            KINKS,
            2.0,
            "steps of h ~ 1 / (k G)^2, m fixed, 10.9 values each",
            note="two sizes, and too few effective draws at the larger one",
        ),
        slope(LAPLACE, SMOOTH, 1.0, "a pass for each proposal, most are accepted"),
        slope(TUNA, KINKS, 0.0, "arXiv:2006.11677: chi (C M)^2 + C M, M ~ 1/C"),
    ),
)
