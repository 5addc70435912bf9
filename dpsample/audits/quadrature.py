r"""Exact privacy curves of exponential mechanisms with one or two free coefficients.

For densities p ~ e^{-V}, q ~ e^{-V'} on one body,

.. math:: \delta(\epsilon) = \int \max(0, q - e^{\epsilon} p),

by quadrature on rays from the mean of p (`dpsample.samplers.exact.quadrature`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.privacy.accounting.accounting import LARGEST_EPSILON
from dpsample.samplers.exact.quadrature import law, mean_and_factor
from dpsample.targets.gibbs import Gibbs


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactCurve:
    """Privacy curve of two densities by quadrature, each of shape (num_epsilons,).

    Attributes
    ----------
    epsilons : array
        Privacy losses.
    forward : array
        Smallest delta with Q(S) <= e^epsilon P(S) + delta for all S, Q being the law of
        the neighbor.
    backward : array
        The same with P and Q exchanged.
    error : array
        Estimate of the absolute error: the change when all steps are halved.

    Examples
    --------
    >>> a, b = np.array([0.1]), np.array([0.2])
    >>> ExactCurve(epsilons=a, forward=a, backward=b, error=a).delta
    array([0.2])
    """

    epsilons: Array
    forward: Array
    backward: Array
    error: Array

    @property
    def delta(self) -> Array:
        """Larger of both directions."""
        return np.maximum(self.forward, self.backward)


def exact_curve(
    target: Gibbs, neighbor_target: Gibbs, epsilons: ArrayLike, *, num_panels: int = 24
) -> ExactCurve:
    r"""Privacy curve of two targets on a body of dimension 1 or 2, by quadrature.

    .. math:: \delta(\epsilon) = \int \max(0, q - e^{\epsilon} p)

    Parameters
    ----------
    target, neighbor_target : Gibbs
        The two densities, on the same domain.
    epsilons : array of shape (num_epsilons,)
        Privacy losses, >= 0 and at most 600.
    num_panels : int
        Gauss-Legendre panels of 8 nodes per ray in the plane, where there are 16 times
        as many rays; 50 times as many panels on a line. The error falls with the
        square of it, or faster.

    Returns
    -------
    ExactCurve
        Both directions, and an estimate of the error.

    Raises
    ------
    ValueError
        If the dimension is larger, the domains differ, or an epsilon is out of
        its range.

    Guarantee
    ---------
    None but convergence: ``error`` compares two grids, it is no bound.

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = dps.PublicFacts(num_records=50, dim=2, row_bound=1.0, row_norm=2.0,
    ...                         loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-3)
    >>> mech = dps.calibrate(facts, budget)
    >>> pair = [mech.target(data) for data in dps.audits.neighbors.worst_case(facts)]
    >>> bool(dps.audits.exact_curve(*pair, [1.0]).delta[0] < 1e-3)
    True
    """
    check.instance(Gibbs, target=target, neighbor_target=neighbor_target)
    domain, dim = target.problem.domain, target.dim
    if neighbor_target.dim != dim or neighbor_target.problem.domain != domain:
        check.fail("neighbor_target", "on the domain of target", neighbor_target)
    rank = domain.affine_dim(dim)
    if rank not in (1, 2):
        check.fail("target", "of dimension 1 or 2", f"dimension {rank}")
    entries = np.atleast_1d(check.entries("epsilons", epsilons))
    levels = check.array("epsilons", entries, shape=(None,))
    if levels.size == 0 or not 0.0 <= levels.min() <= levels.max() <= LARGEST_EPSILON:
        wanted = f"non-empty, >= 0 and <= {LARGEST_EPSILON:g}"
        check.fail("epsilons", wanted, epsilons)
    check.integer(2, num_panels=num_panels)
    pair = target, neighbor_target
    origin, factor = mean_and_factor(pair)
    curves = []
    for panels in (num_panels // 2, num_panels):
        _, (p, q) = law(pair, origin, factor, num_panels=panels)
        both = [
            [np.maximum(a - np.exp(e) * b, 0.0).sum() for e in levels]
            for a, b in ((q, p), (p, q))
        ]
        curves.append(np.array(both))
    coarse, fine = curves
    error = np.abs(fine - coarse).max(axis=0)
    return ExactCurve(epsilons=levels, forward=fine[0], backward=fine[1], error=error)
