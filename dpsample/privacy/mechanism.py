"""A calibrated exponential mechanism: public numbers and the density they define."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dpsample import _check as check
from dpsample.privacy.certificate import Certificate
from dpsample.privacy.terms import MechanismTerms
from dpsample.problem import Problem

if TYPE_CHECKING:
    from dpsample.targets import Gibbs


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(MechanismTerms):
    """A calibrated mechanism: one draw from exp(-k (F + mu r)) on the domain.

    Made by `calibrate`. The fields are listed in `MechanismTerms`; the ones most used
    are ``k``, ``mu``, ``gdp``, ``regularizer``, ``risk_bound``, ``delta_exact`` and
    ``gamma``.

    Guarantee
    ---------
    If the declared bounds hold for every possible record, an exact draw is gdp-GDP and
    (epsilon_proved, delta_exact)-DP under the budget's relation; a draw within total
    variation gamma of it on every data set is (epsilon_proved, delta)-DP.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[0.6, 0.8], [1.0, 0.0]], [1.0, -1.0], row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=1.0))
    >>> mech = dps.calibrate(problem, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> mech.target(problem).k == mech.k
    True
    """

    @cached_property
    def certificate(self) -> Certificate:
        """Certificate of an exact draw; a release names its sampler in a copy."""
        return Certificate.of(self)

    def target(self, problem: Problem) -> Gibbs:
        """Return the density to draw from.

        Parameters
        ----------
        problem : Problem
            Records with the public facts for which the mechanism was calibrated.

        Returns
        -------
        Gibbs
            exp(-k (F + mu r)) on the domain.

        Raises
        ------
        ValueError
            If the problem's public facts differ from the calibrated ones.
        """
        from dpsample.targets import Gibbs

        check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
        if problem.facts != self.facts:
            check.fail(
                "problem",
                "the one that was calibrated, with the same public facts",
                problem,
                "Call dps.calibrate(problem, budget) again.",
            )
        return Gibbs(problem, k=self.k, mu=self.mu, regularizer=self.regularizer)

    def __repr__(self) -> str:
        """Numbers a reader wants first."""
        return (
            f"ExponentialMechanism(k={self.k:.6g}, mu={self.mu:.6g}, "
            f"gdp={self.gdp:.6g}, delta_exact={self.delta_exact:.6g}, "
            f"gamma={self.gamma:.6g}, risk_bound={self.risk_bound:.6g}, "
            f"regularizer={self.regularizer!r})"
        )
