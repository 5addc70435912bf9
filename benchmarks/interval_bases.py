"""Intervals about a draw of the exponential mechanism, beside those of `dps.intervals`.

Why "release" is no base: the same noisy sandwich about a certified draw, bought with
the same budget, is wider. Prints loss, records, coefficients, base, coverage of 95 %
intervals, median width and the share of runs with a warning.
"""

import argparse
import math
import warnings
from collections import defaultdict
from dataclasses import replace

import numpy as np
from scipy.special import expit

import dpsample as dps
from dpsample.inference import sandwich

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
LOSSES = {  # with the radius of the ball and the bandwidth of kinks
    "logistic": (dps.losses.Logistic(), 10.0, None),
    "huber": (dps.losses.Huber(3.0), 3.0, None),
    "median": (dps.losses.Quantile(0.5), 3.0, 0.5),
}


def problem_of(name, n, d, rng):
    """Fresh records, and the coefficients of their law."""
    loss, radius, _ = LOSSES[name]
    rows = rng.uniform(-1.0, 1.0, (n, d)) / math.sqrt(d)
    rows[:, 0] = 1.0 / math.sqrt(d)
    truth = np.linspace(-1.0, 1.0, d) * (2.0 if name == "logistic" else 1.0)
    margins = rows @ truth
    response = np.clip(margins + 0.5 * rng.standard_normal(n), -4.0, 4.0)
    if name == "logistic":
        response = np.where(rng.random(n) < expit(margins), 1.0, -1.0)
    domain, bounds = dps.domains.Ball(radius), {"row_bound": 1.0, "response_bound": 4.0}
    return dps.Problem(rows, response, loss=loss, domain=domain, **bounds), truth


def about_a_draw(problem, options, seed):
    """Debias a draw and find its covariance.

    Where the risk is a quadratic of curvature A the draw is N(argmin, (k (A + m))^-1).
    """
    total = sandwich.gdp_from_budget(BUDGET.epsilon, BUDGET.delta)
    part = sandwich._gaussian_part(BUDGET, total * math.sqrt(1.0 - options.share))
    answer = dps.release(problem, part, sampler_share=0.01, seed=seed)
    k, m, rng = answer.mechanism.k, answer.mechanism.mu, np.random.default_rng(seed)
    plan = replace(
        sandwich.plan_intervals(options, problem.facts, BUDGET, clip_rows=False),
        sandwich=replace(options, base="objective"),  # no flags of descent
        spread=lambda a: sandwich.Spread(a / (a + m), 1.0 / (k * (a + m))),
    )
    curvature, scores = (
        None if noise is None else sandwich.noisy_matrix(problem, weights, noise, rng)
        for weights, noise in zip(
            sandwich.weights(options, problem, answer.theta),
            (plan.curvature, plan.scores),
            strict=True,
        )
    )
    estimate = sandwich.estimate(plan, problem.facts, answer.theta, curvature, scores)
    return estimate.theta, np.sqrt(np.diag(estimate.covariance)), estimate.flags


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    runs = parser.parse_args().runs
    warnings.simplefilter("ignore")
    cases = [(name, *size) for name in LOSSES for size in ((5000, 3), (5000, 5))]
    for name, n, d in cases + [(name, 20_000, 5) for name in LOSSES]:
        width, robust = LOSSES[name][2], name == "huber"
        draw_options = sandwich.Sandwich(
            base="noisy_gd",
            share=sandwich.SHARES[robust or width is not None],
            robust=robust,
            bandwidth=width,
        )
        rows = defaultdict(list)
        for seed in range(runs):
            problem, truth = problem_of(name, n, d, np.random.default_rng(seed))
            by_base = {"release": about_a_draw(problem, draw_options, seed)}
            for base in ("objective", "noisy_gd")[width is not None :]:
                options = {"base": base, "bandwidth": width, "seed": seed}
                bars = dps.intervals(problem, BUDGET, **options)
                by_base[base] = bars.theta, bars.se, bars.diagnostics["flags"]
            for base, (theta, se, flags) in by_base.items():
                inside = np.mean(np.abs(theta - truth) <= 1.96 * se)
                rows[base].append((inside, 3.92 * se.mean(), bool(flags)))
        for base, table in rows.items():
            inside, sizes, flags = np.array(table).T
            numbers = (
                f"{inside.mean():6.3f} {np.median(sizes):6.3f} {flags.mean():5.2f}"
            )
            print(f"{name:9}{n:6}{d:3} {base:9} {numbers}", flush=True)


if __name__ == "__main__":
    main()
