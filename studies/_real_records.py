"""Logistic problems on public files, or on synthetic stand-ins without them.

Rows have norm at most 1 and a constant is one of the columns where the rows have no
indicators; nothing is ever scaled by the records themselves.
"""

import os
from functools import partial

import numpy as np
from scipy.special import expit

import dpsample as dps
from dpsample.datasets.catalog import VARIABLE

RADIUS = 10.0  # of the ball that the coefficients are in: public, the same for all
SMALL = 1000
# Records to learn from, and to test on, and columns.
SHAPES = {"a9a": (8000, 16281, 123), "magic04": (8000, 11020, 11)}
SIGNAL = 8.0  # of the stand-ins
SEED = 20261121
GAP, MAX_STEPS, CHECK_EVERY = 1e-10, 20_000, 20
STAND_IN = "" if VARIABLE in os.environ else "stand-in for "


def name_of(records):
    """Name of a data set, by the words of the grid."""
    return next(name for name in SHAPES if f"{name} " in records)


def shape_of(records):
    """Shape of a data set, by the words of the grid."""
    return SHAPES[name_of(records)]


def words(name):
    """Words of the grid: nobody takes the stand-in for the file."""
    return f"{STAND_IN}{name} (d = {SHAPES[name][2]})"


def _real(name):
    """Rows and labels, training before test."""
    data = dps.datasets.load(name)
    if name == "a9a":
        test = dps.datasets.load(name, split="test")
        return data.features, data.response, test.features, test.response
    order = np.random.default_rng(SEED).permutation(data.num_records)
    rows = np.hstack([data.features, np.ones((len(order), 1))])[order] / np.sqrt(2.0)
    y, size = data.response[order], SHAPES[name][0]
    return rows[:size], y[:size], rows[size:], y[size:]


def _stand_in(name):
    """Draw records of a logistic model in the same shape."""
    size, tested, dim = SHAPES[name]
    data = dps.datasets.logistic(size + tested, dim, seed=SEED, signal=SIGNAL)
    rows, y = data.features, data.response
    return rows[:size], y[:size], rows[size:], y[size:]


def load(name):
    """Load records, those of the small sample first, and minimizers of both risks."""
    rows, y, *test = (_stand_in if STAND_IN else _real)(name)
    order = np.random.default_rng(SEED).permutation(len(y))
    rows, y = rows[order][: SHAPES[name][0]], y[order][: SHAPES[name][0]]
    best = {n: minimizer(rows[:n], y[:n]) for n in (SMALL, len(y))}
    return {"rows": rows, "y": y, "test": tuple(test), "best": best}


LOADERS = {name: partial(load, name) for name in SHAPES}


def problem(rows, y):
    """Logistic loss on the ball."""
    return dps.Problem(
        rows,
        y,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(RADIUS),
        row_bound=1.0,
    )


def on_ball(theta):
    """Nearest point of the ball."""
    return theta * min(1.0, RADIUS / max(float(np.linalg.norm(theta)), 1e-300))


def minimizer(rows, y):
    """Minimizer of the risk on the ball, to a certified gap of 1e-10.

    Accelerated projected gradients, momentum dropped when it points uphill. The gap is
    that of Frank and Wolfe: the largest fall of the tangent plane over the ball.
    """

    def slope(theta):
        return -(rows.T @ (y * expit(-y * (rows @ theta)))) / len(y)

    theta = ahead = np.zeros(rows.shape[1])
    momentum = 1.0
    for step in range(MAX_STEPS):
        if step % CHECK_EVERY == 0:
            g = slope(theta)
            if g @ theta + RADIUS * np.linalg.norm(g) <= GAP:
                return theta
        g = slope(ahead)
        new = on_ball(ahead - 4.0 * g)  # losses of rows of norm 1 are 1/4-smooth
        after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = new + (momentum - 1.0) / after * (new - theta)
        if g @ (new - theta) > 0.0:
            ahead, after = new, 1.0
        theta, momentum = new, after
    raise RuntimeError("no certified minimizer of the training risk")
