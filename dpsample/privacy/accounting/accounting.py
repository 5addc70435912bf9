r"""Epsilon and delta of events: the best of several upper bounds.

An event is brought into its normal form, a sequence of parts (see `normal_form`). The
bounds of the sequence are tried from the quickest to the slowest.

- *Exact formulas.* Gaussian parts compose exactly, and most single parts have an exact
  curve.
- *Basic composition.* Where epsilons and deltas of all parts are known, their sums are
  a bound.
- *Privacy loss distributions*, whose discretization and rounding are upper bounds. They
  are the tightest until delta is near 1e-31 a step, where they end.
- *Renyi divergences.* Concentrated, Gaussian and pure parts have one bound
  (`zcdp_delta`), steps on Poisson samples another (`sampled_delta`). They also hold for
  smaller deltas.
- *Splitting.* Epsilon is split between parts for which none of these is known.

**Distances.** If P and Q are within total variation g of ideal distributions P_0 and
Q_0 with the privacy curve delta_0, then for every set S and every e >= 0

.. math:: P(S) - e^{e} Q(S) \le \delta_0(e) + (1 + e^{e}) g.

The right side falls in e and then rises, because it is convex in e^e. The left side
does not grow with e. So the minimum of the right side over e <= epsilon is a bound at
epsilon as well. It is convex in e^epsilon and does not rise, hence the curve of a pair
that dominates P and Q, and such pairs compose (Zhu, Dong and Wang 2022, Theorem 10). So
each part of a composition adds its distance at a privacy loss of its own, and not at
the total one. This implies basic composition. If :math:`\delta_i(\epsilon_i)` are
values of two such curves, the composition is (:math:`\epsilon_1 + \epsilon_2`,
:math:`\delta_1 + \delta_2`)-DP. The other way is to compose all ideal parts first, and
then to add the sum of all distances. It is better for small epsilon, and is tried, too.

**Sums.** Epsilons and deltas are added as exact fractions. Either the shortest decimals
that stand for the numbers are added, 0.1 and not the double next to it, or the doubles
themselves. Both readings are consistent, and the smaller sum counts. (Numbers that this
package computes are rounded up by more than the difference.)
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator

from dpsample.core import check
from dpsample.privacy.accounting import loss_distributions
from dpsample.privacy.accounting.concentrated import (
    rho_from_bounded_range,
    rho_from_gdp,
    rho_from_pure,
    zcdp_delta,
)
from dpsample.privacy.accounting.events import (
    AllocatedGaussianEvent,
    ApproximateEvent,
    BestOfEvent,
    BoundedRangeEvent,
    ComposedEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    TiltEvent,
    has_near,
)
from dpsample.privacy.accounting.normal_form import (
    MAX_RHO,
    blocks_of,
    ideal_form,
    idealize,
    normal_parts,
    reveal_samples,
    whole_steps,
)
from dpsample.privacy.accounting.renyi import sampled_delta
from dpsample.privacy.budget import Sum, exact_sum
from dpsample.privacy.curves.bounded_range import bounded_range_delta
from dpsample.privacy.curves.gaussian import GOLDEN, bisect, gaussian_delta
from dpsample.privacy.curves.objective_perturbation import tilt_and_gaussian_delta
from dpsample.privacy.curves.random_stopping import best_of_delta, stopping_shift
from dpsample.problem.facts import RELATIONS

LARGEST_EPSILON = 600.0  # larger ones promise nothing, and are close to overflow
# This factor exceeds the relative rounding errors of a sum of a few products.
ROUND_UP = 1.0 + 1e-14
SAMPLED_THEOREM = "RENYI.POISSON"  # in the registry of certificates


@check.unwrap_numpy
def delta_of(event: Event, *, epsilon: float, relation: str) -> float:
    """Return delta at ``epsilon`` of everything that an event describes.

    Parameters
    ----------
    event : Event
        Description of the mechanism, from `dpsample.privacy`.
    epsilon : float
        Privacy loss, >= 0. Beyond 600 the value at 600 is returned, which is no less.
    relation : {"replace_one", "zero_out"}
        Neighboring relation under which the event's numbers hold. It matters for
        `PoissonGaussianEvent`, whose noise multiplier refers to one record.

    Returns
    -------
    float
        delta in [0, 1], an upper bound that does not grow with epsilon. It is exact for
        Gaussian parts and for one pure or approximate event, or one of bounded range.
        For pure events it is 0 from the sum of their epsilons on, and for events of
        bounded range from the sum of their ranges on.

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
    parts = normal_parts(event, relation)
    return _delta(parts, min(float(epsilon), LARGEST_EPSILON), relation)


@check.unwrap_numpy
def epsilon_of(event: Event, *, delta: float, relation: str) -> float:
    """Return epsilon at ``delta`` of everything that an event describes.

    Parameters
    ----------
    event, relation
        As in `delta_of`.
    delta : float
        Probability, >= 0 and < 1. At 0 only pure events and those of bounded range have
        a finite epsilon.

    Returns
    -------
    float
        epsilon >= 0, an upper bound. It is infinity if no epsilon up to 600 is proved.
        This happens if a total variation uses up delta, or if delta is below the end of
        privacy loss distributions (1e-31 per step) and there is no other bound.

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
    check.half_open(0.0, 1.0, delta=delta)
    check.one_of(RELATIONS, relation=relation)
    # Bounds that are already below delta need not be improved, so that the search skips
    # the slow ones.
    parts = normal_parts(event, relation)

    def curve(epsilon: float) -> float:
        return _delta(parts, epsilon, relation, enough=delta)

    return min(smallest_epsilon(curve, delta), _basic_epsilon(parts, delta))


def theorems_used(
    event: Event | None, *, epsilon: float, relation: str
) -> tuple[str, ...]:
    """Name the theorems behind ``delta_of`` that a reader might not expect.

    There are none if exact formulas or loss distributions gave the number. There are
    none either if nothing is proved, without an event or at an infinite epsilon.
    """
    used: set[str] = set()
    if event is not None and math.isfinite(epsilon):
        _delta(normal_parts(event, relation), epsilon, relation, used)
    return tuple(sorted(used))


def smallest_epsilon(curve: Callable[[float], float], delta: float) -> float:
    """Return the smallest epsilon with curve(epsilon) <= delta, rounded up.

    It is infinity if there is none up to 600. The curve must not rise.
    """
    if curve(0.0) <= delta:
        return 0.0
    safe = 1.0  # double it until it is safe
    while curve(safe) > delta:
        if safe == LARGEST_EPSILON:
            return math.inf
        safe = min(2.0 * safe, LARGEST_EPSILON)
    return bisect(lambda x: curve(x) <= delta, safe=safe, unsafe=0.0, width=1e-13)


def _delta(
    parts: tuple[Event, ...],
    epsilon: float,
    relation: str,
    used: set[str] | None = None,
    *,
    enough: float = -1.0,
) -> float:
    """Return the smallest of the bounds that apply to parts of a normal form.

    Or the first one that is at most ``enough``, which saves the slow ones. If the
    smallest bound rests on a theorem that `theorems_used` names, it is added to the set
    ``used``.
    """
    if not parts:
        return 0.0
    best, best_theorem = 1.0, ""
    for bound, theorem in _bounds(parts, epsilon, relation, used):
        if bound < best:
            best, best_theorem = bound, theorem
        if best <= enough:
            break
    if used is not None and best_theorem:
        used.add(best_theorem)
    return best


def _bounds(
    parts: tuple[Event, ...], epsilon: float, relation: str, used: set[str] | None
) -> Iterator[tuple[float, str]]:
    """Yield bounds of delta, the quick ones first, and the theorem behind each."""
    exact = _exact_delta(parts, epsilon, relation, used)
    if exact is not None:
        yield exact, ""
        return
    yield _basic_delta(parts, epsilon), ""
    if any(map(has_near, parts)):
        ideal_parts, distance = idealize(parts)
        yield _near_delta(ideal_parts, distance, epsilon, relation, used), ""
    alone = [part for part in parts if _stands_alone(part)]
    if alone:
        yield _split_delta(alone, parts, epsilon, relation, used), ""
        return
    is_within_reach = loss_distributions.is_within_reach(parts, relation)
    # Steps that reveal their samples are Gaussian. That is exact if everything merges
    # into one part, and a good bound if there is hardly any noise.
    revealed = reveal_samples(parts, relation)
    is_coarse = not is_within_reach or any(map(loss_distributions.is_noiseless, parts))
    if revealed != parts and (is_coarse or len(revealed) == 1):
        yield _delta(revealed, epsilon, relation, used), ""
    if is_within_reach:
        yield loss_distributions.composed_delta(parts, epsilon, relation), ""
    elif len(parts) > 1:
        yield _split_delta(list(parts), parts, epsilon, relation, used), ""
    # Without sampled steps the bound needs no theorem that a reader might not expect.
    is_sampled = any(isinstance(part, PoissonGaussianEvent) for part in parts)
    yield _renyi_delta(parts, epsilon, relation), SAMPLED_THEOREM * is_sampled


def _exact_delta(
    parts: tuple[Event, ...], epsilon: float, relation: str, used: set[str] | None
) -> float | None:
    """Return delta where a formula is exact or the best known, otherwise None."""
    if len(parts) == 1:
        return _single_delta(parts[0], epsilon, relation, used)
    if [type(part) for part in parts] == [GaussianEvent, TiltEvent]:
        gaussian, tilt = parts
        assert isinstance(gaussian, GaussianEvent) and isinstance(tilt, TiltEvent)
        return _tilted_delta(tilt, epsilon, relation, gaussian.gdp)
    return None


def _near_delta(
    parts: tuple[Event, ...],
    distance: float,
    epsilon: float,
    relation: str,
    used: set[str] | None = None,
) -> float:
    """Return delta at this total variation distance from ideal parts.

    It is the minimum of the module's bound over e <= epsilon.
    """

    def bound(loss: float) -> float:
        ideal_delta = _delta(parts, loss, relation)
        return (ideal_delta + (1.0 + math.exp(loss)) * distance) * ROUND_UP

    # The bound is convex in e^loss. If it still falls at epsilon, the minimum up to
    # epsilon is there. A second point, 1 % and 0.001 higher, shows whether it does.
    best_loss = epsilon
    if bound(1.01 * epsilon + 1e-3) > bound(epsilon):
        best_loss = min(epsilon, _turning_point(parts, distance, relation))
    if used is not None:
        _delta(parts, best_loss, relation, used)
    return min(bound(best_loss), 1.0)


@functools.lru_cache(maxsize=256)
def _turning_point(parts: tuple[Event, ...], distance: float, relation: str) -> float:
    """Return roughly the loss at which the bound of `_near_delta` is smallest."""

    def bound(loss: float) -> float:
        return _delta(parts, loss, relation) + (1.0 + math.exp(loss)) * distance

    # At a higher loss the distance alone makes the bound larger than 1.
    low, high = 0.0, min(max(-math.log(distance), 0.0), LARGEST_EPSILON)
    return minimizing_point(bound, low, high)


def minimizing_point(curve: Callable[[float], float], low: float, high: float) -> float:
    """Return the point between two numbers at which golden sections end.

    Each section evaluates the curve once, because some curves take milliseconds.
    """
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = curve(left), curve(right)
    for _ in range(45):  # the bracket shrinks by 4e-10
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = curve(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = curve(right)
    return left if at_left <= at_right else right


def _single_delta(
    part: Event, epsilon: float, relation: str, used: set[str] | None
) -> float | None:
    """Return delta of one part alone where a formula is exact, otherwise None."""
    if isinstance(part, GaussianEvent):
        return gaussian_delta(epsilon, part.gdp)
    if isinstance(part, PureEvent | ApproximateEvent):
        # Randomized response that fails with probability delta: Kairouz et al. (2015).
        fails = part.delta if isinstance(part, ApproximateEvent) else 0.0
        if epsilon >= part.epsilon:
            return fails
        # 1 - (1 + e^epsilon)/(1 + e^epsilon_0), without cancellation.
        excess = -math.expm1(epsilon - part.epsilon)
        response = excess / (1.0 + math.exp(-part.epsilon))
        return (fails + (1.0 - fails) * response) * ROUND_UP
    if isinstance(part, BoundedRangeEvent):
        return bounded_range_delta(epsilon, part.range)
    if isinstance(part, TiltEvent):
        return _tilted_delta(part, epsilon, relation)
    if isinstance(part, ConcentratedEvent):
        return _renyi_delta((part,), epsilon, relation)
    if isinstance(part, BestOfEvent):
        shift = _stopping_shift(part, relation)
        base = _worst_curve(part, relation, used)
        return best_of_delta(base, epsilon, mean_tries=part.mean_tries, shift=shift)
    if isinstance(part, ParallelEvent):
        return max(_delta(block, epsilon, relation, used) for block in blocks_of(part))
    if isinstance(part, NearEvent):
        return _near_delta(*idealize((part,)), epsilon, relation, used)
    return None


def _tilted_delta(
    part: TiltEvent, epsilon: float, relation: str, gdp: float = 0.0
) -> float:
    """Return delta of a tilted minimizer, and of Gaussian noise in view of it."""
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
    """Return the curve of one run, the largest delta of all candidates."""
    candidates = {ideal_form(event, relation).parts for event in best.events}
    return lambda loss: max(_delta(x, loss, relation, used) for x in candidates)


@functools.lru_cache(maxsize=64)
def _stopping_shift(best: BestOfEvent, relation: str) -> float:
    """Return the epsilon that the choice of the best run adds."""
    curve = _worst_curve(best, relation)
    return stopping_shift(curve, best.stop, best.mean_tries)


def _stands_alone(part: Event) -> bool:
    """Return whether a part composes only by adding epsilons and deltas.

    This is so for the best of several runs, and for parts that hold such a part.
    """
    inner = part.events if isinstance(part, ParallelEvent | ComposedEvent) else ()
    inner = (part.event,) if isinstance(part, NearEvent) else inner
    return isinstance(part, BestOfEvent) or any(map(_stands_alone, inner))


def _split_delta(
    alone: list[Event],
    parts: tuple[Event, ...],
    epsilon: float,
    relation: str,
    used: set[str] | None,
) -> float:
    """Return the smallest sum of deltas over all ways to split epsilon.

    Each part of ``alone`` gets a share of epsilon, and all other parts together get
    one. Shares are multiples of 1/32. Every split gives a bound.
    """
    others = list(parts)
    for part in alone:
        others.remove(part)
    terms = [(part,) for part in alone] + ([tuple(others)] if others else [])
    # totals[i] is the smallest sum for i shares of the terms up to now.
    # The shares add up to a little less than epsilon, although sums are rounded.
    unit, shares = epsilon / 32.0 / ROUND_UP, range(33)
    totals = [0.0] * len(shares)
    # One term after the other, so that the work grows linearly with their number.
    for term in terms:
        curve = [_delta(term, unit * j, relation, used) for j in shares]
        totals = [min(totals[i - j] + curve[j] for j in range(i + 1)) for i in shares]
    return min(totals[-1] * ROUND_UP, 1.0)


def _renyi_delta(parts: tuple[Event, ...], epsilon: float, relation: str) -> float:
    """Return the bound by Renyi divergences, or 1 if a part has none."""
    # Everything but steps on Poisson samples has zero-concentrated privacy. Its rhos
    # add up. The Renyi divergences of steps are computed order by order.
    rhos, steps, deltas = [0.0], list[PoissonGaussianEvent](), [0.0]
    for part in parts:
        if isinstance(part, GaussianEvent):
            rhos.append(rho_from_gdp(part.gdp))
        elif isinstance(part, AllocatedGaussianEvent):
            rhos.append(rho_from_gdp(whole_steps(part, relation).gdp))
        elif isinstance(part, PureEvent | ApproximateEvent):
            rhos.append(rho_from_pure(part.epsilon))
            # With probability delta everything is revealed. Otherwise the part is pure.
            deltas.append(part.delta if isinstance(part, ApproximateEvent) else 0.0)
        elif isinstance(part, BoundedRangeEvent):
            rhos.append(rho_from_bounded_range(part.range))
        elif isinstance(part, ConcentratedEvent):
            rhos.append(part.rho)
        elif isinstance(part, PoissonGaussianEvent):
            steps.append(part)
        else:
            return 1.0
    if max(rhos) > MAX_RHO:  # products of larger ones overflow
        return 1.0
    rho, fails = math.fsum(rhos) * ROUND_UP, math.fsum(deltas)
    if steps:
        ideal_delta = sampled_delta(epsilon, tuple(steps), rho=rho, relation=relation)
    else:
        ideal_delta = zcdp_delta(epsilon, rho)
    return (fails + ideal_delta) * ROUND_UP if fails else ideal_delta


def _basic_delta(parts: tuple[Event, ...], epsilon: float) -> float:
    """Return the sum of deltas, or 1 if epsilons add up to more than ``epsilon``."""
    sums = basic_sums(parts)
    if sums is None or not sums[0].is_within(epsilon):
        return 1.0
    return min(sums[1].least(), 1.0)


def _basic_epsilon(parts: tuple[Event, ...], delta: float) -> float:
    """Return the sum of epsilons if deltas add up to ``delta`` at most, or infinity."""
    sums = basic_sums(parts)
    if sums is None or not sums[1].is_within(delta):
        return math.inf
    total = sums[0].least()
    return total if total <= LARGEST_EPSILON else math.inf


@functools.lru_cache(maxsize=64)
def basic_sums(parts: tuple[Event, ...]) -> tuple[Sum, Sum] | None:
    """Add epsilons and deltas of a normal form, or return None if a part has none."""
    return sum_pairs(_pair(part) for part in parts)


def sum_pairs(
    pairs: Iterable[tuple[float, float] | None],
) -> tuple[Sum, Sum] | None:
    """Add epsilons and deltas, or return None if one of the pairs is None."""
    # Sums of doubles are exact here, so that they do not depend on the order of parts.
    epsilons, deltas = list[float](), list[float]()
    for pair in pairs:
        if pair is None:
            return None
        epsilons.append(pair[0])
        deltas.append(pair[1])
    return exact_sum(epsilons), exact_sum(deltas)


def _pair(part: Event) -> tuple[float, float] | None:
    """Return the epsilon and delta that a part adds in basic composition, or None.

    A step does not depend on a record that it does not take, so its total variation is
    the sampling rate.
    """
    if isinstance(part, PureEvent):
        return part.epsilon, 0.0
    if isinstance(part, BoundedRangeEvent):
        return part.range, 0.0
    if isinstance(part, ApproximateEvent):
        return part.epsilon, part.delta
    if isinstance(part, PoissonGaussianEvent):
        return 0.0, part.sampling_rate * part.num_steps * ROUND_UP
    if isinstance(part, NearEvent) and (inner := basic_sums(idealize((part,)).parts)):
        epsilon, delta = (total.least() for total in inner)
        growth = math.exp(min(epsilon, LARGEST_EPSILON))
        return epsilon, (delta + (1.0 + growth) * part.total_variation) * ROUND_UP
    return None
