"""Test loss of the estimators' defaults, against tuned methods and diffprivlib.

    DPSAMPLE_DATA=FOLDER python benchmarks/estimators.py --peer-python peers/bin/python

An estimator gets the raw table and its public bounds; a9a has zeros and ones and a public
row length. "tuned" is the best of all methods of `dps.advise` and radii of a grid, on the
same rows, chosen by test loss: nobody may do that. diffprivlib has its defaults, the same
rows and the same bounds, and takes its epsilon as it states it (delta is 0).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

import dpsample as dps
from dpsample import estimators
from dpsample.datasets.catalog import VARIABLE, catalog, public_schema

DELTA, EPSILONS, PILOTS, FINALISTS, SEED = 1e-6, (0.5, 1.0, 3.0), 2, 3, 20261123
RADII = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # for rows of length 1 at most
WIDTH = 0.2  # of the Huber loss: a tenth of the response's range, its default
PEER = """
import sys, warnings
import numpy as np
from diffprivlib import models
warnings.simplefilter("ignore")
task, out = np.load(sys.argv[1]), []
rows, y = task["rows"], task["y"]
for epsilon in task["epsilons"]:
    for seed in range(task["runs"]):
        if task["is_label"]:
            model = models.LogisticRegression(
                epsilon=epsilon, data_norm=1.0, random_state=seed)
        else:
            model = models.LinearRegression(
                epsilon=epsilon, bounds_X=(task["lower"], task["upper"]),
                bounds_y=(-1.0, 1.0), random_state=seed)
        model.fit(rows, y)
        out.append([*np.ravel(model.coef_), *np.ravel(model.intercept_)])
np.save(sys.argv[2], out)
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One data set, what a user tells an estimator about it, and the loss."""

    train: tuple[Any, Any]
    test: tuple[Any, Any]
    estimator: Callable[..., Any]
    options: dict[str, Any]
    loss: Any

    @property
    def is_label(self) -> bool:
        """Whether classes are predicted."""
        return "classes" in self.options

    def response(self, y: Any) -> Any:
        """Labels -1 and 1, or clipped responses in [-1, 1]."""
        if self.is_label:
            return np.where(y == self.options["classes"][1], 1.0, -1.0)
        return np.clip(self.unit(np.asarray(y)), -1.0, 1.0)

    def unit(self, y: Any) -> Any:
        """Move the public range of a response to [-1, 1]."""
        lower, upper = self.options["response_range"]
        return 2.0 * (y - lower) / (upper - lower) - 1.0

    def judge(self, margins: Any) -> tuple[float, float]:
        """Mean test loss; accuracy or R^2."""
        y = self.response(self.test[1])
        errors = np.abs(margins - y)
        if self.is_label:
            right = float(((margins >= 0.0) == (y > 0.0)).mean())
            return float(np.logaddexp(0.0, -y * margins).mean()), right
        score = 1.0 - float((errors**2).mean() / y.var())
        if isinstance(self.loss, dps.losses.Squared):
            return float((errors**2).mean()), score
        tails = WIDTH * (errors - 0.5 * WIDTH)
        return float(np.where(errors <= WIDTH, 0.5 * errors**2, tails).mean()), score


def table(name: str, split: str = "train") -> Any:
    """Raw table of a set of the catalog."""
    schema, file = public_schema(name), catalog()[name].files[split]["name"]
    path = next(Path(os.environ[VARIABLE]).rglob(f"{file}*"))
    frame = pd.read_csv(
        path,
        header=None if schema.columns else 0,
        names=schema.columns or None,
        skipinitialspace=True,
        comment="|",
    )
    return frame.drop(columns=[name for name in schema.ignore if name in frame])


def halves(name: str, target: str, size: int) -> dict[str, Any]:
    """Learn from the first records of a random order, test on all others."""
    frame = table(name).sample(frac=1.0, random_state=SEED)
    y = frame.pop(target)
    return {"train": (frame[:size], y[:size]), "test": (frame[size:], y[size:])}


def adult() -> Case:
    """One-hot by public levels; the test labels end in a point."""
    pairs = {}
    for split in ("train", "test"):
        frame = table("adult", split)
        pairs[split] = frame, frame.pop("income").str.rstrip(".")
    return logistic("adult", pairs, ("<=50K", ">50K"))


def logistic(name: str, pairs: dict[str, Any], classes: tuple[Any, Any]) -> Case:
    """Labels of a table with public bounds."""
    options = {"bounds": public_schema(name), "classes": classes}
    model, loss = estimators.PrivateLogisticRegression, dps.losses.Logistic()
    return Case(**pairs, estimator=model, options=options, loss=loss)


def a9a() -> Case:
    """Sparse rows with at most 14 ones."""
    sets = [dps.datasets.load("a9a", split=split) for split in ("train", "test")]
    pairs = [(csr_array(s.features) * 14**0.5, s.response) for s in sets]
    options = {"row_bound": 14**0.5 * (1.0 + 1e-12), "classes": (-1.0, 1.0)}
    return Case(
        train=pairs[0],
        test=pairs[1],
        estimator=estimators.PrivateLogisticRegression,
        options=options,
        loss=dps.losses.Logistic(),
    )


def regression(name: str, target: str, size: int, ends: Any, model: str) -> Case:
    """Regression with a public range of the response."""
    losses = {"Huber": dps.losses.Huber(WIDTH), "Ridge": dps.losses.Squared()}
    names = {"Huber": "PrivateHuberRegressor", "Ridge": "PrivateRidge"}
    return Case(
        **halves(name, target, size),
        estimator=getattr(estimators, names[model]),
        options={"bounds": public_schema(name), "response_range": ends},
        loss=losses[model],
    )


WAGES = ("cps1988", "wage", 20_000, (0.0, 2000.0))  # dollars a week
ASSETS = ("k401ksubs", "nettfa", 7000, (-100.0, 300.0))  # thousands of dollars
CASES: dict[str, Callable[[], Case]] = {
    "adult": adult,
    "a9a": a9a,
    "magic04": lambda: logistic(
        "magic04", halves("magic04", "class", 12_000), ("h", "g")
    ),
    "k401ksubs": lambda: logistic(
        "k401ksubs", halves("k401ksubs", "e401k", 7000), (0, 1)
    ),
    "cps1988 Huber": lambda: regression(*WAGES, "Huber"),
    "cps1988 ridge": lambda: regression(*WAGES, "Ridge"),
    "k401ksubs Huber": lambda: regression(*ASSETS, "Huber"),
    "k401ksubs ridge": lambda: regression(*ASSETS, "Ridge"),
}


def default(case: Case, epsilon: float, seed: int) -> tuple[float, float, Any]:
    """Test loss and score of an estimator as shipped, and the estimator."""
    model = case.estimator(
        epsilon=epsilon, delta=DELTA, random_state=seed, **case.options
    ).fit(*case.train)
    rows = case.test[0]
    if case.is_label:
        return *case.judge(model.decision_function(rows)), model
    return *case.judge(case.unit(model.predict(rows))), model


def tuned(case: Case, rows: Any, tested: Any, epsilon: float, runs: int) -> Any:
    """Smallest mean test loss of all methods and radii, its runs, and which it is."""
    budget, y = dps.Budget(epsilon=epsilon, delta=DELTA), case.response(case.train[1])

    def losses(key: tuple[float, int], number: int) -> tuple[Any, str]:
        radius, place = key
        facts = {"domain": dps.domains.Ball(radius), "row_bound": 1.0}
        facts |= {"intercept": True, "clip_rows": True}
        facts |= {} if case.is_label else {"response_bound": 1.0}
        problem = dps.Problem(rows, y, loss=case.loss, **facts)
        row = candidates(dps.advise(problem, budget))[place]
        problem = dps.Problem(rows, y, loss=row.loss, **facts)
        found = dps.replicate(
            dps.minimize, problem, row.choice, budget,
            num_replicates=number, seed=SEED, threads=1,
        )  # fmt: skip
        margins = [tested @ theta[:-1] + theta[-1] for theta in found.thetas]
        name = f"{row.method}{' capped' * (row.loss != case.loss)}, R = {radius:g}"
        return np.array([case.judge(m)[0] for m in margins]), name

    keys = [(radius, i) for radius in RADII for i in range(4 if case.is_label else 2)]
    keys.sort(key=lambda key: losses(key, PILOTS)[0].mean())
    return min(
        (losses(key, runs) for key in keys[:FINALISTS]), key=lambda r: r[0].mean()
    )


def candidates(advice: dps.Advice) -> list[Any]:
    """Tail and objective perturbation, of the loss and of the capped one."""
    kept = [row for row in advice.table if row.method in ("tail", "objective")]
    return sorted(kept, key=lambda row: (row.loss.name, row.method))


def peers(case: Case, rows: Any, tested: Any, encoding: Any, given: Any) -> Any:
    """Test losses and scores of diffprivlib's defaults, by epsilon and run."""
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    y, upper, lower = case.response(case.train[1]), 0.0, 0.0  # bounds of regressions
    if not case.is_label:
        upper = np.full(dense.shape[1], 1.0 / encoding.divisor)
        is_level = np.array(["=" in name for name in encoding.feature_names])
        lower = np.where(is_level, 0.0, -upper)
    with tempfile.TemporaryDirectory() as folder:
        task, out = f"{folder}/task.npz", f"{folder}/out.npy"
        facts = {"is_label": case.is_label, "lower": lower, "upper": upper}
        np.savez(task, rows=dense, y=y, epsilons=EPSILONS, runs=given.runs, **facts)
        subprocess.run([given.peer_python, "-c", PEER, task, out], check=True)
        thetas = np.load(out)
    results = [case.judge(tested @ theta[:-1] + theta[-1]) for theta in thetas]
    return np.array(results).reshape(len(EPSILONS), given.runs, 2)


def shown(losses: Any) -> str:
    """Mean and standard error."""
    return f"{losses.mean():.4f} ± {losses.std(ddof=1) / len(losses) ** 0.5:.4f}"


def lines(name: str, given: argparse.Namespace) -> Iterator[str]:
    """Yield a row of the table for each epsilon."""
    case = CASES[name]()
    encoding = default(case, 1.0, 0)[2].encoding_
    if encoding is None:
        rows, tested = (
            part[0] / case.options["row_bound"] for part in (case.train, case.test)
        )
    else:
        rows, tested = (encoding.features(part[0]) for part in (case.train, case.test))
    theirs = peers(case, rows, tested, encoding, given) if given.peer_python else None
    for i, epsilon in enumerate(EPSILONS):
        runs = [default(case, epsilon, seed) for seed in range(given.runs)]
        ours, scores = np.array([run[:2] for run in runs]).T
        best, which = tuned(case, rows, tested, epsilon, given.runs)
        ratio, score = ours.mean() / best.mean(), f"{scores.mean():.3f}"
        cells = [name, f"{epsilon:g}", shown(ours), shown(best), which, f"{ratio:.3f}"]
        peer = ("-", "-")
        if theirs is not None:
            peer = shown(theirs[i, :, 0]), f"{theirs[i, :, 1].mean():.3f}"
        yield f"| {' | '.join((*cells, peer[0], score, peer[1]))} |"


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(CASES), help="data sets, by commas")
    parser.add_argument("--runs", type=int, default=8, help="seeded fits of each")
    parser.add_argument("--peer-python", help="interpreter that has diffprivlib")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| data | ε | default | tuned | which | ratio | diffprivlib | score | its |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in given.only.split(","):
        for line in lines(name, given):
            print(line, flush=True)


if __name__ == "__main__":
    main()
