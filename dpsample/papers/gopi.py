"""Gopi, Lee, Liu, Shen and Tian (2022): the exponential mechanism in general norms."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpsample.papers import curves
from dpsample.papers.claim import Case, EpsilonAt
from dpsample.privacy.budget import Relation
from dpsample.privacy.curves.gaussian import paper_gdp

# Published ratio of k and mu, and pairs of epsilon and delta at which it is evaluated.
FORMULA = "k/mu = (n epsilon / G)^2 / (2 log(1/(2 delta)))"
REPLACED = ((1.0, 1e-3), (1.0, 1e-5), (1.0, 1e-8), (0.1, 1e-8), (4.0, 1e-5))
ZEROED = ((1.0, 1e-5), (4.0, 1e-5), (8.0, 1e-5), (16.0, 1e-5))


def cases() -> Iterator[Case]:
    """Yield Theorems 3 to 6 under both relations, and the corollaries.

    The theorems charge G / n for a replaced record, which moves the objective by
    2 G / n (GLLST-E1), and use a gdp that Fact 2 does not imply (GLLST-E2).
    """
    settings: tuple[tuple[str, Relation, str, float, Any], ...] = (
        ("Theorems 3 to 6", "replace_one", "2G/n", 2.0, REPLACED),
        ("Theorems 3 and 4", "zero_out", "G/n", 1.0, ZEROED),
    )
    for theorems, relation, difference, moves, budgets in settings:
        for epsilon, delta in budgets:
            yield Case(
                paper="gopi",
                place=theorems,
                formula=FORMULA,
                setting="supremum over d, linear losses",
                accounting=f"exact Gaussian curve, difference {difference}",
                relation=relation,
                epsilon=epsilon,
                delta=delta,
                epsilon_at=curves.gaussian(moves * paper_gdp(epsilon, delta), delta),
            )
    for dim in (1, 2, 5, 10, 50):
        yield _ball_case(dim, 1.0, 1e-5)
    # The corollaries spend half of delta on the error of a sampler. But a sampler may
    # leave out an event of mass delta/2 on one of the two data sets alone.
    yield Case(
        paper="gopi",
        place="Corollaries 2 to 5, proof",
        formula="(epsilon, delta/2) and a total variation of delta/2",
        setting="any",
        accounting="a total variation costs (1 + e^epsilon) times itself (GLLST-E5)",
        relation="replace_one",
        epsilon=1.0,
        delta=1e-6,
        epsilon_at=lambda factor: math.inf,
    )


def _ball_case(dim: int, epsilon: float, delta: float) -> Case:
    """Return Theorem 3 on an l_2 ball, where it holds for d = 1 (GLLST-E1)."""
    return Case(
        paper="gopi",
        place="Theorem 3",
        formula=FORMULA,
        setting=f"l_2 ball, d = {dim}, linear losses",
        accounting="opposite losses, worst center, by quadrature",
        relation="replace_one",
        epsilon=epsilon,
        delta=delta,
        meaning="attack",
        epsilon_at=ball_attack(dim=dim, epsilon=epsilon, delta=delta),
    )


def ball_attack(*, dim: int, epsilon: float, delta: float) -> EpsilonAt:
    """Return epsilon of two opposite linear losses under Theorem 3 on an l_2 ball.

    In units of the standard deviation 1/sqrt(k mu) the ball of radius R has the radius
    sqrt(2 d), because k mu = d/Theta and Theta = R^2/2. A loss of slope +-G moves the
    mean by gdp/2 to either side of a center, which the other records choose. The
    component along the slope has a normal density times the probability that the others
    stay inside the ball.

    >>> for dim in (1, 2):
    ...     attained = ball_attack(dim=dim, epsilon=1.0, delta=1e-5)(1.0)
    ...     print(f"{attained:.2f}")
    0.94
    1.20
    """
    shift = paper_gdp(epsilon, delta)
    # Centers in standard deviations, among which the worst one is taken.
    centers = (0.0, *np.geomspace(0.25, 32.0, 15))

    def epsilon_at(factor: float) -> float:
        radius = math.sqrt(2.0 * dim) / factor
        # Middles of cells. Finer grids change epsilon by less than 0.2%.
        x = radius * (np.arange(0.5, 10_001.0) / 5000.5 - 1.0)
        inside = curves.chi_square_mass(radius**2 - x**2, dim - 1)
        pairs = []
        for center in centers:
            logs = [-0.5 * (x - center - s * shift / factor) ** 2 for s in (-1.0, 1.0)]
            masses = [np.exp(log - log.max()) * inside for log in logs]
            pairs.append((masses[0] / masses[0].sum(), masses[1] / masses[1].sum()))
        return curves.attained_epsilon(pairs, delta)

    return epsilon_at
