"""Epsilon and delta of events: the best of several upper bounds.

Gaussian parts compose exactly. Concentrated, Gaussian and pure parts have a Renyi bound
(`zcdp_delta`), steps on Poisson samples another (`sampled_delta`). Whatever else
composes goes through privacy loss distributions, whose discretization and rounding are
upper bounds. They are the tightest until delta is near 1e-31 a step, where they end;
below it only Renyi bounds remain.
"""

import functools
import math
from collections.abc import Callable

from dpsample.core import check
from dpsample.privacy.accounting import loss_distributions
from dpsample.privacy.accounting.concentrated import (
    rho_from_gdp,
    rho_from_pure,
    zcdp_delta,
)
from dpsample.privacy.accounting.events import (
    AllocatedGaussianEvent,
    ApproximateEvent,
    BestOfEvent,
    ComposedEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    TiltEvent,
)
from dpsample.privacy.accounting.normal_form import MOST_RHO, ideal, whole_steps
from dpsample.privacy.accounting.renyi import sampled_delta
from dpsample.privacy.curves.gaussian import bisected, gaussian_delta
from dpsample.privacy.curves.objective_perturbation import tilt_and_gaussian_delta
from dpsample.privacy.curves.random_stopping import best_of_delta, stopping_shift
from dpsample.problem.facts import RELATIONS

# Losses beyond this are of no use to anybody and close to overflow.
LARGEST_EPSILON = 600.0
SEARCH_STEPS = 200
SHARES = 32  # of epsilon where parts only add up
SHARE_RANGE = range(SHARES + 1)
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
# What a sum of a few products may lose.
ROUND_UP = 1.0 + 1e-14
SAMPLED_THEOREM = "RENYI.POISSON"  # in the registry of certificates


@check.plain
def delta_of(event: Event, *, epsilon: float, relation: str) -> float:
    """Delta at ``epsilon`` of everything that an event describes.

    Parameters
    ----------
    event : Event
        From `dpsample.privacy.accounting.events`.
    epsilon : float
        Privacy loss, >= 0. Beyond 600 the answer is that at 600, which is no less.
    relation : {"replace_one", "zero_out"}
        Neighboring relation under which the event's numbers hold. It matters for
        `PoissonGaussianEvent`, whose noise multiplier refers to one record.

    Returns
    -------
    float
        delta in [0, 1], an upper bound: exact for Gaussian parts and for one pure or
        approximate event.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    A mechanism that the event describes is (epsilon, delta)-DP under ``relation``.

    Examples
    --------
    >>> from dpsample.privacy.accounting.events import ComposedEvent
    >>> both = ComposedEvent((GaussianEvent(0.3), GaussianEvent(0.4)))
    >>> print(f"{delta_of(both, epsilon=1.0, relation='replace_one'):.6f}")
    0.006830
    """
    check.instance(Event, event=event)
    check.non_negative(epsilon=epsilon)
    check.one_of(RELATIONS, relation=relation)
    return _curve(event, relation)(min(float(epsilon), LARGEST_EPSILON))


@check.plain
def epsilon_of(event: Event, *, delta: float, relation: str) -> float:
    """Epsilon at ``delta`` of everything that an event describes.

    Parameters
    ----------
    event, relation
        As in `delta_of`.
    delta : float
        Probability, > 0 and < 1.

    Returns
    -------
    float
        epsilon >= 0, an upper bound; infinity if no epsilon up to 600 is proved, as
        when a total variation uses up delta, or when delta is below what privacy loss
        distributions follow (1e-31 per step) and there is no Renyi bound: approximate
        events have none.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    ``delta_of`` at the returned epsilon is <= delta.

    Examples
    --------
    >>> event = GaussianEvent(0.2367)
    >>> print(f"{epsilon_of(event, delta=1e-6, relation='zero_out'):.4f}")
    1.0000
    """
    check.instance(Event, event=event)
    check.open_interval(0.0, 1.0, delta=delta)
    check.one_of(RELATIONS, relation=relation)
    distance = ideal(event, relation).total_variation
    return smallest_epsilon(_curve(event, relation), delta, distance=distance)


def theorems_used(
    event: Event | None, *, epsilon: float, relation: str
) -> tuple[str, ...]:
    """Name the theorems behind ``delta_of`` that a reader might not expect.

    None if exact formulas or loss distributions gave the number, or nothing is proved:
    without an event, or at an infinite epsilon.
    """
    used: set[str] = set()
    if event is not None and math.isfinite(epsilon):
        _ideal_delta(ideal(event, relation).parts, epsilon, relation, used)
    return tuple(sorted(used))


def smallest_epsilon(
    curve: Callable[[float], float], delta: float, *, distance: float = 0.0
) -> float:
    """Return a smallest epsilon with curve(epsilon) <= delta, on its safe side.

    ``distance`` tells that (1 + e^epsilon) distance is part of the curve.
    """
    if curve(0.0) <= delta:
        return 0.0
    safe = _feasible(curve, delta, distance)
    return bisected(lambda x: curve(x) <= delta, safe=safe, unsafe=0.0, width=1e-13)


def _curve(event: Event, relation: str) -> Callable[[float], float]:
    """Delta as a function of epsilon: the ideal law's and what the distance adds."""
    parts, distance = ideal(event, relation)

    def delta(epsilon: float) -> float:
        value = _ideal_delta(parts, epsilon, relation)
        if distance > 0.0:
            value = (value + (1.0 + math.exp(epsilon)) * distance) * ROUND_UP
        return min(value, 1.0)

    return delta


def _feasible(curve: Callable[[float], float], delta: float, distance: float) -> float:
    """Find one epsilon at which the curve is below ``delta``; infinity if none is.

    Without a distance the curve falls; with one it falls, then rises: its minimum is
    narrowed by golden sections until a point is low enough.
    """
    if distance == 0.0:
        safe = 1.0
        while curve(safe) > delta:
            if safe == LARGEST_EPSILON:
                return math.inf
            safe = min(2.0 * safe, LARGEST_EPSILON)
        return safe
    if 2.0 * distance > delta:  # at epsilon = 0, and more elsewhere
        return math.inf
    low, high = 0.0, min(math.log(1.0 / distance), LARGEST_EPSILON)
    for _ in range(SEARCH_STEPS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        at_left, at_right = curve(left), curve(right)
        if min(at_left, at_right) <= delta:
            return left if at_left <= delta else right
        low, high = (low, right) if at_left <= at_right else (left, high)
    return math.inf


def _ideal_delta(
    parts: tuple[Event, ...],
    epsilon: float,
    relation: str,
    used: set[str] | None = None,
) -> float:
    """Smallest of the bounds that apply to parts of a normal form.

    The theorem of `sampled_delta` joins ``used`` where no other bound is as small.
    """
    if not parts:
        return 0.0
    if len(parts) == 1 and not isinstance(parts[0], ConcentratedEvent):
        exact = _single_delta(parts[0], epsilon, relation, used)
        if exact is not None:
            return exact
    if [type(part) for part in parts] == [GaussianEvent, TiltEvent]:
        gaussian, tilt = parts
        assert isinstance(gaussian, GaussianEvent) and isinstance(tilt, TiltEvent)
        return _tilted_delta(tilt, epsilon, relation, gaussian.gdp)
    alone = [part for part in parts if _stands_alone(part)]
    if alone:
        return _split_delta(alone, parts, epsilon, relation, used)
    best = min(_basic_delta(parts, epsilon), 1.0)
    only_gaussian = all(isinstance(p, GaussianEvent | ConcentratedEvent) for p in parts)
    if not only_gaussian and loss_distributions.is_within_reach(parts, relation):
        composed = loss_distributions.composed_delta(parts, epsilon, relation)
        best = min(best, composed)
    renyi = _renyi_delta(parts, epsilon, relation)
    is_sampled = any(isinstance(part, PoissonGaussianEvent) for part in parts)
    if used is not None and is_sampled and renyi < best:
        used.add(SAMPLED_THEOREM)
    return min(best, renyi)


def _single_delta(
    part: Event, epsilon: float, relation: str, used: set[str] | None
) -> float | None:
    """Delta of one part alone, where a formula is exact."""
    if isinstance(part, GaussianEvent):
        return gaussian_delta(epsilon, part.gdp)
    if isinstance(part, PureEvent | ApproximateEvent):
        # Randomized response that fails with probability delta: Kairouz et al. (2015).
        fails = part.delta if isinstance(part, ApproximateEvent) else 0.0
        if epsilon >= part.epsilon:
            return fails
        excess = -math.expm1(epsilon - part.epsilon)
        response = excess / (1.0 + math.exp(-part.epsilon))
        return (fails + (1.0 - fails) * response) * ROUND_UP
    if isinstance(part, TiltEvent):
        return _tilted_delta(part, epsilon, relation)
    if isinstance(part, BestOfEvent):
        shift = _shift(part, relation)
        base = _worst_curve(part, relation, used)
        return best_of_delta(base, epsilon, mean_tries=part.mean_tries, shift=shift)
    if isinstance(part, ParallelEvent):
        blocks = loss_distributions.blocks(part)
        return max(_ideal_delta(block, epsilon, relation, used) for block in blocks)
    return None


def _tilted_delta(
    part: TiltEvent, epsilon: float, relation: str, gdp: float = 0.0
) -> float:
    """Delta of a tilted minimizer, and of Gaussian noise in view of it."""
    return tilt_and_gaussian_delta(
        epsilon,
        log_determinant=part.log_determinant,
        distance=part.distance,
        gdp=gdp,
        relation=relation,
    )


def _worst_curve(
    best: BestOfEvent, relation: str, used: set[str] | None = None
) -> Callable[[float], float]:
    """Curve of one try: the worst candidate's delta."""
    laws = {ideal(event, relation).parts for event in best.events}
    return lambda loss: max(_ideal_delta(law, loss, relation, used) for law in laws)


@functools.lru_cache(maxsize=64)
def _shift(best: BestOfEvent, relation: str) -> float:
    """Epsilon that the choice among tries costs."""
    curve = _worst_curve(best, relation)
    return stopping_shift(curve, best.stop, best.mean_tries)


def _stands_alone(part: Event) -> bool:
    """Whether only epsilons and deltas of a part of a normal form are known to add."""
    inner = part.events if isinstance(part, ParallelEvent | ComposedEvent) else ()
    return isinstance(part, BestOfEvent) or any(map(_stands_alone, inner))


def _split_delta(
    alone: list[Event],
    parts: tuple[Event, ...],
    epsilon: float,
    relation: str,
    used: set[str] | None,
) -> float:
    """Least sum of deltas, each of ``alone`` and the other parts at shares of epsilon.

    Shares are whole numbers of `SHARES`: any of them give a bound.
    """
    others = list(parts)
    for part in alone:
        others.remove(part)
    terms = [(part,) for part in alone] + ([tuple(others)] if others else [])
    unit, total = epsilon / SHARES / ROUND_UP, [0.0] * (SHARES + 1)
    for term in terms:
        curve = [_ideal_delta(term, unit * j, relation, used) for j in SHARE_RANGE]
        total = [
            min(total[i - j] + curve[j] for j in range(i + 1)) for i in SHARE_RANGE
        ]
    return min(total[SHARES] * ROUND_UP, 1.0)


def _renyi_delta(parts: tuple[Event, ...], epsilon: float, relation: str) -> float:
    """Bound by Renyi divergences, if all parts have them."""
    rhos, steps = list[float](), list[PoissonGaussianEvent]()
    for part in parts:
        if isinstance(part, GaussianEvent):
            rhos.append(rho_from_gdp(part.gdp))
        elif isinstance(part, AllocatedGaussianEvent):
            rhos.append(rho_from_gdp(whole_steps(part, relation).gdp))
        elif isinstance(part, PureEvent):
            rhos.append(rho_from_pure(part.epsilon))
        elif isinstance(part, ConcentratedEvent):
            rhos.append(part.rho)
        elif isinstance(part, PoissonGaussianEvent):
            steps.append(part)
        else:
            return 1.0
    if max(rhos, default=0.0) > MOST_RHO:
        return 1.0
    rho = math.fsum(rhos) * ROUND_UP
    if not steps:
        return zcdp_delta(epsilon, rho)
    return sampled_delta(epsilon, tuple(steps), rho=rho, relation=relation)


def _basic_delta(parts: tuple[Event, ...], epsilon: float) -> float:
    """Bound by adding epsilons and deltas, if all parts have some.

    A step tells of no record that it does not take: its total variation is the rate.
    """
    epsilons, deltas = list[float](), list[float]()
    for part in parts:
        if isinstance(part, PoissonGaussianEvent):
            deltas.append(part.sampling_rate * part.num_steps)
            continue
        if not isinstance(part, PureEvent | ApproximateEvent):
            return 1.0
        if part.epsilon > epsilon:
            return 1.0
        epsilons.append(part.epsilon)
        deltas.append(part.delta if isinstance(part, ApproximateEvent) else 0.0)
    # Sums that are rounded once: of hundreds of terms others lose more than allowed.
    is_enough = math.fsum(epsilons) * ROUND_UP <= epsilon
    return math.fsum(deltas) * ROUND_UP if is_enough else 1.0
