"""Group privacy: events, delta and epsilon when several records change together.

A group of k records changes in k steps, each from one data set to a neighbor. This
*chain* bounds the group's curve by the curve of one record. If neighbors are
(epsilon_1, delta_1)-indistinguishable, the ends of the chain have epsilon = k epsilon_1
and delta = delta_1 (e^(k epsilon_1) - 1)/(e^(epsilon_1) - 1). For some events better
formulas are known, in which the numbers of the event change (`group_event`).
"""

import functools
import math
from fractions import Fraction
from typing import NamedTuple

from dpsample.core import check
from dpsample.privacy.accounting.accounting import (
    LARGEST_EPSILON,
    ROUND_UP,
    delta_of,
    minimizing_point,
    smallest_epsilon,
)
from dpsample.privacy.accounting.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    ComposedEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PureEvent,
)
from dpsample.problem.facts import RELATIONS


@check.unwrap_numpy
def group_event(event: Event, size: int) -> Event:
    """Return the event under which ``size`` records may change at once.

    With k = ``size``, gdp becomes k gdp (Dong, Roth and Su 2022, Theorem 2.14), a range
    becomes k times the range (log ratios of the chain add up, each in its interval),
    epsilon and delta become k epsilon and delta (e^(k epsilon) - 1)/(e^epsilon - 1),
    and rho becomes k^2 rho (Bun and Steinke 2016, Proposition 1.9). In a `NearEvent`
    the ideal event changes and the distance remains.

    Parameters
    ----------
    event : Event
        Made of Gaussian, pure, approximate and concentrated events, and of those of
        bounded range.
    size : int
        Number of records, >= 1.

    Returns
    -------
    Event
        Of the same kind.

    Raises
    ------
    ValueError
        If an inner event has no such formula, as Poisson samples and parallel events of
        different kinds. `group_delta` and `group_epsilon` cover those too.

    Guarantee
    ---------
    If the event holds for one record under a relation, the result holds for data sets
    that are ``size`` steps of that relation apart.

    Examples
    --------
    >>> group_event(GaussianEvent(0.25), 4)
    GaussianEvent(gdp=1.0)
    """
    check.instance(Event, event=event)
    check.integer(1, size=size)
    scaled = _scale(event, size)
    if scaled is None:
        remedy = "Use group_epsilon or group_delta."
        check.fail("event", "one with a formula for groups", event, remedy)
    return scaled


@check.unwrap_numpy
def group_delta(event: Event, *, epsilon: float, size: int, relation: str) -> float:
    """Return delta at ``epsilon`` of a group of ``size`` records.

    It is the better of `group_event` and of the chain of ``size`` neighbors, each
    epsilon/size apart, which has delta = delta_1 (e^epsilon - 1)/(e^(epsilon/size) -
    1), at that epsilon or a smaller one.

    Parameters
    ----------
    event : Event
        Any event.
    epsilon : float
        Privacy loss of the whole group, >= 0. Beyond 600 the value at 600 is returned,
        which is no less.
    size : int
        Number of records, >= 1.
    relation : {"replace_one", "zero_out"}
        Relation under which the event's numbers hold for one record.

    Returns
    -------
    float
        delta in [0, 1], an upper bound.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    Data sets that are ``size`` steps apart are (epsilon, delta)-indistinguishable.

    Examples
    --------
    >>> event = ApproximateEvent(epsilon=0.5, delta=1e-8)
    >>> both = group_delta(event, epsilon=1.0, size=2, relation="zero_out")
    >>> print(f"{both:.3e}")
    2.649e-08
    """
    check.instance(Event, event=event)
    check.non_negative(epsilon=epsilon)
    check.integer(1, size=size)
    check.one_of(RELATIONS, relation=relation)
    epsilon = min(float(epsilon), LARGEST_EPSILON)
    # A bound at a smaller epsilon holds at this one, too. The chain's delta may rise
    # with epsilon, so an earlier point may be better.
    smaller = [p.delta for p in _points(event, size, relation) if p.epsilon <= epsilon]
    best = min([_chain_delta(event, epsilon, size, relation), *smaller])
    scaled = _scale(event, size)
    if scaled is not None:
        best = min(best, delta_of(scaled, epsilon=epsilon, relation=relation))
    return best


@check.unwrap_numpy
def group_epsilon(event: Event, *, delta: float, size: int, relation: str) -> float:
    """Return epsilon at ``delta`` of a group of ``size`` records.

    Parameters
    ----------
    event, size, relation
        As in `group_delta`.
    delta : float
        Probability, > 0 and < 1.

    Returns
    -------
    float
        epsilon >= 0, an upper bound, or infinity if none up to 600 is found.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    ``group_delta`` at the returned epsilon is <= delta.

    Examples
    --------
    >>> event = GaussianEvent(0.1)
    >>> print(f"{group_epsilon(event, delta=1e-6, size=3, relation='zero_out'):.3f}")
    1.292
    """
    check.instance(Event, event=event)
    check.open_interval(0.0, 1.0, delta=delta)
    check.integer(1, size=size)
    check.one_of(RELATIONS, relation=relation)

    def curve(epsilon: float) -> float:
        return group_delta(event, epsilon=epsilon, size=size, relation=relation)

    return smallest_epsilon(curve, delta)


class Point(NamedTuple):
    """One point of a privacy curve."""

    epsilon: float
    delta: float


def _chain_delta(event: Event, epsilon: float, size: int, relation: str) -> float:
    """Return delta of a chain of neighbors at one epsilon. It may grow with epsilon."""
    part = epsilon / size / ROUND_UP  # such that `size` parts are not above epsilon
    return _add_up(delta_of(event, epsilon=part, relation=relation), part, size)


@functools.lru_cache(maxsize=64)
def _points(event: Event, size: int, relation: str) -> tuple[Point, ...]:
    """Return points of the chain's curve, from epsilon = 600 down to 0.06.

    The last one is near the minimum of delta, which golden sections search around the
    best of the others.
    """

    def point(log_epsilon: float) -> Point:
        epsilon = min(math.exp(log_epsilon), LARGEST_EPSILON)
        return Point(epsilon, _chain_delta(event, epsilon, size, relation))

    # 24 points, each a factor e^0.4 below the one before.
    last, step = math.log(LARGEST_EPSILON), 0.4
    points = [point(last - step * j) for j in range(24)]
    middle = math.log(min(points, key=lambda p: p.delta).epsilon)
    low, high = middle - step, middle + step
    return (*points, point(minimizing_point(lambda x: point(x).delta, low, high)))


def _add_up(delta: float, epsilon: float, size: int) -> float:
    """Return delta (e^(size epsilon) - 1)/(e^epsilon - 1), rounded up, or 1.

    size epsilon is at most 600, so no power is infinite.
    """
    # The quotient is the sum of e^(j epsilon) for j < size. Its last term, the largest,
    # is taken out.
    relative_sum: float = size
    if epsilon > 0.0:
        relative_sum = math.expm1(-epsilon * size) / math.expm1(-epsilon)
    last = math.exp(epsilon * (size - 1))
    # Rounding an exponent of up to 600, and its factor, changes the power by 7e-14
    # each.
    return min(delta * last * relative_sum * (1.0 + 2e-13), 1.0)


def _multiply_up(size: int, value: float) -> float:
    """Return size * value, rounded up, or infinity beyond floating point."""
    exact = size * Fraction(value)
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if exact <= Fraction(nearest) else math.nextafter(nearest, math.inf)


def _scale(event: Event, size: int) -> Event | None:
    """Return the event of a group, or None if there is no formula."""
    linear = GaussianEvent | PureEvent | BoundedRangeEvent
    if isinstance(event, linear | ConcentratedEvent):
        ((name, value),) = vars(event).items()
        is_square = isinstance(event, ConcentratedEvent)
        scaled = _multiply_up(size * size if is_square else size, value)
        return None if math.isinf(scaled) else type(event)(**{name: scaled})
    if isinstance(event, ApproximateEvent):
        epsilon = _multiply_up(size, event.epsilon)
        if epsilon > LARGEST_EPSILON:
            return None
        delta = _add_up(event.delta, event.epsilon, size)
        return ApproximateEvent(epsilon=epsilon, delta=delta) if delta < 1.0 else None
    if isinstance(event, NearEvent):
        inner = _scale(event.event, size)
        return None if inner is None else NearEvent(inner, event.total_variation)
    if isinstance(event, ComposedEvent | ParallelEvent):
        kinds = {type(item) for item in event.events}
        if isinstance(event, ParallelEvent) and not (
            # A group may spread over blocks. k_1 + k_2 + ... = k changes of single
            # blocks are covered by k changes of the worst one if all are of one kind.
            len(kinds) == 1
            and all(issubclass(kind, linear | ConcentratedEvent) for kind in kinds)
        ):
            return None
        parts = [_scale(item, size) for item in event.events]
        scaled_parts = tuple(part for part in parts if part is not None)
        return type(event)(scaled_parts) if len(scaled_parts) == len(parts) else None
    return None
