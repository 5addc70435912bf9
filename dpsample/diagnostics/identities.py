r"""Identities that hold under a target, for checks of draws that need no reference.

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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array, Bools
from dpsample.diagnostics.laws import POWER, chains_of, effective_size
from dpsample.samplers import gaussian_fit
from dpsample.samplers.exact import exact
from dpsample.samplers.gaussian_fit import fit
from dpsample.targets.gibbs import Gibbs, chords, energies, slopes

if TYPE_CHECKING:
    from xarray import DataTree

MAX_DIRECTIONS = 10
# Fewer effective draws give no standard error that could be trusted.
MIN_ESS = 50.0
ROUNDING = 1e-12  # relative size of a slope that counts as zero


class Identity(NamedTuple):
    """Values (chain, draw) and their expectation, or an upper bound of it."""

    values: Array
    expected: float
    is_limit: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Expectations:
    """Means against their expectations under the target.

    Attributes
    ----------
    title : str
        What was checked.
    names : tuple of str
        The identities.
    means, expected, errors, z_scores : array of shape (num_identities,)
        Means, what they should be, Monte Carlo standard errors, and differences in
        units of these.
    effective_sizes : array of shape (num_identities,)
        Effective numbers of draws.
    limits : array of shape (num_identities,)
        z-scores beyond which an identity is refused.
    detectable : array of shape (num_identities,)
        Errors of a mean, in standard deviations of the values, that are seen with
        probability at least `POWER`.
    is_limit : array of bool
        Where an expectation is an upper bound: only a larger mean is refused.
    false_alarm : float
        Probability that draws of the target fail, all identities together.
    blind : str
        What no such check sees.
    """

    title: str
    names: tuple[str, ...]
    means: Array
    expected: Array
    errors: Array
    z_scores: Array
    effective_sizes: Array
    limits: Array
    detectable: Array
    is_limit: Bools
    false_alarm: float
    blind: str

    @property
    def findings(self) -> tuple[str, ...]:
        """Identities that do not hold, or that too few effective draws leave open."""
        size = np.where(self.is_limit, self.z_scores, np.abs(self.z_scores))
        fails = ~(size <= self.limits)  # also where a z-score is NaN
        return tuple(n for n, f in zip(self.names, fails, strict=True) if f)

    @property
    def ok(self) -> bool:
        """Whether all identities hold as far as the draws can tell."""
        return not self.findings

    def __repr__(self) -> str:
        """z-scores, the verdict, and what could have been seen."""
        lines = [f"{self.title}: mean (expected) z-score, effective draws"]
        findings = self.findings
        for i, name in enumerate(self.names):
            sign = "<= " if self.is_limit[i] else ""
            line = f"  {name}: {self.means[i]:.4g} ({sign}{self.expected[i]:.4g})"
            line += f" {self.z_scores[i]:+.2f}, {self.effective_sizes[i]:.0f}"
            if name in findings:
                few = np.isnan(self.z_scores[i])
                line += "  TOO FEW DRAWS" if few else "  DIFFERS"
            lines.append(line)
        verdict = "no difference seen" if self.ok else "NOT the target's law"
        if np.isnan(self.z_scores).any():
            verdict = "no verdict"
        return "\n".join(
            [
                *lines,
                f"{verdict}; draws of the target fail with probability about "
                f"{self.false_alarm:g}.",
                f"Could have seen, with probability {POWER:g}: means off by "
                f"{np.nanmax(self.detectable, initial=0.0):.2g} standard deviations.",
                self.blind,
                "For study: not a privacy proof.",
            ]
        )


def stein_check(
    draws: DataTree | Array, target: Gibbs, *, false_alarm: float = 1e-3
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
    identities = {
        name: Identity(values.reshape(theta.shape[:2]), 0.0)
        for name, values in stein_values(target, points)
    }
    return judge(
        "Stein's identities",
        identities,
        false_alarm=false_alarm,
        is_independent=is_independent,
        blind="A wrong share of separate modes, with the right shape in each, stays "
        "unseen.",
    )


def gamma_check(
    draws: DataTree | Array,
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
    draws, target, false_alarm
        As in `stein_check`.
    degree : float, optional
        Degree a, if you know that the energy is homogeneous: 2 for the regularizer
        alone or a quadratic, which is found by itself, 1 for a norm.

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
    known_degree, lowest = _homogeneity(target)
    power = known_degree if degree is None else degree
    values = energies(target, theta.reshape(-1, target.dim)).reshape(theta.shape[:2])
    excess = values - lowest
    laws = {"V - min V <= d": Identity(excess, float(rank), is_limit=True)}
    if power is not None:
        from scipy.special import gammainc

        shape = rank / power
        level = np.asarray(gammainc(shape, np.maximum(excess, 0.0)), np.float64)
        laws["V - min V, mean d / a"] = Identity(excess, shape)
        laws["its distribution function, mean 1/2"] = Identity(level, 0.5)
        laws["its square, mean 1/3"] = Identity(level**2, 1.0 / 3.0)
    return judge(
        "Law of the energy",
        laws,
        false_alarm=false_alarm,
        is_independent=is_independent,
        blind="Only energies are looked at: a wrong law on level sets stays unseen.",
    )


def judge(
    title: str,
    identities: dict[str, Identity],
    *,
    false_alarm: float,
    is_independent: bool,
    blind: str,
) -> Expectations:
    """z-scores of identities and their limits.

    ``false_alarm`` is the budget of all of them together. Independent draws need no
    effective size. ``blind`` is a sentence on what such a check cannot see.
    """
    from scipy.stats import t

    check.open_interval(0.0, 1.0, false_alarm=false_alarm)
    values = [identity.values for identity in identities.values()]
    size_of = np.size if is_independent else effective_size
    sizes = np.array([float(size_of(v)) for v in values])
    sizes = np.where(sizes >= MIN_ESS, sizes, np.nan)
    expected = np.array([i.expected for i in identities.values()])
    is_limit = np.array([i.is_limit for i in identities.values()])
    means = np.array([v.mean() for v in values])
    spread = np.array([v.std(ddof=1) for v in values])
    errors = spread / np.sqrt(sizes)
    share = false_alarm / len(identities)
    limits = np.asarray(t.isf(np.where(is_limit, share, 0.5 * share), sizes - 1.0))
    return Expectations(
        title=title,
        names=tuple(identities),
        means=means,
        expected=expected,
        errors=errors,
        z_scores=(means - expected) / errors,
        effective_sizes=sizes,
        limits=limits,
        detectable=(limits + t.isf(1.0 - POWER, sizes - 1.0)) / np.sqrt(sizes),
        is_limit=is_limit,
        false_alarm=float(false_alarm),
        blind=blind,
    )


def stein_values(target: Gibbs, points: Array) -> Iterator[tuple[str, Array]]:
    """Names and values of div phi - <phi, grad V>."""
    normal, gradient = fit(target), slopes(target, points)
    white = (points - normal.center) @ normal.whiten.T
    factor, name = normal.factor, "axis {} of the fit"
    if factor.shape[1] > MAX_DIRECTIONS:
        # A few mixtures of all axes see more than a few axes.
        noise = np.random.default_rng(0).standard_normal(factor.shape[1:] * 2)
        basis = np.linalg.qr(noise)[0][:, :MAX_DIRECTIONS]
        white, factor, name = white @ basis, factor @ basis, "mixture {} of axes"
    for i, direction in enumerate(factor.T):
        bump, change = _bump(chords(target, points, direction))
        slope, coordinate = gradient @ direction, white[:, i]
        label = name.format(i)
        yield f"constant, {label}", change - bump * slope
        yield f"linear, {label}", coordinate * (change - bump * slope) + bump
    yield "radial", _radial(target, points, gradient)


def _bump(ends: Array) -> tuple[Array, Array]:
    """Return a function that is 0 at the chord's finite ends, and its slope there."""
    low, high = ends.T
    below, above = np.isfinite(low), np.isfinite(high)
    left, right = np.where(below, -low, 1.0), np.where(above, high, 1.0)
    return left * right, above * -left + below * right


def _radial(target: Gibbs, points: Array, gradient: Array) -> Array:
    """Field (1 - rho)(x - c), rho the gauge about an interior point c: 1 outside."""
    domain, dim = target.problem.domain, target.dim
    center = domain.interior_point(dim)
    away = points - center
    reach = chords(target, np.broadcast_to(center, points.shape), away)[:, 1]
    # Very near to the center, rounding turns a direction out of the simplex's plane.
    gauge = 1.0 / np.where(reach > 0.0, reach, np.inf)
    rank = domain.affine_dim(dim)
    # <x - c, grad rho> = rho: the gauge is homogeneous of degree 1.
    return np.asarray(
        rank * (1.0 - gauge) - gauge - (1.0 - gauge) * (away * gradient).sum(axis=1)
    )


def _homogeneity(target: Gibbs) -> tuple[float | None, float]:
    """Degree of the energy about its minimizer, if it is known, and the minimum."""
    is_open = target.problem.domain.is_whole_space
    plan = exact.quadratic(target) if is_open else None
    if plan is not None:
        return 2.0, target.energy(plan.mean)
    center = target.numbers.regularizer.center
    slope = target.gradient(center)
    # A linear loss whose slopes cancel leaves the regularizer, a squared norm.
    is_flat = np.abs(slope).max() <= ROUNDING * target.k
    if is_open and target.problem.loss.name == "linear" and is_flat:
        return 2.0, target.energy(center)
    return None, gaussian_fit.minimize(target, tolerance=1e-9)[1]


def _theta(draws: DataTree | Array, target: Gibbs) -> tuple[Array, bool]:
    """Draws (chain, draw, dim), and whether they are taken as independent."""
    check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
    theta, is_independent = chains_of(draws)
    if theta.shape[2] != target.dim:
        check.fail("draws", f"of dimension {target.dim}", theta.shape[2])
    if not np.isfinite(energies(target, theta.reshape(-1, target.dim))).all():
        remedy = "They are of another target."
        check.fail("draws", "inside the domain", "some outside", remedy)
    return theta, is_independent
