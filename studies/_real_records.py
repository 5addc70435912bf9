"""Classification and regression on public files, or synthetic stand-ins without them.

Rows have norm at most 1 by public facts alone; the sets of labels are those of
``_method_records``.
"""

from functools import cache, partial

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

import dpsample as dps

from ._method_records import RECORDS, SEED

RADIUS = 10.0  # of the ball that the coefficients are in: public, the same for all
SIZES = {"a9a": 8000, "w7a": 6000, "adult": 8000, "magic04": 12_000, "k401ksubs": 7000}
# Responses, the public range that becomes [-1, 1] (thousands of dollars, dollars a
# week), records and columns with a constant.
REAL_RESPONSES = {
    "k401ksubs": ("assets", (-100.0, 300.0), 7000, 8),
    "cps1988": ("wages", (0.0, 2000.0), 20_000, 13),
}
LABELS = {name: SIZES.get(name, RECORDS[name].sizes[0]) for name in RECORDS}
if "a9a" in LABELS:
    LABELS = {name: LABELS[name] for name in SIZES}
    RESPONSES = REAL_RESPONSES
else:
    LABELS, RESPONSES = {name: LABELS[name] for name in ("sparse", "halfspace")}, {}
LOSSES = {
    "logistic": dps.losses.Logistic(),
    "hinge": dps.losses.Hinge(),
    "quantile": dps.losses.Quantile(level=0.75),
}
GAP, MAX_STEPS, CHECK_EVERY = 1e-10, 20_000, 20
# Losses with kinks are replaced by their envelope of this width, whose minimum is found
# to this gap: the loss itself is above it by at most half of the width.
WIDTH, KINK_GAP = 0.003, 3e-5


def labels(name):
    """Rows and labels, those to learn from, then those to test on."""
    rows, y, *test = RECORDS[name].load()
    return {"rows": rows[: LABELS[name]], "y": y[: LABELS[name]], "test": tuple(test)}


def responses(source):
    """Rows with a constant as large as all others, and responses in [-1, 1]."""
    _, ends, size, _ = RESPONSES[source]
    data = dps.datasets.load(source)
    rows = np.hstack([data.features, np.ones((data.num_records, 1))]) / np.sqrt(2.0)
    order = np.random.default_rng(SEED).permutation(data.num_records)
    rows, y = rows[order], np.interp(data.response[order], ends, (-1.0, 1.0))
    return {"rows": rows[:size], "y": y[:size], "test": (rows[size:], y[size:])}


LOADERS = {name: partial(labels, name) for name in LABELS} | {
    words: partial(responses, source) for source, (words, *_) in RESPONSES.items()
}
# Records and columns.
SHAPES = {name: (size, RECORDS[name].dim) for name, size in LABELS.items()} | {
    words: (size, dim) for words, _, size, dim in RESPONSES.values()
}


def problem(rows, y, loss=LOSSES["logistic"]):
    """One of the losses on the ball."""
    return dps.Problem(
        rows,
        y,
        loss=loss,
        domain=dps.domains.Ball(RADIUS),
        row_bound=1.0,
        response_bound=None if loss.is_classification else 1.0,
    )


def on_ball(theta):
    """Nearest point of the ball."""
    return theta * min(1.0, RADIUS / max(float(np.linalg.norm(theta)), 1e-300))


@cache
def envelope(kind):
    """Values and slopes of a loss or its envelope, its curvature, and the gap wanted.

    The envelope is the largest of s slack - width s^2/2 over the slopes s of the loss.
    """

    def smooth(margins, y):
        return np.logaddexp(0.0, -y * margins), -y * expit(-y * margins)

    def piecewise_linear(margins, y):
        if kind == "hinge":
            slack, sign, low, high = y * margins - 1.0, y, -1.0, 0.0
        else:
            level = LOSSES[kind].level
            slack, sign, low, high = y - margins, -1.0, level - 1.0, level
        s = np.clip(slack / WIDTH, low, high)
        return s * slack - 0.5 * WIDTH * s**2, sign * s

    return (
        (smooth, 0.25, GAP)
        if kind == "logistic"
        else (piecewise_linear, 1.0 / WIDTH, KINK_GAP)
    )


def minimizer(rows, y, kind="logistic"):
    """Minimizer of the risk on the ball, and a certified bound of its excess.

    Accelerated projected gradients, momentum dropped when it points uphill. The gap is
    that of Frank and Wolfe: the largest fall of the tangent plane over the ball, and
    what the envelope is below the loss.
    """
    both, curvature, wanted = envelope(kind)
    across = csr_array(rows.T) if hasattr(rows, "toarray") else rows.T

    def slope(theta):
        return across @ both(rows @ theta, y)[1] / len(y)

    theta = ahead = np.zeros(rows.shape[1])
    momentum = 1.0
    for step in range(MAX_STEPS):
        if step % CHECK_EVERY == 0:
            g = slope(theta)
            gap = g @ theta + RADIUS * np.linalg.norm(g)
            if gap <= wanted:
                margins = rows @ theta
                below = LOSSES[kind].value(margins, y) - both(margins, y)[0]
                return theta, float(gap + below.mean())
        g = slope(ahead)
        new = on_ball(ahead - g / curvature)
        after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = new + (momentum - 1.0) / after * (new - theta)
        if g @ (new - theta) > 0.0:
            ahead, after = new, 1.0
        theta, momentum = new, after
    raise RuntimeError("no certified minimizer of the training risk")
