"""Binomial probabilities that keep their digits at any size."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def upper_tail(least: Vector, flips: Vector | float, rate: float) -> Vector:
    """P(Bin(flips, rate) >= least), least >= 0."""
    from scipy.special import betainc

    inner, a, b = _beta_parameters(least, flips)
    tail: Vector = np.where(inner, betainc(a, b, rate), least <= 0.0)
    return tail


def lower_tail(least: Vector, flips: Vector | float, rate: float) -> Vector:
    """P(Bin(flips, rate) < least), least >= 0."""
    from scipy.special import betaincc

    inner, a, b = _beta_parameters(least, flips)
    tail: Vector = np.where(inner, betaincc(a, b, rate), least > 0.0)
    return tail


def _beta_parameters(
    least: Vector, flips: Vector | float
) -> tuple[NDArray[np.bool_], Vector, Vector]:
    """Where the tail is neither empty nor everything, and its parameters there."""
    rest = flips - least + 1.0
    inner = (least > 0.0) & (rest > 0.0)
    return inner, np.where(inner, least, 1.0), np.where(inner, rest, 1.0)


def fair_mass(heads: Vector, flips: Vector) -> Vector:
    """P(Bin(flips, 1/2) = heads) by Stirling's formula with its error (Loader 2000).

    Logarithms of factorials would lose as many digits as ``flips`` has.
    """
    tails = flips - heads
    is_edge = (heads == 0.0) | (tails == 0.0)
    h, t, n = (np.where(is_edge, 1.0, x) for x in (heads, tails, flips))
    lean = np.where(is_edge, 0.0, (h - t) / n)
    deviance = 0.5 * n * (np.log1p(-lean * lean) + 2.0 * lean * np.arctanh(lean))
    error = _stirling_error(n) - _stirling_error(h) - _stirling_error(t)
    inner = np.sqrt(n / (2.0 * math.pi * h * t)) * np.exp(error - deviance)
    return np.where(is_edge, np.exp2(-flips), inner)


def _stirling_error(x: Vector) -> Vector:
    """Logarithm of x! over sqrt(2 pi x) (x/e)^x, x >= 1."""
    from scipy.special import gammaln

    small = np.minimum(x, 15.0)
    exact = gammaln(small + 1.0) - (small + 0.5) * np.log(small) + small
    large = np.maximum(x, 15.0)
    square = large * large
    series = 1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square
    series = (1 / 12 - (1 / 360 - series / square) / square) / large
    return np.where(x < 15.0, exact - 0.5 * math.log(2.0 * math.pi), series)
