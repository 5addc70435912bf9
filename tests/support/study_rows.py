"""Rows of a study as its store returns them."""

import numpy as np

from dpsample.experiments import Study
from dpsample.experiments.tasks import Row


def nothing(params, seed):
    raise AssertionError


def study(*metrics, **options):
    given = {"grid": {"n": (1, 2, 4)}, "replicates": 100, "cell": nothing} | options
    return Study(name="s", title="T", question="Q?", metrics=metrics, **given)


def rows(declared, values):
    """Rows with ``values(n, rng)`` for the first metric of every cell."""
    rng, name = np.random.default_rng(7), declared.metrics[0].name
    return [
        Row(cell.key, i, 0.0, {name: float(value)})
        for cell in declared.cells()
        for i, value in enumerate(values(cell.params["n"], rng))
    ]
