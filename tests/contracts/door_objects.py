"""Small valid objects that doors take, each built once."""

import dataclasses
from functools import cache

import numpy as np
import pandas as pd

import dpsample as dps
from dpsample import experiments, tables
from dpsample import privacy as P

ROWS = [[0.6, 0.8], [1.0, 0.0], [0.0, -1.0]]
LABELS = [1.0, -1.0, 1.0]
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
EVENT = P.GaussianEvent(0.5)
SHAPE = (2, 2)


def problem(**changes):
    """Logistic regression on three records; with changes, another problem."""
    arguments = {
        "features": ROWS,
        "response": LABELS,
        "loss": dps.losses.Logistic(),
        "domain": dps.domains.Ball(radius=1.0),
        "row_bound": 1.0,
    }
    return dps.Problem(**(arguments | changes))


the_problem = cache(problem)


@cache
def many_records():
    data = dps.datasets.logistic(600, 2, seed=1)
    return dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(50.0),
        row_bound=1.0,
    )


@cache
def facts():
    return dps.PublicFacts(
        num_records=1000,
        dim=2,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(radius=1.0),
        row_bound=1.0,
        row_norm=2.0,
    )


def facts_for(method):
    """Public facts that the optimizer of that name is made for."""
    changes = {}
    if method.startswith("HeavyTailed"):
        changes["domain"] = dps.domains.Ball(1.0, p=1.0)
    if method in ("HeavyTailedLasso", "AdaSSP"):
        changes |= {"loss": dps.losses.Squared(), "response_bound": 1.0}
    if method == "NoisyMirrorDescent":
        changes["domain"] = dps.domains.WholeSpace()
    return dataclasses.replace(facts(), **changes)


def budget_for(method):
    return None if method == "ProximalSGD" else BUDGET


@cache
def target():
    return dps.Gibbs(the_problem(), k=5.0, mu=1.0)


@cache
def likelihood():
    return dps.Gibbs(the_problem(), k=3.0, mu=1.0)


@cache
def draws():
    return dps.sample(target(), sampler="auto", num_draws=50, seed=1, progress=False)


@cache
def mechanism():
    return dps.calibrate(the_problem(), BUDGET, sampler_share=0.1)


@cache
def answer():
    return dps.release(the_problem(), BUDGET, seed=1)


@cache
def optimizer():
    return dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=1)


@cache
def fit():
    problem = the_problem()
    method = dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=20)
    return dps.minimize(problem, method, BUDGET, seed=1, evaluation=problem)


@cache
def additive():
    return dps.noise.gaussian_mechanism(BUDGET, sensitivity=1.0)


@cache
def report():
    return dps.audit(query, 0.0, 1.0, BUDGET, num_draws=200, seed=1, progress=False)


def query(data, rng, num_draws):
    return data + rng.normal(0.0, 5.0, num_draws)


@cache
def walk():
    return dps.samplers.RandomWalk(step_size=0.5)


@cache
def meetings():
    return dps.diagnostics.couplings.meeting_times(
        walk(), target(), lag=5, replicates=5, seed=1, max_steps=200
    )


@cache
def mixing():
    return dps.diagnostics.tv_bound(target(), walk(), lag=5, replicates=5, seed=1)


@cache
def ranks():
    return dps.diagnostics.simulation_based_calibration(
        likelihood(), walk(), num_replicates=20, num_draws=3, spacing=1, seed=1
    )


@cache
def growth():
    return dps.datasets.growth_regression(10, 2, seed=1)


@cache
def hard():
    return dps.datasets.tilted_signs(10, 2, seed=1)


@cache
def objective():
    return P.PerturbedObjective(
        lipschitz=1.0, smoothness=1.0, num_records=1000, ridge=0.1
    )


def ledger():
    return P.Ledger("replace_one", BUDGET)


def ledger_file():
    return P.LedgerFile("spent.json")


def rng():
    return np.random.default_rng(1)


def value_scalar(margin, response):
    return 0.0 * margin


@cache
def custom_loss():
    return dps.losses.custom(value_scalar, value_scalar, slope_bound=1.0)


def curve(order):
    return 0.1 * order


def gradient(row, response, theta, out):
    out[:] = theta - row


def cell(params, seed, data):
    return {"square": 1.0}


STUDY = {
    "name": "toy",
    "title": "A toy",
    "question": "Is it one?",
    "grid": {"n": (1, 2)},
    "metrics": (experiments.Metric("square"),),
    "replicates": 1,
    "cell": cell,
}


@cache
def study():
    return experiments.Study(**STUDY)


@cache
def schema():
    return tables.Schema(numeric={"age": (0.0, 100.0)})


@cache
def encoding():
    schema = tables.Schema(numeric={"x": (0.0, 2.0), "y": (-1.0, 1.0)})
    return tables.Encoding(schema=schema, target="y")


@cache
def frame():
    return pd.DataFrame({"x": [1.0, 2.0], "y": [0.5, 0.1]})


def write_files(folder):
    """Files that examples read."""
    answer().save(folder / "answer.json")
    fit().save(folder / "fit.json")
    mean = dps.stats.mean([0.5], (0.0, 1.0), BUDGET, seed=1)
    mean.save(folder / "statistic.json")
    (folder / "table.csv").write_text("x,y\n1,0.5\n2,0.1\n")
    (folder / "bounds.toml").write_text("[numeric]\nage = [0, 100]\n")
