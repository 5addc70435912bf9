"""Real records with public bounds, for labels and for responses in [-1, 1].

Rows are numbers in [-1, 1] by public ranges and indicators of levels, and the problem
has an intercept. With m columns before the indicators, rows have norm at
most sqrt(m). The coefficients are in a ball in which every column may move the margin
by 3, or by 1.5 for responses. A set belongs to development or confirmation by the
parity of the SHA-256 of its name.
"""

import hashlib
from functools import cache
from typing import NamedTuple

import numpy as np

import dpsample as dps

# Labels: the source, and the threshold above which a response is 1. None: its labels.
LABELS = {
    "synthetic": ("synthetic", None),
    "adult": ("adult", None),
    "magic04": ("magic04", None),
    "eligible": ("k401ksubs", None),
    "casp10": ("casp", 10.0),
    "wage500": ("cps1988", 500.0),
    "randhie0": ("randhie", 0.0),
    "bemtpl0": ("bemtpl97", 0.0),
    "norauto0": ("norauto", 0.0),
    "auspriv0": ("ausprivauto0405", 0.0),
    "blog0": ("blogfeedback", 0.0),
    "wage1200": ("cps1988", 1200.0),
    "randhie1000": ("randhie", 1000.0),
    # Rare labels that were named before anything was run on them.
    "blog10": ("blogfeedback", 10.0),
    "wage1500": ("cps1988", 1500.0),
    "randhie500": ("randhie", 500.0),
    "casp19": ("casp", 19.0),
    "bemtpl500": ("bemtpl97", 500.0),
}
# Responses: the source and the public range that becomes [-1, 1].
RESPONSES = {
    "wage": ("cps1988", (0.0, 2000.0)),
    "assets": ("k401ksubs", (-100.0, 300.0)),
    "casp": ("casp", (0.0, 25.0)),
    "meddol": ("randhie", (0.0, 2000.0)),
    "blog": ("blogfeedback", (0.0, 1500.0)),
}
LOSSES = {
    "logistic": dps.losses.Logistic(),
    "hinge": dps.losses.Hinge(),
    "median": dps.losses.Absolute(),
    "quantile 0.9": dps.losses.Quantile(0.9),
    "huber": dps.losses.Huber(0.2),
    "squared": dps.losses.Squared(),
}


class Records(NamedTuple):
    """Rows and labels or responses, number of columns, first of the test records.

    Rows of this class are the problem's rows with the intercept's 1, divided by
    sqrt(m + 1), so that they have norm at most 1, as methods of other papers ask for.
    """

    rows: np.ndarray
    y: np.ndarray
    num_columns: int
    num_train: int


def use_of(name):
    """Return "develop" or "confirm", by the name alone."""
    digest = hashlib.sha256(name.encode()).digest()
    return "confirm" if digest[-1] % 2 else "develop"


def shape_of(name):
    """Return the number of coefficients, and of columns before indicators."""
    shapes = {
        "synthetic": (11, 10),
        "adult": (108, 13),
        "magic04": (11, 10),
        "k401ksubs": (8, 7),
        "casp": (10, 9),
        "cps1988": (13, 6),
        "randhie": (18, 17),
        "bemtpl97": (18, 12),
        "norauto": (16, 5),
        "ausprivauto0405": (28, 6),
        "blogfeedback": (59, 58),
    }
    dim, num_columns = shapes[(LABELS | RESPONSES)[name][0]]
    # Eligibility is a column of its source, and cannot predict itself.
    lost = int(name == "eligible")
    return dim - lost, num_columns - lost


def is_label(name):
    """Return whether a set has labels."""
    return name in LABELS


@cache
def read(source, *, seed=20261130, max_tested=10_000):
    """Columns in [-1, 1], responses, number of columns, and first test record."""
    if source == "synthetic":
        data = dps.datasets.logistic(13_000, 10, seed=seed, signal=5.0)
        return data.features, data.response, 10, 13_000
    data = dps.datasets.load(source)
    columns = np.asarray(data.features) * data.encoding.divisor
    y = np.asarray(data.response, float)
    num_columns = round(data.encoding.divisor**2)
    if source == "blogfeedback":
        # These are counts. The others are indicators of words.
        columns, num_columns = columns[:, :58], 58
    order = np.random.default_rng(seed).permutation(len(y))
    columns, y = columns[order], y[order]
    num_train = len(y)
    if source == "adult":
        test = dps.datasets.load(source, split="test")
        tested = np.asarray(test.features)[:max_tested] * data.encoding.divisor
        columns = np.concatenate([columns, tested])
        y = np.concatenate([y, test.response[:max_tested]])
    return columns, y, num_columns, num_train


@cache
def load(name):
    """Return the records of a set."""
    source, rule = (LABELS | RESPONSES)[name]
    columns, y, num_columns, num_train = read(source)
    if name == "eligible":
        names = dps.datasets.load(source).feature_names
        at = names.index("e401k")
        y, columns = np.sign(columns[:, at]), np.delete(columns, at, axis=1)
        num_columns -= 1
    elif is_label(name) and rule is not None:
        y = np.where(y > rule, 1.0, -1.0)
    elif name == "blog":
        y = 2.0 * np.log1p(np.maximum(y, 0.0)) / np.log1p(rule[1]) - 1.0
    elif not is_label(name):
        y = np.interp(y, rule, (-1.0, 1.0))
    rows = np.column_stack([columns, np.ones(len(y))]) / np.sqrt(num_columns + 1.0)
    # Rounding of the divisors may leave the unit ball by some 1e-16.
    rows /= max(1.0, np.linalg.norm(rows, axis=1).max() * (1.0 + 1e-14))
    return Records(rows, np.clip(y, -1.0, 1.0), num_columns, num_train)


def domain_of(name):
    """Return the ball of coefficients."""
    return dps.domains.Ball(3.0 if is_label(name) else 1.5)


def facts_of(name, loss, n):
    """Return the public facts of a problem."""
    dim, num_columns = shape_of(name)
    return dps.PublicFacts(
        num_records=n,
        dim=dim,
        loss=loss,
        domain=domain_of(name),
        row_bound=np.sqrt(num_columns) * (1.0 + 1e-12),
        row_norm=2.0,
        response_bound=1.0,
        intercept=True,
    )


def problem_of(name, loss, n):
    """Return the problem of the first n records."""
    data = load(name)
    unit = np.sqrt(data.num_columns + 1.0)
    return dps.Problem(
        data.rows[:n, :-1] * unit,
        data.y[:n],
        loss=loss,
        domain=domain_of(name),
        row_bound=np.sqrt(data.num_columns) * (1.0 + 1e-12),
        response_bound=1.0,
        intercept=True,
    )


def unit_problem_of(name, loss, n):
    """Return the same problem for rows of norm at most 1, without an intercept.

    Its coefficients are the problem's coefficients times sqrt(m + 1).
    """
    data = load(name)
    radius = domain_of(name).radius * np.sqrt(data.num_columns + 1.0)
    return dps.Problem(
        data.rows[:n],
        data.y[:n],
        loss=loss,
        domain=dps.domains.Ball(radius),
        row_bound=1.0,
        response_bound=1.0,
    )


def held_out(name, n, *, max_tested=10_000):
    """Return rows and labels of test records."""
    records = load(name)
    first = records.num_train
    if first == len(records.y):
        first = max(n, len(records.y) - max_tested)
    unit = np.sqrt(records.num_columns + 1.0)
    return records.rows[first:] * unit, records.y[first:]


@cache
def minimum_of(name, loss, n):
    """Return the least risk on the ball, and the risks of 0 and the best constant."""
    problem = problem_of(name, LOSSES[loss], n)
    best = dps.minimizer(problem, tolerance=1e-7, progress=False).value
    y, ends = load(name).y[:n], problem.domain.radius
    # Median, quantile and mean are minimizers; the others are found by search.
    grid = np.linspace(-ends, ends, 801)
    values = [LOSSES[loss].value(np.full(len(y), u), y).mean() for u in grid]
    at = grid[int(np.argmin(values))]
    fine = at + np.linspace(-1.0, 1.0, 201) * (grid[1] - grid[0])
    values += [LOSSES[loss].value(np.full(len(y), u), y).mean() for u in fine]
    zero = LOSSES[loss].value(np.zeros(len(y)), y).mean()
    return best, zero - best, min(values) - best
