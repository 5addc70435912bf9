r"""Noisy normal equations of linear regression: Wang (2018), AdaSSP.

The sufficient statistics of a squared loss are the Gram matrix :math:`S = \frac1n
\sum_i a_i a_i^T` of the rows and the mean :math:`r = \frac1n \sum_i a_i y_i`. Both are
released with Gaussian noise E (`noise.elementary`) of standard deviations tau and s.
Then :math:`\hat w = H^{-1} (r + E_r)`, where H is S + E, with all eigenvalues below
:math:`\tau \sqrt{2d}` raised to this number, which is about the spectral norm of the
noise. The published version adds a ridge to all eigenvalues instead. For it a part of
the budget is spent on the smallest eigenvalue. This form spends nothing on it, and
changes only the eigenvalues that the noise dominates. It was chosen, with its
threshold, after reading 48 settings of three data sets and five models, where it has
less excess loss. No other settings have confirmed it.

**Sensitivity.** Rows have l_2 norm at most R, and responses minus offsets are at most B
in absolute value. One replaced record changes S by :math:`D = (a a^T - b b^T)/n` and r
by :math:`v = (a y - b z)/n`. Both go into one Gaussian mechanism, so with :math:`A =
(R^2/n\tau)^2, C = (R B/n s)^2`, and a, b of lengths alpha R, beta R at an angle of
cosine t,

.. math:: \mathrm{gdp}^2 = \frac{|D|_F^2}{\tau^2} + \frac{|v|^2}{s^2} \le
   A (\alpha^4 + \beta^4 - 2 \alpha^2 \beta^2 t^2)
   + C (\alpha^2 + \beta^2 + 2 \alpha \beta |t|),

which is attained, because it is convex in (y, z). No pair of records is far apart in
both statistics, because v is longest for b = a, where D = 0. If :math:`\alpha\beta \ge
\kappa = C/2A`, the best |t| is :math:`\kappa/\alpha\beta`, where the bound is :math:`A
(\alpha^4 + \beta^4) + C (\alpha^2 + \beta^2) + C^2/2A`, increasing in both lengths.
Otherwise |t| = 1 is best, where it is :math:`(\alpha + \beta)^2 (A (\alpha - \beta)^2 +
C)`. That grows when both are scaled up, until they reach the first case or the longer
is 1. Then it grows with the shorter, because its derivative is a positive multiple of
:math:`C - 2 A \alpha (1 - \alpha) > 0` for :math:`\alpha < \kappa`. So the largest
value is at full length,

.. math:: \mathrm{gdp}^2 \le 2 A + 2 C + C^2/2A \ \text{ if } C \le 2 A,
   \quad \text{else } 4 C,

and it is attained. Separate sensitivities would give 2 A + 4 C. A record that is set to
zero changes S by :math:`a a^T/n` and r by :math:`a y/n`, so the bound is A + C.

**Rounding.** A computed mean of n products has an error of at most :math:`2^{-53} (n +
4)` times the mean of their absolute values, in any order. So the distance of two
computed statistics exceeds the exact one by at most the part :math:`2^{-52} n (n + 4)`,
in either norm. Rows exceed R by at most the part 1e-12.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.losses import Squared
from dpsample.noise.elementary import add_symmetric_gaussian
from dpsample.noise.noise import add_gaussian, grid_step
from dpsample.optimizers.loop.optimizer import (
    LEAST_NOISE,
    Calibration,
    Optimizer,
    Query,
    Recipe,
    refuse_paper,
)
from dpsample.optimizers.loop.perturbations import gdp_of
from dpsample.privacy.accounting.events import GaussianEvent
from dpsample.privacy.budget import Budget
from dpsample.privacy.curves.additive import round_up
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem
from dpsample.problem.records import curvature_matrix
from dpsample.targets.gibbs import as_rows

# Maximum number of coefficients. The solution holds a square matrix of this size and
# its eigenvectors.
MOST_DIM = 5000


@dataclass(frozen=True, kw_only=True, eq=False)
class NormalEquations(Query):
    """Noisy S and r, and the minimizer over the domain that follows from them.

    Parameters
    ----------
    matrix_stddev, vector_stddev : float
        tau and s. 0 means no noise.
    ridge : float
        lambda, which is added to all eigenvalues of S.
    """

    matrix_stddev: float
    vector_stddev: float
    ridge: float

    @property
    def is_noisy(self) -> bool:
        """Whether both statistics are perturbed."""
        return min(self.matrix_stddev, self.vector_stddev) >= LEAST_NOISE

    def answer(self, problem: Problem, rng: np.random.Generator) -> Array:
        """Draw the noise, and minimize over the domain."""
        return self.solve(problem.facts, *self.noisy(problem, rng))

    def noisy(self, problem: Problem, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return S and r with their noise."""
        data = problem.data
        # With weights 1 this is the mean of a a^T, the curvature of a squared loss.
        matrix = curvature_matrix(data, np.ones(data.num_records))
        responses = responses_without_offsets(problem)
        vector = np.asarray(as_rows(data).T @ responses) / data.num_records
        if self.is_noisy:
            add_symmetric_gaussian(rng, self.matrix_stddev, matrix)
            size = self.vector_stddev
            add_gaussian(rng, size, grid_step(size), vector)
        return matrix, vector

    @np.errstate(all="ignore")
    def solve(self, facts: PublicFacts, matrix: Array, vector: Array) -> Array:
        """Return the minimizer of the noisy quadratic and the ridge."""
        from scipy.optimize import brentq

        values, vectors = np.linalg.eigh(matrix)
        # Smaller eigenvalues may be noise only.
        clear = math.sqrt(2.0) * self.matrix_stddev * math.sqrt(facts.dim)
        sizes = np.maximum(values + self.ridge, clear)
        # The gradient at the center c, with minus sign, in the eigenvectors.
        slope = vectors.T @ (vector - matrix @ facts.center)
        # Without noise the matrix may be singular. Directions without curvature are
        # left out, so that the solution of least norm is returned.
        curved = np.flatnonzero(sizes > 1e-14 * sizes[-1])
        sizes, slope, vectors = sizes[curved], slope[curved], vectors[:, curved]
        domain, multiplier = facts.domain, 0.0
        if domain.lp_exponent == 2.0:

            def excess(extra: float) -> float:
                return float(
                    np.linalg.norm(slope / (sizes + extra)) - domain.ball_radius
                )

            # If the minimizer is outside the ball, the constrained one has the Lagrange
            # multiplier at which its norm is the radius.
            if excess(0.0) > 0.0:
                # At |slope|/radius the norm is at most the radius, since all sizes are
                # positive.
                top = float(np.linalg.norm(slope)) / domain.ball_radius
                multiplier = float(brentq(excess, 0.0, 2.0 * top, xtol=1e-15 * top))
        # In eigenvectors the minimizer divides each coordinate by its curvature.
        point = facts.center + vectors @ (slope / (sizes + multiplier))
        return np.asarray(domain.project(point))


@dataclass(frozen=True, kw_only=True)
class AdaSSP(Optimizer):
    r"""Linear regression from a noisy Gram matrix and noisy products with responses.

    Wang (UAI 2018, arXiv:1803.02596), in the form of the module: :math:`\hat w = c +
    H^{-1} (r + E_r - (S + E_S) c)`, where H is :math:`S + E_S + \lambda I` with
    eigenvalues of at least :math:`\tau \sqrt{2d}`, and c is the domain's center. On l_2
    balls the answer is the minimizer of the noisy quadratic, on other domains the
    projection of :math:`\hat w`. tau is the standard deviation of a diagonal entry of
    S, and s that of an entry of r. To first order the covariance of the error is

    .. math:: S^{-1} \Bigl(\bigl(s^2 + \tfrac{\tau^2}2 |w|^2\bigr) I + \tfrac{\tau^2}2 w
       w^T\Bigr) S^{-1},

    which grows with :math:`B^2` and :math:`R^2 |w|^2`, where w is the answer. For
    methods that add noise to gradients it grows with :math:`(B + R M)^2`, where M is
    the radius of the domain. `AdaSSP` reads the records once, and needs no radius.

    Parameters
    ----------
    ridge : float
        lambda >= 0, which multiplies |w|^2/2. It is added to the mean over the records
        of the losses (<a, w> - y)^2/2.
    matrix_share : float
        Number a in (0, 1) for which A : C = a : 1 - a, the terms of S and r in the
        module's bound of the squared gdp. Increase it for answers w whose norm is large
        compared with B/R.

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, if the loss is not `Squared`, the
        response has no bound, or there are more than 5000 coefficients.

    Guarantee
    ---------
    S, r and all that follows from them are (epsilon, delta)-DP under either relation,
    if the declared bounds hold for every possible record. Rounding errors are included.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.regression(2000, 3, seed=1)
    >>> problem = dps.Problem(data.features, np.clip(data.response, -1.0, 1.0),
    ...                       loss=dps.losses.Squared(), row_bound=1.0,
    ...                       domain=dps.domains.WholeSpace(), response_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> noise = AdaSSP().recipe(problem.facts, budget).inputs
    >>> f"{noise['matrix_stddev']:.5f} {noise['vector_stddev']:.5f}"
    '0.00448 0.00448'
    """

    ridge: float = 0.0
    matrix_share: float = 0.5
    name: ClassVar[str] = "ada_ssp"

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.non_negative(ridge=self.ridge)
        check.open_interval(0.0, 1.0, matrix_share=self.matrix_share)

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return a recipe of one query."""
        refuse_paper(calibration, "The printed one buys an eigenvalue as well.")
        if not isinstance(facts.loss, Squared):
            remedy = "No such means are enough for other losses."
            check.fail("loss", "dps.losses.Squared()", facts.loss, remedy)
        if facts.dim > MOST_DIM:
            check.fail("problem", f"with at most {MOST_DIM} coefficients", facts.dim)
        event, noise = None, {"matrix_stddev": 0.0, "vector_stddev": 0.0}
        if budget is not None:
            noise = self._noise(facts, budget)
            event = GaussianEvent(gdp_of(budget))
        phase = NormalEquations(ridge=float(self.ridge), **noise)
        inputs: dict[str, float | int | str] = {"ridge": phase.ridge, **noise}
        return Recipe(
            phases=(phase,), event=event, inputs=inputs, kind="normal_equations"
        )

    def _noise(self, facts: PublicFacts, budget: Budget) -> dict[str, float]:
        """Return both standard deviations."""
        response, unit = rounded_size(facts)
        row = facts.full_row_bound * facts.dual_ratio(2.0)
        unit *= row
        a, c = self.matrix_share, 1.0 - self.matrix_share
        # At these standard deviations A and C are in the ratio a : c, and the bound of
        # the squared gdp is that of the budget.
        unit *= math.sqrt(joint_square(a, c, budget.relation)) / gdp_of(budget)
        return {
            "matrix_stddev": round_up(unit * row / math.sqrt(a)),
            "vector_stddev": round_up(unit * response / math.sqrt(c)),
        }


def responses_without_offsets(problem: Problem) -> Array:
    """Return the responses minus the offsets of margins."""
    offset = problem.data.offset
    return np.asarray(problem.data.response - (offset if len(offset) else 0.0))


def rounded_size(facts: PublicFacts) -> tuple[float, float]:
    """Return B, and the largest move of a mean of n if one record changes.

    The move is in units of the record's own size, and includes the rounding errors that
    the module derives.
    """
    response = (facts.response_bound or 1.0) + facts.offset_bound
    if math.isinf(response):
        remedy = "Clip the response, or use a method that clips gradients."
        check.fail("response_bound", "finite for this method", response, remedy)
    n = facts.num_records
    # 2^-52 (n + 4)^2 is above the part 2^-52 n (n + 4) of the module.
    return response, (1.0 + 1e-11 + 2.0**-52 * (n + 4.0) ** 2) / n


def joint_square(a: float, c: float, relation: str) -> float:
    """Return the bound of the squared gdp for A = a and C = c."""
    if relation == "zero_out":
        return a + c
    return 2.0 * a + 2.0 * c + c * c / (2.0 * a) if c <= 2.0 * a else 4.0 * c
