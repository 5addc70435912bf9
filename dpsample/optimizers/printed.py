r"""Published schedules and noise of algorithms, and the privacy that they really have.

They serve to reproduce papers, with ``calibration="paper"``. Codes such as gradient-E1
are errata (`dpsample errata`).

**Mirror descent**, arXiv:2303.18047, with the published potential (gradient-E1).
Constants that the paper hides in O(.) are 1.

**Objective perturbation**: `printed_tilt`.

**Localized clipped gradient descent.** Xu et al. (arXiv 2026), Algorithm 3:
:math:`\lambda_1 = 1/(\eta_1 n_1^{2p})`, :math:`\lambda_i = 1/(\eta_i n_i^p)`, about
:math:`2 \log n/(\lambda_i\eta_i)` steps and :math:`\sigma_i = 8 C_i
\sqrt{\log(1/\delta)}/(n_i\lambda_i\epsilon)`. The first phase asks for more than n^2
passes. A certified solver finds the point where they end.
"""

import math
from typing import Literal, NamedTuple

from dpsample.core import check
from dpsample.domains import Domain
from dpsample.numerics.norms import conversion, printed_kappa
from dpsample.optimizers.loop.batches import Full
from dpsample.optimizers.loop.clipping import (
    HeavyTailedScales,
    clipped_smoothness,
    descent_sensitivity,
)
from dpsample.optimizers.loop.estimators import ClippedMean
from dpsample.optimizers.loop.optimizer import Loop, Minimization
from dpsample.optimizers.loop.perturbations import GeneralizedGaussianNoise
from dpsample.optimizers.loop.solve import STEPS_PER_CONDITION
from dpsample.optimizers.loop.steps import Geometry, GradientStep, geometry
from dpsample.optimizers.loop.tilted import Tilt, TiltScales
from dpsample.privacy import (
    epsilon_of,
    gaussian_epsilon,
    shuffle_delta,
    shuffle_total_delta,
)
from dpsample.privacy.accounting.events import ApproximateEvent, Event, GaussianEvent
from dpsample.privacy.budget import SHIFTS, Budget
from dpsample.privacy.curves.additive import round_up
from dpsample.privacy.curves.gaussian import bisect
from dpsample.problem.facts import PublicFacts, smoothness

Paper = Literal["bassily", "su"]
PAPERS = ("bassily", "su")


class PrintedMirrorDescent(NamedTuple):
    """A published schedule of mirror descent, its noise and its true event."""

    space: Geometry
    num_steps: int
    ridge: float
    step_size: float
    threshold: float
    noise: GeneralizedGaussianNoise
    event: Event


def require_budget(budget: Budget | None) -> Budget:
    """Return the budget, on which published schedules depend, or raise an error."""
    if budget is None:
        check.fail("budget", "given with calibration='paper'", "None")
    return budget


def printed_noisy(
    facts: PublicFacts, budget: Budget | None, *, p: float, num_steps: int | None
) -> PrintedMirrorDescent:
    """Return Algorithm 3 with the schedule of Theorem 7, or with ``num_steps``.

    Phi is kappa/2 |w|^2 in the norm of exponent kappa/(kappa - 1). sigma^2 = 64 L^2
    kappa T log(1/delta)/(n^2 epsilon^2), gamma = beta, alpha = 4 beta/T log_2(n/T), T =
    (n epsilon kappa/sqrt(d log(1/delta)))^(2/5).
    """
    budget = require_budget(budget)
    n, dim = facts.num_records, facts.dim
    space = _printed_geometry(p, dim)
    beta, log_term = smoothness(facts, p), math.log(1.0 / budget.delta)
    check.positive(beta=beta, remedy="The published step is 1/beta.")
    kappa = space.kappa
    if num_steps is None:
        steps = (n * budget.epsilon * kappa / math.sqrt(dim * log_term)) ** 0.4
        num_steps = max(round(steps), 1)
    if num_steps > n:
        remedy = "The published alpha, 4 beta/T log_2(n/T), would be negative."
        check.fail("num_steps", f"<= {n} records", num_steps, remedy)
    sigma = 8.0 * facts.lipschitz(p) * math.sqrt(kappa * num_steps * log_term)
    sigma /= n * budget.epsilon
    # The event is computed from the sensitivity, whatever the paper claims: T steps on
    # all records compose to the root of T times the gdp of one.
    sensitivity = SHIFTS[budget.relation] * space.record_bound(facts) / n
    return PrintedMirrorDescent(
        space=space,
        num_steps=num_steps,
        ridge=4.0 * beta / num_steps * math.log2(n / num_steps),
        step_size=1.0 / beta,
        threshold=math.inf,
        noise=GeneralizedGaussianNoise(r=space.r, sigma=sigma),
        event=GaussianEvent(_gdp(space, sensitivity, sigma) * math.sqrt(num_steps)),
    )


def printed_truncated(
    facts: PublicFacts,
    budget: Budget | None,
    *,
    p: float,
    radius: float,
    beta: float,
    num_steps: int | None,
) -> PrintedMirrorDescent:
    """Return Algorithm 4 with the schedule of Theorem 10, or with ``num_steps``.

    Every record's noise has sigma^2 = log(n/delta) kappa B^2 log(1/delta)/(n
    epsilon^2), B = beta M + lambda, M the diameter; lambda = sqrt(n epsilon)/(kappa^2 d
    log(1/delta))^(1/4), T = (M n epsilon)^2/(lambda^2 d log(1/delta)), gamma = sqrt(T).
    """
    budget = require_budget(budget)
    n, dim, epsilon = facts.num_records, facts.dim, budget.epsilon
    space = _printed_geometry(p, dim)
    log_term, kappa = math.log(1.0 / budget.delta), space.kappa
    # lambda of the paper: the part of the threshold above the smooth part beta M.
    slack = math.sqrt(n * epsilon) / (kappa**2 * dim * log_term) ** 0.25
    if num_steps is None:
        steps = (2.0 * radius * n * epsilon / slack) ** 2 / (dim * log_term)
        num_steps = max(round(steps), 1)
        if num_steps > n:
            remedy = "Theorem 10 is for n of the order M^2 sqrt(d)/epsilon and more."
            remedy += " Or give num_steps."
            check.fail("num_steps", f"<= {n} records", num_steps, remedy)
    threshold = 2.0 * beta * radius + slack
    log_terms = math.log(n / budget.delta) * log_term
    sigma = threshold * math.sqrt(kappa * log_terms / n) / epsilon
    # Every record is in one batch, and has a noise of its own.
    size = n // num_steps
    bound = space.record_bound(facts, threshold)
    return PrintedMirrorDescent(
        space=space,
        num_steps=num_steps,
        ridge=0.0,
        step_size=1.0 / math.sqrt(num_steps),
        threshold=threshold,
        noise=GeneralizedGaussianNoise(r=space.r, sigma=sigma, copies=size),
        event=shuffled_event(
            budget,
            record_gdp=_gdp(space, bound, sigma),
            num_records=n,
            size=size,
        ),
    )


def _printed_geometry(p: float, dim: int) -> Geometry:
    """Return the published potential, exponent and kappa, and the published r.

    Algorithms 3 and 4 have Phi = kappa/2 |w|^2 in the norm of exponent kappa/(kappa -
    1), kappa = min{1/(p - 1), 2 log d}, for 1 < p < 2. At kappa <= 1 there is none.
    """
    kappa = printed_kappa(dim=dim, p=p)
    if not 1.0 < p < 2.0:
        check.fail("p", "> 1 and < 2 with calibration='paper'", p)
    space = geometry(p, dim, "generalized_gaussian", r="printed")
    return space._replace(s=kappa / (kappa - 1.0), kappa=kappa)


def shuffled_event(
    budget: Budget, *, record_gdp: float, num_records: int, size: int
) -> Event:
    """Return the event of noise on every record of disjoint batches in random order.

    ``record_gdp`` is the record bound over the noise of one record. The mean over a
    batch has ``size`` independent noises, which compose. Shuffling may prove more.
    """
    gdp = round_up(SHIFTS[budget.relation] * record_gdp / math.sqrt(size))
    batch = GaussianEvent(gdp)
    delta, relation = budget.delta, budget.relation
    batch_epsilon = epsilon_of(batch, delta=delta, relation=relation)

    def is_proved(epsilon: float) -> bool:
        # A third of delta, at most, is for records whose noise is not pure. Each record
        # has gdp 2 record_gdp, as a replacement moves it by twice its bound.
        local_delta = delta / (3.0 * num_records * (math.exp(epsilon) + 1.0))
        local = gaussian_epsilon(local_delta, 2.0 * record_gdp)
        if local <= epsilon:  # a single record is private enough without shuffling
            return True
        main = shuffle_delta(
            epsilon=epsilon, local_epsilon=local, num_records=num_records
        )
        total = shuffle_total_delta(
            main,
            epsilon=epsilon,
            local_epsilon=local,
            local_delta=local_delta,
            num_records=num_records,
        )
        return total <= delta

    # The noise of a batch proves epsilon without shuffling. Bisection goes down from
    # it.
    if batch_epsilon > 50.0 or not is_proved(batch_epsilon):
        return batch
    shuffled_epsilon = bisect(is_proved, safe=batch_epsilon, unsafe=0.0, width=1e-6)
    shuffled = ApproximateEvent(epsilon=shuffled_epsilon, delta=delta)
    return shuffled if shuffled_epsilon < batch_epsilon else batch


def _gdp(space: Geometry, sensitivity: float, sigma: float) -> float:
    """Return gdp of generalized Gaussian noise of exponent r, sqrt(r - 1) s/sigma."""
    return round_up(math.sqrt(space.r - 1.0) * sensitivity / sigma)


def printed_tilt(
    scales: TiltScales, budget: Budget, domain: Domain, paper: Paper
) -> Tilt:
    """Return ridge, noise and accuracy as published, for bounded domains."""
    if math.isinf(scales.radius):
        check.fail("domain", "bounded for published constants", domain)
    if paper == "bassily":
        if scales.strong_convexity > 0.0:
            remedy = "Choose printed='su' for the strongly convex version."
            condition = "0 for the constants of Bassily et al."
            check.fail("strong_convexity", condition, scales.strong_convexity, remedy)
        return bassily(scales, budget, is_exact=False)
    if scales.strong_convexity > 0.0:
        return _su_strongly_convex(scales, budget, domain)
    return _su_convex(scales, budget)


def bassily(scales: TiltScales, budget: Budget, *, is_exact: bool) -> Tilt:
    """Return Algorithm 2 (exact minimizer) or 3 of Bassily et al. (2019)."""
    n, log_term = scales.num_records, math.log(1.0 / budget.delta)
    rate = 2.0 / n + 4.0 * scales.dim * log_term / (budget.epsilon * n) ** 2
    ridge = 2.0 * scales.lipschitz / scales.radius * math.sqrt(rate)
    # The ridge that minimizes their bound, and at least the one that privacy needs.
    ridge = max(ridge, scales.smoothness / (budget.epsilon * n))
    # Accuracy alpha of the approximate minimizer. The output noise hides its distance
    # from the exact one.
    gap = (scales.radius / n) ** 2 * ridge
    unit = scales.lipschitz * math.sqrt(log_term) / budget.epsilon
    if is_exact:
        return Tilt(ridge, math.sqrt(10.0) * unit, gap, 0.0)
    output = math.sqrt(40.0 * gap * log_term / ridge) / budget.epsilon
    return Tilt(ridge, math.sqrt(20.0) * unit, gap, output)


def _su_convex(scales: TiltScales, budget: Budget) -> Tilt:
    """Return Algorithm 1 of Su, Zhao and Wang (2023), whose diameter is 2 radius."""
    n, diameter, lipschitz = scales.num_records, 2.0 * scales.radius, scales.lipschitz
    rank = min(scales.dim, 2)
    ridge = max(
        lipschitz / (math.sqrt(n) * diameter),
        rank * scales.smoothness / (budget.epsilon * n),
    )
    # The accuracy depends on the Gaussian width of the domain in place of its
    # dimension.
    scaled = (budget.epsilon * diameter / scales.width) ** 2
    part = min(1.0, scaled / math.log(1.0 / budget.delta))
    gap = lipschitz * diameter / n**1.5 * part
    log_term = math.log(2.5 / budget.delta)
    output = math.sqrt(64.0 * gap * log_term / ridge) / budget.epsilon
    return Tilt(ridge, _su_stddev(scales, budget), gap, output)


def _su_strongly_convex(scales: TiltScales, budget: Budget, domain: Domain) -> Tilt:
    """Return Algorithm 2, with Delta in the gauge of the domain (gradient-E6)."""
    n, diameter, lipschitz = scales.num_records, 2.0 * scales.radius, scales.lipschitz
    modulus = scales.strong_convexity * _inner_radius(domain, scales.dim) ** 2
    rank = min(scales.dim, 2)
    ridge = max(rank * scales.smoothness / (budget.epsilon * n) - modulus, 0.0)
    unit = (lipschitz * diameter / n) ** 2 / modulus
    scaled = (lipschitz * diameter**2 * budget.epsilon / (n * modulus)) ** 2
    part = scaled / (scales.width**2 * math.log(1.0 / budget.delta))
    gap = unit * min(1.0, part)
    log_term = math.log(2.5 / budget.delta)
    output = diameter * math.sqrt(64.0 * gap * log_term / modulus) / budget.epsilon
    return Tilt(ridge, _su_stddev(scales, budget), gap, output)


def _su_stddev(scales: TiltScales, budget: Budget) -> float:
    """Return the standard deviation of the perturbation of the objective."""
    log_term = 128.0 * math.log(2.5 / budget.delta)
    return scales.lipschitz * math.sqrt(log_term) / budget.epsilon


def _inner_radius(domain: Domain, dim: int) -> float:
    """Return the radius of the largest l2 ball about 0 in an l_p ball about 0."""
    if domain.lp_exponent is None or domain.default_center(dim).any():
        remedy = "Its gauge gives the published modulus."
        check.fail("domain", "a Ball about 0 for published constants", domain, remedy)
    return float(domain.ball_radius / conversion(dim, 2.0, domain.lp_exponent))


class PrintedLocalization(NamedTuple):
    """Published numbers of one phase, which descends on its own records."""

    first: int  # position of the first record
    size: int  # number of records
    eta: float
    ridge: float  # lambda_i, around the start of the phase
    clip: float  # C_i
    num_steps: float  # as published, not capped
    stddev: float  # sigma_i of the noise on the output
    radius: float  # a ball around the start that has the minimizer


def printed_phases(
    scales: HeavyTailedScales,
    budget: Budget | None,
    *,
    first: int,
    count: int,
    distance: float,
    failure: float,
) -> tuple[PrintedLocalization, ...]:
    """Return the published schedule on ``count`` records.

    The order of the moment is 2k, ``distance`` bounds the distance of the start from
    the minimizer, and ``failure`` is the probability that the risk bound fails.
    """
    if not scales.order > 2.0:
        remedy = "The published schedule uses the moment of order 2k, k > 1."
        check.fail("order", "> 2 with calibration='paper'", scales.order, remedy)
    if count < 3:
        check.fail("num_records", "at least 3 in every localized run", count)
    lipschitz = scales.lipschitz
    if math.isinf(lipschitz):
        remedy = "The published step needs a Lipschitz constant. Bound the domain."
        check.fail("domain", "bounded with calibration='paper'", "unbounded", remedy)
    k, log_n = 0.5 * scales.order, math.log(count)
    # `inverse` is epsilon / sqrt(d log(1/delta) log n).
    inverse = math.inf
    if budget is not None:
        inverse = budget.epsilon / math.sqrt(
            scales.dim * math.log(1.0 / budget.delta) * log_n
        )
    privacy = (inverse * count) ** ((1.0 - k) / k)  # 0 without a budget, as k > 1
    rate = scales.moment * (count**-0.5 + privacy)
    p = max(1.0, 2.0 * math.log(lipschitz / rate) / log_n)
    logs = math.sqrt(log_n * math.log(1.0 / failure))
    eta = min(
        1.0 / lipschitz,
        1.0 / (scales.moment * count ** (0.5 * (p + 1.0)) * max(privacy, 1e-300)),
        1.0 / (count ** (0.5 * (p - 1.0)) * lipschitz**2 * logs),
    )
    eta *= distance / count ** (0.5 * p)
    phases = []
    for i in range(1, count.bit_length()):
        # Each phase has half of the remaining records and a quarter of the step.
        size, step = count >> i, eta * 0.25**i
        contraction = size ** -(2.0 * p if i == 1 else p)
        ridge = contraction / step
        clip = scales.moment * (inverse * size) ** (1.0 / k)
        stddev = 0.0
        if budget is not None:
            root = math.sqrt(math.log(1.0 / budget.delta))
            stddev = 8.0 * clip * root / (size * ridge * budget.epsilon)
        phases.append(
            PrintedLocalization(
                first=first,
                size=size,
                eta=step,
                ridge=ridge,
                clip=clip,
                num_steps=math.ceil(2.0 * log_n / contraction),
                stddev=stddev,
                radius=2.0 * lipschitz / ridge,
            )
        )
        first += size
    return tuple(phases)


def printed_loops(
    phases: tuple[PrintedLocalization, ...],
    max_steps: int,
    local_radius: float,
) -> tuple[Loop, ...]:
    """Return the gradient loops of the published phases.

    If ``local_radius`` is finite, a ball of that radius about the first start replaces
    the published balls about the start of each phase. These do not change the
    minimizer, because |minimizer - start| <= L/lambda.
    """
    is_local = math.isfinite(local_radius)
    return tuple(
        Loop(
            num_steps=int(min(phase.num_steps, max_steps)),
            step=GradientStep(
                phase.eta,
                ridge=phase.ridge,
                local_radius=local_radius if is_local else phase.radius,
            ),
            batches=Full(first=phase.first, last=phase.first + phase.size),
            estimator=ClippedMean(threshold=phase.clip),
            output_stddev=phase.stddev,
            keeps_ball=is_local and index > 0,
        )
        for index, phase in enumerate(phases)
    )


def printed_minimizations(
    facts: PublicFacts,
    scales: HeavyTailedScales,
    phases: tuple[PrintedLocalization, ...],
    accuracy: float,
    local_radius: float,
) -> tuple[Minimization, ...]:
    """Return the published phases, each solved to the point where its descent ends.

    Steps of eta_i <= 1/smoothness contract to the minimizer of the phase. The solver
    ends within half of ``accuracy`` times the distance that a record may move it, which
    `printed_event` counts. ``local_radius`` is that of `printed_loops`.
    """
    is_local = math.isfinite(local_radius)
    solved = []
    for index, phase in enumerate(phases):
        curvature = clipped_smoothness(facts, phase.clip)
        if phase.eta * curvature > 1.0:
            remedy = "The published schedule is stated for shorter steps only."
            check.fail("eta", f"<= 1/{curvature:g} in every phase", phase.eta, remedy)
        error = 0.5 * accuracy * _record_move(scales, phase)
        # Epochs of random records are faster if they are much shorter than a pass.
        epoch = STEPS_PER_CONDITION * (1.0 + curvature / phase.ridge)
        is_short = 4.0 * epoch <= phase.size
        radius = local_radius if is_local else phase.radius
        solved.append(
            Minimization(
                ridge=phase.ridge,
                smoothness=curvature,
                gap=0.5 * phase.ridge * error**2,
                first=phase.first,
                last=phase.first + phase.size,
                estimator=ClippedMean(threshold=phase.clip),
                is_anchored=True,
                local_radius=radius,
                output_stddev=phase.stddev,
                keeps_ball=is_local and index > 0,
                solver="svrg" if is_short else "accelerated",
            )
        )
    return tuple(solved)


def _record_move(scales: HeavyTailedScales, phase: PrintedLocalization) -> float:
    """Return the distance by which one record moves the minimizer of a phase."""
    bound = min(phase.clip, scales.lipschitz)
    return scales.shift * bound / (phase.size * phase.ridge)


def printed_event(
    facts: PublicFacts,
    scales: HeavyTailedScales,
    phases: tuple[PrintedLocalization, ...],
    *,
    max_steps: int | None,
    accuracy: float,
) -> Event | None:
    """Return the event of the published noise, for losses of a linear margin.

    ``accuracy`` is the part of the sensitivity that the solver adds if phases are not
    truncated to ``max_steps``.
    """
    gdp = 0.0
    for phase in phases:
        sensitivity = (1.0 + accuracy) * _record_move(scales, phase)
        if max_steps is not None:
            sensitivity = scales.shift * descent_sensitivity(
                record_bound=min(phase.clip, scales.lipschitz),
                num_records=phase.size,
                step_size=phase.eta,
                smoothness=clipped_smoothness(facts, phase.clip),
                ridge=phase.ridge,
                num_steps=int(min(phase.num_steps, max_steps)),
            )
        # A record is in one phase only, so the largest gdp holds for all phases
        # together.
        gdp = max(gdp, sensitivity / phase.stddev)
    return GaussianEvent(gdp * (1.0 + 1e-12)) if math.isfinite(gdp) else None
