"""Figures 1 to 6 of Xu et al. (2026): their algorithms with their formulas."""

import numpy as np

import dpsample as dps
from dpsample.experiments import Figure, Metric, Study

from . import _clipped as clipped
from ._clipped_records import SIZES, load

METHODS = ("DP-SGD", "LNC-GM", "PNCA-SGD", "answer 0")


def method_of(params):
    """Return the published algorithm, and how its noise is chosen."""
    second, fourth = clipped.moments(params)
    if params["method"] == "LNC-GM":
        return dps.optimizers.LocalizedClippedGD(moment=fourth, order=4.0), "paper"
    if params["method"] == "PNCA-SGD":
        # Shuffled disjoint batches, one noise each, with 1 for the hidden constant.
        return dps.optimizers.AcceleratedClippedSGD(moment=second), "paper"
    clip = second or clipped.facts_of(params).lipschitz(2.0)
    return dps.optimizers.DPSGD(**clipped.SAMPLING, clip=clip), "exact"


def cell(params, seed):
    """One fit on n training records, its test risk, and the epsilon that is proved."""
    name, loss, size = params["data"], params["loss"], params["n"]
    draw, noise = seed.spawn(2)
    test = clipped.problem(name, "test", loss)
    zero = test.risk(np.zeros(test.facts.dim))
    if params["method"] == "answer 0":
        return {"risk": zero}
    features, response = load(name, "train")
    order = np.random.default_rng(draw).permutation(len(response))[:size]
    train = clipped.make_problem(name, loss, features[order], response[order])
    method, calibration = method_of(params)
    budget = clipped.budget_of(params)
    fit = dps.minimize(train, method, budget, calibration=calibration, seed=noise)
    proved = fit.certificate.epsilon_proved
    return {"risk": test.risk(fit.theta), "proved": proved}


def grid(names, epsilons, sizes):
    """Both sweeps: over epsilon at n = 10,000, over n at epsilon = 8."""
    cells = []
    for name in names:
        own = {"data": name, "loss": ("l4", "logistic"), "method": METHODS}
        num_kept = min(10_000, SIZES[name] // 2)
        cells.append(own | {"sweep": "epsilon", "n": num_kept, "epsilon": epsilons})
        if sizes:
            counts = (*sizes, SIZES[name])
            cells.append(own | {"sweep": "n", "n": counts, "epsilon": 8.0})
    return cells


def answer(mean):
    """Words about a full run."""
    at = {"sweep": "epsilon", "n": 10_000, "epsilon": 1.0}
    words = []
    for loss in ("l4", "logistic"):
        for name in tuple(SIZES)[:3]:
            risks = [
                f"{m} {mean('risk', **at, data=name, loss=loss, method=m):.3f}"
                for m in METHODS
            ]
            words.append(f"{loss} on {name}: {', '.join(risks)}")

    def epsilon_of(method, name, loss="logistic"):
        return mean("proved", **at, data=name, loss=loss, method=method)

    pnca = [f"{epsilon_of('PNCA-SGD', name):.2g} on {name}" for name in ("a9a", "w7a")]
    return (
        "Mean test risk at a nominal epsilon of 1 and n = 10,000."
        f" {'; '.join(words)}. Epsilon that is proved there, logistic loss: LNC-GM"
        f" {epsilon_of('LNC-GM', 'a9a'):.2f}, PNCA-SGD {' and '.join(pnca)}. The"
        " figures are not reproduced, because thresholds, domain, moments and step"
        " sizes are not published (figures-that-were-not-run)."
    )


def figure(x, sweep, title, y="risk", **options):
    """One panel for each data set and loss."""
    return Figure(
        x=x,
        y=y,
        lines="method",
        panels=("data", "loss"),
        where={"sweep": sweep},
        title=title,
        log_log=y != "risk",
        **options,
    )


study = Study(
    name="xu_figures",
    title="Clipped methods with published formulas",
    question=(
        "What do LNC-GM (Algorithm 3, every phase to its end) and PNCA-SGD (Algorithm"
        " 6, shuffled batches) give with their published formulas, next to DP-SGD?"
        " Figures 1 to 6 of Xu et al. (2026) have these data, losses, epsilon and n;"
        " delta = n^-1.1. Epsilon is nominal: the one that is put into the formulas."
        " The one that is proved of the noise stands next to it. The rest is ours: the"
        " unit ball, rows that are not normalized, declared moments, the failure"
        " probability 0.05, 1 for the constant that Algorithm 6 hides, and for DP-SGD"
        " 500 steps of 2 % of the records, whose nominal epsilon is proved. The loss of"
        " figures 1 to 3 is the fourth power (gradient-E21)."
    ),
    answer=answer,
    grid=grid(
        tuple(SIZES)[:3], (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0), (5000, 10_000, 20_000)
    ),
    quick=grid(("stand-in",), (1.0,), ()),
    replicates=lambda params: 2 if params["method"] == "answer 0" else 4,
    quick_replicates=2,
    cell=cell,
    metrics=(
        Metric("risk", label="test risk"),
        Metric("proved", label="epsilon, proved of the noise", kind="exact"),
    ),
    figures=(
        figure(
            "epsilon",
            "epsilon",
            "Figures 1 to 6, (a): privacy, n = 10,000",
            x_label="nominal epsilon",
        ),
        figure(
            "n",
            "n",
            "Figures 1 to 6, (b): records, nominal epsilon = 8",
            x_label="records n",
        ),
        figure(
            "epsilon",
            "epsilon",
            "Nominal and proved epsilon",
            y="proved",
            x_label="nominal epsilon",
        ),
    ),
    paired=("method", "epsilon", "sweep"),
    seed=61,
)
