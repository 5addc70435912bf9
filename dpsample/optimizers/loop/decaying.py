# mypy: allow-untyped-defs
r"""Descent for non-smooth losses: steps that decay to 0, and the last iterate.

T steps :math:`w_{t+1} = P(w_t - \eta_t g_t)`, t = 0, ..., T - 1, start at the domain's
center w_0, where g_t is the noisy mean gradient at w_t and P the projection to the
domain. The output is w_T. M is the largest distance of the domain from w_0, and L the
Lipschitz constant of a record's loss. One gradient that has the whole budget has noise
of length :math:`\nu = \Delta L \sqrt d/(n t)`. Here t is the budget's gdp, and Delta is
2 or 1 by the relation. :math:`\phi_0` is the mean loss of the coefficients 0
over all public responses (`usefulness.mean_loss_of_zero`).

At a point where the loss is not differentiable, steps of one size hop to and fro, and
the mean of the iterates stays away from the minimizer. Steps that decay to 0 end there.

**Steps that follow the gradients** are the default. With the public numbers

.. math:: A = \min\Bigl(\frac{0.7 M}\nu, \frac{0.2 \phi_0}{\nu^2}\Bigr), \qquad
   r_0 = 0.1 \min\Bigl(M, \frac{B \sqrt d}D\Bigr),

where B bounds responses (1 for labels) and D rows, and with :math:`b_t = \min(t/(t +
1), 1 - 20/T)`, not below 0,

.. math:: r_t = \max\bigl(r_0, \max_{i \le t} |w_i - w_0|\bigr), \qquad
   v_t = b_t v_{t-1} + (1 - b_t) |g_t|^2, \qquad
   \eta_t = \min\Bigl(\frac{1.25\, r_t}{\sqrt{(t + 1) v_t}}, \frac{3 A}T\Bigr)
   \Bigl(1 - \frac tT\Bigr)^2.

It is "distance over gradients" (Ivgi, Hinder and Carmon, ICML 2023) with a moving mean
of squares in the place of their mean over all steps, a largest size and a decay. A is
the longest path over which noise costs less than a share of M or of :math:`\phi_0`.
Public facts do not tell the distance of the minimizer, but released gradients reveal
it. T is :math:`2 (L/(4 \nu))^2`, rounded up and kept from 1000 to 4000. It is a rule,
not a theorem, and the risk has no bound. Its constants were chosen on data sets that
docs/which-method.md names.

*Privacy.* Sensitivity and noise of a step depend neither on its size nor on the point
where its gradient is read. So g_t is a Gaussian mechanism of the records for every
value of g_0, ..., g_{t-1}. The point w_t is a function of these, and eta_t of these and
g_t. By adaptive composition (Dong, Roth and Su 2022, Corollary 3.3) all g_t together
have the gdp that T Gaussian means on all records have, and w_T is a function of them.
The kernel reads nothing of the records except g_t after its noise is added.

**Fixed steps** :math:`\eta_t = \eta (1 - t/T)^2` have a bound. Let F be the mean loss,
convex, and :math:`G^2 \ge E |g_t|^2`, which is :math:`L^2 + d \sigma^2` for noise of
deviation sigma in each coordinate. Add a step of size :math:`\eta_T = \eta_{T-1}` at
w_T, which is not taken, and let :math:`R_t = \sum_{i=t}^T \eta_i`, :math:`Q_t =
\sum_{i=t}^T \eta_i^2 G^2`. Then

.. math:: E F(w_T) - F^* \le \frac{M^2 + Q_0}{2 R_0} +
   \sum_{t=0}^{T-1} \frac{\eta_t}{R_{t+1}} \frac{Q_t}{2 R_t}.

Proof (the classical argument for last iterates, as in Orabona 2020). Projections are
nonexpansive, and the noise has mean 0 given w_t. So for any u that is known before step
t, :math:`\sum_{i=t}^T \eta_i E (F(w_i) - F(u)) \le \frac12 (E |w_t - u|^2 + Q_t)`. Let
:math:`S_t = \sum_{i=t}^T \eta_i F(w_i)/R_t`. Then :math:`E (S_t - F(w_t)) \le Q_t/(2
R_t)` for u = w_t, and :math:`E S_0 - F^* \le (M^2 + Q_0)/(2 R_0)` at a minimizer. From
:math:`R_{t+1} S_{t+1} = R_t S_t - \eta_t F(w_t)` follows :math:`S_{t+1} = S_t +
(\eta_t/R_{t+1}) (S_t - F(w_t))`. The sum of these differences from :math:`S_0` to
:math:`S_T = F(w_T)` is the bound.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.frames import by_address
from dpsample.core.jit import Piece, kernel
from dpsample.numerics.norms import distance
from dpsample.optimizers.loop.advance import into_domain
from dpsample.optimizers.loop.noisy_descent import DescentScales, noise_ridge
from dpsample.optimizers.loop.scaled import SUM
from dpsample.optimizers.loop.steps import Step, step_numbers
from dpsample.privacy.budget import Budget
from dpsample.privacy.usefulness import mean_loss_of_zero
from dpsample.problem.facts import PublicFacts


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class DecayingNumbers(NamedTuple):
    """A decaying step as its kernel reads it. The module defines the letters."""

    longest: float  # 3 A/T, perhaps infinite
    first_distance: float  # r_0
    memory: float  # largest b_t
    unit: float  # length by which gradients are divided before they are squared


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def decaying_step(feasible, step, t, num_steps, memory, rng):
    """Take a step whose size follows the noisy gradients, see `ADVANCE`."""
    w, g, sums = memory.theta, memory.gradient, memory.scale
    if t == 0:
        sums[SUM.distance], sums[SUM.mean_square] = step.first_distance, 0.0
    # Larger squares count as this one, so that their moving mean is never infinite.
    max_square = 1e300
    square = 0.0
    for j in range(len(g)):
        # Squares of g / unit, so that they neither overflow nor underflow.
        share = g[j] / step.unit
        square += share * share
    # b_t. With t / (t + 1) the first squares have equal weights.
    memory_share = min(t / (t + 1.0), step.memory)
    sums[SUM.mean_square] *= memory_share
    sums[SUM.mean_square] += (1.0 - memory_share) * min(square, max_square)
    root = math.sqrt((t + 1.0) * sums[SUM.mean_square])
    # Without noise gradients can be 0, and the longest step infinite.
    size = step.longest if step.longest < np.inf else 0.0
    if root > 0.0:
        ratio = sums[SUM.distance] / (step.unit * root)
        # 1.25 r_t / sqrt((t + 1) v_t), at most 3 A / T.
        size = min(1.25 * ratio, step.longest)
    size *= (1.0 - t / num_steps) ** 2
    for j in range(len(w)):
        w[j] -= size * g[j]
    into_domain(feasible, memory, w)
    away = distance(w, memory.anchor, 2.0)
    sums[SUM.distance] = max(sums[SUM.distance], away)


@dataclass(frozen=True, kw_only=True, eq=False)
class DecayingStep(Step):
    """Projected step w <- P(w - size_t g), whose size follows the noisy gradients.

    `DecayingNumbers` explains the fields.
    """

    longest: float
    first_distance: float
    memory: float
    unit: float
    name: ClassVar[str] = "decaying"
    piece: ClassVar[Piece] = staticmethod(decaying_step)

    def __post_init__(self) -> None:
        """Check the constants."""
        check.greater_than(0.0, longest=self.longest)
        check.positive(first_distance=self.first_distance, unit=self.unit)
        check.non_negative(memory=self.memory)

    def numbers(self, dim: int) -> DecayingNumbers:
        """Return the kernel's numbers."""
        del dim
        return DecayingNumbers(
            longest=float(self.longest),
            first_distance=float(self.first_distance),
            memory=float(self.memory),
            unit=float(self.unit),
        )


def gradient_noise(scales: DescentScales, budget: Budget | None) -> float:
    """Return nu of the module, which is 0 without a budget."""
    if budget is None:
        return 0.0
    # The ridge m_0 is nu over the radius, and at radius 1 it is nu.
    return noise_ridge(scales._replace(radius=1.0), budget)


def enough_decaying_steps(scales: DescentScales, budget: Budget | None) -> int:
    """Return T of the module."""
    # Fewer steps leave the error of descent, and more take time.
    min_steps, max_steps = 1000, 4000
    noise = gradient_noise(scales, budget)
    if noise == 0.0:
        return max_steps
    # The quotient is cut off before it is squared, which could overflow.
    ratio = min(scales.lipschitz / (4.0 * noise), float(max_steps))
    return math.ceil(min(max(2.0 * ratio**2, min_steps), max_steps))


def decaying_step_of(
    facts: PublicFacts, scales: DescentScales, budget: Budget | None, num_steps: int
) -> DecayingStep:
    """Return the steps that follow the gradients, for T = ``num_steps``."""
    _check_bounded(scales)
    noise, path = gradient_noise(scales, budget), math.inf
    if noise > 0.0:
        path = 0.7 * scales.radius / noise
        path = min(path, 0.2 * _zero_loss(facts) / noise / noise)
    # The largest coefficient that moves every margin by the bound of the responses.
    bound, size = _response_bound(facts), facts.full_row_bound * facts.dual_ratio(2.0)
    reach = min(scales.radius, bound * math.sqrt(facts.dim) / size)
    return DecayingStep(
        longest=3.0 * path / num_steps,
        first_distance=0.1 * reach,
        memory=max(0.0, 1.0 - 20.0 / num_steps),
        # About the length of a noisy gradient: L, and the noise of one of T gradients.
        # Any positive unit gives the same steps, up to rounding.
        unit=math.hypot(scales.lipschitz, noise * math.sqrt(num_steps)) or 1.0,
    )


def fixed_size(facts: PublicFacts, scales: DescentScales, budget: Budget) -> float:
    r"""Return eta of fixed steps for a non-smooth loss, a rule of public facts.

    .. math:: \eta \sum_{t < T} (1 - t/T)^2 = \min\Bigl(\frac{0.35 M}\nu, \frac{0.1
       \phi_0}{\nu^2}, \frac{4 w T}{L^2}, \frac{8 M \sqrt T}L\Bigr),

    where w is half a unit of the margin for labels, and a twentieth of the bound of
    real responses.
    """
    _check_bounded(scales)
    noise, count = gradient_noise(scales, budget), enough_decaying_steps(scales, budget)
    slope = scales.lipschitz
    width = 0.5 if facts.loss.is_classification else 0.05 * _response_bound(facts)
    path = min(
        0.35 * scales.radius / noise,
        0.1 * _zero_loss(facts) / noise / noise,
        4.0 * width * count / slope / slope,
        8.0 * scales.radius * math.sqrt(count) / slope,
    )
    # The sizes sum to the path.
    return path / float(decay(count).sum())


def decay(num_steps: int) -> Array:
    """Return the factors (1 - t/T)^2 of steps t = 0, ..., T - 1."""
    return np.asarray((1.0 - (step_numbers(num_steps) - 1.0) / num_steps) ** 2)


def last_iterate_bound(sizes: Array, *, square: float, radius: float) -> float:
    """Return the module's bound of the excess risk of the last iterate.

    ``sizes`` has a number for each step, ``square`` is G^2 and ``radius`` M.

    Examples
    --------
    >>> sizes = 0.05 * decay(1000)
    >>> f"{last_iterate_bound(sizes, square=1.0, radius=1.0):.4f}"
    '0.0676'
    """
    # The last step is not taken.
    sizes = np.append(sizes, sizes[-1])
    # R_t and Q_t / 2, sums from t on.
    rests = np.cumsum(sizes[::-1])[::-1]
    errors = 0.5 * square * np.cumsum((sizes**2)[::-1])[::-1]
    start = (0.5 * radius**2 + errors[0]) / rests[0]
    later = sizes[:-1] / rests[1:] * errors[:-1] / rests[:-1]
    return float(start + later.sum())


def _check_bounded(scales: DescentScales) -> None:
    """Reject an unbounded domain."""
    if not math.isfinite(scales.radius):
        remedy = "The steps are made of its radius: use another output."
        check.fail("domain", "bounded", "an unbounded one", remedy)


def _zero_loss(facts: PublicFacts) -> float:
    """Return phi_0 of the module, or infinity if the loss does not tell it.

    Losses that can be negative, as the linear one, need not be positive at margin 0.
    """
    value = mean_loss_of_zero(facts)
    return value if value > 0.0 else math.inf


def _response_bound(facts: PublicFacts) -> float:
    """Return the bound of real responses, and 1 for labels."""
    if facts.loss.is_classification or facts.response_bound is None:
        return 1.0
    return facts.response_bound
