"""Smoothness of one record's loss in a linear model."""

from __future__ import annotations

import math

import numpy as np

from dpsample import _check as check
from dpsample import norms
from dpsample.domains import SchattenBall
from dpsample.facts import PublicFacts
from dpsample.losses import RecordGradient


def smoothness(facts: PublicFacts, p: float = 2.0) -> float:
    """Bound of phi'' |a|_q^2, q = p/(p - 1), over the domain and all possible records.

    Parameters
    ----------
    facts : PublicFacts
        Public facts of a problem.
    p : float
        Exponent >= 1 of the norm of parameters.

    Returns
    -------
    float
        beta, the l_p smoothness of one record's loss.

    Raises
    ------
    ValueError
        If the loss has a kink, or its curvature is unbounded on the domain.

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = PublicFacts(num_records=10, dim=3, row_bound=2.0, row_norm=2.0,
    ...                     loss=dps.losses.SmoothedHinge(0.5),
    ...                     domain=dps.domains.Ball(1.0))
    >>> smoothness(facts)
    8.0
    """
    check.instance(PublicFacts, facts=facts, remedy="Pass problem.facts.")
    check.at_least(1.0, p=p)
    if isinstance(facts.loss, RecordGradient) and p == 2.0:
        return _declared(facts.loss)
    reach = facts.margin_bound
    bound = 1.0 if facts.response_bound is None else facts.response_bound
    # Every built-in curvature is largest at one of these responses.
    response = np.array([-bound, bound])
    if not facts.loss.is_classification:
        response = np.array([-bound, 0.0, bound])
    reaches = np.full(response.shape, reach)
    curvature = float(facts.loss.curvature(-reaches, reaches, response)[1].max())
    if not math.isfinite(curvature):
        check.fail(
            "loss",
            "of bounded curvature on the domain",
            facts.loss,
            "Use a smooth loss, and a bounded domain if its curvature grows.",
        )
    dim = facts.dim
    if isinstance(facts.domain, SchattenBall):
        dim = min(facts.domain.shape)
    ratio = norms.conversion(dim, facts.row_norm, norms.dual(p))
    return curvature * float(facts.full_row_bound * ratio) ** 2


def _declared(loss: RecordGradient) -> float:
    """Smoothness that the user declared in the l_2 norm."""
    if not math.isfinite(loss.smoothness):
        remedy = "Pass smoothness=... to dps.losses.record_gradient, or a step size."
        check.fail("loss", "of declared smoothness", loss, remedy)
    return loss.smoothness
