"""Problems and specs that tests of private proximal descent share."""

from __future__ import annotations

import math
from typing import Any

import dpsample as dps
from dpsample.optimizers import PrivateProximalSGD

BUDGET = dps.Budget(epsilon=1.0, delta=1e-5)


def facts(num_records: int = 1000, dim: int = 5, **options: Any) -> dps.PublicFacts:
    """Facts of a regression without a bound of the response."""
    given: dict[str, Any] = {
        "loss": dps.losses.Squared(),
        "domain": dps.domains.Ball(2.0),
        "row_bound": 1.0,
        "row_norm": 2.0,
        "response_bound": math.inf,
    }
    return dps.PublicFacts(num_records=num_records, dim=dim, **(given | options))


def spec(estimator: str, **options: Any) -> PrivateProximalSGD:
    """Lasso with a threshold where there is no default."""
    given: dict[str, Any] = {"l1": 0.05, "smoothness": 1.0}
    if estimator == "clip":
        given["threshold"] = 1.5
    return PrivateProximalSGD(estimator=estimator, **(given | options))


def regression(num_records: int, domain: dps.domains.Domain) -> dps.Problem:
    """Bounded records with Student errors."""
    data = dps.datasets.regression(num_records, 3, seed=3, noise=0.3, degrees=3.0)
    return dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Squared(),
        domain=domain,
        row_bound=1.0,
        response_bound=1.0,
    )
