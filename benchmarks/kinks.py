"""Non-smooth losses on lumpy responses: levels and excess risk of the advised methods.

Quantile fits of counts, rounded wages, and a censored, heavy-tailed response with an
atom, against the certified minimum on the ball. Prints the set, the level q, epsilon,
the method, the mean excess risk with its standard error, and by how much P(y < fit) to
P(y <= fit) misses q. Real records are in the folder DPSAMPLE_DATA.
"""

import argparse
import os

import numpy as np
import pandas as pd

import dpsample as dps

METHODS = ("decaying", "fixed", "tail")


def scale_columns(columns):
    """Scale columns by their 1 and 99 percent points, and put ones before them."""
    lower, upper = np.percentile(columns, [1, 99], axis=0)
    upper = np.where(upper > lower, upper, lower + 1.0)
    unit = np.clip(2.0 * (columns - lower) / (upper - lower) - 1.0, -1.0, 1.0)
    return np.column_stack([np.ones(len(unit)), unit])


def real(name, response, columns, num_records=10_000):
    """Read some records of a public set, and their responses."""
    path = f"{os.environ['DPSAMPLE_DATA']}/regression/{name}.csv.xz"
    table = pd.read_csv(path).assign(parttime=lambda t: t.get("parttime") == "yes")
    table = table.dropna(subset=[response, *columns])
    table = table.sample(num_records, random_state=0)
    rows = scale_columns(table[columns].to_numpy(float))
    return rows, table[response].to_numpy(float)


def visits():
    """Return counts, many of them 0."""
    rows, count = real("RandHIE", "mdvis", ["xage", "linc", "child"])
    return rows, 2.0 * np.clip(count / 40.0, 0.0, 1.0) - 1.0


def wages():
    """Return wages a week, rounded to 100 dollars."""
    rows, wage = real("CPS1988", "wage", ["education", "experience", "parttime"])
    rounded = np.round(wage / 100.0) / 20.0
    return rows, 2.0 * np.clip(rounded, 0.0, 1.0) - 1.0


def censored_response():
    """Return errors with heavy tails, censored at 0, and an atom."""
    rng, n = np.random.default_rng(671), 8000
    columns, slopes = rng.uniform(-1.0, 1.0, (n, 3)), rng.standard_normal(3)
    slopes *= 0.4 / np.linalg.norm(slopes)
    response = np.maximum(columns @ slopes + 0.05 * rng.standard_t(1.5, n), 0.0)
    response = np.where(rng.random(n) < 0.2, 0.2, response)
    return np.column_stack([np.ones(n), columns]), np.clip(response, -1.0, 1.0)


CASES = {
    "visits": (visits, (0.5, 0.8)),
    "wages": (wages, (0.5, 0.9)),
    "censored": (censored_response, (0.6, 0.85)),
}


def show(name, rows, response, level, arguments):
    """Print a line for each epsilon and method."""
    problem = dps.Problem(
        rows,
        response,
        loss=dps.losses.Quantile(level),
        domain=dps.domains.Ball(3.0),
        row_bound=rows.shape[1] ** 0.5,
        response_bound=1.0,
    )
    minimum = dps.minimizer(problem, tolerance=1e-9).value
    for epsilon in arguments.epsilons:
        budget = dps.Budget(epsilon=epsilon, delta=1e-6)
        choices = {row.method: row.choice for row in dps.advise(problem, budget).table}
        for method in arguments.methods:
            runs = dps.replicate(
                dps.minimize,
                problem,
                choices[method],
                budget,
                num_replicates=arguments.fits,
                seed=1,
            )
            excess = np.array([problem.risk(theta) for theta in runs.thetas]) - minimum
            error = excess.std(ddof=1) / len(excess) ** 0.5
            residuals = runs.thetas @ rows.T - response
            below, up_to = (residuals > 1e-3).mean(), (residuals >= -1e-3).mean()
            miss = max(below - level, level - up_to, 0.0)
            line = f"{name:9} {level:4} {epsilon:5g} {method:9} {excess.mean():8.1e}"
            print(f"{line} +- {error:.0e}  level off by {miss:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=[0.3, 1, 3, 10])
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--fits", type=int, default=5)
    options = parser.parse_args()
    for case in options.cases:
        make, levels = CASES[case]
        features, y = make()
        for quantile in levels:
            show(case, features, y, quantile, options)
