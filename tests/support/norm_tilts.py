"""Exact densities of minimizers with a tilt of density exp(-|b|/s), in d = 1 and 2.

The minimizer of a tilted objective on a convex set is inside, on an edge, or at a
corner. Its measure on each of these has a density, an integral of the tilt's over the
normal cone. Integrals are sums of Gauss-Legendre rules on graded panels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpsample.losses import Loss


class Rule:
    """Gauss-Legendre rule, and panels around the nearest point of a ray, over s."""

    nodes, weights = np.polynomial.legendre.leggauss(24)
    edges = np.concatenate(
        [[0.0], np.geomspace(1e-5, 0.5, 12), [1.0, 2, 4, 8, 16, 32, 64]]
    )


@dataclass(frozen=True)
class Records:
    """Records of a linear model, and the numbers of its tilted objective."""

    loss: Loss
    rows: np.ndarray  # (n, d)
    response: np.ndarray  # (n,)
    weights: np.ndarray  # (n,): 0 for a record whose loss is set to zero
    center: np.ndarray
    pull: float  # n m
    scale: float  # s

    def tilt(self, x: np.ndarray) -> np.ndarray:
        """Tilt whose unconstrained minimizer is x."""
        slopes = self.loss.slope(self.rows @ x, self.response)
        return -(self.weights * slopes) @ self.rows - self.pull * (x - self.center)

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """n times the second derivative of the objective at x."""
        margins = self.rows @ x
        bends = self.loss.curvature(margins, margins, self.response)[1]
        common = self.pull * np.eye(len(x))
        return (self.rows.T * (self.weights * bends)) @ self.rows + common

    def log_inside(self, x: np.ndarray) -> float:
        """Log density at a point inside, up to a constant of s and d."""
        _, log_det = np.linalg.slogdet(self.hessian(x))
        return float(log_det - np.linalg.norm(self.tilt(x)) / self.scale)

    def log_edge(self, x: np.ndarray, normal: np.ndarray, bend: float = 0.0) -> float:
        """Log density along an edge (d = 2), or log mass of an end (d = 1).

        ``normal`` is the outer unit normal, and ``bend`` the curvature of the edge.
        """
        stiffness = 1.0
        if len(x) == 2:
            tangent = np.array([-normal[1], normal[0]])
            stiffness = float(tangent @ self.hessian(x) @ tangent)
        integral = _ray(self.tilt(x), -normal, self.scale, stiffness, bend)
        return math.log(integral)

    def log_corner(self, x: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
        """Log mass of a corner between two edges with these outer normals."""
        start = math.atan2(*first[::-1])
        turn = (math.atan2(*second[::-1]) - start + math.pi) % (2 * math.pi) - math.pi
        angles = start + 0.5 * turn * (np.linspace(-1, 1, 9)[:, None] + 1.0)
        tilt, total = self.tilt(x), 0.0
        for low, high in zip(angles[:-1, 0], angles[1:, 0], strict=True):
            half = 0.5 * (high - low)
            for node, weight in zip(Rule.nodes, Rule.weights, strict=True):
                angle = low + half * (node + 1.0)
                away = -np.array([math.cos(angle), math.sin(angle)])
                total += abs(half) * weight * _ray(tilt, away, self.scale, 0.0, 1.0)
        return math.log(total)

    def log_line(self, x: np.ndarray, normal: np.ndarray) -> float:
        """Log density along a flat domain (d = 2) with this unit normal."""
        tangent = np.array([-normal[1], normal[0]])
        stiffness = float(tangent @ self.hessian(x) @ tangent)
        total = sum(
            _ray(self.tilt(x), sign * normal, self.scale, stiffness, 0.0)
            for sign in (-1.0, 1.0)
        )
        return math.log(total)

    def without(self, index: int) -> Records:
        """Set the loss of a record to zero."""
        weights = self.weights.copy()
        weights[index] = 0.0
        return replace(self, weights=weights)


def _ray(
    tilt: np.ndarray, direction: np.ndarray, s: float, level: float, bend: float
) -> float:
    """Integral of e^{-|tilt + t direction|/s} (level + bend t) over t > 0.

    In d = 1 and for a corner the weight is a constant, or t.
    """
    nearest = -float(tilt @ direction)
    height = max(float(tilt @ tilt) - nearest**2, 0.0)
    edges = nearest + s * np.concatenate([-Rule.edges[::-1], Rule.edges[1:]])
    edges = np.concatenate([[0.0], edges[edges > 0.0]])
    if len(edges) == 1:  # the ray leaves the nearest point far behind
        edges = s * Rule.edges
    elif nearest <= 0.0:
        edges = np.concatenate([[0.0], s * Rule.edges[1:]])
    half = 0.5 * np.diff(edges)[:, None]
    t = edges[:-1, None] + half * (Rule.nodes + 1.0)
    distance = np.sqrt((t - nearest) ** 2 + height)
    values = np.exp(-distance / s) * (level + bend * t)
    return float((half * Rule.weights * values).sum())
