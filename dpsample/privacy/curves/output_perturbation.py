"""How far one record moves the minimizer of a regularized objective.

J = F + m r, F the mean loss, r 1-strongly convex in the l_p norm, is m-strongly convex.
If J' = J + h belongs to a neighbor and h is H-Lipschitz, then strong convexity at both
minimizers gives m |w - w'|^2 <= h(w) - h(w') <= H |w - w'|: the minimizer moves by at
most H / m, H = G_Delta / n. A computed minimizer errs on both data sets.
"""

import math

from dpsample.core import check
from dpsample.domains import WholeSpace
from dpsample.problem.facts import PublicFacts

# Relative rounding error of the few operations below, with room.
ROUND_UP = 1.0 + 1e-15


@check.plain
def minimizer_error(
    *, strong_convexity: float, gap: float = 0.0, gradient_norm: float = 0.0
) -> float:
    r"""Distance of a computed point from the minimizer it stands for.

    :math:`\sqrt{2a/m} + \tau/m`: an m-strongly convex objective within ``gap`` a of its
    minimum, or with a gradient of dual norm at most ``gradient_norm`` tau.

    Parameters
    ----------
    strong_convexity : float
        m, > 0, of the objective in the norm of the result.
    gap : float
        Certified bound a of J(w) - min J, >= 0.
    gradient_norm : float
        Certified bound tau of the dual norm of the gradient, >= 0; only for problems
        without constraints.

    Returns
    -------
    float
        Bound of the distance, rounded up. A solver certifies one of the two, and the
        other is 0.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Guarantee
    ---------
    Every w with J(w) - min J <= a, or with a gradient of norm <= tau, is that close.

    Examples
    --------
    >>> minimizer_error(strong_convexity=0.5, gap=1e-4) <= 0.0200001
    True
    """
    check.positive(strong_convexity=strong_convexity)
    check.non_negative(gap=gap, gradient_norm=gradient_norm)
    by_gap = math.sqrt(2.0 * gap / strong_convexity)
    return (by_gap + gradient_norm / strong_convexity) * ROUND_UP


@check.plain
def minimizer_sensitivity(
    facts: PublicFacts,
    *,
    strong_convexity: float,
    p: float = 2.0,
    relation: str = "replace_one",
    gap: float = 0.0,
    gradient_norm: float = 0.0,
) -> float:
    r"""l_p sensitivity of the minimizer of F + m r, exact or certified.

    :math:`\frac{G_\Delta}{nm} + 2\sqrt{2a/m}`, or
    :math:`\frac{G_\Delta}{nm} + \frac{2\tau}{m}`; Chaudhuri, Monteleoni and Sarwate
    (2011), Theorem 6, in any norm, with the error of the solver on both data sets.

    Parameters
    ----------
    facts : PublicFacts
        Public facts of the problem.
    strong_convexity : float
        m, > 0, of the term m r that all data sets share; r is 1-strongly convex in l_p.
    p : float
        Norm of the sensitivity, >= 1.
    relation : {"replace_one", "zero_out"}
        Which data sets are neighbors.
    gap : float
        Public accuracy a of the solver, certified on every data set; 0 is exact.
    gradient_norm : float
        Public bound tau of the gradient's dual norm at the point returned, enforced on
        every data set; only without constraints.

    Returns
    -------
    float
        Bound of the l_p distance between the points computed on neighbors, rounded up.

    Raises
    ------
    ValueError
        If a number is out of its range, the loss has no Lipschitz constant on the
        domain, or ``gradient_norm`` comes with a constrained domain.

    Guarantee
    ---------
    If the losses are convex and satisfy the declared bounds for every possible record,
    the two points are at most this far apart. Linear losses attain it at a = tau = 0.

    Examples
    --------
    >>> import dpsample as dps
    >>> from dpsample.problem.facts import PublicFacts
    >>> facts = PublicFacts(num_records=1000, dim=3, row_bound=1.0, row_norm=2.0,
    ...                     loss=dps.losses.Logistic(), domain=dps.domains.WholeSpace())
    >>> sensitivity = minimizer_sensitivity(facts, strong_convexity=0.01)
    >>> print(f"{sensitivity:.6f}")
    0.200000

    The noise that makes the minimizer private:

    >>> from dpsample.privacy.curves.additive import gaussian_stddev
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> print(f"{gaussian_stddev(budget, sensitivity):.4f}")
    0.8449
    """
    check.instance(PublicFacts, facts=facts, remedy="Pass problem.facts.")
    check.non_negative(gradient_norm=gradient_norm)
    if gradient_norm and not isinstance(facts.domain, WholeSpace):
        check.fail(
            "gradient_norm",
            "0 on a constrained domain",
            gradient_norm,
            "Certify the gap: a projected minimizer has no small gradient.",
        )
    error = minimizer_error(
        strong_convexity=strong_convexity, gap=gap, gradient_norm=gradient_norm
    )
    moved = facts.diff_lipschitz(p, relation) / (facts.num_records * strong_convexity)
    return (moved + 2.0 * error) * ROUND_UP
