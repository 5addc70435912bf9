r"""The exact law of a target, in whatever form it can be had.

Closed forms where the energy is quadratic (a Gaussian on the whole space or a box),
quadrature in dimension 1 and 2, independent exact draws up to dimension 3 and for
Gaussians in balls; else independent ends of proximal chains with a proved error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample import quadrature
from dpsample.diagnostics import runs
from dpsample.energies import energies
from dpsample.samplers import exact_gaussian
from dpsample.samplers.choice import draws_exactly
from dpsample.samplers.exact import Exact
from dpsample.samplers.exact_gaussian import CORRELATED, IN_BOX, WHOLE
from dpsample.samplers.proximal import Proximal
from dpsample.targets import Gibbs

Array = NDArray[np.float64]
View = Callable[[Array], Array]

NUM_PANELS = 24
# Standard deviations from a box beyond which moments are rounding errors.
FAR = 30.0
DRAWN = ("exact draws", "proximal")
REFERENCES = ("auto", "closed form", "quadrature", "exact draws", "proximal")


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """Points with probabilities, and those of a grid with half as many panels."""

    points: Array  # (num_points, dim)
    weights: Array  # (num_points,)
    coarse: tuple[Array, Array]
    whiten: Array  # (1 or 2, dim)

    def mean(self, function: View) -> Array:
        """Return the expectation of a function of points."""
        return np.asarray(np.tensordot(self.weights, function(self.points), 1))


def grid(target: Gibbs) -> Grid:
    """Quadrature of a target whose domain has dimension 1 or 2."""
    origin, factor = quadrature.mean_and_factor([target])
    fine, coarse = (
        quadrature.law([target], origin, factor, num_panels=panels)
        for panels in (NUM_PANELS, NUM_PANELS // 2)
    )
    return Grid(
        points=fine[0],
        weights=fine[1][0],
        coarse=(coarse[0], coarse[1][0]),
        whiten=np.asarray(np.linalg.pinv(factor), dtype=np.float64),
    )


def step_function(values: Array, weights: Array) -> Callable[[Array], Array]:
    """Distribution function of weighted points, linear between them."""
    order = np.argsort(values)
    heights = np.cumsum(weights[order])
    # Half of a point's weight lies on either side of it.
    return lambda x: np.interp(x, values[order], heights - 0.5 * weights[order])


@dataclass(frozen=True, kw_only=True, eq=False)
class ClosedForm:
    """Normal or truncated normal coordinates of a quadratic energy.

    Attributes
    ----------
    mean, variance : array of shape (dim,)
        Moments of each coordinate.
    coordinates : list
        Frozen laws of scipy, one per coordinate.
    excess : object or None
        Law of V - min V: Gamma(dim / 2) on the whole space.
    lowest : float
        min V.
    """

    mean: Array
    variance: Array
    coordinates: list[Any]
    excess: Any
    lowest: float


def closed_form(target: Gibbs) -> ClosedForm | None:
    """Return the closed form of a target, or None."""
    plan = exact_gaussian.quadratic(target)
    if plan is None or plan.kind not in (WHOLE, CORRELATED, IN_BOX):
        return None
    from scipy import stats

    if plan.kind == IN_BOX:
        low = (plan.lower - plan.mean) / plan.deviations
        high = (plan.upper - plan.mean) / plan.deviations
        if (np.maximum(low, -high) > FAR).any():
            return None  # far tails, where scipy's moments are rounding errors
        sides = zip(low, high, plan.mean, plan.deviations, strict=True)
        laws = [stats.truncnorm(a, b, loc=m, scale=s) for a, b, m, s in sides]
        excess, lowest = None, np.nan
    else:
        spread = plan.deviations
        if plan.kind == CORRELATED:
            spread = np.sqrt((plan.factor**2).sum(axis=1))
        laws = [stats.norm(m, s) for m, s in zip(plan.mean, spread, strict=True)]
        excess, lowest = stats.gamma(0.5 * target.dim), target.energy(plan.mean)
    return ClosedForm(
        mean=np.array([law.mean() for law in laws]),
        variance=np.array([law.var() for law in laws]),
        coordinates=laws,
        excess=excess,
        lowest=lowest,
    )


def choose(target: Gibbs, reference: str) -> str:
    """Name of the reference that is used, after a look at what is possible."""
    check.one_of(REFERENCES, reference=reference)
    rank = target.problem.domain.affine_dim(target.dim)
    can: dict[str, Callable[[], bool]] = {
        "closed form": lambda: closed_form(target) is not None,
        "quadrature": lambda: rank in (1, 2),
        "exact draws": lambda: draws_exactly(target),
        "proximal": lambda: Proximal().supports(target)[0],
    }
    if reference != "auto":
        if not can[reference]():
            check.fail("reference", "possible for the target", reference, 'Use "auto".')
        return reference
    for name, is_possible in can.items():
        if is_possible():
            return name
    return check.fail(
        "target",
        "one with an exact reference",
        target,
        "Use stein_check, which needs none.",
    )


def drawer(
    target: Gibbs, name: str, error: float, rng: np.random.Generator
) -> Callable[[np.random.Generator], Array]:
    """Return a function that makes one draw from a stream.

    Parameters
    ----------
    target : Gibbs
        The target.
    name : {"exact draws", "proximal"}
        How draws are made.
    error : float
        Bound of the total variation of a draw that is not exact.
    rng : numpy.random.Generator
        Stream of the preparation.

    Returns
    -------
    callable
        Stream to draw, of shape (dim,).
    """
    if name == "exact draws":
        return runs.end_of(Exact().prepare(target, rng), 1)
    chain = Proximal().prepare(target, rng, gamma=error)
    return runs.end_of(chain, chain.certified_steps(error))


def names(target: Gibbs) -> tuple[str, ...]:
    """Names of the coordinates."""
    return tuple(f"theta[{name}]" for name in target.problem.feature_names)


def views(target: Gibbs) -> dict[str, View]:
    """Functions of points whose laws are compared: all coordinates and the energy."""
    found = {name: coordinate(j) for j, name in enumerate(names(target))}
    return found | {"energy": lambda points: energies(target, points)}


def coordinate(j: int) -> View:
    """View of one coordinate."""
    return lambda points: points[:, j]
