r"""Noisy regularized mirror descent in l_p, 1 < p < 2, without constraints.

Steps are :math:`w_{t+1} = \arg\min_w \langle \nabla F_n(w_t) + \xi_t, w\rangle + \gamma
D_\Phi(w, w_t) + \alpha \Phi(w)`, where :math:`\xi_t` is noise, Phi the potential of
`steps` and D_Phi its Bregman divergence. The output is their average with weights
:math:`\omega^t`, :math:`\omega = 1 + \alpha/\gamma`. This is Algorithm 3 of
arXiv:2303.18047 with its potential and its step corrected (entry gradient-E1 of
docs/errata.md).

F is beta-smooth and L-Lipschitz in l_p, and l_q is the dual norm. With :math:`\gamma >
\beta` and :math:`E\|\xi\|_q^2 = \nu^2` the three-point inequality gives for the
regularized empirical minimizer u

    E[(F_n + alpha Phi)(w) - (F_n + alpha Phi)(u)]
        <= nu^2/(2 (gamma - beta)) + alpha E Phi(u)/(omega^T - 1),
    E D(u, w_{t+1}) <= omega^{-t} E Phi(u) + nu^2/(2 alpha (gamma - beta)).

By stability the risk of u exceeds its empirical risk by at most 2 L^2/(n alpha) on
average. So :math:`E\Phi(u) \le \Phi(\theta^*) + 2 L^2/(n \alpha^2)`. The output is at
the distance :math:`E\|w - u\|_p \le \sqrt{2 E D}` from u, which costs 2 L times that.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.optimizers.loop.estimators import Mean
from dpsample.optimizers.loop.optimizer import (
    EQUAL_WEIGHTS,
    Calibration,
    Loop,
    Optimizer,
    Recipe,
)
from dpsample.optimizers.loop.perturbations import NoNoise, Perturbation, full_batch
from dpsample.optimizers.loop.steps import (
    NOISES,
    Geometry,
    MirrorStep,
    NoiseName,
    geometry,
    step_numbers,
)
from dpsample.optimizers.printed import printed_noisy
from dpsample.privacy.accounting.events import Event
from dpsample.privacy.budget import Budget
from dpsample.problem.facts import PublicFacts, smoothness


class MirrorScales(NamedTuple):
    """Public numbers of one problem and budget."""

    num_records: int
    lipschitz: float  # in l_p
    smoothness: float  # in l_p
    potential: float  # its value at the population's minimizer
    distance: float  # its l_p norm
    variance: float  # mean square l_q norm of the noise of one step, for one step


class MirrorSchedule(NamedTuple):
    """Hyper-parameters of a run and the risk that they guarantee."""

    num_steps: int
    ridge: float
    step_size: float
    risk: float


def excess_risk(
    num_steps: Array, ridge: Array, gamma: Array, scales: MirrorScales
) -> Array:
    """Return the module's bound of the mean excess population risk.

    It is infinite where nothing is proved. ``num_steps`` T, ``ridge`` alpha and gamma
    are broadcast against each other.
    """
    n, lipschitz = scales.num_records, scales.lipschitz
    with np.errstate(all="ignore"):
        # T steps share the budget, so the variance of each is T times larger. In the
        # module's letters, the next lines compute nu^2/(2 (gamma - beta)),
        # 2 L^2/(n alpha) and E Phi(u).
        slack = gamma - scales.smoothness
        noise = num_steps * scales.variance / (2.0 * slack)
        stability = 2.0 * lipschitz**2 / (n * ridge)
        # E Phi(u) <= Phi(theta*) + 2 L^2 / (n alpha^2).
        potential = scales.potential + stability / ridge
        growth = np.expm1(num_steps * np.log1p(ridge / gamma))  # omega^T - 1
        # The mean of omega^-t with weights omega^t is T (1 - 1/omega)/(omega^T - 1).
        ratio = ridge / gamma / (1.0 + ridge / gamma)
        # E D(u, output), averaged over the iterates with their weights.
        spread = potential * num_steps * ratio / growth + noise / ridge
        risk = noise + ridge * (scales.potential + potential / growth) + stability
        # The output is sqrt(2 E D) from u, which costs 2 L times that.
        risk = risk + 2.0 * lipschitz * np.sqrt(2.0 * spread)
        return np.where((slack > 0.0) & np.isfinite(risk), risk, np.inf)


def best_schedule(
    scales: MirrorScales,
    *,
    num_steps: int | None,
    ridge: float | None,
    step_size: float | None,
) -> MirrorSchedule:
    """Minimize `excess_risk` over the hyper-parameters that are not given.

    The fewest steps whose bound is within 5 percent of the smallest one are taken.
    gamma is at least 2 beta, and at most L/distance if that is larger. Larger ones
    improve the bound by at most a fifth, with ten times the steps.
    """
    # More steps than this would take long, and hardly improve the bound.
    largest = min(scales.num_records, 10_000)
    # The ridge alpha that balances alpha Phi and stability, 2 L^2/(n alpha).
    unit = scales.lipschitz * math.sqrt(2.0 / (scales.num_records * scales.potential))
    # Candidates of gamma are L/distance and its halves, down to a thousandth.
    powers = scales.lipschitz / scales.distance * 2.0 ** np.arange(-10.0, 1.0)
    counts = np.unique(np.round(np.geomspace(1.0, largest, 80)))
    # From a hundredth of the balancing ridge to 10^4 times it.
    ridges = unit * np.geomspace(1e-2, 1e4, 73)
    gammas = np.unique(np.maximum(2.0 * scales.smoothness, powers))
    counts = counts if num_steps is None else np.array([float(num_steps)])
    ridges = ridges if ridge is None else np.array([float(ridge)])
    gammas = gammas if step_size is None else np.array([1.0 / step_size])
    risks = excess_risk(counts[:, None, None], ridges[:, None], gammas[None, :], scales)
    best_risks = risks.min(axis=(1, 2))
    if num_steps is None and not best_risks.min() < np.inf:
        remedy = "Give num_steps, or a shorter step and a positive ridge."
        check.fail("step_size", "< 1/beta, with ridge > 0", f"{step_size!r}", remedy)
    # A bound that is 5% above the smallest one is accepted, because it needs fewer
    # steps.
    # The first row has the fewest steps, because counts increase.
    row = int(np.argmax(best_risks <= 1.05 * best_risks.min()))
    ridge_index, gamma_index = np.unravel_index(np.argmin(risks[row]), risks[row].shape)
    return MirrorSchedule(
        num_steps=int(counts[row]),
        ridge=float(ridges[ridge_index]),
        step_size=float(1.0 / gammas[gamma_index]),
        risk=float(risks[row, ridge_index, gamma_index]),
    )


@dataclass(frozen=True, kw_only=True)
class NoisyMirrorDescent(Optimizer):
    r"""Mirror descent on all records, with noise and a ridge of the potential.

    The potential is :math:`\Phi = \frac\kappa2 \|w\|_s^2` (see `steps`). Each of T
    steps adds noise. One record moves the mean gradient by at most 2 L/n in the dual
    norm, and steps compose by Gaussian privacy. So sigma = 2 L sqrt(kappa T)/(n t) for
    generalized Gaussian noise, where t is the gdp of the budget. Gaussian noise of the
    same guarantee is smaller in every dual norm of the risk bound, and is the default.

    T, alpha and gamma minimize the explicit bound of `risk_bound`, which improves the
    rate :math:`\kappa^{4/5} (\sqrt d/(n\epsilon))^{2/5}` of Theorem 7 to
    :math:`\kappa^{3/4} (\sqrt d/(n\epsilon))^{1/2}`, up to logarithms.

    With calibration "paper", T, alpha, gamma = beta, the generalized Gaussian noise and
    the potential, of exponent kappa/(kappa - 1), are those of Algorithm 3 and Theorem 7
    (with the constant 1 in T; gradient-E1). ``ridge``, ``step_size`` and ``noise`` are
    not used. It needs p < 2 and two columns or more.

    Parameters
    ----------
    p : float
        Exponent of the norm, > 1 and <= 2.
    distance : float
        Public bound or guess of the l_p norm of a minimizer. It determines only the
        hyper-parameters, and privacy does not depend on it.
    num_steps : int, optional
        Number of steps T.
    ridge : float, optional
        Weight alpha of the ridge.
    step_size : float, optional
        Length 1/gamma of a step.
    noise : {"gaussian", "generalized_gaussian"}
        Noise that is added to the gradients.

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, if the domain is not the whole
        space or the loss is not smooth.

    Guarantee
    ---------
    With calibration "exact" the output is (epsilon, delta)-DP under either relation, if
    the declared bounds hold for every possible record.

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 5, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.WholeSpace(), row_bound=1.0)
    >>> method = NoisyMirrorDescent(p=1.5, distance=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = method.recipe(problem.facts, budget)
    >>> recipe.inputs["num_steps"], recipe.event.gdp < 0.24
    (29, True)
    """

    p: float
    distance: float
    num_steps: int | None = None
    ridge: float | None = None
    step_size: float | None = None
    noise: NoiseName = "gaussian"
    name: ClassVar[str] = "noisy_mirror_descent"

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.greater_than(1.0, p=self.p)
        if self.p > 2.0:
            check.fail("p", "<= 2", self.p, "For p > 2 use PhasedSGD.")
        check.positive(distance=self.distance)
        self._check_given("step_size", count="num_steps")
        if self.ridge is not None:
            check.non_negative(ridge=self.ridge)
        check.one_of(NOISES, noise=self.noise)

    def _recipe(
        self, facts: PublicFacts, budget: Budget | None, calibration: Calibration
    ) -> Recipe:
        """Return the recipe of one loop over all records, with its noise."""
        space = self._geometry(facts)
        if calibration == "paper":
            return self._printed_recipe(facts, budget)
        schedule = self._schedule(facts, budget, space)
        noise: Perturbation = NoNoise()
        event: Event | None = None
        inputs = _inputs(space, schedule)
        if budget is not None:
            calibrated = full_batch(
                budget,
                record_bound=space.record_bound(facts),
                num_records=facts.num_records,
                num_steps=schedule.num_steps,
            )
            noise, event = space.perturbation(calibrated.stddev), calibrated.event
            inputs["noise"] = self.noise
            inputs["noise_scale"] = noise.scale
        weight = schedule.ridge * schedule.step_size
        return Recipe(
            phases=(_loop(facts, space, schedule, noise, weight),),
            event=event,
            inputs=inputs,
            kind=f"mirror/{self.noise}",
            start=np.zeros(facts.dim),
        )

    def risk_bound(self, facts: PublicFacts, budget: Budget | None) -> float:
        """Bound the mean excess population risk if |minimizer|_p <= distance.

        It is infinite if the given steps are longer than 1/beta or the ridge is 0.
        """
        return self._schedule(facts, budget, self._geometry(facts)).risk

    def _geometry(self, facts: PublicFacts) -> Geometry:
        """Return the potential and the noise of these norms."""
        if not facts.domain.is_whole_space:
            remedy = "On a ball use TruncatedMirrorDescent."
            check.fail("domain", "WholeSpace()", facts.domain, remedy)
        return geometry(self.p, facts.dim, self.noise)

    def _printed_recipe(self, facts: PublicFacts, budget: Budget | None) -> Recipe:
        """Return Algorithm 3 with the schedule of Theorem 7, and its true privacy."""
        plan = printed_noisy(facts, budget, p=self.p, num_steps=self.num_steps)
        schedule = MirrorSchedule(plan.num_steps, plan.ridge, plan.step_size, math.inf)
        weight = 0.5 * plan.ridge * plan.step_size
        return Recipe(
            phases=(_loop(facts, plan.space, schedule, plan.noise, weight),),
            event=plan.event,
            inputs=_inputs(plan.space, schedule) | {"noise_scale": plan.noise.sigma},
            kind="mirror/generalized_gaussian",
            start=np.zeros(facts.dim),
        )

    def _schedule(
        self, facts: PublicFacts, budget: Budget | None, space: Geometry
    ) -> MirrorSchedule:
        """Return the number of steps and their sizes for the noise of the budget."""
        stddev, lipschitz = 0.0, facts.lipschitz(self.p)  # which says what is unbounded
        if budget is not None:
            bound = space.record_bound(facts)
            stddev = full_batch(
                budget, record_bound=bound, num_records=facts.num_records
            ).stddev
        scales = MirrorScales(
            num_records=facts.num_records,
            lipschitz=lipschitz,
            smoothness=smoothness(facts, self.p),
            potential=0.5 * space.kappa * self.distance**2,
            distance=self.distance,
            # For one step. `excess_risk` multiplies by T.
            variance=stddev**2 * space.mean_square(),
        )
        return best_schedule(
            scales,
            num_steps=self.num_steps,
            ridge=self.ridge,
            step_size=self.step_size,
        )


def _loop(
    facts: PublicFacts,
    space: Geometry,
    schedule: MirrorSchedule,
    noise: Perturbation,
    weight: float,
) -> Loop:
    """Return mirror steps, averaged with weights (1 + weight)^t up to a constant."""
    step = MirrorStep(
        schedule.step_size,
        exponent=space.s,
        kappa=space.kappa,
        alpha=schedule.ridge,
    )
    weights = EQUAL_WEIGHTS
    if weight != 0.0:
        # log of (1 + weight)^(t - T).
        back = (step_numbers(schedule.num_steps) - schedule.num_steps) * math.log1p(
            weight
        )
        # Weights relative to the last one. Beyond e^-600 they would underflow.
        weights = np.exp(np.maximum(back, -600.0))
    return Loop(
        num_steps=schedule.num_steps,
        step=step,
        estimator=Mean(lipschitz=facts.lipschitz(2.0)),
        noise=noise,
        weights=weights,
    )


def _inputs(space: Geometry, schedule: MirrorSchedule) -> dict[str, float | int | str]:
    """Return the public numbers of the certificate."""
    inputs: dict[str, float | int | str] = {
        "num_steps": schedule.num_steps,
        "ridge": schedule.ridge,
        "step_size": schedule.step_size,
        "potential_exponent": space.s,
        "kappa": space.kappa,
    }
    if math.isfinite(schedule.risk):
        inputs["risk_bound"] = schedule.risk
    return inputs
