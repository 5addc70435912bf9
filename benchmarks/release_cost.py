"""Cost of a certified release in non-private fits: python benchmarks/release_cost.py.

The fit is a dense Newton method for the same energy on the whole space, in blocks that
stay in the cache, to a squared decrement of 1e-12. CPU seconds in one warm process with
one BLAS thread, medians of `--repeats` alternating runs; the plan of a release is made
anew each time, its fits counted. Set DPSAMPLE_DATA for lines on public records.
`--instances N` compares the work that is expected before the draw with that done, on
random problems, those of `--seed`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy import linalg
from threadpoolctl import threadpool_limits

import dpsample as dps

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
SIZES = (
    (10_000, 20, 1.0),
    (10_000, 20, 10.0),
    (10_000, 200, 3.0),
    (100_000, 20, 3.0),
    (100_000, 200, 3.0),
    (1_000_000, 20, 3.0),
)
BLOCK = 4096


def logistic(num_records: int, dim: int, radius: float, seed: int = 5) -> dps.Problem:
    """Make records of unequal scales, labels of a model of norm 0.7 R."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((num_records, dim)) * np.linspace(0.6, 1.4, dim)
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    theta = rng.standard_normal(dim)
    theta *= 0.7 * radius / np.linalg.norm(theta)
    chances = 1.0 / (1.0 + np.exp(-rows @ theta))
    labels = np.where(rng.random(num_records) < chances, 1.0, -1.0)
    return problem(rows, labels, dps.domains.Ball(radius))


def problem(rows, labels, domain, loss=None, **facts) -> dps.Problem:
    """Logistic loss and rows of norm one, if nothing else is said."""
    used_loss = dps.losses.Logistic() if loss is None else loss
    facts = {"row_bound": 1.0} | facts
    return dps.Problem(rows, labels, loss=used_loss, domain=domain, **facts)


def newton(rows, labels, k: float, mu: float) -> np.ndarray:
    """Minimizer of k (F + mu ||theta||^2 / 2), as a user would fit it."""
    (num_records, dim), scale = rows.shape, k / len(rows)
    theta = np.zeros(dim)
    for _ in range(50):
        shares = 1.0 / (1.0 + np.exp(labels * (rows @ theta)))
        gradient = k * mu * theta - scale * (rows.T @ (labels * shares))
        roots = np.sqrt(scale * shares * (1.0 - shares))
        hessian = k * mu * np.eye(dim)
        for start in range(0, num_records, BLOCK):
            part = rows[start : start + BLOCK] * roots[start : start + BLOCK, None]
            hessian += part.T @ part
        move = linalg.cho_solve(linalg.cho_factor(hessian), gradient)
        theta -= move
        if gradient @ move < 1e-12:
            return theta
    return theta


def cpu_seconds(call: Callable[[], object]) -> float:
    """Processor time of one call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def forgetful(problem: dps.Problem, budget: dps.Budget, seed: int) -> dps.Release:
    """Release with a plan of its own."""
    problem.plan = None
    return dps.release(problem, budget, seed=seed)


def notes(answer: dps.Release) -> str:
    """Return a text about the method of the draw."""
    facts = answer.nonprivate_diagnostics
    if facts["method"] == "rejection":
        passes = facts["counts"]["records"] / answer.certificate.facts.num_records
        return f"{facts['num_rounds']} rounds, {passes:.2f} passes"
    return f"proximal, {facts['num_steps']} steps"


def against_fits(repeats: int) -> None:
    """Releases in units of the fit."""
    for size in SIZES:
        case = logistic(*size)
        mechanism = dps.calibrate(case, BUDGET)
        rows, labels = case.data.dense, case.data.response
        fit = partial(newton, rows, labels, mechanism.k, mechanism.mu)
        fit(), forgetful(case, BUDGET, 0)
        pairs = [
            (cpu_seconds(fit), cpu_seconds(partial(forgetful, case, BUDGET, seed)))
            for seed in range(repeats)
        ]
        fits, releases = np.median(pairs, axis=0)
        print(
            f"n, d, R = {size}: fit {fits:.4f} s, release {releases:.4f} s,"
            f" ratio {releases / fits:.2f}; {notes(forgetful(case, BUDGET, 1))}",
            flush=True,
        )


def one_line(
    name: str, problem: dps.Problem, repeats: int, epsilon: float = 1.0
) -> None:
    """Seconds of releases of one problem."""
    budget = dps.Budget(epsilon=epsilon, delta=1e-6)
    forgetful(problem, budget, 0)
    seconds = [
        cpu_seconds(partial(forgetful, problem, budget, seed))
        for seed in range(repeats)
    ]
    print(
        f"{name}: {np.median(seconds):.4f} s (most {max(seconds):.3f});"
        f" {notes(forgetful(problem, budget, 1))}",
        flush=True,
    )


def other_domains(repeats: int) -> None:
    """Polytopes, the simplex, a box written as a polytope, and large balls."""
    rng = np.random.default_rng(0)
    small = logistic(2000, 4, 3.0)
    sides = rng.standard_normal((24, 4))
    sides /= np.linalg.norm(sides, axis=1, keepdims=True)
    domain = dps.domains.Polytope(sides, np.ones(24))
    records = small.data.dense, small.data.response
    one_line("polytope, d = 4, 24 rows", problem(*records, domain), repeats, 20.0)
    large = logistic(2000, 20, 3.0)
    records = large.data.dense, large.data.response
    for i in range(3):
        sides = rng.standard_normal((60, 20))
        sides /= np.linalg.norm(sides, axis=1, keepdims=True)
        domain = dps.domains.Polytope(sides, np.ones(60))
        name = f"random polytope {i}, d = 20, 60 rows"
        one_line(name, problem(*records, domain), repeats)
    one_line("simplex, d = 20", problem(*records, dps.domains.Simplex()), repeats)
    half, eye = np.full(20, 0.1), np.eye(20)
    box = dps.domains.Box(-half, half)
    same = dps.domains.Polytope(np.vstack([eye, -eye]), np.concatenate([half, half]))
    one_line("box, d = 20", problem(*records, box), repeats)
    one_line("the same as a polytope", problem(*records, same), repeats)
    for radius in (100.0, 1000.0):
        one_line(f"ball, R = {radius:g}", logistic(2000, 5, radius), repeats)


def public_records(repeats: int) -> None:
    """Logistic and hinge losses on a9a."""
    data = dps.datasets.load("a9a")
    rows = data.features / np.sqrt(14.0)
    for radius in (3.0, 10.0, 30.0):
        ball = dps.domains.Ball(radius)
        one_line(f"a9a, R = {radius:g}", problem(rows, data.response, ball), repeats)


def expectations(number: int, first: int) -> None:
    """Print the records read, as a multiple of what was expected before the draw."""
    rng, ratios = np.random.default_rng(first), []
    for seed in range(first, first + number):
        num_records = int(10 ** rng.uniform(2.5, 4.0))
        dim, radius = int(rng.integers(2, 30)), float(10 ** rng.uniform(-0.5, 1.3))
        answer = forgetful(logistic(num_records, dim, radius, seed), BUDGET, seed)
        facts = answer.nonprivate_diagnostics
        if facts["method"] == "rejection":
            passes = facts["counts"]["records"] / num_records
            ratios.append(passes / facts["expected_passes"])
            if ratios[-1] > 4.0:
                print(f"n, d, R = {num_records, dim, radius}, seed {seed}: {facts}")
    ratios = np.sort(ratios)
    within = np.mean((ratios >= 0.5) & (ratios <= 2.0))
    print(
        f"{len(ratios)} of {number} by rejection: work done within a factor 2 of what"
        f" was expected in {within:.1%}, at most {ratios[-1]:.2f} times as much"
    )


def main() -> None:
    """Read the options and print every line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--instances", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with threadpool_limits(1, "blas"):
        if options.instances:
            return expectations(options.instances, options.seed)
        against_fits(options.repeats)
        other_domains(options.repeats)
        if os.environ.get("DPSAMPLE_DATA"):
            public_records(options.repeats)
    return None


if __name__ == "__main__":
    main()
