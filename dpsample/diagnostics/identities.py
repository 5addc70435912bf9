r"""Checks of draws that need no reference: identities that hold under the target.

Stein's identity (Schwinger-Dyson): for a field phi that vanishes on the boundary,

.. math:: E[\operatorname{div} \varphi - \langle \varphi, \nabla V \rangle] = 0.

Along a direction v let the chord through x end at t_- <= 0 <= t_+; b = -t_- t_+ is 0 on
the boundary and changes by t_- + t_+ along v. That serves every domain, with no formula
for its shape: integrate along lines.

Energies: for V = k J in dimension d, E V - min V <= d (arXiv:2207.08347, Proposition
4), and V - min V ~ Gamma(d / a, 1) if J - min J is homogeneous of degree a about the
minimizer and the domain is R^d.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample.diagnostics.expectations import Expectations, Identity, judge
from dpsample.diagnostics.fields import stein_values
from dpsample.diagnostics.runs import chains_of
from dpsample.energies import energies
from dpsample.samplers import exact_gaussian, mode
from dpsample.targets import Gibbs

Array = NDArray[np.float64]

ROUNDING = 1e-12  # relative size of a slope that counts as zero


def stein_check(
    draws: Any, target: Gibbs, *, false_alarm: float = 1e-3
) -> Expectations:
    """Check Stein's identities on draws: no reference, any domain and dimension.

    For each of up to 10 directions, those of a Gaussian fit, the constant field and one
    that grows along the direction, times the product of the distances to both ends of
    the chord; and the field that points away from an interior point.

    Parameters
    ----------
    draws : DataTree or array of shape (num_points, dim) or (chain, draw, dim)
        What `sample` returned; a matrix is taken as independent points.
    target : Gibbs
        The target.
    false_alarm : float
        Probability that draws of the target fail, all identities together.

    Returns
    -------
    Expectations
        Means with Monte Carlo standard errors and z-scores, ``ok``, and what could have
        been seen.

    Raises
    ------
    ValueError
        If draws are malformed, do not fit, or are outside the domain.

    Notes
    -----
    **Guarantee.** Under the target every expectation is 0 exactly, also with kinks. The
    level is that of a t-test with the effective sample size of ArviZ: approximate.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[1.0], [0.5]], [1.0, -1.0], loss=dps.losses.Hinge(),
    ...                       domain=dps.domains.Ball(radius=2.0), row_bound=1.0)
    >>> target = dps.Gibbs(problem, k=10.0, mu=0.1)
    >>> draws = dps.sample(target, num_draws=1000, seed=1)
    >>> dps.diagnostics.stein_check(draws, target).ok
    True
    >>> dps.diagnostics.stein_check(draws, dps.Gibbs(problem, k=20.0, mu=0.1)).ok
    False
    """
    theta, is_independent = _theta(draws, target)
    points = theta.reshape(-1, target.dim)
    found = {
        name: Identity(values.reshape(theta.shape[:2]), 0.0)
        for name, values in stein_values(target, points)
    }
    return judge(
        "Stein's identities",
        found,
        false_alarm=false_alarm,
        is_independent=is_independent,
        blind="A wrong share of separate modes, with the right shape in each, stays "
        "unseen.",
    )


def gamma_check(
    draws: Any,
    target: Gibbs,
    *,
    degree: float | None = None,
    false_alarm: float = 1e-3,
) -> Expectations:
    r"""Check the energies of draws against the law that convexity gives them.

    Always :math:`E V - \min V \le d`. Where V - min V is homogeneous of degree a about
    the minimizer on the whole space, it has the law Gamma(d / a, 1): the mean, and two
    moments of its distribution function, are compared with that.

    Parameters
    ----------
    draws : DataTree or array of shape (num_points, dim) or (chain, draw, dim)
        What `sample` returned; a matrix is taken as independent points.
    target : Gibbs
        The target.
    degree : float, optional
        Degree a, if you know that the energy is homogeneous: 2 for the regularizer
        alone or a quadratic, which is found by itself, 1 for a norm.
    false_alarm : float
        Probability that draws of the target fail, all comparisons together.

    Returns
    -------
    Expectations
        As of `stein_check`.

    Raises
    ------
    ValueError
        If draws are malformed or do not fit, or the degree is given on a bounded
        domain.

    Notes
    -----
    **Guarantee.** The inequality and the law hold exactly for convex energies; the
    minimum that is used is no lower than the true one, so that a violation is one. The
    level is approximate as in `stein_check`.

    Examples
    --------
    >>> import dpsample as dps
    >>> problem = dps.Problem([[1.0, 0.0]], [0.0], loss=dps.losses.Squared(),
    ...                       domain=dps.domains.WholeSpace(), row_bound=1.0,
    ...                       response_bound=1.0)
    >>> target = dps.Gibbs(problem, k=10.0, mu=0.1)
    >>> draws = dps.sample(target, num_draws=1000, seed=1)
    >>> report = dps.diagnostics.gamma_check(draws, target)
    >>> report.ok, len(report.names)
    (True, 4)
    """
    theta, is_independent = _theta(draws, target)
    rank = target.problem.domain.affine_dim(target.dim)
    if degree is not None:
        check.positive(degree=degree)
        if target.problem.domain.is_bounded:
            remedy = "Homogeneity ends at the boundary: leave the degree out."
            check.fail("degree", "None on a bounded domain", degree, remedy)
    known, lowest = _homogeneity(target)
    power = known if degree is None else degree
    values = energies(target, theta.reshape(-1, target.dim)).reshape(theta.shape[:2])
    excess = values - lowest
    found = {"V - min V <= d": Identity(excess, float(rank), is_limit=True)}
    if power is not None:
        from scipy.special import gammainc

        shape = rank / power
        level = np.asarray(gammainc(shape, np.maximum(excess, 0.0)), np.float64)
        found["V - min V, mean d / a"] = Identity(excess, shape)
        found["its distribution function, mean 1/2"] = Identity(level, 0.5)
        found["its square, mean 1/3"] = Identity(level**2, 1.0 / 3.0)
    blind = "Only energies are looked at: a wrong law on level sets stays unseen."
    return judge(
        "Law of the energy",
        found,
        false_alarm=false_alarm,
        is_independent=is_independent,
        blind=blind,
    )


def _homogeneity(target: Gibbs) -> tuple[float | None, float]:
    """Degree of the energy about its minimizer, if it is known, and the minimum."""
    is_open = target.problem.domain.name == "whole_space"
    plan = exact_gaussian.quadratic(target) if is_open else None
    if plan is not None:
        return 2.0, target.energy(plan.mean)
    center = target.numbers.regularizer.center
    slope = target.gradient(center)
    # A linear loss whose slopes cancel leaves the regularizer, a squared norm.
    is_flat = np.abs(slope).max() <= ROUNDING * target.k
    if is_open and target.problem.loss.name == "linear" and is_flat:
        return 2.0, target.energy(center)
    return None, mode.minimize(target, tolerance=1e-9)[1]


def _theta(draws: Any, target: Gibbs) -> tuple[Array, bool]:
    """Draws (chain, draw, dim), and whether they are taken as independent."""
    check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
    theta, is_independent = chains_of(draws)
    if theta.shape[2] != target.dim:
        check.fail("draws", f"of dimension {target.dim}", theta.shape[2])
    if not np.isfinite(energies(target, theta.reshape(-1, target.dim))).all():
        remedy = "They are of another target."
        check.fail("draws", "inside the domain", "some outside", remedy)
    return theta, is_independent
