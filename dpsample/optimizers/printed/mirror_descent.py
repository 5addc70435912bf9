"""Mirror descent as arXiv:2303.18047 prints it, and what is true of its noise.

Corrected is the potential (its exponent, gradient-E1); constants that the paper hides
in O(.) are 1.
"""

import math
from typing import NamedTuple

from dpsample.core import check
from dpsample.numerics.regularity import printed_kappa
from dpsample.optimizers.loop.mirror_geometry import Geometry, geometry
from dpsample.optimizers.loop.perturbations import SHIFTS, GeneralizedGaussianNoise
from dpsample.privacy import (
    epsilon_of,
    gaussian_epsilon,
    shuffle_delta,
    shuffle_total_delta,
)
from dpsample.privacy.accounting.events import ApproximateEvent, Event, GaussianEvent
from dpsample.privacy.budget import Budget
from dpsample.privacy.curves.additive import up
from dpsample.problem.facts import PublicFacts, smoothness


class PrintedMirrorDescent(NamedTuple):
    """A printed schedule, its noise and its true event."""

    space: Geometry
    num_steps: int
    ridge: float
    step_size: float
    threshold: float
    noise: GeneralizedGaussianNoise
    event: Event


def given(budget: Budget | None) -> Budget:
    """Fail without a budget: printed schedules depend on it."""
    if budget is None:
        check.fail("budget", "given with calibration='paper'", "None")
    return budget


def printed_noisy(
    facts: PublicFacts, budget: Budget | None, *, p: float, num_steps: int | None
) -> PrintedMirrorDescent:
    """Algorithm 3 with the schedule of Theorem 7, unless ``num_steps`` is given.

    sigma^2 = 64 L^2 kappa T log(1/delta)/(n^2 epsilon^2), gamma = beta, alpha = 4
    beta/T log_2(n/T), T = (n epsilon kappa/sqrt(d log(1/delta)))^(2/5).
    """
    budget = given(budget)
    n, dim = facts.num_records, facts.dim
    space = geometry(p, dim, "generalized_gaussian", r="printed")
    beta, log_term = smoothness(facts, p), math.log(1.0 / budget.delta)
    check.positive(beta=beta, remedy="The printed step is 1/beta.")
    kappa = printed_kappa(dim=dim, p=p)
    if num_steps is None:
        steps = (n * budget.epsilon * kappa / math.sqrt(dim * log_term)) ** 0.4
        num_steps = min(max(round(steps), 1), max(n // 2, 1))
    sigma = 8.0 * facts.lipschitz(p) * math.sqrt(kappa * num_steps * log_term)
    sigma /= n * budget.epsilon
    moved = SHIFTS[budget.relation] * space.record_bound(facts) / n
    return PrintedMirrorDescent(
        space=space,
        num_steps=num_steps,
        ridge=max(4.0 * beta / num_steps * math.log2(n / num_steps), 0.0),
        step_size=1.0 / beta,
        threshold=math.inf,
        noise=GeneralizedGaussianNoise(r=space.r, sigma=sigma),
        event=GaussianEvent(_gdp(space, moved, sigma) * math.sqrt(num_steps)),
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
    """Algorithm 4 with the schedule of Theorem 10, unless ``num_steps`` is given.

    Every record's noise has sigma^2 = log(n/delta) kappa B^2 log(1/delta)/(n
    epsilon^2), B = beta M + lambda, M the diameter; lambda = sqrt(n epsilon)/(kappa^2 d
    log(1/delta))^(1/4), T = (M n epsilon)^2/(lambda^2 d log(1/delta)), gamma = sqrt(T).
    """
    budget = given(budget)
    n, dim, epsilon = facts.num_records, facts.dim, budget.epsilon
    space = geometry(p, dim, "generalized_gaussian", r="printed")
    log_term = math.log(1.0 / budget.delta)
    kappa = printed_kappa(dim=dim, p=p)
    slack = math.sqrt(n * epsilon) / (kappa**2 * dim * log_term) ** 0.25
    if num_steps is None:
        steps = (2.0 * radius * n * epsilon / slack) ** 2 / (dim * log_term)
        num_steps = min(max(round(steps), 1), n)
    threshold = 2.0 * beta * radius + slack
    log_terms = math.log(n / budget.delta) * log_term
    sigma = threshold * math.sqrt(kappa * log_terms / n) / epsilon
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


def shuffled_event(
    budget: Budget, *, record_gdp: float, num_records: int, size: int
) -> Event:
    """Event of noise on every record of disjoint batches in random order.

    ``record_gdp`` is the record bound over the noise of one record. The mean over a
    batch has ``size`` independent noises, which compose; shuffling may prove more.
    """
    gdp = up(SHIFTS[budget.relation] * record_gdp / math.sqrt(size))
    batch = GaussianEvent(gdp)
    delta, relation = budget.delta, budget.relation
    known = epsilon_of(batch, delta=delta, relation=relation)

    def is_proved(epsilon: float) -> bool:
        local_delta = delta / (3.0 * num_records * (math.exp(epsilon) + 1.0))
        local = gaussian_epsilon(local_delta, 2.0 * record_gdp)
        if local <= epsilon:
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

    if known > 50.0 or not is_proved(known):
        return batch
    low, high = 0.0, known
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if is_proved(middle) else (middle, high)
    shuffled = ApproximateEvent(epsilon=high, delta=delta)
    return shuffled if high < known else batch


def _gdp(space: Geometry, sensitivity: float, sigma: float) -> float:
    return up(math.sqrt(space.r - 1.0) * sensitivity / sigma)
