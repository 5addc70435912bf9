"""Private estimates with confidence intervals. `inference.sandwich` has the theory.

A call fits the coefficients and releases one or two matrices, all with noise under one
budget. Everything else is computed from these noisy numbers. "gdp" is the parameter of
Gaussian differential privacy, and squares of gdp add up.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpsample import losses
from dpsample.api.tune import run_fit
from dpsample.core import check, pauses
from dpsample.core import columns as column_names
from dpsample.core.arrays import Array
from dpsample.core.check import axes
from dpsample.core.streams import Seed, release_streams, seed_sequence
from dpsample.inference.sandwich import (
    BASES,
    CLEAR,
    FLAGS,
    KINKED,
    SHARES,
    SQUARE_SHARE,
    Base,
    Means,
    Sandwich,
    estimate,
    is_trusted,
    noisy_matrix,
    noisy_square,
    plan_intervals,
    weights,
)
from dpsample.privacy import Budget, EventCertificate, Ledger, LedgerFile
from dpsample.privacy.budget import check_not_pure
from dpsample.privacy.certificates.ledger_file import spend
from dpsample.privacy.usefulness import warn_if_useless
from dpsample.problem.problem import Problem, with_columns
from dpsample.running import descent
from dpsample.running import progress as screen
from dpsample.tables.encoding import collinear_columns, positions_without_references

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervals:
    """Private estimates with confidence intervals, and their common certificate.

    Attributes
    ----------
    theta, se, lower, upper : arrays of shape (dim,)
        Estimates, standard errors and ends of the intervals. The intercept comes last.
    covariance : array of shape (dim, dim)
        Covariance of the estimates, which includes the mechanism's noise.
    level : float
        Coverage of each interval on its own.
    feature_names : tuple of str
        Names of the coefficients.
    diagnostics : dict
        Numbers that are private like theta: ``least_eigenvalue`` of the denoised
        curvature, the ``noise_level`` that it should exceed, and ``flags``, the reasons
        why intervals may not cover.
    certificate : EventCertificate
        Certificate of all of the above together.
    """

    theta: Array
    covariance: Array
    se: Array
    lower: Array
    upper: Array
    level: float
    feature_names: tuple[str, ...]
    diagnostics: dict[str, Any]
    certificate: EventCertificate

    def to_frame(self) -> DataFrame:
        """Return a table: ``estimate``, ``se``, ``lower``, ``upper`` by name."""
        import pandas as pd

        table = {"estimate": self.theta, "se": self.se}
        table |= {"lower": self.lower, "upper": self.upper}
        return pd.DataFrame(table, index=pd.Index(self.feature_names))

    def plot(
        self, ax: Axes | None = None, *, non_private: Sequence[ArrayLike] | None = None
    ) -> Axes:
        """Draw the intervals, each in a row of its own.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw in.
        non_private : pair of arrays of shape (dim,), optional
            Estimates and standard errors of a fit that is not private, for comparison.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        count, budget = self.theta.size, self.certificate.budget
        others: list[Array] = []
        if non_private is not None:
            if not (isinstance(non_private, tuple | list) and len(non_private) == 2):
                condition = "estimates and their standard errors"
                check.fail("non_private", condition, check.describe(non_private))
            shape = (count,)
            others = [check.array("non_private", x, shape=shape) for x in non_private]
        ax = axes(ax, figsize=(7.0, 0.35 * count + 1.4))
        rows, style = np.arange(count), dict[str, Any](capsize=3, ls="none")
        label = f"({budget.epsilon:g}, {budget.delta:g})-DP"
        wide = np.where(np.isfinite(self.se), self.upper - self.theta, 0.0)
        ax.errorbar(self.theta, rows, xerr=wide, marker="o", label=label, **style)
        if others:
            point, wide = others[0], _quantile(self.level) * others[1]
            style |= {"marker": "x", "color": "0.5", "label": "NOT PRIVATE"}
            ax.errorbar(point, rows + 0.25, xerr=wide, **style)
        ax.axvline(0.0, color="0.5", lw=0.8, zorder=0)
        ax.set_yticks(rows, self.feature_names)
        ax.set_ylim(count - 0.5, -0.5)
        notes = [f"NOTE: {FLAGS[name]}" for name in self.diagnostics["flags"]]
        label = f"coefficient, each with an interval of confidence {self.level:.3g}"
        lines = [label, *(fill(note, width=80) for note in notes)]
        ax.set_xlabel("\n".join(lines))
        ax.legend()
        return ax

    def __repr__(self) -> str:
        """Return the table, doubts and the certificate's statement."""
        table = self.to_frame().to_string(
            float_format=lambda x: f"{x:.4g}", max_rows=12
        )
        flags = "".join(
            f"\n  NOTE: {FLAGS[name]}" for name in self.diagnostics["flags"]
        )
        return (
            f"Intervals({100 * self.level:g}% each,\n{table}{flags}\n  "
            f"certificate={self.certificate!r})"
        )


def _with_contrasts(problem: Problem) -> Problem:
    """Return the problem in which coefficients can be told apart, by public facts.

    If indicators of all levels add up to an intercept's 1 or to each other, the
    reference level of their columns is left out. A problem of which the reference
    cannot be left out here is rejected, before anything is spent.
    """
    encoding, facts = problem.encoding, problem.facts
    if encoding is None or encoding.schema is None:
        return problem
    columns = collinear_columns(
        encoding.schema, encoding.columns, intercept=facts.intercept
    )
    missing = [name for name in columns if name not in encoding.contrasts]
    if not missing:
        return problem
    positions = positions_without_references(encoding, columns)
    text = column_names.list_names(missing)
    remedy = f"Take dps.tables.Encoding(..., contrasts={columns!r})."
    if not problem.storage.is_in_memory:
        condition = f"one with reference levels of {text}"
        check.fail("problem", condition, "all levels on a cluster", remedy)
    try:
        facts.domain.check(len(positions) + int(facts.intercept))
    except ValueError:  # it has a number for each coefficient
        condition = f"of any dimension, because reference levels of {text} are left out"
        check.fail("domain", condition, facts.domain, remedy)
    return with_columns(problem, positions, replace(encoding, contrasts=columns))


def _check_size(problem: Problem) -> None:
    """Raise if no interval can be finite, by public facts."""
    if problem.num_records < problem.dim:
        condition = f"at least the number of coefficients, {problem.dim}"
        remedy = "Fewer records cannot tell them apart."
        check.fail("num_records", condition, problem.num_records, remedy)


def _quantile(level: float) -> float:
    """Return the half-width of an interval, in standard errors."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + 0.5 * level))


# BLAS has one thread, because the number of threads changes the last bits. NumPy
# scalars become Python numbers.
@pauses.single_threaded_blas()
@check.unwrap_numpy
def intervals(
    problem: Problem,
    budget: Budget,
    *,
    base: Base | None = None,
    level: float = 0.95,
    share: float | None = None,
    robust: bool | None = None,
    bandwidth: float | None = None,
    ledger: Ledger | LedgerFile | None = None,
    seed: Seed = None,
    progress: bool = True,
) -> Intervals:
    """Fit privately, with confidence intervals that include the privacy noise.

    Parameters
    ----------
    problem : Problem
        Records of a built-in loss that is curved, or not differentiable at one point.
        The domain is a ball, a box or the whole space, with the minimizer inside.
        Where levels of categorical columns add up to an intercept, or to each other,
        their coefficients are contrasts to a reference level
        (`dpsample.tables.Schema`).
    budget : Budget
        Budget of all returned numbers together.
    base : {"objective", "noisy_gd", "normal_equations"}, optional
        Method of the estimate: objective perturbation, the mean of the last iterates of
        noisy gradient descent, or, for squared losses only, the noisy normal equations
        of `AdaSSP`, whose matrix is the curvature. The default is "normal_equations"
        for squared losses, "noisy_gd" for non-smooth ones, and "objective" for others.
    level : float
        Coverage of each interval, in (0, 1).
    share : float, optional
        Part of the squared gdp for the matrices of the covariance, from 0.01 to below
        1. The default is 0.3 for one matrix and 0.4 for two. For normal equations it is
        0.4, or 0.1 if not robust.
    robust : bool, optional
        Whether the variance of scores (the derivatives of records' losses) is released,
        not derived from the model. If True, intervals cover the minimizer of the
        population risk even if the model is wrong. The default is False for logistic,
        absolute and quantile losses, from whose model it follows, and for normal
        equations, which assume that all errors have the same variance. For other losses
        it is True.
    bandwidth : float, optional
        Public width of residuals for non-smooth losses. Many records should lie within
        it, and the density of residuals should hardly change.
    ledger : Ledger or LedgerFile, optional
        Ledger in which the certificate is entered before anything is drawn.
    seed : int or SeedSequence, optional
        Seed to reproduce a run of a study, which is then not releasable.
    progress : bool
        Show the elapsed seconds in a terminal or notebook.

    Returns
    -------
    Intervals
        Estimates, covariance, intervals, diagnostics and the certificate.

    Raises
    ------
    ValueError
        If an argument is malformed, the loss or domain is not supported, or the budget
        exceeds the rest of the ledger. Also if public facts show that no interval could
        be finite. No value of a record is a reason.
    KeyboardInterrupt
        After Ctrl-C, and nothing is returned.

    Warns
    -----
    UserWarning
        If the noisy numbers give reason to doubt the intervals.

    Guarantee
    ---------
    All returned numbers together are (epsilon, delta)-DP under the budget's relation.
    The coverage is right to first order in 1/n. No theorem here gives the smallest n,
    but the study ``intervals_coverage`` measures it.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(20_000, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, row_bound=1.0,
    ...                       loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(radius=20.0))
    >>> bars = dps.intervals(problem, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> bars.theta.shape, bool((bars.lower < bars.upper).all())
    ((3,), True)
    >>> bars.certificate.releasable
    True
    """
    check.instance(Problem, problem=problem, remedy="Build a dps.Problem first.")
    check.instance(Budget, budget=budget)
    check_not_pure(budget, "intervals")
    problem = _with_contrasts(problem)
    _check_size(problem)
    check.one_of((None, *BASES), base=base)
    check.open_interval(0.0, 1.0, level=level)
    seed_sequence(seed)
    check.instance((bool, type(None)), robust=robust)
    check.instance(bool, progress=progress)
    is_kinked = isinstance(problem.loss, KINKED)
    if base is None:
        is_squared = isinstance(problem.loss, losses.Squared)
        base = "noisy_gd" if is_kinked else "objective"
        base = "normal_equations" if is_squared else base
    is_normal = base == "normal_equations"
    if robust is None:
        robust = not (is_normal or is_trusted(problem.loss))
    if share is None:
        share = SHARES[robust or is_kinked]
        share = SQUARE_SHARE if is_normal and not robust else share
    sandwich = Sandwich(
        base=base, share=share, robust=bool(robust), bandwidth=bandwidth
    )
    plan = plan_intervals(sandwich, problem.facts, budget, clip_rows=problem.clip_rows)
    # All checks and warnings come before the budget is spent, and use public facts
    # only.
    plan.recipe.check_private(problem.facts)
    warn_if_useless(problem.facts, budget, math.nan)
    certificate = plan.certificate
    if seed is not None:
        # An empty digest is computed anew, because the certificate has changed.
        certificate = replace(certificate, seeded=True, digest="")
    program = descent.Program(problem, plan.recipe)
    # Records on a cluster raise here, before anything is spent.
    _ = problem.data
    spend(ledger, certificate)
    try:
        with (
            release_streams(seed, 1) as (rng,),
            screen.patience(screen.FITTING.format("intervals"), is_wanted=progress),
        ):
            means = scores = None
            if plan.normal is None:
                theta = run_fit(program, rng)
                curved, scored = weights(sandwich, problem, theta)
                curvature = noisy_matrix(problem, curved, plan.curvature, rng)
            else:
                # The noisy matrix of the fit is also the curvature.
                curvature, vector = plan.normal.noisy(problem, rng)
                theta = plan.normal.solve(problem.facts, curvature, vector)
                means = Means(vector, noisy_square(problem, plan.square_stddev, rng))
                if plan.scores is not None:
                    _, scored = weights(sandwich, problem, theta)
            if plan.scores is not None:
                scores = noisy_matrix(problem, scored, plan.scores, rng)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(screen.INTERRUPTED.format("intervals")) from None
    result = estimate(plan, problem.facts, theta, curvature, scores, means)
    # Noise may leave a variance below 0. Then nothing is known about this coefficient.
    diagonal = np.diag(result.covariance)
    se = np.sqrt(np.where(diagonal > 0.0, diagonal, math.inf))
    wide = _quantile(level) * se
    answer = Intervals(
        theta=result.theta,
        covariance=result.covariance,
        se=se,
        lower=result.theta - wide,
        upper=result.theta + wide,
        level=float(level),
        feature_names=problem.feature_names,
        diagnostics={
            "least_eigenvalue": result.least_eigenvalue,
            "noise_level": CLEAR * plan.curvature.stddev * math.sqrt(problem.dim),
            "flags": result.flags,
        },
        certificate=certificate,
    )
    for flag in result.flags:
        # If warnings are errors, the answer is returned nevertheless, because the
        # budget is spent.
        with suppress(UserWarning):
            warnings.warn(FLAGS[flag], stacklevel=check.user_stack_level())
    return answer
