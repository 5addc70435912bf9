"""Gopi, Lee, Liu, Shen and Tian (2022): the exponential mechanism in general norms."""

import math
from collections.abc import Iterator
from typing import Any

from dpsample.papers import curves
from dpsample.papers.claim import Case
from dpsample.privacy.budget import Relation
from dpsample.privacy.curves.gaussian import paper_gdp

# Published ratio of k and mu, and pairs of epsilon and delta at which it is evaluated.
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
                formula="k/mu = (n epsilon / G)^2 / (2 log(1/(2 delta)))",
                setting="any n and d, linear losses",
                accounting=f"exact Gaussian curve, difference {difference}",
                relation=relation,
                epsilon=epsilon,
                delta=delta,
                epsilon_at=curves.gaussian(moves * paper_gdp(epsilon, delta), delta),
            )
    # The corollaries spend half of delta on the error of a sampler. But a sampler may
    # leave out an event of mass delta/2 on one of the two data sets alone.
    yield Case(
        paper="gopi",
        place="Corollaries 2 to 5",
        formula="(epsilon, delta/2) and a total variation of delta/2",
        setting="any",
        accounting="a total variation costs (1 + e^epsilon) times itself (GLLST-E5)",
        relation="replace_one",
        epsilon=1.0,
        delta=1e-6,
        epsilon_at=lambda factor: math.inf,
    )
