"""Densities from functions of the user: values, refusals, and right draws."""

import copy
import dataclasses
import enum
import pickle
import threading
import warnings
from typing import NamedTuple

import mpmath
import numba
import numpy as np
import pytest
from numba import njit
from scipy.stats import beta

import dpsample as dps
from dpsample.core.user_functions import UserData, UserFunction, recorded_errors
from dpsample.targets.reduced import reduce
from tests.support.statistics import assert_law, rejected
from tests.support.tiers import one_in

MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])
POINT = np.array([1.0, 2.0])


class Numbers(NamedTuple):
    matrix: np.ndarray
    factor: float


def quadratic(theta, matrix):
    return 0.5 * theta @ matrix @ theta


def quadratic_slope(theta, matrix):
    return matrix @ theta


def fill_slope(theta, matrix, out):
    out[:] = matrix @ theta


def both(theta, matrix):
    slope = matrix @ theta
    return 0.5 * theta @ slope, slope


def negative(theta, matrix):
    return -0.5 * theta @ matrix @ theta


def gaussian(**options):
    options = {"energy": quadratic, "dim": 2, "data": MATRIX} | options
    return dps.Density(**options)


class TestForms:
    @one_in(9)
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"gradient": quadratic_slope},
            {"gradient": fill_slope},
            {"value_and_gradient": both},
            {"energy": None, "log_density": negative},
            {"energy": njit(quadratic), "gradient": njit(quadratic_slope)},
            {
                "energy": lambda x: x[0] ** 2 + 0.5 * x[0] * x[1] + 0.5 * x[1] ** 2,
                "data": None,
            },
            {
                "energy": lambda x, d: 0.5 * d.factor * (x @ d.matrix @ x),
                "data": Numbers(0.5 * MATRIX, 2.0),
            },
            {"energy": lambda x, d: 0.5 * x @ d[0] @ x + d[1], "data": (MATRIX, 0)},
        ],
    )
    def test_energy_and_gradient(self, options):
        target = gaussian(k=3.0, mu=0.5, **options)
        penalty = 0.5 * POINT @ POINT
        value = 3.0 * (quadratic(POINT, MATRIX) + 0.5 * penalty)
        slope = 3.0 * (MATRIX @ POINT + 0.5 * POINT)
        assert target.energy(POINT) == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(target.gradient(POINT), slope, rtol=1e-6)

    @pytest.mark.slow
    def test_copies_have_their_own_data(self):
        copies = [copy.deepcopy(gaussian()), pickle.loads(pickle.dumps(gaussian()))]
        for other in copies:  # the originals and their data are gone
            assert other.energy(POINT) == quadratic(POINT, MATRIX)

    @pytest.mark.slow
    def test_globals_are_those_of_the_construction(self, monkeypatch):
        target = dps.Density(energy=scaled, dim=2)
        monkeypatch.setitem(globals(), "SCALE", 50.0)
        for same in (target, copy.deepcopy(target)):
            np.testing.assert_allclose(same.gradient(POINT), POINT, rtol=1e-4)
            assert same.energy(POINT) == pytest.approx(2.5)
        assert dps.Density(energy=scaled, dim=2).energy(POINT) == pytest.approx(125.0)

    @pytest.mark.slow
    def test_data_of_another_byte_order(self):
        target = gaussian(data=MATRIX.astype(">f8"))
        assert target.energy(POINT) == quadratic(POINT, MATRIX)

    @pytest.mark.slow
    def test_data_are_copied(self):
        matrix = MATRIX.copy()
        target = gaussian(data=matrix)
        matrix[:] = 0.0
        assert target.energy(POINT) == quadratic(POINT, MATRIX)

    @pytest.mark.slow
    def test_replace(self):
        target = dataclasses.replace(gaussian(), k=2.0)
        assert target.energy(POINT) == 2.0 * quadratic(POINT, MATRIX)

    @pytest.mark.slow
    def test_there_are_no_placeholder_records(self):
        with pytest.raises(AttributeError, match="has no records"):
            getattr(gaussian(), "problem")  # noqa: B009

    @pytest.mark.slow
    def test_differences_near_a_wall_and_with_a_large_offset(self):
        wall = dps.Density(
            energy=lambda x: -0.5 * np.log(x[0]) - 0.5 * np.log(1e-4 - x[0]),
            dim=1,
            domain=dps.domains.Box(0.0, 1e-4),
        )
        x = 1e-6
        slope = -0.5 / x + 0.5 / (1e-4 - x)
        assert wall.gradient([x])[0] == pytest.approx(slope, rel=1e-2)
        far = dps.Density(energy=lambda x: 1e12 + 0.5 * x @ x, dim=2)
        np.testing.assert_allclose(far.gradient(POINT), POINT, rtol=2e-2)


def writes(theta):
    if theta[0] > 1e6:
        theta[0] = 0.0
    return 0.5 * theta @ theta


def writes_out(theta, out):
    out[len(theta)] = 1.0


def raises(theta):
    if len(theta) == 2:
        raise RuntimeError("my own text")
    return theta[0]


class Callable:
    def __call__(self, theta):
        return theta @ theta


def fills_a_part(theta, out):
    out[0] = 2.0 * theta[0]


def takes_more(theta, *rest):
    return theta @ theta


def imports(theta):
    import math

    return math.fsum(theta * theta)


def has_no_tails(theta):
    return 1.0 if theta[0] > 0.0 else theta @ theta


def is_nan_far_out(theta):
    return theta @ theta if theta @ theta < 50.0 else np.nan


def raises_far_out(theta):
    if theta @ theta > 50.0:
        raise RuntimeError("my own text")
    return theta @ theta


def has_a_table(theta):
    return theta @ theta + np.zeros(3)[int(abs(theta[0]))]


GLOBAL = np.eye(2)
LARGE = np.ones(200_000)
SCALE = 1.0
READS_GLOBAL = njit(lambda theta: theta @ GLOBAL @ theta)
CALLS_READER = njit(lambda theta: READS_GLOBAL(theta))
SQUARE = njit(lambda theta: theta @ theta)
SIGNED = njit("f8(f8[::1])")(lambda theta: theta @ theta)
PARALLEL = njit(parallel=True)(lambda theta: theta @ theta)


def scaled(theta):
    return 0.5 * SCALE * theta @ theta


scaled_by_numba = njit(scaled)


class TestRefusals:
    @one_in(4)
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"energy": None}, "exactly one"),
            ({"log_density": negative}, "exactly one"),
            ({"gradient": lambda x, m: -(m @ x)}, "gradient must be the gradient"),
            ({"gradient": lambda x, m: (m @ x)[:1]}, r"returns shape \(2,\)"),
            ({"energy": lambda x, m: x}, "returns a real number"),
            ({"energy": lambda x, m: 1j * x[0]}, "returns a real number"),
            ({"energy": negative}, "rises where the domain is unbounded"),
            (
                {"energy": None, "log_density": quadratic},
                "falls where the domain is unbounded",
            ),
            (
                {"energy": lambda x, m: 0.0 * x[0]},
                "rises where the domain is unbounded",
            ),
            ({"energy": lambda x, m: x[2]}, "IndexError"),
            ({"energy": lambda x, m: np.log(x[0])}, "finite at points inside"),
            ({"energy": lambda x, m: str(x)}, "returns a real number"),
            ({"energy": writes, "data": None}, "Cannot modify readonly array"),
            ({"energy": raises, "data": None}, "RuntimeError: my own text .line"),
            (
                {"energy": lambda x: x @ x, "gradient": writes_out, "data": None},
                "IndexError",
            ),
            ({"energy": Callable(), "data": None}, "Pass a plain function"),
            ({"energy": quadratic, "data": [[1.0]]}, "an array, a number or a tuple"),
            ({"energy": quadratic, "data": {"a": 1.0}}, "NamedTuple"),
            ({"energy": quadratic, "data": np.array(["a"])}, "of entries float64"),
            ({"energy": READS_GLOBAL, "data": None}, "free of global arrays"),
            ({"energy": CALLS_READER, "data": None}, "free of global arrays"),
            ({"energy": lambda x: x @ x * LARGE[0], "data": None}, "than a megabyte"),
            ({"energy": SIGNED, "data": None}, "without a signature"),
            ({"energy": PARALLEL, "data": None}, "Leave out parallel=True"),
            ({"energy": takes_more, "data": None}, "Use plain parameters"),
            ({"energy": imports, "data": None}, "IMPORT_NAME"),
            ({"energy": lambda x: (x @ x, x), "data": None}, "returns a real number"),
            (
                {"energy": SQUARE, "gradient": fills_a_part, "data": None},
                r"fills out, got nan at index \[1\]",
            ),
            ({"energy": has_no_tails, "data": None}, "rises where the domain"),
            ({"energy": is_nan_far_out, "data": None}, "Return np.inf where"),
            ({"energy": raises_far_out, "data": None}, "RuntimeError: my own text"),
            ({"energy": has_a_table, "data": None}, "IndexError"),
            ({"energy": lambda x: 0.9 * np.log1p(x @ x), "data": None}, "normalized"),
            ({"data": np.ma.array(MATRIX, mask=MATRIX > 1.0)}, "without a mask"),
            ({"energy": lambda x: x @ x}, r"a function f\(theta, data\)"),
            ({"k": 0.0}, "k must be a finite number > 0"),
            ({"mu": -1.0}, "mu must be"),
            ({"dim": 0}, "dim must be"),
            ({"domain": dps.domains.Ball(1.0, center=[0.0])}, "center"),
            ({"feature_names": ["a", "a"]}, "2 different names"),
        ],
    )
    def test_what_is_wrong_is_named(self, options, message):
        with pytest.raises(ValueError, match=message):
            gaussian(**options)

    @pytest.mark.slow
    def test_a_function_compiled_with_other_globals_is_refused(self, monkeypatch):
        """At the origin both values are 0."""
        dps.Density(energy=scaled_by_numba, dim=2)
        monkeypatch.setitem(globals(), "SCALE", 50.0)
        with pytest.raises(ValueError, match="the same function if Numba"):
            dps.Density(energy=scaled_by_numba, dim=2)

    @pytest.mark.slow
    def test_replace_takes_no_other_functions(self):
        for change in ({"energy": negative}, {"data": 2.0 * MATRIX}):
            with pytest.raises(ValueError, match="Make a new Density"):
                dataclasses.replace(gaussian(), **change)
        with pytest.raises(ValueError, match="dim must be 2"):
            dataclasses.replace(gaussian(), dim=3, feature_names=None)

    def test_a_wrong_sign_on_a_bounded_domain_is_asked_about(self):
        with pytest.warns(RuntimeWarning, match="Is it meant as log_density="):
            target = gaussian(energy=negative, domain=dps.domains.Ball(1.0))
        assert not target.is_convex

    def test_modes_are_seen_where_pairs_show_them(self):
        with pytest.warns(RuntimeWarning, match="is not convex"):
            dps.Density(energy=lambda x: (x[0] ** 2 - 4.0) ** 2, dim=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gaussian()

    @pytest.mark.slow
    def test_tails_beyond_overflow_are_followed_inwards(self):
        """A funnel: along the first axis 0 times infinity begins at -700."""

        def funnel(x):
            rest = x[1:] @ x[1:] * np.exp(-x[0])
            return x[0] ** 2 / 18.0 + 0.5 * rest + 4.5 * x[0]

        dps.Density(energy=funnel, dim=10, convex=False)

        def improper(x):
            return 0.5 * x[1:] @ x[1:] * np.exp(-x[0]) + 0.5 * x[0]

        with pytest.raises(ValueError, match="cannot be normalized"):
            dps.Density(energy=improper, dim=2, convex=False)

    def test_release_refuses(self):
        with pytest.raises(ValueError, match="problem must be"):
            dps.release(gaussian(), dps.Budget(epsilon=1.0, delta=1e-6))


SAMPLERS = [
    getattr(dps.samplers, name)
    for name in dps.samplers.__all__
    if isinstance(getattr(dps.samplers, name), type)
    and issubclass(getattr(dps.samplers, name), dps.samplers.Sampler)
    and name != "Sampler"
]


def mean_square(target, sampler):
    draws = dps.sample(
        target, num_draws=1000, seed=1, sampler=sampler, progress=False, check=False
    )
    squares = draws.posterior["theta"].values ** 2
    chains = squares.mean(axis=(1, 2))
    return squares.mean(), chains.std(ddof=1) / np.sqrt(len(chains))


@one_in(7)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.__name__)
def test_every_sampler_has_the_right_law_or_refuses(sampler):
    """exp(-50 |x|^2) in the unit disk, where the uniform law has E x^2 = 1/4."""
    target = dps.Density(
        energy=lambda x: 50.0 * x @ x, dim=2, domain=dps.domains.Ball(1.0)
    )
    if not sampler.reads_records:
        mean, _ = mean_square(target, sampler())
        assert mean == pytest.approx(0.01, rel=0.25)
        return
    with pytest.raises(ValueError, match="It reads records, and a Density has none"):
        dps.sample(target, sampler=sampler(), num_draws=10, progress=False)


def half_disk(theta):
    return 0.5 * theta @ theta if theta @ theta < 4.0 else np.inf


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BilliardHMC", "MALA", "RandomWalk"])
def test_chains_start_where_the_density_is_positive(name):
    """A wide box around the support: starts outside of it would stay there."""
    target = dps.Density(energy=half_disk, dim=2, domain=dps.domains.Box(-3.0, 3.0))
    mean, _ = mean_square(target, getattr(dps.samplers, name)())
    # r^2 / 2 is exponential, cut at 2.
    truth = 1.0 - 2.0 * np.exp(-2.0) / (1.0 - np.exp(-2.0))
    assert mean == pytest.approx(truth, rel=0.15)
    with pytest.raises(ValueError, match="where the density is positive"):
        dps.sample(target, init=[2.0, 2.0], num_draws=10, progress=False)


def fails_rarely(theta):
    if theta[0] > 2.0:
        raise RuntimeError("my own text")
    return 0.5 * theta @ theta


@one_in(3)
@pytest.mark.parametrize(
    ("energy", "message"),
    [
        (fails_rarely, "energy raised RuntimeError: my own text .line"),
        (lambda x: 0.5 * x @ x if x[0] < 2.0 else np.nan, r"NaN.* at \[2\."),
        (lambda x: 0.5 * x @ x if x[0] < 2.0 else -np.inf, r"infinite at \[2\."),
    ],
)
def test_failures_during_a_run_are_described(energy, message, capsys):
    target = dps.Density(energy=energy, dim=2, domain=dps.domains.Box(-3.0, 3.0))
    sampler = dps.samplers.RandomWalk()
    with pytest.raises(dps.SamplingError, match=message):
        dps.sample(target, sampler=sampler, progress=False)
    assert "Exception ignored" not in capsys.readouterr().err


@pytest.mark.slow
def test_an_error_of_the_domain_is_not_ascribed_to_the_energy():
    body = dps.domains.custom(
        raises_in_a_corner, dim=2, interior_point=[0.0, 0.0], is_bounded=True
    )
    target = dps.Density(energy=lambda x: 0.0, dim=2, domain=body)
    with pytest.raises(dps.SamplingError, match="or its domain raised ValueError: far"):
        dps.sample(target, sampler=dps.samplers.MALA(), seed=1, progress=False)


def raises_in_a_corner(theta):
    """Say no, but for a thin cone that no ray of the door is in."""
    if theta @ theta > 1.0 and 0.0 < theta[1] < 0.02 * theta[0]:
        raise ValueError("far")
    return theta @ theta <= 1.0


@pytest.mark.slow
def test_a_mode_far_away_is_found():
    """Energies of 5e15 at the origin, whose rounding is near 1."""
    target = dps.Density(energy=lambda x: 0.5 * (x[0] - 1e8) ** 2, dim=1)
    draws = dps.sample(target, sampler=dps.samplers.MALA(), seed=1, progress=False)
    off = draws.posterior["theta"].values - 1e8
    assert np.mean(off**2) == pytest.approx(1.0, rel=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MALA", "RandomWalk", "ChordSlice"])
def test_a_mode_in_the_corner_of_a_half_infinite_box(name):
    """exp(-x - y) above 1e6, whose interior point is as far away as the origin."""
    target = dps.Density(
        energy=lambda x: x[0] + x[1], dim=2, domain=dps.domains.Box(1e6, np.inf)
    )
    draws = dps.sample(
        target,
        sampler=getattr(dps.samplers, name)(),
        num_draws=2000,
        seed=1,
        progress=False,
        check=False,
    )
    off = draws.posterior["theta"].values - 1e6
    assert off.mean(axis=(1, 2)) == pytest.approx(np.ones(4), abs=0.5)
    assert off.mean() == pytest.approx(1.0, rel=0.2)


@pytest.mark.slow
def test_trajectories_that_diverge_are_warned_of():
    """A funnel, whose neck is not reached although the chains agree."""

    def funnel(x):
        return x[0] ** 2 / 18.0 + 0.5 * x[1] ** 2 * np.exp(-x[0]) + 0.5 * x[0]

    target = dps.Density(energy=funnel, dim=2, convex=False)
    with pytest.warns(RuntimeWarning, match="trajectories of 4000 draws diverged"):
        draws = dps.sample(
            target, sampler=dps.samplers.BilliardHMC(), seed=1, progress=False
        )
    assert draws.posterior["theta"].values[..., 0].min() > -6.0


def test_lengths_whose_squares_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match=r"on lengths from 1e-150 .* other units"):
        dps.Density(energy=lambda x: 1e302 * (x @ x), dim=2)


@pytest.mark.slow
def test_equalities_are_drawn_in_free_coordinates():
    """Dirichlet(2, 2, 2) on a polytope that is the simplex."""
    polytope = dps.domains.Polytope(
        -np.eye(3), np.zeros(3), A_eq=np.ones((1, 3)), b_eq=np.ones(1)
    )
    target = dps.Density(
        log_density=lambda x: np.sum(np.log(x)), dim=3, domain=polytope
    )
    inner = reduce(target)
    point = np.array([0.2, 0.3, 0.5])
    assert inner.target.energy(inner.drop(point)) == pytest.approx(
        target.energy(point), rel=1e-9
    )
    draws = dps.sample(target, num_draws=500, seed=1, progress=False)
    theta = draws.posterior["theta"].values.reshape(-1, 3)
    np.testing.assert_allclose(theta.sum(axis=1), 1.0, atol=1e-9)
    variance = (1.0 / 3.0) * (2.0 / 3.0) / 7.0
    np.testing.assert_allclose(theta.var(axis=0), variance, rtol=0.2)


def nearly_independent(target, sampler="auto"):
    """Draws of which three quarters are left out."""
    draws = dps.sample(
        target, sampler=sampler, num_draws=2000, seed=1, progress=False, check=False
    )
    return draws.posterior["theta"].values[:, ::4, 0].ravel()


@pytest.mark.parametrize("dim", [2, 4])
def test_dirichlet_densities_on_the_simplex(dim):
    target = dps.Density(
        log_density=lambda x: np.sum(np.log(x)),
        dim=dim,
        domain=dps.domains.Simplex(),
    )
    draws = nearly_independent(target)
    assert_law(draws, beta(2.0, 2.0 * (dim - 1)).cdf)
    with rejected():  # the exponent of the density is lost
        assert_law(draws, beta(1.0, dim - 1.0).cdf)


def test_slices_of_a_density_that_is_infinite_at_both_ends():
    """Beta(1/2, 1/2), whose value is NaN where rounding leads outside."""
    target = dps.Density(
        log_density=lambda x: -0.5 * np.log(x[0]) - 0.5 * np.log(1.0 - x[0]),
        dim=1,
        domain=dps.domains.Box(0.0, 1.0),
        convex=False,
    )
    draws = nearly_independent(target, dps.samplers.ChordSlice(num_steps=5))
    assert_law(draws, beta(0.5, 0.5).cdf)
    with rejected():
        assert_law(draws, beta(1.0, 1.0).cdf)


class Swapped(NamedTuple):
    factor: float
    matrix: np.ndarray


class Unit(enum.IntEnum):
    size = 1


def product_of(*helpers):
    first, second, third = helpers
    return lambda x: first(x[0]) * second(x[1]) * third(x[2])


def scale_by(value):
    return njit(lambda x: value * x)


def reads(value):
    return lambda x: value


ONE, TWO = scale_by(1.0), scale_by(2.0)


def vectorize(value):
    return numba.vectorize(lambda x: value * x)


def as_c_function(value):
    return numba.cfunc("f8(f8)")(lambda x: value * x)


def digest(function, data=None):
    copied = UserData(data)
    return UserFunction("energy", function, copied).digest(), copied.digest()


class TestIdentity:
    """What a checkpoint knows of functions, in which no address counts."""

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (product_of(ONE, TWO, ONE), product_of(ONE, TWO, TWO)),
            (product_of(ONE, ONE, TWO), product_of(ONE, TWO, TWO)),
            (reads(scale_by(1.0)), reads(scale_by(3.0))),
            (reads(vectorize(1.0)), reads(vectorize(3.0))),
            (reads(as_c_function(1.0)), reads(as_c_function(3.0))),
            (reads(np.ones(2)), reads(np.ones((2, 1)))),
            (reads(Numbers(1.0, 2.0)), reads(Swapped(1.0, 2.0))),
            (reads(Unit), reads(enum.IntEnum("Unit", {"size": 2}))),
            (reads(((1,), 2)), reads((1, (2,)))),
            (reads(1j), reads(2j)),
            (reads(slice(0, 1)), reads(slice(0, 2))),
            (reads(1), reads(1.0)),
        ],
    )
    def test_other_functions_have_other_digests(self, first, second):
        assert digest(first) != digest(second)
        assert digest(first) == digest(first)

    def test_equal_functions_have_equal_digests(self):
        functions = [product_of(scale_by(1.0), ONE, scale_by(2.0)) for _ in range(2)]
        assert digest(functions[0]) == digest(functions[1])

    def test_fields_of_data_count(self):
        data = [Numbers(1.0, 2.0), Swapped(1.0, 2.0)]
        assert digest(reads(1), data[0]) != digest(reads(1), data[1])

    def test_an_edited_closure(self):
        """The compiled function has the array of its construction, in all copies."""
        array = np.array([1.0, 2.0, 3.0])
        target = dps.Density(
            energy=reads_squares(array), dim=3, domain=dps.domains.Simplex()
        )
        point = np.array([0.2, 0.3, 0.5])
        energy, known = target.energy(point), target.identity(point)
        array[:] = 100.0
        inner = reduce(target)
        assert inner.target.energy(inner.drop(point)) == pytest.approx(energy)
        assert copy.deepcopy(target).energy(point) == energy
        assert target.identity(point) == known
        other = dps.Density(energy=reads_squares(array), dim=3)
        assert other.energy(point) == pytest.approx(50.0 * point @ point)
        assert other.functions.digests() != target.functions.digests()


def reads_squares(array):
    return lambda x: 0.5 * x @ (array * x)


def logistic_energy(theta, rows):
    return np.sum(dps.losses.softplus(-(rows @ theta))) + 0.5 * np.dot(theta, theta)


def logistic_slope(theta, rows):
    _, shares = dps.losses.softplus_and_sigmoid(-(rows @ theta))
    return theta - shares @ rows


@pytest.mark.parametrize("decorate", [lambda f: f, njit], ids=["plain", "njit"])
def test_densities_call_vectorized_functions(decorate):
    rng = np.random.default_rng(5)
    rows, theta = rng.standard_normal((40, 3)), rng.standard_normal(3)
    target = dps.Density(
        energy=decorate(logistic_energy),
        gradient=decorate(logistic_slope),
        dim=3,
        data=rows,
    )
    margins = rows @ theta
    energy = np.logaddexp(0.0, -margins).sum() + 0.5 * theta @ theta
    slope = theta - (1.0 / (1.0 + np.exp(margins))) @ rows
    np.testing.assert_allclose(target.energy(theta), energy, rtol=1e-13)
    np.testing.assert_allclose(target.gradient(theta), slope, rtol=1e-12, atol=1e-13)


def test_vectorized_functions_have_all_digits():
    x = np.concatenate([np.linspace(-700.0, 60.0, 400), np.linspace(-3.0, 3.0, 101)])
    values, slopes = dps.losses.softplus_and_sigmoid(x)
    assert (dps.losses.softplus(x) == values).all()
    with mpmath.workdps(400):  # e^-700 is added to 1
        powers = [mpmath.exp(mpmath.mpf(float(each))) for each in x]
        exact = [(mpmath.log1p(power), power / (1 + power)) for power in powers]
        for row, pair in zip(zip(values, slopes, strict=True), exact, strict=True):
            for number, reference in zip(row, pair, strict=True):
                assert abs(mpmath.mpf(float(number)) / reference - 1) < 1e-15
    ends = dps.losses.softplus(np.array([-np.inf, np.nan, np.inf]))
    np.testing.assert_array_equal(ends, [0.0, np.nan, np.inf])


def test_failures_of_two_threads_are_not_mixed():
    """One energy raises, and the other is NaN, while both are recorded."""
    targets = {
        "raised RuntimeError: my own text": dps.Density(
            energy=fails_rarely, dim=2, domain=dps.domains.Box(-3.0, 3.0)
        ),
        "returned NaN": dps.Density(
            energy=lambda x: 0.5 * x @ x if x[0] < 2.0 else np.nan,
            dim=2,
            domain=dps.domains.Box(-3.0, 3.0),
        ),
    }
    with recorded_errors:
        for target in targets.values():
            thread = threading.Thread(target=target.energy, args=([2.5, 0.0],))
            thread.start()
            thread.join()
        for text, target in targets.items():
            assert text in target.describe_failure()


@pytest.mark.slow
def test_checkpoints_know_the_functions(tmp_path):
    file = tmp_path / "chain"
    options = {"num_draws": 20, "seed": 1, "progress": False, "check": False}
    dps.sample(gaussian(), checkpoint=file, **options)
    with pytest.raises(ValueError, match="checkpoint"):
        dps.sample(gaussian(data=2.0 * MATRIX), checkpoint=file, **options)
