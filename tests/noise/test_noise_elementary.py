"""Gaussian and Laplace noise, compiled fills, and what every noise refuses."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import laplace as laplace_law
from scipy.stats import norm

import dpsample as dps
from dpsample import noise
from dpsample.core.streams import streams
from dpsample.domains import Ball, Box, Polytope, SchattenBall
from dpsample.noise import cone
from dpsample.noise.generalized_gaussian import (
    fill_gaussian,
    fill_generalized_gaussian,
    fill_laplace,
)
from dpsample.noise.k_norm import fill_k_norm
from tests.support.statistics import assert_law, rejected

DIAMOND = Polytope([[1, 1], [1, -1], [-1, 1], [-1, -1]], [1.0, 1.0, 1.0, 1.0])
LAWS = (
    noise.Gaussian(0.5),
    noise.Laplace(2.0),
    noise.GeneralizedGaussian(3.0, sigma=0.5),
    noise.GeneralizedGaussian(math.inf, sigma=0.5),
    noise.SchattenGaussian(1.0, sigma=2.0, shape=(2, 1)),
    noise.KNorm(Box(-1.0, 1.0), scale=2.0),
    noise.KNorm(SchattenBall(2.0, p=math.inf, shape=(1, 2)), scale=2.0),
    noise.KNorm(DIAMOND, scale=0.1),
)


def rng(seed=0):
    return streams(seed, 1)[0]


def test_gaussian_and_laplace_numbers_follow_their_laws():
    assert_law(noise.gaussian(rng(441), size=50_000, stddev=0.2) / 0.2, norm.cdf)
    z = noise.laplace(rng(442), size=(500, 100), scale=3.0).ravel()
    assert_law(z / 3.0, laplace_law.cdf)
    with rejected():
        assert_law(z / 3.6, laplace_law.cdf)
    with rejected():
        assert_law(noise.gaussian(rng(441), size=500_000, stddev=0.97), norm.cdf)


def test_densities_of_independent_coordinates():
    z = np.array([[0.3, -2.0], [4.0, 0.0]])
    expected = norm.logpdf(z, scale=1.7).sum(axis=1)
    np.testing.assert_allclose(noise.Gaussian(1.7).log_density(z), expected)
    expected = laplace_law.logpdf(z, scale=1.7).sum(axis=1)
    np.testing.assert_allclose(noise.Laplace(1.7).log_density(z), expected)


def test_sizes_are_those_of_numpy():
    for draw in (noise.gaussian, noise.laplace):
        assert isinstance(draw(rng()), float)
        assert draw(rng(), size=()).shape == ()
        assert draw(rng(), size=4).shape == (4,)
        assert draw(rng(), size=[2, 0, 3]).shape == (2, 0, 3)
        assert draw(rng(), size=np.int64(2)).shape == (2,)
    expected = 0.1 * rng(3).standard_normal((2, 5))
    drawn = noise.gaussian(rng(3), size=(2, 5), stddev=0.1)
    np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize("law", LAWS)
def test_specs_compare_by_content_and_travel_through_json(law):
    copy = noise.from_dict(json.loads(json.dumps(law.to_dict())))
    assert copy == law and hash(copy) == hash(law)
    first, second = law.draw(rng(5), (3, 2)), copy.draw(rng(5), (3, 2))
    np.testing.assert_array_equal(first, second)
    assert first.shape == (3, 2)
    density = law.log_density(first)
    assert density.shape == (3,)
    assert np.shape(law.log_density(first[0])) == ()
    np.testing.assert_allclose(law.log_density(first[0]), density[0])


def fill(name, dim, compiled):
    """One vector of every compiled fill, or of its Python source."""
    cases = {
        "gaussian": (fill_gaussian, 0.3),
        "laplace": (fill_laplace, 0.3),
        "gg": (fill_generalized_gaussian, noise.cone_table(2.5), 0.3),
        "gg plane": (fill_generalized_gaussian, noise.cone_table(2.0), 0.3),
        "gg cube": (fill_generalized_gaussian, noise.cone_table(np.inf), 0.3),
        "cone": (cone.cone_vector, noise.cone_table(1.5)),
        "schatten": (
            cone.fill_schatten_gaussian,
            noise.schatten_plan((2, dim // 2), 1.0), 0.3,
        ),
        "spectrum": (
            cone.fill_schatten,
            noise.schatten_plan((2, dim // 2), 5.0), 0.3,
        ),
        "k-norm": (
            fill_k_norm,
            noise.k_norm_table(Ball(2.0, p=1.0), dim), 0.3,
        ),
        "k-norm facets": (
            fill_k_norm, noise.k_norm_table(DIAMOND, 2), 0.3,
        ),
    }  # fmt: skip
    function, *arguments = cases[name]
    out = np.full(2 if name == "k-norm facets" else dim, np.nan)
    generator = rng(443)
    call = function if compiled else getattr(function, "py_func", function)
    for _ in range(20):
        call(generator, *arguments, out)
    return out, generator.random()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "gaussian", "laplace", "gg", "gg plane", "gg cube", "cone", "schatten",
        "spectrum", "k-norm", "k-norm facets",
    ],
)  # fmt: skip
def test_compiled_fills_equal_their_source(name):
    first, second = fill(name, 6, True), fill(name, 6, False)
    np.testing.assert_allclose(first[0], second[0], rtol=1e-12)
    assert first[1] == second[1]
    assert np.isfinite(first[0]).all()


@pytest.mark.slow
def test_vector_kernels_equal_their_source():
    for r in (1.0, 3.0, 7.3):
        table, drawn = noise.cone_table(r), []
        kernels = (cone.cone_vector, cone._outside, cone.scaled_norm)
        for function in (kernels[0], getattr(kernels[0], "py_func", kernels[0])):
            out = np.empty(3000)
            drawn.append((function(rng(444), table, out), out))
        assert drawn[0][0] == pytest.approx(drawn[1][0], rel=1e-12)
        np.testing.assert_allclose(drawn[0][1], drawn[1][1], rtol=1e-12)
        for layer in (0, 3):
            values = []
            for function in (kernels[1], getattr(kernels[1], "py_func", kernels[1])):
                generator = rng(445)
                arguments = (r, table.twice, table.tail, layer, 0.7, 0.2, 0.9)
                values.append([function(generator, *arguments) for _ in range(50)])
            np.testing.assert_allclose(values[0], values[1], rtol=1e-12)
        tiny = np.array([1e-300, -3e-301])
        source = getattr(kernels[2], "py_func", kernels[2])
        assert kernels[2](tiny, r) == pytest.approx(source(tiny, r), rel=1e-14)
        assert 1e-300 <= kernels[2](tiny, r) <= 1.3001e-300


def test_functions_agree_with_the_compiled_fills():
    table, out, generator = noise.cone_table(1.5), np.empty(5), rng(446)
    drawn = noise.generalized_gaussian(rng(446), size=(3, 5), r=1.5, sigma=2.0)
    for row in drawn:
        noise.fill_generalized_gaussian(generator, table, 2.0, out)
        np.testing.assert_array_equal(out, row)
    noise.fill_laplace(rng(447), 2.0, out)
    np.testing.assert_array_equal(out, noise.laplace(rng(447), size=5, scale=2.0))
    noise.fill_gaussian(rng(447), 2.0, out)
    np.testing.assert_array_equal(out, noise.gaussian(rng(447), size=5, stddev=2.0))


DRAWS = {
    "gg": lambda **k: noise.generalized_gaussian(
        **({"rng": rng(), "size": 3, "r": 3.0, "sigma": 1.0} | k)
    ),
    "schatten": lambda **k: noise.schatten_gaussian(
        **({"rng": rng(), "size": (2, 2), "r": 3.0, "sigma": 1.0} | k)
    ),
    "k_norm": lambda **k: noise.k_norm(
        **({"rng": rng(), "size": 3, "domain": Ball(1.0), "scale": 1.0} | k)
    ),
    "gaussian": lambda **k: noise.gaussian(**({"rng": rng(), "stddev": 1.0} | k)),
    "laplace": lambda **k: noise.laplace(**({"rng": rng(), "scale": 1.0} | k)),
}
BAD_NUMBERS = (0.0, -1.0, math.nan, math.inf, "1", None, True, [1.0])
BAD_SIZES = (-1, (2, -1), 2.0, "3", (1.5,), True, (2, True), (None,))


@pytest.mark.parametrize("kind", DRAWS)
def test_bad_arguments_are_refused_with_their_names(kind):
    draw = DRAWS[kind]
    scales = {"gaussian": "stddev", "laplace": "scale", "k_norm": "scale"}
    scale = scales.get(kind, "sigma")
    for value in BAD_NUMBERS:
        with pytest.raises(ValueError, match=f"{scale} must be a finite number > 0"):
            draw(**{scale: value})
    for value in BAD_SIZES:
        with pytest.raises(ValueError, match="size must be an integer >= 0"):
            draw(size=value)
    for value in (None, 0, np.random.RandomState(0)):
        with pytest.raises(ValueError, match="rng must be a Generator"):
            draw(rng=value)
    if scale == "sigma":
        for value in (0.5, math.nan, -math.inf, "2", None):
            with pytest.raises(ValueError, match="r must be >= 1"):
                draw(r=value)
    if kind in ("gg", "schatten", "k_norm"):
        axes = 2 if kind == "schatten" else 1
        for value in ((), (3, 0), *(((4,),) if axes == 2 else ())):
            with pytest.raises(ValueError, match=f"size must be of at least {axes}"):
                draw(size=value)
        with pytest.raises(ValueError, match="size must be"):
            draw(size=None)


def test_bad_specs_and_points_are_refused():
    bad = [
        (lambda: noise.Gaussian(0.0), "stddev must be"),
        (lambda: noise.Laplace(math.nan), "scale must be"),
        (lambda: noise.GeneralizedGaussian(0.9, 1.0), "r must be >= 1"),
        (lambda: noise.GeneralizedGaussian(2.0, math.inf), "sigma must be"),
        (lambda: noise.SchattenGaussian(2.0, 1.0, (2,)), "shape must be a tuple of 2"),
        (lambda: noise.SchattenGaussian(2.0, -1.0, (2, 2)), "sigma must be"),
        (lambda: noise.KNorm(Ball(1.0), 0.0), "scale must be"),
        (lambda: noise.KNorm("ball", 1.0), "domain must be a Ball or"),
        (lambda: noise.cone_table(0.0), "r must be >= 1"),
        (lambda: noise.from_dict({"name": "cauchy"}), "name must be one of"),
    ]
    for make, message in bad:
        with pytest.raises(ValueError, match=message):
            make()
    for law in LAWS:
        for z in (1.0, [], "z", np.zeros((3, 0)), [np.nan, 1.0], [np.inf, 1.0]):
            with pytest.raises(ValueError, match="z must be"):
                law.log_density(z)
    with pytest.raises(ValueError, match="order must be"):
        LAWS[2].norm_moment(-1.0, 3)
    with pytest.raises(ValueError, match="dim must be"):
        LAWS[2].coordinate_moment(1.0, 0)


def test_noise_is_a_public_module():
    assert dps.noise is noise and "noise" in dps.__all__
    assert set(noise.__all__) <= set(dir(noise))
