"""Modes of densities that are not convex: they are found, and chains start at them."""

import warnings

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers import modes as modes_module
from dpsample.samplers.modes import cover_modes, find_modes
from tests.support.tiers import one_in

CENTER = 6.0


def uneven(theta):
    """Energy of a normal mixture: ten parts of sd 1 at 6, one of sd 0.1 at -6."""
    first = -0.5 * np.sum((theta - CENTER) ** 2)
    second = -50.0 * np.sum((theta + CENTER) ** 2)
    return -np.logaddexp(first, second)


def far_apart(theta):
    return -np.logaddexp(-0.5 * theta @ theta, -0.5 * np.sum((theta - 100.0) ** 2))


def light(theta):
    """Energy with a mode of a share of e^-20."""
    second = -20.0 - 0.5 * np.sum((theta + CENTER) ** 2)
    return -np.logaddexp(-0.5 * np.sum((theta - CENTER) ** 2), second)


def heavy_tails(theta):
    return 2.5 * np.log1p(theta @ theta / 4.0)


def funnel(theta):
    """Energy whose mouth is so flat that descents end on the way."""
    neck = 0.5 * theta[1] ** 2 * np.exp(-theta[0])
    return theta[0] ** 2 / 18.0 + neck + 0.5 * theta[0]


def density(energy, dim=1, **options):
    return dps.Density(energy=energy, dim=dim, convex=False, **options)


@one_in(6)
@pytest.mark.parametrize(
    ("energy", "dim", "centers"),
    [
        (uneven, 1, [6.0, -6.0]),
        (far_apart, 1, [0.0, 100.0]),
        (far_apart, 3, [0.0, 100.0]),
        (light, 1, []),
        (heavy_tails, 2, []),
        (funnel, 2, []),
    ],
)
def test_modes_are_found(energy, dim, centers):
    places = sorted(mode.point[0] for mode in find_modes(density(energy, dim)))
    assert places == pytest.approx(sorted(centers), abs=0.3)


@pytest.mark.slow
def test_modes_of_a_box_and_of_a_convex_energy():
    box = dps.domains.Box(-8.0, 8.0)
    heights = [m.point[0] for m in find_modes(density(uneven, domain=box))]
    assert heights == pytest.approx([6.0, -6.0], abs=0.3)
    convex = dps.Density(energy=lambda x: 0.5 * x @ x, dim=1)
    assert find_modes(convex) == []


@pytest.mark.slow
def test_the_covering_gaussian_reaches_all_modes():
    target = density(far_apart)
    gaussian = modes_module.fit(target)
    covering = cover_modes(target, gaussian)
    assert float(covering.factor[0, 0]) == pytest.approx(50.0, rel=0.1)
    np.testing.assert_allclose(covering.whiten @ covering.factor, np.eye(1), atol=1e-9)


def sample(sampler, energy=uneven, **options):
    options = {"sampler": sampler, "seed": 1, "progress": False} | options
    draws = dps.sample(density(energy), **options)
    return draws.posterior["theta"].values[..., 0]


class TestStarts:
    def test_chains_that_stay_at_their_modes_are_noticed(self):
        with pytest.warns(RuntimeWarning, match="start at 2 modes, and may stay there"):
            theta = sample(dps.samplers.MALA())
        assert (theta > 0.0).mean(axis=1).tolist() == [1.0, 0.0, 1.0, 0.0]

    @pytest.mark.slow
    def test_without_them_the_check_would_say_nothing(self, monkeypatch):
        """A planted error: all chains start at one mode, and agree."""
        monkeypatch.setattr(modes_module, "find_modes", lambda target: [])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            theta = sample(dps.samplers.MALA())
        assert (theta > 0.0).all()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("energy", "border", "share"),
        [(uneven, 0.0, 10.0 / 11.0), (far_apart, 50.0, 0.5)],
    )
    def test_slices_go_from_mode_to_mode(self, energy, border, share):
        """At 100 standard deviations some 140 draws of 4000 are effective."""
        theta = sample(dps.samplers.ChordSlice(), energy, check=False)
        assert (theta > border).mean() == pytest.approx(share, abs=0.2)
        assert ((theta > border).mean(axis=1) > 0.0).all()
        assert ((theta > border).mean(axis=1) < 1.0).all()
