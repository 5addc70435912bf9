"""Runs from the sampler's own start reach the law of the quadrature."""

import numpy as np
import pytest

from tests.support.sampler_grid import (
    ROWS,
    SAMPLERS,
    USUAL_CELLS,
    exact_starts,
    grid_case,
    moved,
    prepared_cell,
    supported_losses,
)
from tests.support.sampler_margins import asymmetry_margin, law_margin
from tests.support.statistics import assert_rejected
from tests.support.stein import stein_margin

# More than a chain needs to forget its start; steps of some are short, or few accepted.
NUM_DRAWS, MANY_DRAWS = 40, 400
PATIENT = {
    "LaplaceIndependence": MANY_DRAWS,
    "MirrorLangevin": 120,
    "PreconditionedCrankNicolson": MANY_DRAWS,
    "TiltedGibbs": 120,
    "TunaMH": 120,
}
EXACT = [name for name in SAMPLERS if SAMPLERS[name].exactness != "biased"]


def margins(name, domain, loss, num_draws, num_starts=4_000):
    case, prepared = grid_case(domain, loss), prepared_cell(name, domain, loss)
    starts = np.tile(prepared.start, (num_starts, 1))
    _, draws = moved(prepared, starts, np.random.default_rng(51), num_draws)
    assert case.inside(draws.reshape(-1, case.dim)).all()
    return law_margin(case, draws[:, -1]), law_margin(case, draws[:, 0])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "domain"), [row for row in ROWS if row[0] in EXACT])
def test_runs_agree_with_the_quadrature(name, domain):
    num_draws = PATIENT.get(name, NUM_DRAWS)
    for loss in supported_losses(name, domain):
        assert margins(name, domain, loss, num_draws)[0] < 1.0, loss


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_long_runs_agree_with_the_quadrature(name):
    """What a state gathers in many draws is the sampler's, whatever the target."""
    cell = USUAL_CELLS.get(name, ("ball", "logistic"))
    assert margins(name, *cell, MANY_DRAWS, num_starts=1_000)[0] < 1.0


@pytest.mark.slow
def test_one_run_of_each_kind_of_domain_agrees_with_the_quadrature():
    for domain in ("ball", "simplex", "polytope", "schatten ball"):
        last, _ = margins("HitAndRun", domain, "hinge", NUM_DRAWS)
        assert last < 1.0, domain
    # A planted bug: no warm-up at all.
    assert_rejected(margins("RandomWalk", "ball", "hinge", NUM_DRAWS)[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LaplaceIndependence", "FactorizedMetropolis"])
def test_states_built_one_by_one_pass_with_many_starts(name):
    """The grid has few starts where Python builds each state."""
    for domain in ("whole space", "ball"):
        for loss in supported_losses(name, domain):
            case, prepared = grid_case(domain, loss), prepared_cell(name, domain, loss)
            starts = exact_starts(domain, loss)
            draws = np.full((len(starts), 2, case.dim), np.nan)
            rng, advance = np.random.default_rng(52), prepared.runner()
            for start, out in zip(starts, draws, strict=True):
                advance(prepared.init(start), rng, out, np.empty((2, 5)))
            assert law_margin(case, draws[:, -1]) < 1.0
            assert stein_margin(case, draws[:, -1]) < 1.0
            assert asymmetry_margin(case, starts, draws[:, 0]) < 1.0
