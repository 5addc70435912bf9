"""Custom losses with any declarations, and problems of them, for tests."""

from dataclasses import replace
from functools import cache

import numpy as np

import dpsample as dps
from dpsample import losses


def facts(loss, *, radius=1.0, bound=None, **options):
    given = {"num_records": 40, "dim": 2, "row_bound": 1.0, "row_norm": 2.0}
    domain = dps.domains.Ball(radius)
    given |= {"loss": loss, "domain": domain, "response_bound": bound}
    return dps.PublicFacts(**(given | options))


def problem(loss, *, radius=1.0, bound=None, response=None, **options):
    rows = np.random.default_rng(1).normal(size=(40, 2))
    rows /= 1.000001 * np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.where(rows[:, 0] > 0.0, 1.0, -1.0)
    return dps.Problem(
        rows,
        labels if response is None else np.full(40, response),
        loss=loss,
        domain=dps.domains.Ball(radius),
        row_bound=1.0,
        response_bound=bound,
        **options,
    )


@cache
def compiled(name):
    """Functions that many cases share, compiled once; each declares its own bounds."""
    functions = {
        "pseudo-Huber": (
            lambda u, y: np.sqrt(1.0 + (u - y) ** 2),
            lambda u, y: (u - y) / np.sqrt(1.0 + (u - y) ** 2),
        ),
        "squared": (lambda u, y: 0.5 * (u - y) ** 2, lambda u, y: u - y),
        "fourth power": (lambda u, y: (u - y) ** 4, lambda u, y: 4.0 * (u - y) ** 3),
        "absolute": (lambda u, y: abs(u - y), lambda u, y: np.sign(u - y)),
        "quadratic": (lambda u, y: 0.5 * u * u, lambda u, y: u),
        "quartic": (lambda u, y: u**4 / 4, lambda u, y: u**3),
        "cosine": (lambda u, y: 1.0 - np.cos(u), lambda u, y: np.sin(u)),
        "hinge": (
            lambda u, y: max(0.0, 1.0 - y * u),
            lambda u, y: -y if y * u < 1.0 else 0.0,
        ),
    }
    return losses.custom(*functions[name], slope_bound=1.0)


def declaring(name, **declared):
    """The loss with its declarations changed."""
    names = {
        "slope_bound": "declared_slope",
        "third_derivative_bound": "third_derivative",
    }
    return replace(compiled(name), **{names.get(k, k): v for k, v in declared.items()})


def pseudo_huber(**declared):
    return declaring("pseudo-Huber", **declared)


def quadratic(**declared):
    return declaring("quadratic", **({"slope_bound": 1e6} | declared))
