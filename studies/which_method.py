"""Which private method: what `dps.advise` chooses against candidates and rivals."""

import importlib.util
import os
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student

import dpsample as dps
from dpsample.api.advise import label_share
from dpsample.datasets.catalog import VARIABLE
from dpsample.experiments import Figure, Metric, Study

from . import _public_records as records

EPSILONS = 0.1, 0.3, 1.0, 3.0, 10.0
CELL = "use", "records", "loss", "n", "relation", "epsilon"


def _rivals():
    """Import the methods of other papers, which are kept with the benchmarks."""
    path = Path(__file__).parents[1] / "benchmarks" / "rivals.py"
    spec = importlib.util.spec_from_file_location("rivals", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rivals = _rivals()


@cache
def candidates(loss):
    """Return the package's methods for a loss, by method and loss of the advice.

    "own" is the problem's loss.
    """
    if loss not in ("logistic", "huber", "squared"):
        methods = {name: (name, "own") for name in ("decaying", "fixed", "tail")}
        if loss == "hinge":
            methods["labels first"] = "labels_first", "own"
        return methods
    methods = {name: (name, "own") for name in ("objective", "pure", "tail")}
    if loss == "squared":
        methods["normal equations"] = "normal_equations", "own"
    if loss == "logistic":
        calibrated, capped = "calibrated_logistic", "capped_logistic"
        methods |= {
            "scaled": ("scaled", "own"),
            "scaled, calibrated": ("scaled", calibrated),
            "labels first": ("labels_first", calibrated),
            "scaled, capped": ("scaled", capped),
            "pure, calibrated": ("pure", calibrated),
            "tail, capped": ("tail", capped),
            "objective, capped": ("objective", capped),
        }
    return methods


def budget_of(relation, epsilon):
    """Return the budget of a cell."""
    return dps.Budget(epsilon=epsilon, delta=1e-6, relation=relation)


@cache
def problem_of(name, loss, n):
    """Return a problem, which is kept for the next cells."""
    return records.problem_of(name, loss, n)


@cache
def table_of(name, loss, n, relation, epsilon):
    """Return the rows of the advice, the advised one first. No record is read."""
    facts = records.facts_of(name, records.LOSSES[loss], n)
    with warnings.catch_warnings():
        # Cells in which noise dominates are a part of the study.
        warnings.simplefilter("ignore", UserWarning)
        return dps.advise(facts, budget_of(relation, epsilon)).table


def name_of(row, loss):
    """Return the study's name of a row of the advice."""
    loss_of_set = records.LOSSES[loss].name
    key = row.method, "own" if row.loss.name == loss_of_set else row.loss.name
    return next((n for n, pair in candidates(loss).items() if pair == key), None)


def advised_name(key):
    """Return the study's name of the advised method of a cell."""
    _, name, loss, n, relation, epsilon = key
    return name_of(table_of(name, loss, int(n), relation, float(epsilon))[0], loss)


def batch(params, seeds):
    """Return excess risks, test losses, and excess risks of two public answers."""
    name, loss, n = (params[key] for key in ("records", "loss", "n"))
    minimum, zero, constant = records.minimum_of(name, loss, n)
    thetas = fit(params, seeds)
    problem, loss_of_set = (
        problem_of(name, records.LOSSES[loss], n),
        records.LOSSES[loss],
    )
    rows, labels = records.held_out(name, n)
    return {
        "excess": np.array([problem.risk(theta) - minimum for theta in thetas]),
        "test": np.array(
            [loss_of_set.value(rows @ theta, labels).mean() for theta in thetas]
        ),
        "zero": np.full(len(seeds), zero),
        "constant": np.full(len(seeds), constant),
    }


def fit(params, seeds):
    """Return a method's answers, one for each seed."""
    name, loss, n = (params[key] for key in ("records", "loss", "n"))
    relation, epsilon, method = (
        params[key] for key in ("relation", "epsilon", "method")
    )
    budget = budget_of(relation, epsilon)
    if method in rivals.RIVALS[loss]:
        # Their papers ask for rows in the unit ball, so units are changed and back.
        data, loss_of_set = records.load(name), records.LOSSES[loss]
        unit = records.unit_problem_of(name, loss_of_set, n)
        task = rivals.Task(unit, budget, data.rows[:n], data.y[:n])
        generators = [np.random.default_rng(seed) for seed in seeds]
        thetas = rivals.RIVALS[loss][method](task, generators)
        return thetas / np.sqrt(data.num_columns + 1.0)
    table = table_of(name, loss, n, relation, epsilon)
    row = next(row for row in table if name_of(row, loss) == method)
    problem = problem_of(name, row.loss, n)
    return dps.replicate(
        dps.minimize,
        problem,
        row.choice,
        budget,
        num_replicates=len(seeds),
        seed=seeds,
        threads=1,
        progress=False,
    ).thetas


def cells_of(name, loss, n, relation, epsilons):
    """Yield the cells of one set and loss, as mappings."""
    methods = [*candidates(loss), *rivals.RIVALS[loss]]
    if n == 30_000:
        # So many records are far above the range in which these are advised.
        names = ("capped", *(("labels first",) if loss == "logistic" else ()))
        methods = [m for m in methods if not any(word in m for word in names)]
    for epsilon in epsilons:
        facts = records.facts_of(name, records.LOSSES[loss], n)
        has_share = label_share(facts, budget_of(relation, epsilon)) > 0.0
        advised = table_of(name, loss, n, relation, epsilon)[0].method
        # For logistic losses labels first is seldom advised from 3 on.
        is_first = loss == "hinge" or epsilon < 3.0 or advised == "labels_first"
        yield {
            "use": records.use_of(name),
            "records": name,
            "loss": loss,
            "n": n,
            "relation": relation,
            "epsilon": epsilon,
            "method": [
                method
                for method in methods
                if method != "labels first" or (has_share and is_first)
            ],
        }


def parts():
    """Return the parts of the grid, in the order in which they run.

    A part has a loss, a number of records, a relation, sets and levels of epsilon.
    """
    replace, zero = "replace_one", "zero_out"
    labels = tuple(name for name in records.LABELS if name != "synthetic")
    narrow = "casp10", "wage500", "eligible", "norauto0", "auspriv0", "bemtpl0"
    responses = "wage", "assets", "casp", "meddol"
    return (
        ("logistic", 3000, replace, labels, EPSILONS),
        ("huber", 3000, replace, tuple(records.RESPONSES), EPSILONS),
        ("squared", 3000, replace, tuple(records.RESPONSES), EPSILONS),
        ("hinge", 3000, replace, narrow, EPSILONS),
        ("median", 3000, replace, responses, EPSILONS),
        ("quantile 0.9", 3000, replace, responses, EPSILONS),
        ("logistic", 3000, zero, narrow, (0.3, 3.0)),
        ("median", 3000, zero, responses[:2], (0.3, 3.0)),
        ("logistic", 30_000, replace, ("casp10", "norauto0"), EPSILONS),
        ("squared", 30_000, replace, ("casp",), EPSILONS),
        ("huber", 30_000, replace, ("casp",), EPSILONS),
        ("median", 30_000, replace, ("casp",), (0.3, 3.0)),
        ("hinge", 30_000, replace, ("casp10",), (0.3, 3.0)),
    )


def grid():
    """Return all cells, or cells of synthetic records without the public files."""
    if VARIABLE not in os.environ:
        return [*cells_of("synthetic", "logistic", 3000, "replace_one", EPSILONS)]
    return [
        cell
        for loss, n, relation, names, epsilons in parts()
        for name in names
        for cell in cells_of(name, loss, n, relation, epsilons)
    ]


study = Study(
    name="which_method",
    title="Which private method, by public facts",
    question=(
        "Is the method that dps.advise chooses within 3 % or two standard errors of the"
        " best of its other candidates and of methods of other papers? Mean excess"
        " empirical risk over the minimizer on the ball at (eps, 1e-6), and mean loss"
        " on test records. Sets belong to development or confirmation by the hash of"
        " their name. The grid runs in parts, one after the other: Ctrl-C ends a run,"
        " and --resume continues it."
    ),
    answer=(
        "In 222 of 244 cells (8 fits of 3000 records, 5 of 30,000), in 114 of 123 of"
        " development and in 108 of 121 of confirmation. The others are lost by 2.19"
        " times at most. By the rules of before it was 188 of the first 225 cells."
        " Rows have several runs: 'labels first' of the logistic loss was run when"
        " problems had got an intercept in place of a constant column, which is the"
        " same up to units, that of the hinge loss and most cells of 30,000 records"
        " last. docs/which-method.md has the verdicts."
    ),
    grid=grid(),
    quick=[*cells_of("synthetic", "logistic", 3000, "replace_one", (0.3, 3.0))],
    replicates=lambda params: {3000: 8, 30_000: 5}[params["n"]],
    quick_replicates=2,
    batch=batch,
    metrics=(
        Metric("excess", label="excess empirical risk"),
        Metric("test", label="loss on test records"),
        Metric("zero", kind="exact", label="excess risk of the answer 0"),
        Metric("constant", kind="exact", label="excess risk of the best constant"),
    ),
    figures=(
        Figure(
            x="epsilon",
            y="excess",
            lines="method",
            where={
                "records": grid()[0]["records"],
                "loss": "logistic",
                "n": 3000,
                "relation": "replace_one",
            },
            title="Logistic loss, 3000 records of Adult",
            x_label="epsilon (delta = 1e-6)",
        ),
    ),
)


def methods_of(key):
    """Return the methods of a cell of the grid."""
    _, name, loss, n, relation, epsilon = key
    (cell,) = cells_of(name, loss, int(n), relation, (float(epsilon),))
    return set(cell["method"])


def verdicts(path):
    """Yield a row for each complete cell of a report's table.

    A cell is lost if the best method's mean excess risk is below the advised one's by
    more than 3 % and two standard errors of the difference of independent means.
    """
    table = pd.read_csv(path)
    width = {r: 2.0 * student.ppf(0.975, r - 1) for r in table.replicates.unique()}
    table["error"] = (table.high - table.low) / table.replicates.map(width)
    for key, cell in table.groupby([*CELL], sort=False):
        # The rule of today is judged by the rows, whichever rule there was then.
        advised = advised_name(key)
        wide = cell.pivot_table(index="method", columns="metric", values="mean")
        errors = cell[cell.metric == "excess"].set_index("method")["error"]
        excess = wide["excess"]
        if (
            advised not in excess
            or excess.isna().any()
            or set(excess.index) < methods_of(key)
        ):
            continue
        best = excess.idxmin()
        gap = excess[advised] - excess[best]
        error = float(np.hypot(errors[advised], errors[best]))
        public = min(wide["zero"].iloc[0], wide["constant"].iloc[0])
        yield {
            **dict(zip(CELL, key, strict=True)),
            "advised": advised,
            "best": best,
            "excess": excess[advised],
            "constant": wide["constant"].iloc[0],
            "ratio": excess[advised] / excess[best],
            "lost": gap > 0.03 * excess[best] and gap > 2.0 * error,
            "test": wide["test"][advised],
            "best test": wide["test"].min(),
            "worse than public": excess[advised] - public > 2.0 * errors[advised],
        }
