"""Test loss of the estimators' defaults, against tuned methods and diffprivlib.

An estimator gets the raw table and its public bounds; a9a has zeros and ones and a
public row length. "tuned" is the best of the tail and objective perturbation, with and
without a capped loss, and of radii, on the same rows, chosen by test loss: nobody may
do that. diffprivlib has the same rows and bounds, one level of each categorical left
out, its own epsilon (delta is 0), and for labels the C of the least test loss.
Regressions have squared or Huber losses of responses in [-1, 1].
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
from scipy.stats import sem

import dpsample as dps
from dpsample import estimators
from dpsample.datasets.catalog import VARIABLE, catalog, public_schema

DELTA = 1e-6
EPSILONS = (0.5, 1.0, 3.0)
# Runs of a candidate in the first round, and number of candidates in the second.
PILOTS = 2
FINALISTS = 3
SEED = 20261123
# Over the public length of the rows.
RADII = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
# Bound of the rows of a9a, which have 14 entries of 1.
BOUND = 14**0.5 * (1.0 + 1e-12)
LOSSES = {  # judged by the first
    "LogisticRegression": [dps.losses.Logistic()],
    "HuberRegressor": [dps.losses.Huber(0.2)],
    "Ridge": [dps.losses.Squared(), dps.losses.Huber(2.0)],
}
# Set, target, training records (0: all; it has a test set); classes or public range, in
# dollars a week and thousands of dollars.
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
kind, facts = models.LogisticRegression, [{"data_norm": 1.0, "C": c} for c in task["C"]]
if "upper" in task:
    ends = task["lower"], task["upper"]
    kind, facts = models.LinearRegression, [{"bounds_X": ends, "bounds_y": (-1, 1)}]
for epsilon in task["epsilons"]:
    for given in facts:
        for seed in range(task["runs"]):
            model = kind(epsilon=epsilon, random_state=seed, **given)
            model.fit(task["rows"], task["y"])
            out.append([*np.ravel(model.coef_), *np.ravel(model.intercept_)])
np.save(sys.argv[2], out)
"""


class Case(NamedTuple):
    """Raw tables, responses in [-1, 1], and what a user tells an estimator."""

    train: Any
    test: Any
    model: str
    options: dict[str, Any]


def judge(case: Case, margins: Any) -> tuple[float, float]:
    """Mean test loss; accuracy or R^2."""
    y, loss = case.test[1], LOSSES[case.model][0]
    right = ((margins >= 0.0) == (y > 0.0)).mean()
    score = 1.0 - ((margins - y) ** 2).mean() / y.var()
    return loss.value(margins, y).mean(), right if "classes" in case.options else score


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
    train, test = table(source, target, "train"), None
    if size:
        train, test = [part[:size] for part in train], [part[size:] for part in train]
    sets = [train, test or table(source, target, "test")]
    is_sparse = name == "a9a"
    options = {"row_bound": BOUND} if is_sparse else {"bounds": public_schema(source)}
    if model == "LogisticRegression":
        sets = [(rows, np.where(y == ends[1], 1.0, -1.0)) for rows, y in sets]
        return Case(*sets, model, options | {"classes": (-1.0, 1.0)})
    sets = [(rows, np.interp(y, ends, (-1.0, 1.0))) for rows, y in sets]  # clipped
    return Case(*sets, model, options | {"response_range": (-1.0, 1.0)})


def default(case: Case, epsilon: float, seed: int) -> Any:
    """Test loss and score of an estimator as shipped, and the estimator."""
    kind = getattr(estimators, f"Private{case.model}")
    model = kind(epsilon=epsilon, delta=DELTA, random_state=seed, **case.options)
    model.fit(*case.train)
    predict = model.decision_function if "classes" in case.options else model.predict
    return judge(case, predict(case.test[0])), model


def best_tuned(
    case: Case, tables: Any, length: float, epsilon: float, runs: int
) -> Any:
    """Test losses of the best of all methods and radii, and which it is."""
    budget, (rows, tested) = dps.Budget(epsilon=epsilon, delta=DELTA), tables
    facts = {"row_bound": length, "intercept": True, "clip_rows": True}
    if "classes" not in case.options:
        facts["response_bound"] = 1.0

    def problem(radius: float, loss: Any) -> dps.Problem:
        domain = dps.domains.Ball(radius / length)
        return dps.Problem(rows, case.train[1], loss=loss, domain=domain, **facts)

    def losses(radius: float, row: Any, runs: int) -> Any:
        plan = dps.minimize, problem(radius, row.loss), row.choice, budget
        replicates = dps.replicate(*plan, num_replicates=runs, seed=SEED, threads=1)
        return np.array(
            [judge(case, tested @ t[:-1] + t[-1])[0] for t in replicates.thetas]
        )

    plans = []
    for radius, loss in product(RADII, LOSSES[case.model]):
        table = dps.advise(problem(radius, loss), budget).table
        plans += [(radius, row) for row in table if row.method in ("tail", "objective")]
    plans.sort(key=lambda plan: losses(*plan, PILOTS).mean())
    finals = [(losses(*plan, runs), *plan) for plan in plans[:FINALISTS]]
    values, radius, row = min(finals, key=lambda final: final[0].mean())
    return values, f"{row.method}, {row.loss.name}, {radius:g}"


def inverse_ridges(case: Case) -> tuple[float, ...]:
    """Return the C of diffprivlib that are tried, whose default is 1."""
    is_linear = "classes" not in case.options
    return (np.nan,) if is_linear else (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)


def full_rank(encoding: Any) -> Any:
    """Return which columns stay if the first level of each categorical is left out."""
    names = encoding.feature_names
    groups = [name.partition("=")[0] if "=" in name else "" for name in names]
    return np.array([g == "" or g in groups[:i] for i, g in enumerate(groups)])


def peers(case: Case, rows: Any, encoding: Any, options: argparse.Namespace) -> Any:
    """Coefficients and intercepts of diffprivlib by epsilon, C and run."""
    kept = np.ones(rows.shape[1], bool) if encoding is None else full_rank(encoding)
    task = {"rows": rows[:, kept], "y": case.train[1], "epsilons": EPSILONS}
    task["C"] = inverse_ridges(case)
    if "classes" not in case.options:  # public bounds of levels and numbers
        task["upper"] = np.full(kept.sum(), 1.0 / encoding.divisor)
        levels = np.array(["=" in name for name in encoding.feature_names])[kept]
        task["lower"] = np.where(levels, 0.0, -task["upper"])
    with tempfile.TemporaryDirectory() as folder:
        paths = f"{folder}/task.npz", f"{folder}/out.npy"
        np.savez(paths[0], runs=options.runs, **task)
        subprocess.run([options.peer_python, "-c", PEER, *paths], check=True)
        coefficients = np.load(paths[1])
    shape = (len(EPSILONS), len(task["C"]), options.runs, rows.shape[1] + 1)
    every = np.zeros(shape)
    every[..., np.append(kept, True)] = coefficients.reshape(*shape[:3], -1)
    return every


def lines(name: str, model: str, options: argparse.Namespace) -> Iterator[str]:
    """Yield a row of the table for each epsilon."""
    case = case_of(name, model)
    encoding = default(case, 1.0, 0)[1].encoding_
    encode = encoding.features if encoding else lambda table: table.toarray()
    length = encoding.row_bound if encoding else BOUND
    rows, tested = encode(case.train[0]), encode(case.test[0])
    thetas = np.full((len(EPSILONS), 1, options.runs, rows.shape[1] + 1), np.nan)
    if options.peer_python:
        thetas = peers(case, rows / length, encoding, options)
    for epsilon, by_ridge in zip(EPSILONS, thetas, strict=True):
        by_loss = []  # losses and scores of the runs at every C
        for drawn in by_ridge:
            margins = (tested @ (t[:-1] / length) + t[-1] for t in drawn)
            by_loss.append(np.transpose([judge(case, margin) for margin in margins]))
        best_ridge = int(np.argmin([pair[0].mean() for pair in by_loss]))
        peer, its = by_loss[best_ridge]
        if options.peer_only:
            best = f"C = {inverse_ridges(case)[best_ridge]:g}"
            loss, score = f"{peer.mean():.4f} ± {sem(peer):.4f}", f"{its.mean():.3f}"
            yield " | ".join([name, model, f"{epsilon:g}", loss, score, best])
            continue
        fits = [default(case, epsilon, seed)[0] for seed in range(options.runs)]
        ours, scores = np.transpose(fits)
        best, which = best_tuned(case, (rows, tested), length, epsilon, options.runs)
        texts = [f"{x.mean():.4f} ± {sem(x):.4f}" for x in (ours, best, peer)]
        cells = [name, model, f"{epsilon:g}", *texts[:2], which]
        cells += [f"{ours.mean() / best.mean():.3f}", texts[2]]
        yield " | ".join([*cells, f"{scores.mean():.3f}", f"{its.mean():.3f}"])


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(SETS), help="data sets, by commas")
    parser.add_argument("--runs", type=int, default=8, help="seeded fits of each")
    parser.add_argument("--peer-python", help="interpreter that has diffprivlib")
    parser.add_argument("--peer-only", action="store_true", help="no fits of ours")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| data | Private... | ε | default | tuned | which | ratio |", end="")
    print(f" diffprivlib | score | its |\n{'|---' * 10}|")
    for name, model in CASES:
        if name in options.only.split(","):
            for line in lines(name, model, options):
                print(f"| {line} |", flush=True)


if __name__ == "__main__":
    main()
