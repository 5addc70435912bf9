"""Compositions of random events: what holds of all of them, and planted bugs."""

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from dpsample.privacy import (
    ApproximateEvent,
    BestOfEvent,
    BoundedRangeEvent,
    Budget,
    ComposedEvent,
    ConcentratedEvent,
    GaussianEvent,
    Ledger,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    TiltEvent,
    delta_of,
    epsilon_of,
    group_delta,
)
from dpsample.privacy.accounting import accounting, loss_distributions
from dpsample.privacy.accounting.normal_form import normal_parts
from dpsample.privacy.budget import exact_sum
from tests.support.tiers import one_in

# Relative rounding errors of the windows of loss distributions.
ROUNDING = 1e-8
# Other parts change the grid of losses, on which distributions are rounded up.
GRID = 2e-2
RELATIONS = ("replace_one", "zero_out")


def leaf(rng, *, is_alone=True):
    size, small = (
        float(10.0 ** rng.uniform(-2, 0.5)),
        float(10.0 ** rng.uniform(-10, -4)),
    )
    kinds = (
        lambda: GaussianEvent(size),
        lambda: PureEvent(round(size, 2)),
        lambda: ApproximateEvent(epsilon=round(size, 2), delta=small),
        lambda: ConcentratedEvent(0.3 * size),
        lambda: BoundedRangeEvent(size),
        lambda: NearEvent(GaussianEvent(size), small),
        lambda: NearEvent(PureEvent(size), small),
        lambda: PoissonGaussianEvent(
            sampling_rate=0.3, noise_multiplier=3.0 / size, num_steps=3
        ),
        lambda: TiltEvent(log_determinant=0.1, distance=0.2),
        lambda: BestOfEvent((PureEvent(size),), stop="geometric", mean_tries=3.0),
    )
    # Curves of two or three nested choices cost minutes: `check_case` adds one.
    return kinds[rng.integers(len(kinds) - (not is_alone))]()


def event(rng, depth=0):
    """A leaf, or a nest of at most two levels."""
    if depth == 2 or rng.random() < 0.5:
        return leaf(rng, is_alone=depth == 0)
    parts = tuple(event(rng, depth + 1) for _ in range(rng.integers(1, 4)))
    return ComposedEvent(parts) if rng.random() < 0.8 else ParallelEvent(parts)


def rises(curve):
    """Largest relative rise of a curve along its points."""
    return max((b / max(a, 1e-300) - 1.0 for a, b in pairwise(curve)), default=0.0)


def check_case(rng):
    """Everything that must hold of one random event."""
    one, relation = event(rng), RELATIONS[rng.integers(2)]
    at = sorted([*(10.0 ** rng.uniform(-2, 2, 4)), 600.0])
    curve = [delta_of(one, epsilon=float(e), relation=relation) for e in at]
    assert rises(curve) <= ROUNDING, (one, relation)
    deltas = (1e-9, 1e-6, 1e-3)
    epsilons = [epsilon_of(one, delta=d, relation=relation) for d in deltas]
    assert epsilons == sorted(epsilons, reverse=True), (one, relation)
    for delta, epsilon in zip(deltas, epsilons, strict=True):
        if epsilon < math.inf:
            found = delta_of(one, epsilon=epsilon, relation=relation)
            assert found <= delta * (1.0 + ROUNDING), (one, relation)
    nested = ComposedEvent((ComposedEvent((PureEvent(0.0), one)),))
    more = ComposedEvent((leaf(rng), one))
    for epsilon, delta in zip(at, curve, strict=True):
        again = delta_of(nested, epsilon=float(epsilon), relation=relation)
        assert again == pytest.approx(delta, rel=ROUNDING), (one, relation)
        whole = delta_of(more, epsilon=float(epsilon), relation=relation)
        assert whole >= delta * (1.0 - GRID), (more, relation)


def test_random_compositions_keep_the_rules():  # A1, A4
    rng = np.random.default_rng(0)
    for _ in range(6):
        check_case(rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 51))
def test_many_random_compositions_keep_the_rules(seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        check_case(rng)


def test_the_net_catches_totals_that_are_charged_at_the_whole_epsilon(monkeypatch):
    def planted(parts, distance, epsilon, relation, used=None):
        value = accounting._delta(parts, epsilon, relation)
        return min(value + (1.0 + math.exp(epsilon)) * distance, 1.0)

    monkeypatch.setattr(accounting, "_near_delta", planted)
    one = NearEvent(GaussianEvent(0.2), 1e-8)
    deltas = [delta_of(one, epsilon=e, relation="zero_out") for e in (1.0, 2.0, 10.0)]
    assert rises(deltas) > 1.0


def test_deltas_never_grow_with_epsilon():  # A1
    near = NearEvent(GaussianEvent(0.2353), 2.4e-8)
    pure = NearEvent(PureEvent(0.3), 1e-7)
    events = (
        near,
        ComposedEvent((near,) * 5),
        ComposedEvent((near, pure, ApproximateEvent(epsilon=0.5, delta=1e-8))),
        ParallelEvent((near, pure)),
        ComposedEvent((ParallelEvent((near, pure)), GaussianEvent(0.1))),
    )
    for one in events:
        at = (0.0, 0.3, 1.0, 1.5, 3.0, 10.0, 50.0, 600.0)
        for relation in RELATIONS:
            curve = [delta_of(one, epsilon=e, relation=relation) for e in at]
            assert rises(curve) <= ROUNDING and curve[-1] < 1e-5
            groups = [
                group_delta(one, epsilon=e, size=3, relation=relation) for e in at
            ]
            assert rises(groups) <= ROUNDING and groups[-1] < 1e-3


def test_a_curve_does_not_rise_by_rounding_where_it_is_flat():
    one = ComposedEvent(
        (
            NearEvent(PureEvent(0.025365654569847053), 0.00038044810311274),
            TiltEvent(log_determinant=0.06073486617910497, distance=0.0036),
            GaussianEvent(1.0172346657351279),
        )
    )
    at = (8.0, 12.0, 20.0, 35.0, 60.0, 200.0, 600.0)
    curve = [delta_of(one, epsilon=e, relation="replace_one") for e in at]
    assert curve == sorted(curve, reverse=True)


def near_pair(gdp, distance, epsilon):
    """Composed delta of two pairs near to Gaussian ones, by quadrature.

    The losses have the Gaussian density up to the one at which the curve turns,
    Q(loss > top) = distance. What is left of P is at infinity: the least value.
    """
    top = -gdp * (float(norm.ppf(distance)) + gdp / 2)

    def curve(e):
        z = e / gdp - gdp / 2
        ideal = mpmath.ncdf(-z) - mpmath.exp(e) * mpmath.ncdf(-z - gdp)
        return ideal + (1 + mpmath.exp(e)) * distance

    def falling(e):
        if e < 0:
            return 1 - mpmath.exp(e) + mpmath.exp(e) * falling(-e)
        return curve(min(e, top))

    def term(loss):
        return mpmath.npdf(loss / gdp - gdp / 2) / gdp * falling(epsilon - loss)

    with mpmath.workdps(30):
        ends = sorted([-top, epsilon - top, 0, epsilon, top])
        ends = [end for end in ends if -top <= end <= top]
        return float(mpmath.quad(term, ends) + curve(top))


def test_two_near_laws_agree_with_quadrature():  # A1
    """The bound is that of the pair which the module's docstring names."""
    gdp, distance, relation = 0.5, 1e-6, "zero_out"
    both = ComposedEvent((NearEvent(GaussianEvent(gdp), distance),) * 2)
    parts = normal_parts(both, relation)
    for epsilon in (1.5, 2.0, 2.5, 4.0):
        exact = near_pair(gdp, distance, epsilon)
        convolved = loss_distributions.composed_delta(parts, epsilon, relation)
        assert exact * (1 - 1e-9) <= convolved <= exact * 1.02
        assert delta_of(both, epsilon=epsilon, relation=relation) <= convolved


def test_sampling_never_costs_more_than_no_sampling():  # A4
    for rate, noise in ((0.5, 0.04), (0.999999, 0.5), (0.9, 0.2), (0.3, 2.0)):
        for relation in RELATIONS:
            taken, all_of_them = (
                PoissonGaussianEvent(
                    sampling_rate=q, noise_multiplier=noise, num_steps=2
                )
                for q in (rate, 1.0)
            )
            for more in ((), (PureEvent(0.5),)):
                pair = [
                    epsilon_of(ComposedEvent((e, *more)), delta=1e-6, relation=relation)
                    for e in (taken, all_of_them)
                ]
                assert pair[0] <= pair[1] * (1.0 + 1e-3)


def test_more_events_never_cost_less():  # A4
    parts = (GaussianEvent(0.2), ConcentratedEvent(0.04))
    for pure in (1e-6, 0.01, 0.5):
        pair = [
            epsilon_of(ComposedEvent(all_of), delta=1e-6, relation="zero_out")
            for all_of in (parts, (*parts, PureEvent(pure)))
        ]
        assert pair[0] <= pair[1] * (1.0 + 1e-3)


@one_in(4)
@pytest.mark.parametrize("seed", range(4))
def test_sums_are_those_of_fractions(seed):  # A2
    rng = np.random.default_rng(seed)
    for _ in range(25):
        parts = [
            float(round(x, 3)) for x in rng.uniform(0.001, 1.0, rng.integers(1, 9))
        ]
        whole = sum(map(Fraction, map(repr, parts)))
        total = float(whole)
        assert Fraction(repr(total)) == whole  # a decimal of a few digits
        event_ = ComposedEvent(tuple(map(PureEvent, parts)))
        assert epsilon_of(event_, delta=0.0, relation="zero_out") == total
        assert delta_of(event_, epsilon=total, relation="zero_out") == 0.0
        less = math.nextafter(math.nextafter(total, 0.0), 0.0)
        if sum(map(Fraction, parts)) > Fraction(less):
            assert delta_of(event_, epsilon=less, relation="zero_out") > 0.0


def test_sums_of_floats_would_refuse_what_adds_up():  # the planted bug of A2
    tenths = [0.1] * 3
    assert sum(tenths) > 0.3
    assert exact_sum(tenths).is_within(0.3) and exact_sum(tenths).least() == 0.3
    assert not exact_sum([*tenths, 1e-17]).is_within(0.3)
    ledger = Ledger(budget=Budget(epsilon=0.3, delta=0.0))
    for epsilon in tenths:
        ledger.spend(PureEvent(epsilon))
