"""Last iterates: the minorant, exact laws below it, and hostile steps by quadrature."""

import math

import numpy as np
import pytest
from scipy.optimize import lsq_linear
from scipy.special import ndtr

from dpsample.privacy import gaussian_delta
from dpsample.privacy.curves.last_iterate import last_iterate_gdp
from tests.support.tiers import usual


def schedule(rng):
    """Steps that contract, expand and stand still, with shifts that come and go."""
    count = int(rng.integers(1, 30))
    c = np.exp(rng.normal(-0.1, 0.3, count))
    s = rng.exponential(size=count) * (rng.random(count) < 0.6)
    return c, s, np.exp(rng.normal(0.0, 0.7, count)), rng.choice([0.0, 1.0])


def by_program(c, s, stddev, start):
    """The best interpolation, by non-negative least squares in what is left to move.

    Not by `nnls`, which returned a residual below that of its own answer on one kernel
    of BLAS.
    """
    w = np.append(np.cumprod(c[:0:-1])[::-1], 1.0)
    rises, lengths = w * s, w * stddev
    rises[0] += w[0] * c[0] * start
    left = np.eye(len(c))[:, :-1] - np.eye(len(c), k=-1)[:, :-1]
    if len(c) == 1:
        return rises[0] / lengths[0]
    found = lsq_linear(
        left / lengths[:, None],
        rises / lengths,
        bounds=(0.0, np.inf),
        method="bvls",
        tol=1e-15,
        max_iter=1000,
    )
    return math.sqrt(2.0 * found.cost)


@pytest.mark.slow
def test_the_taut_string_is_the_minimum_of_the_quadratic_program():
    rng = np.random.default_rng(1)
    for _ in range(1000):
        c, s, stddev, start = schedule(rng)
        found = last_iterate_gdp(
            contractions=c, shifts=s, stddevs=stddev, start_distance=start
        )
        assert found == pytest.approx(by_program(c, s, stddev, start), rel=1e-9)


def test_numbers_of_the_paper():
    c, steps = 0.9, 25
    gradient = last_iterate_gdp(contractions=np.full(steps, c), shifts=0.3, stddevs=2.0)
    more = (1 - c**steps) / (1 + c**steps) * (1 + c) / (1 - c)
    assert gradient == pytest.approx(0.15 * math.sqrt(more), rel=1e-13)
    # Cycles of batches; the record in the last one is told best.
    cases = ((0.99, 20, 50, 0.237453), (0.98, 10, 5, 0.229383))
    for c, batches, epochs, known in cases:
        found = []
        for place in range(batches):
            shifts = np.zeros((epochs, batches))
            shifts[:, place] = 0.2
            constants = np.full(shifts.size, c)
            found.append(
                last_iterate_gdp(
                    contractions=constants, shifts=shifts.ravel(), stddevs=1.0
                )
            )
        assert np.argmax(found) == batches - 1
        assert max(found) == pytest.approx(known, abs=5e-7)


@pytest.mark.parametrize("c", [0.9, 1.0])
def test_more_steps_cost_no_more_and_composition_is_the_limit(c):
    def found(count, **options):
        constants = np.full(count, c)
        return last_iterate_gdp(contractions=constants, **options)

    numbers = [found(count, shifts=0.1, stddevs=1.0) for count in range(1, 60)]
    assert (np.diff(numbers) > 0.0).all()
    bounds = 0.1 * np.sqrt(np.arange(1, 60))
    assert (numbers <= bounds * (1 + 1e-13)).all()
    if c == 1.0:
        assert numbers == pytest.approx(bounds, rel=1e-13)
    assert found(9, shifts=0.1, stddevs=2.0) == pytest.approx(0.5 * numbers[8])
    very_long = found(10**5, shifts=0.1, stddevs=1.0)  # powers underflow
    assert c == 1.0 or very_long == pytest.approx(0.1 * math.sqrt(19.0), rel=1e-10)


def test_exact_quadratics_are_below_the_bound_and_attain_it():
    """Linear maps move means by S, and leave a variance of V: Gaussians at S/root V."""
    rng = np.random.default_rng(2)
    for _ in range(300):
        c, s, stddev, _ = schedule(rng)
        mean, variance = 0.0, 0.0
        for factor, shift, size in zip(c, s, stddev, strict=True):
            mean, variance = factor * mean + shift, factor**2 * variance + size**2
        bound = last_iterate_gdp(contractions=c, shifts=s, stddevs=stddev)
        assert mean / math.sqrt(variance) <= bound * (1 + 1e-12)
    mean, variance = 0.1 * (1 - 0.9**40) / 0.1, (1 - 0.81**40) / 0.19
    found = last_iterate_gdp(contractions=np.full(40, 0.9), shifts=0.1, stddevs=1.0)
    assert found == pytest.approx(mean / math.sqrt(variance), rel=1e-12)


GRID = np.linspace(-1.0, 1.0, 801)


def law(slopes, size, stddev, num_steps):
    """Law of the last of projected noisy steps on [-1, 1], on a grid."""
    edges = np.concatenate(([-np.inf], 0.5 * (GRID[1:] + GRID[:-1]), [np.inf]))
    moved = GRID - size * slopes(GRID)
    step = np.diff(ndtr((edges - moved[:, None]) / stddev), axis=1)
    found = np.zeros(GRID.size)
    found[GRID.size // 2] = 1.0
    for _ in range(num_steps):
        found = found @ step
    return found


def slopes(signs, kink):
    """Those of Huber losses of curvature 4 about +-kink, cut at 1, and a ridge 1."""
    return lambda x: x + np.mean([np.clip(4 * (x - y * kink), -1, 1) for y in signs], 0)


@usual("0.37-0.1", "0.3-0.5")
@pytest.mark.parametrize("kink", [0.1, 0.5])
@pytest.mark.parametrize("size", [0.3, 0.37])  # up to 2/(4 + 1)
def test_no_hostile_records_exceed_the_bound(size, kink):
    """All at the bound, duplicated, opposite; kinks and walls. The law itself is told.

    One of ten records changes, which moves a step by 0.2 of its size.
    """
    stddev, steps, worst = 0.05, 12, 0.0
    c = max(1.0 - size, 5.0 * size - 1.0)
    bound = last_iterate_gdp(
        contractions=np.full(steps, c), shifts=size * 0.2, stddevs=stddev
    )
    assert bound < 0.9 * size * 0.2 / stddev * math.sqrt(steps)
    for signs in ([1.0] * 10, [1.0, -1.0] * 5, [9.0] * 10, [9.0, -9.0] * 5):
        laws = [
            law(slopes([*signs[:-1], end], kink), size, stddev, steps)
            for end in (signs[-1], -signs[-1])
        ]
        for one, other in (laws, laws[::-1]):
            for epsilon in (0.0, 0.3, 1.0, 2.0):
                delta = np.maximum(one - math.exp(epsilon) * other, 0.0).sum()
                assert delta <= gaussian_delta(epsilon, bound) + 1e-6
                worst = max(worst, delta - gaussian_delta(epsilon, 0.5 * bound))
    assert worst > 1e-3 or size > 0.3  # half of it is refuted: a line attains it


def test_bad_arguments_are_named():
    good = {"contractions": [0.5, 0.9], "shifts": [0.1, 0.2], "stddevs": [1.0, 1.0]}
    for change, words in (
        ({"contractions": [0.5, 0.0]}, "contractions must be > 0, got 0"),
        ({"stddevs": 0.0}, "stddevs must be > 0, got 0"),
        ({"shifts": [0.1, -0.2]}, "shifts must be >= 0, got -0.2"),
        ({"shifts": [0.1]}, "shifts must be of shape"),
        ({"start_distance": -1.0}, "start_distance must be"),
    ):
        with pytest.raises(ValueError, match=words):
            last_iterate_gdp(**good | change)


EXTREMES = {
    "tiny noise": ([1.0, 1.0], [1.0, 1.0], [1e-163, 1e-163], 2.0**0.5 * 1e163),
    "large numbers": ([1.0, 1.0], [1e200, 1e200], [1e200, 1e200], 2.0**0.5),
    "a tiny shift": ([1.0, 1.0], [1e-170, 0.0], [1.0, 1.0], 0.5**0.5 * 1e-170),
    "a shift below the noise": ([1.0, 1e200], [1e-200, 0], [1e-101, 1e200], 1e-200),
    "noise that hides all": ([1.0, 1.0], [1.0, 1.0], [1e-5, 1e300], 2e-300),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", EXTREMES)
def test_numbers_near_the_ends_of_floating_point_keep_their_gdp(case):
    contractions, shifts, stddevs, gdp = EXTREMES[case]
    given = {"contractions": contractions, "shifts": shifts, "stddevs": stddevs}
    assert gdp <= last_iterate_gdp(**given) <= gdp * (1.0 + 1e-12)


@pytest.mark.parametrize(("shift", "start"), [(0.1, 0.0), (0.0, 1.0)])
def test_products_below_floating_point_may_grow_again(shift, start):
    """Planted: it cost nothing, since a product of 1100 halves is 0."""
    given = {"contractions": np.repeat([2.0, 0.5], 1100), "stddevs": 1.0}
    shifts = np.append(shift, np.zeros(2199))
    gdp = last_iterate_gdp(shifts=shifts, start_distance=start, **given)
    moved, variance = 0.5 * shift + start, 4.0 / 3.0 + 1.0 / 3.0  # of either half
    assert gdp == pytest.approx(moved / variance**0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("contractions", "start", "gdp"),
    [
        ([1.0, 1e200, 1e200, 1e-200, 1e-200], 1.0, 0.5**0.5),
        ([1e-165] * 2, 1e300, 1e-30),
        ([1e-161] * 2, 1.7e308, 1.7e-14),
    ],
)
def test_starts_beyond_floating_point_keep_their_gdp(contractions, start, gdp):
    given = {"contractions": contractions, "shifts": 0.0, "stddevs": 1.0}
    found = last_iterate_gdp(start_distance=start, **given)
    assert gdp <= found <= gdp * (1.0 + 1e-12)


def test_no_shift_is_lost_below_the_noise():
    stddevs = [1e154, 1.0]  # 1e-174, were it not for a slope below the least number
    gdp = last_iterate_gdp(contractions=[1, 1], shifts=[1e-20, 0], stddevs=stddevs)
    assert 1e-174 <= gdp < 1e-150
    with pytest.raises(ValueError, match="steps must be of numbers within"):
        last_iterate_gdp(contractions=[1] * 3, shifts=8e307, stddevs=1.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("contractions", "stddevs"),
    [
        ([2.0] * 2000, 1.0),
        ([1.1] * 3720, 1.0),
        ([1.0, 1.0], [1.0, 1e-163]),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1e-154]),
    ],
)
def test_numbers_beyond_floating_point_are_refused(contractions, stddevs):
    with pytest.raises(ValueError, match="steps must be of numbers within"):
        last_iterate_gdp(contractions=contractions, shifts=0.1, stddevs=stddevs)
