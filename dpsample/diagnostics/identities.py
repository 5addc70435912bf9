r"""Checks of draws by identities that hold under the target, without reference draws.

The target has density proportional to exp(-V) on its domain, where V = k J and J is
the regularized mean loss. The domain's affine hull has dimension d.

Stein's identity (Schwinger-Dyson): for a field phi that vanishes on the boundary,

.. math:: E[\operatorname{div} \varphi - \langle \varphi, \nabla V \rangle] = 0.

Along a direction v let the chord through x end at t_- <= 0 <= t_+. Then b = -t_- t_+ is
0 on the boundary and has the derivative t_- + t_+ along v. So b v and w b v, where the
coordinate w grows along v, are such fields on every domain whose chords are known. No
formula of the boundary is needed.

Energies: E[V] - min V <= d (arXiv:2207.08347, Proposition 4), and V - min V ~ Gamma(d /
a, 1) if J - min J is homogeneous of degree a about the minimizer and the domain is R^d.
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
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.gibbs_target import chords, energies, slopes

if TYPE_CHECKING:
    from xarray import DataTree


class Identity(NamedTuple):
    """Values (chain, draw) and their expectation, or an upper bound of it."""

    values: Array
    expected: float
    is_limit: bool = False  # whether ``expected`` is an upper bound


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
        Critical z-scores, beyond which an identity is rejected.
    detectable : array of shape (num_identities,)
        Errors of a mean, in standard deviations of the values, that are seen with
        probability at least `POWER`.
    is_limit : array of bool
        Where an expectation is an upper bound: only a larger mean is refused.
    false_alarm : float
        Probability that draws of the target fail, all identities together.
    blind : str
        A sentence that names a defect of draws which this check cannot detect.
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
        # A mean below its upper bound is no finding.
        statistic = np.where(self.is_limit, self.z_scores, np.abs(self.z_scores))
        fails = ~(statistic <= self.limits)  # also where a z-score is NaN
        return tuple(n for n, f in zip(self.names, fails, strict=True) if f)

    @property
    def ok(self) -> bool:
        """Whether all identities hold as far as the draws can tell."""
        return not self.findings

    def __repr__(self) -> str:
        """Return z-scores, the verdict, and what could have been seen."""
        lines = [f"{self.title}: mean (expected) z-score, effective draws"]
        findings, is_known = self.findings, ~np.isnan(self.z_scores)
        for i, name in enumerate(self.names):
            sign = "<= " if self.is_limit[i] else ""
            line = f"  {name}: {self.means[i]:.4g} ({sign}{self.expected[i]:.4g})"
            line += f" {self.z_scores[i]:+.2f}, {self.effective_sizes[i]:.0f}"
            if name in findings:
                line += f"  {self._describe_failure(i)}"
            lines.append(line)
        # One identity that differs is a verdict, even if others are open. A finding
        # without a z-score is open, so only those that have one count here.
        names = np.array(self.names)
        if np.isin(names[is_known], findings).any():
            verdict = "NOT the target's law"
        else:
            verdict = "no difference seen" if self.ok else "no verdict"
        lines.append(
            f"{verdict}; draws of the target fail with probability about "
            f"{self.false_alarm:g}."
        )
        detectable = self.detectable[is_known]
        if detectable.size:
            lines.append(
                f"Could have seen, with probability {POWER:g}: means off by "
                f"{detectable.max():.2g} standard deviations."
            )
        return "\n".join([*lines, self.blind, "For study: not a privacy proof."])

    def _describe_failure(self, i: int) -> str:
        """Return the reason why an identity is a finding."""
        if np.isnan(self.effective_sizes[i]):  # set by `judge`
            return "TOO FEW DRAWS"
        # If all values are equal to their expectation, the z-score is 0/0.
        return "CONSTANT VALUES" if np.isnan(self.z_scores[i]) else "DIFFERS"


def stein_check(
    draws: DataTree | Array, target: Gibbs, *, false_alarm: float = 1e-3
) -> Expectations:
    """Check Stein's identities on draws: no reference, any domain and dimension.

    Each of up to 10 directions, the axes of a Gaussian fit, has two fields: a constant
    one, and one that grows along the direction. Both are multiplied by the distances to
    the two ends of the chord. A last field points away from an interior point.

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
    **Guarantee.** Under the target every expectation is exactly 0, also for losses that
    are not differentiable everywhere. The level is approximate. It is that of a t-test
    with the effective sample size of ArviZ.

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
    theta, is_independent = _checked_draws(draws, target)
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

    Always :math:`E[V] - \min V \le d`. If V - min V is homogeneous of degree a about
    the minimizer on the whole space, its distribution is Gamma(d / a, 1). Then its mean
    and two moments of the distribution function of Gamma(d / a, 1) are compared, too.

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
    **Guarantee.** The inequality and the distribution hold exactly for convex energies.
    The minimum that is used is the energy of a point, so it is no lower than the true
    one. It can hide a violation of the inequality, but never make one. The level is
    approximate as in `stein_check`.

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
    theta, is_independent = _checked_draws(draws, target)
    rank = target.domain.affine_dim(target.dim)
    if degree is not None:
        check.positive(degree=degree)
        if target.domain.is_bounded:
            remedy = "Homogeneity ends at the boundary: leave the degree out."
            check.fail("degree", "None on a bounded domain", degree, remedy)
    known_degree, lowest = _homogeneity(target)
    degree_used = known_degree if degree is None else degree
    values = energies(target, theta.reshape(-1, target.dim)).reshape(theta.shape[:2])
    excess = values - lowest
    laws = {"V - min V <= d": Identity(excess, float(rank), is_limit=True)}
    if degree_used is not None:
        from scipy.special import gammainc

        gamma_shape = rank / degree_used
        # The distribution function at draws of its own distribution is uniform.
        cdf = np.asarray(gammainc(gamma_shape, np.maximum(excess, 0.0)), np.float64)
        laws["V - min V, mean d / a"] = Identity(excess, gamma_shape)
        laws["its distribution function, mean 1/2"] = Identity(cdf, 0.5)
        laws["its square, mean 1/3"] = Identity(cdf**2, 1.0 / 3.0)
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
    """Return the z-scores of identities and their critical values.

    ``false_alarm`` is the budget of all of them together. Independent draws need no
    effective size. ``blind`` is a sentence on what such a check cannot see.
    """
    from scipy.stats import t

    check.open_interval(0.0, 1.0, false_alarm=false_alarm)
    values = [identity.values for identity in identities.values()]
    count_draws = np.size if is_independent else effective_size
    sizes = np.array([float(count_draws(v)) for v in values])
    # With fewer than 50 effective draws neither the size itself nor the standard error
    # is reliable. NaN then spreads to the z-score, so that no verdict is given.
    sizes = np.where(sizes >= 50.0, sizes, np.nan)
    expected = np.array([i.expected for i in identities.values()])
    is_limit = np.array([i.is_limit for i in identities.values()])
    means = np.array([v.mean() for v in values])
    spread = np.array([v.std(ddof=1) for v in values])
    errors = spread / np.sqrt(sizes)
    # By the union bound, with an equal share for every identity.
    share = false_alarm / len(identities)
    limits = np.asarray(t.isf(np.where(is_limit, share, 0.5 * share), sizes - 1.0))
    # A mean that is off by both quantiles together, in standard errors, exceeds the
    # critical one with probability POWER.
    detectable = (limits + t.isf(1.0 - POWER, sizes - 1.0)) / np.sqrt(sizes)
    with np.errstate(divide="ignore", invalid="ignore"):  # values may be constant
        z_scores = (means - expected) / errors
    return Expectations(
        title=title,
        names=tuple(identities),
        means=means,
        expected=expected,
        errors=errors,
        z_scores=z_scores,
        effective_sizes=sizes,
        limits=limits,
        detectable=detectable,
        is_limit=is_limit,
        false_alarm=float(false_alarm),
        blind=blind,
    )


def stein_values(target: Gibbs, points: Array) -> Iterator[tuple[str, Array]]:
    """Yield names and values (num_points,) of div phi - <phi, grad V>."""
    # Each direction adds two identities, and all identities share the false alarm.
    max_directions = 10
    normal, gradient = fit(target), slopes(target, points)
    # The Gaussian fit has the covariance factor factor^T. With factor (dim, rank) and
    # whiten (rank, dim), whiten @ factor is the identity. So the coordinate w =
    # white[:, i] grows by 1 along v = factor[:, i], and div(w b v) = w div(b v) + b.
    white = (points - normal.center) @ normal.whiten.T
    factor, name = normal.factor, "axis {} of the fit"
    if factor.shape[1] > max_directions:
        # A defect of the draws along any axis shows in most mixtures of all axes, but
        # not in ten of the axes. The seed is fixed, so that every check has the same
        # directions.
        rank = factor.shape[1]
        noise = np.random.default_rng(0).standard_normal((rank, rank))
        basis = np.linalg.qr(noise)[0][:, :max_directions]
        white, factor, name = white @ basis, factor @ basis, "mixture {} of axes"
    for i, direction in enumerate(factor.T):
        bump, change = _bump(chords(target, points, direction))
        slope, coordinate = gradient @ direction, white[:, i]
        label = name.format(i)
        yield f"constant, {label}", change - bump * slope
        yield f"linear, {label}", coordinate * (change - bump * slope) + bump
    yield "radial", _radial(target, points, gradient)


def _bump(ends: Array) -> tuple[Array, Array]:
    """Return b at the points and its derivative along the chord.

    ``ends`` (num_points, 2) holds t_- and t_+ of every point. b is 0 at finite ends. An
    infinite end counts as a factor 1, which is constant along the chord. There the
    density itself vanishes, so the field need not.
    """
    low, high = ends.T
    below, above = np.isfinite(low), np.isfinite(high)
    left, right = np.where(below, -low, 1.0), np.where(above, high, 1.0)
    # A step along v brings the point nearer to t_+ and farther from t_-. So a finite
    # ``right`` has the derivative -1, and a finite ``left`` has 1.
    return left * right, above * -left + below * right


def _radial(target: Gibbs, points: Array, gradient: Array) -> Array:
    """Return the values of div phi - <phi, grad V> for phi = (1 - rho)(x - c).

    rho is the gauge about an interior point c. It is 1 on the boundary, so the field
    vanishes there.
    """
    domain, dim = target.domain, target.dim
    center = domain.interior_point(dim)
    away = points - center
    # The chord from c in the direction x - c ends on the boundary at t = 1 / rho.
    reach = chords(target, np.broadcast_to(center, points.shape), away)[:, 1]
    # Very near to the center, rounding may turn a direction out of the simplex's plane.
    # Then the chord has length 0, and the gauge is taken as 0.
    gauge = 1.0 / np.where(reach > 0.0, reach, np.inf)
    rank = domain.affine_dim(dim)
    # The divergence of (1 - rho)(x - c) is rank (1 - rho) - <x - c, grad rho>, and the
    # last term is rho, because the gauge is homogeneous of degree 1.
    return np.asarray(
        rank * (1.0 - gauge) - gauge - (1.0 - gauge) * (away * gradient).sum(axis=1)
    )


def _homogeneity(target: Gibbs) -> tuple[float | None, float]:
    """Return the degree of the energy about its minimizer or None, and its minimum."""
    is_open = target.domain.is_whole_space
    plan = exact.quadratic(target) if is_open else None  # mean and covariance
    if plan is not None:
        return 2.0, target.energy(plan.mean)
    center = target.numbers.regularizer.center
    slope = target.gradient(center)
    # A linear loss whose slopes cancel leaves the regularizer, a squared norm about its
    # center. The slope of V is proportional to k, so zero is judged in units of k.
    is_flat = np.abs(slope).max() <= 1e-12 * target.k
    if is_open and target.problem.loss.name == "linear" and is_flat:
        return 2.0, target.energy(center)
    return None, gaussian_fit.minimize(target, tolerance=1e-9)[1]


def _checked_draws(draws: DataTree | Array, target: Gibbs) -> tuple[Array, bool]:
    """Return draws (chain, draw, dim), and whether they are taken as independent."""
    check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
    theta, is_independent = chains_of(draws)
    if theta.shape[2] != target.dim:
        check.fail("draws", f"of dimension {target.dim}", theta.shape[2])
    if not np.isfinite(energies(target, theta.reshape(-1, target.dim))).all():
        remedy = "They are of another target."
        check.fail("draws", "inside the domain", "some outside", remedy)
    return theta, is_independent
