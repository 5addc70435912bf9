"""BlogFeedback with public ranges, and a synthetic stand-in of its shape."""

import math
from functools import cache

import numpy as np

import dpsample as dps

BLOG, STAND_IN = "BlogFeedback", "synthetic stand-in"
SHAPE = (52_397, 276)
# Columns of the file that hold 0 or 1, or days of the week; the others are counts on a
# logarithmic scale.
INDICATORS = range(62, 276)
HOURS = 60


@cache
def records(name):
    """Features and numbers of comments."""
    features, response = (load if name == BLOG else make_stand_in)()
    features.setflags(write=False)
    response.setflags(write=False)
    return features, response


def load():
    """Public file; without it the error says where to get it.

    `load` scales every column to [-1, 1] and rows to norm 1. Indicators and hours are
    moved back to [0, 1]: a word that does not occur is 0.
    """
    data = dps.datasets.load("blogfeedback")
    features = data.features * math.sqrt(data.features.shape[1])
    columns = np.array([int(name[1:]) for name in data.feature_names])
    is_unit = np.isin(columns, INDICATORS) | (columns == HOURS)
    features[:, is_unit] = 0.5 * (1.0 + features[:, is_unit])
    return features, data.response.astype(float)


def make_stand_in():
    """Correlated counts, rare words, and a response with tail index 1.2."""
    rng = np.random.default_rng(2022)
    n, p = SHAPE
    features = np.zeros(SHAPE)
    level = rng.random((n, 1))
    features[:, :61] = np.clip(0.5 * level + 0.3 * rng.random((n, 61)), 0.0, 1.0)
    features[:, 61:] = rng.random((n, p - 61)) < 0.02
    comments = 3.0 * level[:, 0] ** 2 * rng.pareto(1.2, n)
    return features, np.floor(np.minimum(comments, 1424.0))
