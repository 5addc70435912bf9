"""Small problems for loops of gradient descent, and recipes of one loop."""

import numpy as np

import dpsample as dps
from dpsample.optimizers.loop.optimizer import Recipe

BALL = dps.domains.Ball(2.0)


def problem(loss=None, *, domain=BALL, num_records=60, dim=3, **options):
    rng = np.random.default_rng(7)
    rows = rng.uniform(-0.5, 0.5, (num_records, dim))
    response = np.sign(rng.standard_normal(num_records))
    return dps.Problem(
        rows,
        response,
        loss=loss or dps.losses.Logistic(),
        domain=domain,
        row_bound=1.0,
        response_bound=1.0,
        **options,
    )


def recipe(*phases, **options):
    return Recipe(phases=phases, event=None, inputs={}, **options)
