"""What the studies of privacy compute: closed laws and printed claims."""

import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri

import dpsample as dps
from dpsample import domains, losses
from dpsample import papers as printed
from dpsample.audits import exact_curve, neighbors
from dpsample.experiments.configuration import bundle, load
from dpsample.privacy import gdp_from_budget
from studies.privacy_curve import log_gammainc
from tests.support.tiers import usual

STUDIES = Path(__file__).parents[2] / "studies"


def cell(name, **params):
    """One cell of a study."""
    return load(bundle(STUDIES, name)).cell(params, np.random.SeedSequence(1))


@usual("1-1e-05")
@pytest.mark.parametrize(
    ("dim", "accuracy", "calibration"), [(1, 1e-5, "proved"), (2, 5e-3, "printed")]
)
def test_the_marginal_law_in_a_ball_is_that_of_quadrature(dim, accuracy, calibration):
    found = cell("privacy_curve", d=dim, delta=1e-3, calibration=calibration)
    facts = dps.PublicFacts(
        num_records=10_000,
        dim=dim,
        row_bound=1.0,
        row_norm=2.0,
        loss=losses.Linear(),
        domain=domains.Ball(1.0),
    )
    mech = dps.calibrate(
        facts,
        dps.Budget(epsilon=1.0, delta=1e-3),
        risk="empirical",
        sampler_share=0.0,
        calibration={"proved": "exact", "printed": "paper"}[calibration],
    )
    pair = [mech.target(data) for data in neighbors.opposite(facts)]
    curve = exact_curve(*pair, [found["true"]], num_panels=8)
    assert curve.delta[0] == pytest.approx(1e-3, rel=accuracy)
    assert found["true"] <= found["pushed"] <= found["proved"] * (1.0 + 1e-9)


@pytest.mark.parametrize("shape", [0.5, 4.5, 499.5])
def test_the_logarithm_of_the_gamma_function_does_not_underflow(shape):
    x = shape * np.array([1e-3, 0.5, 0.99, 1.0, 2.0])
    exact = [mpmath.log(mpmath.gammainc(shape, 0, v, regularized=True)) for v in x]
    assert log_gammainc(shape, x) == pytest.approx(np.array(exact, dtype=float), 1e-9)


def test_a_sampler_within_half_of_delta_can_lose_everything():
    # Corollaries 2 to 5 of arXiv:2207.08347: Gaussians at the distance of (1, delta/2).
    delta, epsilon = 1e-3, 40.0
    share = 0.5 * delta
    edge = -ndtri(share)
    gdp = gdp_from_budget(1.0, share)
    x = np.linspace(-9.0, 9.0, 200_001)
    p, q = (np.exp(-0.5 * (x - center) ** 2) for center in (0.0, gdp))
    p, q = p / p.sum(), q / q.sum()
    event = x > edge
    shown = np.where(event, 0.0, p)
    shown[0] += p[event].sum()
    more = np.where(event, q, q * (1.0 - share / q[~event].sum()))
    more[-1] += share
    for exact, near in ((p, shown), (q, more)):
        assert near.sum() == pytest.approx(1.0)
        assert 0.5 * np.abs(near - exact).sum() <= share * (1.0 + 1e-3)
    assert np.maximum(more - math.exp(epsilon) * shown, 0.0).sum() > 1.01 * delta
    found = cell(
        "printed_claims",
        part="others",
        paper="Gopi et al. 2022",
        formula="Corollaries 2 to 5",
        epsilon=1.0,
        delta=delta,
    )
    assert found["attained"] == math.inf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paper", "formula", "key", "place"),
    [
        ("Gopi et al. 2022", "Theorems 3 to 6", "gopi", "Theorems 3 to 6"),
        ("Xie et al. 2022", "Algorithm 3", "xie", "Algorithm 3"),
        ("Xie et al. 2022", "Algorithm 4", "xie", "Algorithm 4"),
        ("Xu et al. 2026", "Algorithms 2, 3, linear model", "xu", "Algorithms 2 and 3"),
    ],
)
def test_claims_are_those_of_the_package(paper, formula, key, place):
    cases = printed._SOURCES[key]()
    case = next(c for c in cases if c.place == place)
    found = cell(
        "printed_claims",
        part="thresholds",
        paper=paper,
        formula=formula,
        epsilon=case.epsilon,
        delta=case.delta,
    )
    expected = case.epsilon_at(1.0) / case.epsilon
    assert found["attained"] == pytest.approx(expected, rel=1e-9)
    assert found["attained"] == found["proved"]
