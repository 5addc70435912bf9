"""Test loss of the estimators' defaults, against tuned methods and diffprivlib.

An estimator gets the raw table and its public bounds; a9a has zeros and ones and a
public row length. "tuned" is the best of the tail and objective perturbation, with and
without a capped loss, and of radii, on the same rows, chosen by test loss: nobody may
do that. diffprivlib has its defaults, the same rows and bounds, and its own epsilon
(delta is 0). Regressions have squared or Huber losses of responses in [-1, 1].
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

import dpsample as dps
from dpsample import estimators
from dpsample.datasets.catalog import VARIABLE, catalog, public_schema

DELTA, EPSILONS, PILOTS, FINALISTS, SEED = 1e-6, (0.5, 1.0, 3.0), 2, 3, 20261123
RADII = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # for rows of length 1 at most
BOUND = 14**0.5 * (1.0 + 1e-12)  # of rows of a9a
METHODS = ("tail", "objective")
WIDTH = 0.2  # of the Huber loss: a tenth of the response's range, its default
LOSSES = {
    "LogisticRegression": [dps.losses.Logistic()],
    "HuberRegressor": [dps.losses.Huber(WIDTH)],
    "Ridge": [dps.losses.Squared(), dps.losses.Huber(2.0)],
}
# Set, target and training records; classes, or the public range of the response:
# dollars a week, thousands of dollars.
SETS = {
    "adult": ("adult", "income", 0, ("<=50K", ">50K")),
    "a9a": ("a9a", "", 0, (-1.0, 1.0)),
    "magic04": ("magic04", "class", 12_000, ("g", "h")),
    "k401ksubs": ("k401ksubs", "e401k", 7000, (0, 1)),
    "wages": ("cps1988", "wage", 20_000, (0.0, 2000.0)),
    "assets": ("k401ksubs", "nettfa", 7000, (-100.0, 300.0)),
}
CASES = [(name, "LogisticRegression") for name in list(SETS)[:4]]
CASES += [(name, model) for name in list(SETS)[4:] for model in list(LOSSES)[1:]]
PEER = """
import sys, warnings
import numpy as np
from diffprivlib import models
warnings.simplefilter("ignore")
task, out = np.load(sys.argv[1]), []
for epsilon in task["epsilons"]:
    for seed in range(task["runs"]):
        facts = {"epsilon": epsilon, "random_state": seed}
        if task["is_label"]:
            model = models.LogisticRegression(data_norm=1.0, **facts)
        else:
            ends = task["lower"], task["upper"]
            model = models.LinearRegression(bounds_X=ends, bounds_y=(-1, 1), **facts)
        model.fit(task["rows"], task["y"])
        out.append([*np.ravel(model.coef_), *np.ravel(model.intercept_)])
np.save(sys.argv[2], out)
"""


class Case(NamedTuple):
    """Raw tables and responses, and what a user tells an estimator."""

    train: tuple[Any, Any]
    test: tuple[Any, Any]
    model: str
    ends: tuple[Any, Any]
    options: dict[str, Any]

    @property
    def is_label(self) -> bool:
        """Whether classes are predicted."""
        return self.model == "LogisticRegression"

    def response(self, y: Any) -> Any:
        """Labels -1 and 1, or clipped responses in [-1, 1]."""
        if self.is_label:
            return np.where(y == self.ends[1], 1.0, -1.0)
        return np.clip(self.unit(np.asarray(y)), -1.0, 1.0)

    def unit(self, y: Any) -> Any:
        """Move the public range of a response to [-1, 1]."""
        return 2.0 * (y - self.ends[0]) / (self.ends[1] - self.ends[0]) - 1.0

    def judge(self, margins: Any) -> tuple[float, float]:
        """Mean test loss; accuracy or R^2."""
        y = self.response(self.test[1])
        errors = np.abs(margins - y)
        if self.is_label:
            right = float(((margins >= 0.0) == (y > 0.0)).mean())
            return float(np.logaddexp(0.0, -y * margins).mean()), right
        losses = errors**2
        score = 1.0 - float(losses.mean() / y.var())
        if self.model == "HuberRegressor":
            tails = WIDTH * (errors - 0.5 * WIDTH)
            losses = np.where(errors <= WIDTH, 0.5 * losses, tails)
        return float(losses.mean()), score


def table(name: str, target: str, split: str) -> tuple[Any, Any]:
    """Raw records of a set, in a fixed random order, and their responses."""
    if name == "a9a":
        data = dps.datasets.load(name, split=split)
        return csr_array(data.features) * 14**0.5, data.response
    schema, file = public_schema(name), catalog()[name].files[split]["name"]
    path = next(Path(os.environ[VARIABLE]).rglob(f"{file}*"))
    lines = {"names": schema.columns, "comment": "|"} if schema.columns else {}
    frame = pd.read_csv(path, skipinitialspace=True, **lines)
    frame = frame.sample(frac=1.0, random_state=SEED)
    y = frame[target].str.rstrip(".") if name == "adult" else frame[target]
    return frame[[name for name in schema.declared if name != target]], y


def case_of(name: str, model: str) -> Case:
    """Load a data set; without a test set, learn from the first records."""
    source, target, size, ends = SETS[name]
    train = table(source, target, "train")
    test = tuple(p[size:] for p in train) if size else table(source, target, "test")
    train = tuple(p[:size] for p in train) if size else train
    options = (
        {"row_bound": BOUND} if name == "a9a" else {"bounds": public_schema(source)}
    )
    options |= {"classes" if model == "LogisticRegression" else "response_range": ends}
    return Case(train, test, model, ends, options)


def default(case: Case, epsilon: float, seed: int) -> Any:
    """Test loss and score of an estimator as shipped, and the estimator."""
    kind = getattr(estimators, f"Private{case.model}")
    model = kind(epsilon=epsilon, delta=DELTA, random_state=seed, **case.options)
    model.fit(*case.train)
    if case.is_label:
        return case.judge(model.decision_function(case.test[0])), model
    return case.judge(case.unit(model.predict(case.test[0]))), model


def tuned(case: Case, rows: Any, tested: Any, epsilon: float, runs: int) -> Any:
    """Test losses of the best of all methods and radii, and which it is."""
    budget = dps.Budget(epsilon=epsilon, delta=DELTA)
    facts = {"row_bound": 1.0, "intercept": True, "clip_rows": True}
    facts |= {} if case.is_label else {"response_bound": 1.0}

    def problem(radius: float, loss: Any) -> dps.Problem:
        y, domain = case.response(case.train[1]), dps.domains.Ball(radius)
        return dps.Problem(rows, y, loss=loss, domain=domain, **facts)

    def losses(plan: Any, number: int) -> Any:
        radius, row = plan
        options = {"num_replicates": number, "seed": SEED, "threads": 1}
        fitted = problem(radius, row.loss)
        found = dps.replicate(dps.minimize, fitted, row.choice, budget, **options)
        return np.array([case.judge(tested @ t[:-1] + t[-1])[0] for t in found.thetas])

    plans = []
    for radius, loss in product(RADII, LOSSES[case.model]):
        table = dps.advise(problem(radius, loss), budget).table
        plans += [(radius, row) for row in table if row.method in METHODS]
    plans.sort(key=lambda plan: losses(plan, PILOTS).mean())
    finals = [(losses(plan, runs), *plan) for plan in plans[:FINALISTS]]
    values, radius, row = min(finals, key=lambda final: final[0].mean())
    return values, f"{row.method}, {row.loss.name}, {radius:g}"


def peers(case: Case, rows: Any, encoding: Any, given: argparse.Namespace) -> Any:
    """Coefficients and intercepts of diffprivlib's defaults, by epsilon and run."""
    task = {"rows": rows, "y": case.response(case.train[1]), "epsilons": EPSILONS}
    if not case.is_label:  # a level is 0 or 1, a number in [-1, 1], over the divisor
        names = encoding.feature_names
        task["lower"] = np.array([0.0 if "=" in n else -1.0 for n in names])
        task["upper"] = np.ones(len(names)) / encoding.divisor
        task["lower"] /= encoding.divisor
    with tempfile.TemporaryDirectory() as folder:
        paths = f"{folder}/task.npz", f"{folder}/out.npy"
        np.savez(paths[0], runs=given.runs, is_label=case.is_label, **task)
        subprocess.run([given.peer_python, "-c", PEER, *paths], check=True)
        return np.load(paths[1]).reshape(len(EPSILONS), given.runs, -1)


def shown(losses: Any) -> str:
    """Mean and standard error."""
    return f"{losses.mean():.4f} ± {losses.std(ddof=1) / len(losses) ** 0.5:.4f}"


def lines(name: str, model: str, given: argparse.Namespace) -> Iterator[str]:
    """Yield a row of the table for each epsilon."""
    case = case_of(name, model)
    encoding = default(case, 1.0, 0)[1].encoding_
    encode = encoding.features if encoding else lambda table: table.toarray() / BOUND
    rows, tested = encode(case.train[0]), encode(case.test[0])
    shape = len(EPSILONS), given.runs, rows.shape[1] + 1
    thetas = np.full(shape, np.nan)
    if given.peer_python:
        thetas = peers(case, rows, encoding, given)
    for epsilon, drawn in zip(EPSILONS, thetas, strict=True):
        peer, its = np.transpose([case.judge(tested @ t[:-1] + t[-1]) for t in drawn])
        fits = [default(case, epsilon, seed)[0] for seed in range(given.runs)]
        ours, scores = np.transpose(fits)
        best, which = tuned(case, rows, tested, epsilon, given.runs)
        cells = [name, model, f"{epsilon:g}", shown(ours), shown(best), which]
        cells += [f"{ours.mean() / best.mean():.3f}", shown(peer)]
        cells += [f"{scores.mean():.3f}", f"{its.mean():.3f}"]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(SETS), help="data sets, by commas")
    parser.add_argument("--runs", type=int, default=8, help="seeded fits of each")
    parser.add_argument("--peer-python", help="interpreter that has diffprivlib")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| data | Private... | ε | default | tuned | which | ratio |", end="")
    print(f" diffprivlib | score | its |\n{'|---' * 10}|")
    for name, model in CASES:
        if name in given.only.split(","):
            for line in lines(name, model, given):
                print(line, flush=True)


if __name__ == "__main__":
    main()
