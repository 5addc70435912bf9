"""Plots of chains and of draws: every domain, names, and what is not possible."""

import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

import dpsample as dps
from dpsample.diagnostics.draw_pictures import plane_curve, space_curves
from tests.support import planted_failures as planted
from tests.support.tiers import usual

matplotlib.use("Agg")
D = dps.domains
PLOTS = ["plot_rank", "plot_trace", "plot_autocorrelation", "plot_ess_evolution"]
DOMAINS = {
    "interval": (D.Ball(1.0), 1),
    "disk": (D.Ball(0.5), 2),
    "diamond": (D.Ball(1.0, p=1.0), 2),
    "box": (planted.cube(), 2),
    "triangle": (D.Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.5] * 3), 2),
    "corner": (D.Polytope([[-1.0, 0.0], [0.0, -1.0]], [1.0, 1.0]), 2),
    "plane": (D.WholeSpace(), 2),
    "segment": (D.Simplex(), 2),
    "simplex": (D.Simplex(), 3),
    "ball": (D.Ball(1.0, p=1.5), 3),
    "cube": (planted.cube(dim=3), 3),
    "column": (D.SchattenBall(1.0, p=1.0, shape=(3, 1)), 3),
    "space": (D.WholeSpace(), 3),
}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def inside(domain, dim, *, num_chains=2, num_draws=40):
    """Some points of a domain, as a run."""
    rng = np.random.default_rng(1)
    points = 0.3 * rng.normal(size=(num_chains, num_draws, dim))
    flat = [domain.project(point) for point in points.reshape(-1, dim)]
    return planted.tree(np.reshape(flat, points.shape))


@usual("box")
@pytest.mark.parametrize("name", DOMAINS)
def test_draws_are_drawn_in_every_domain(name):
    domain, dim = DOMAINS[name]
    ax = dps.diagnostics.plot_draws(inside(domain, dim), domain)
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert shown[:2] == ["chain 0", "chain 1"]
    assert ("boundary" in shown) == (domain.name != "whole_space")
    ax.figure.canvas.draw()
    assert dim == 3 or ax.name == "rectilinear"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["disk", "diamond", "box", "triangle", "simplex"])
def test_outlines_are_on_the_boundary(name):
    domain, dim = DOMAINS[name]
    center = domain.interior_point(dim)
    for point in plane_curve(domain, dim):
        assert domain.contains(center + (1.0 - 1e-9) * (point - center))
        assert not domain.contains(center + 1.001 * (point - center))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ball", "cube", "column"])
def test_nets_are_on_the_boundary(name):
    domain, _ = DOMAINS[name]
    curves = space_curves(domain)
    assert len(curves) >= 12
    for point in np.concatenate(curves)[::97]:
        assert domain.contains((1.0 - 1e-9) * point)
        assert not domain.contains(1.001 * point)


def test_a_far_boundary_is_not_allowed_to_shrink_the_draws():
    theta = 0.01 * np.random.default_rng(2).normal(size=(2, 100, 2))
    ax = dps.diagnostics.plot_draws(planted.tree(theta), D.Ball(5.0))
    assert np.ptp(ax.get_xlim()) < 0.2
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert shown[-1] == "boundary (far outside)"


def test_selected_coefficients_are_drawn_without_a_boundary():
    draws = inside(D.WholeSpace(), 5)
    ax = dps.diagnostics.plot_draws(draws, D.Ball(3.0), ["x3", "x1"])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("theta[x3]", "theta[x1]")
    assert "boundary" not in [text.get_text() for text in ax.get_legend().get_texts()]
    with pytest.raises(ValueError, match="^draws must be of 1, 2 or 3 coefficients"):
        dps.diagnostics.plot_draws(draws)
    with pytest.raises(ValueError, match="^coefficients must be one of 'x0'"):
        dps.diagnostics.plot_draws(draws, coefficients=["x9"])
    with pytest.raises(ValueError, match="^target must be a Domain"):
        dps.diagnostics.plot_draws(draws, 3.0)
    given = plt.figure().subplots()
    assert dps.diagnostics.plot_draws(draws, coefficients=["x0"], ax=given) is given


@pytest.mark.slow
@pytest.mark.parametrize("name", PLOTS)
def test_plots_of_chains_have_one_panel_per_coefficient(name, tmp_path):
    draws = inside(D.WholeSpace(), 3, num_draws=200)
    found = getattr(dps.diagnostics, name)(draws)
    panels = [ax for ax in found.viz["figure"].item().axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == [f"theta[x{j}]" for j in range(3)]
    found.savefig(tmp_path / "figure.png")
    chosen = getattr(dps.diagnostics, name)(draws, ["x2"])
    panels = [ax for ax in chosen.viz["figure"].item().axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == ["theta[x2]"]


@pytest.mark.slow
def test_many_coefficients_are_cut_to_those_that_mix_worst():
    draws = inside(D.WholeSpace(), 20, num_draws=200)
    draws.posterior["theta"].values[:, :, 17] = np.linspace(0.0, 1.0, 200)
    found = dps.diagnostics.plot_trace(draws)
    titles = [ax.get_title() for ax in found.viz["figure"].item().axes]
    shown = [title for title in titles if title]
    assert len(shown) == 12 and "theta[x17]" in shown


@pytest.mark.parametrize("name", PLOTS)
def test_a_missing_extra_is_named_with_its_line(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_plots", None)
    with pytest.raises(ImportError, match=r"pip install 'dpsample\[plots\]'"):
        getattr(dps.diagnostics, name)(inside(D.WholeSpace(), 1))
