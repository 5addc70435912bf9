"""Records of a8a, a9a, w7a or a stand-in."""

import math
from functools import cache

import numpy as np

import dpsample as dps

# Attributes, and public bound of the rows' norm: a8a and a9a have 14 ones at most.
SHAPES = {
    "a8a": (123, math.sqrt(14.0)),
    "a9a": (123, math.sqrt(14.0)),
    "w7a": (300, math.sqrt(300.0)),
    "stand-in": (123, math.sqrt(14.0)),
}
SIZES = {"a8a": 22_696, "a9a": 32_561, "w7a": 24_692, "stand-in": 4_000}


def records(name, split):
    """Features as published, labels -1 and 1; the stand-in is drawn."""
    if name == "stand-in":
        return stand_in(split)
    data = dps.datasets.load(name, split=split)
    scale = math.sqrt({"w7a": 300.0}.get(name, 14.0))
    return data.features * scale, data.response


def stand_in(split):
    """Rows with 14 ones among 123, a few of them common, and noisy labels."""
    rng = np.random.default_rng(["train", "test"].index(split))
    number, dim = SIZES["stand-in"], SHAPES["stand-in"][0]
    # The largest of log weights plus Gumbel noise: draws without replacement.
    weights = -0.05 * np.arange(dim) + rng.gumbel(size=(number, dim))
    features = (weights >= np.sort(weights)[:, [-14]]).astype(float)
    theta = np.random.default_rng(2).normal(size=dim)
    margins = features @ theta - 1.0
    return features, np.where(rng.logistic(size=number) < margins, 1.0, -1.0)


@cache
def load(name, split):
    """Read the records of a set once."""
    return records(name, split)
