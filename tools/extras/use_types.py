"""Public calls with the types that their users rely on.

``mypy --strict`` and ``pyright`` read this file beside the installed package.
"""

from typing import assert_type

import dpsample as dps


def release(problem: dps.Problem, budget: dps.Budget) -> dps.Release:
    """Return a release, whose certificate is there."""
    answer = dps.release(problem, budget)
    assert_type(answer, dps.Release)
    answer.verify()
    return answer


def fit(problem: dps.Problem, budget: dps.Budget) -> list[float]:
    """Return the coefficients of the advised method and of a chosen one."""
    assert_type(dps.fit(problem, budget), dps.Fit | dps.Release)
    answer = dps.minimize(problem, dps.optimizers.NoisyGD(), budget)
    assert_type(answer, dps.Fit)
    return [float(coefficient) for coefficient in answer.theta]


def minimum(problem: dps.Problem, budget: dps.Budget) -> float:
    """Return the least non-private risk on the domain."""
    target = dps.calibrate(problem, budget).target(problem)
    assert_type(target, dps.Gibbs)
    return float(dps.minimizer(target).value)
