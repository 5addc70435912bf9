"""Gopi, Lee, Liu, Shen and Tian (2022): the exponential mechanism in general norms."""

from __future__ import annotations

from collections.abc import Iterator

from dpsample.privacy.curves.gaussian import paper_gdp
from dpsample.privacy.printed import curves
from dpsample.privacy.printed.claim import Case

FORMULA = "k/mu = (n epsilon / G)^2 / (2 log(1/(2 delta)))"
REPLACED = ((1.0, 1e-3), (1.0, 1e-5), (1.0, 1e-8), (0.1, 1e-8), (4.0, 1e-5))
ZEROED = ((1.0, 1e-5), (4.0, 1e-5), (8.0, 1e-5), (16.0, 1e-5))


def cases() -> Iterator[Case]:
    """Theorems 3 to 6 under both relations, and the corollaries' two halves of delta.

    The theorems charge G / n for a replaced record, which moves the objective by
    2 G / n (GLLST-E1), and use a gdp that Fact 2 does not imply (GLLST-E2).
    """
    for epsilon, delta in REPLACED:
        yield Case(
            paper="gopi",
            place="Theorems 3 to 6",
            formula=FORMULA,
            setting="any n and d, linear losses",
            accounting="exact Gaussian curve, difference 2G/n",
            relation="replace_one",
            epsilon=epsilon,
            delta=delta,
            epsilon_at=curves.gaussian(2.0 * paper_gdp(epsilon, delta), delta),
        )
    for epsilon, delta in ZEROED:
        yield Case(
            paper="gopi",
            place="Theorems 3 and 4",
            formula=FORMULA,
            setting="any n and d, linear losses",
            accounting="exact Gaussian curve, difference G/n",
            relation="zero_out",
            epsilon=epsilon,
            delta=delta,
            epsilon_at=curves.gaussian(paper_gdp(epsilon, delta), delta),
        )
    yield Case(
        paper="gopi",
        place="Corollaries 2 to 5",
        formula="(epsilon, delta/2) and a total variation of delta/2",
        setting="any",
        accounting="a total variation costs (1 + e^epsilon) times itself",
        relation="replace_one",
        epsilon=1.0,
        delta=1e-6,
        meaning="unproved",
    )
