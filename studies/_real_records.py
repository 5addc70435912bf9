"""Classification and regression on public files, or synthetic stand-ins without them.

Rows have norm at most 1 by public facts alone; the sets of labels are those of
``_method_records``.
"""

from functools import partial

import numpy as np

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
