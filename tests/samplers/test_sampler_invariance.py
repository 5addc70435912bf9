"""From exact starts every sampler draws exactly, on every domain and loss.

All that needs stationary draws of every sampler is here, where they are made once:
their law, Stein's identities, symmetry, and the planted bugs of all three.
"""

from __future__ import annotations

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers import RandomizedSeries
from dpsample.samplers.chain import PreparedChain
from tests.support import sampler_mutants as mutants
from tests.support.sampler_grid import (
    DOMAINS,
    MANY,
    PLANTED,
    ROWS,
    SAMPLERS,
    TARGETS,
    exact_starts,
    fast_draws,
    grid_case,
    moved,
    prepared_cell,
    rows_by_tier,
    stationary,
    supported,
    supported_losses,
)
from tests.support.sampler_margins import (
    asymmetry_margin,
    dependence_margin,
    law_margin,
)
from tests.support.statistics import assert_rejected
from tests.support.stein import stein_margin
from tests.support.tiers import by_turns, one_in, slow

# The acceptance line of the package, and no domain may have fewer than on the simplex.
LEAST = {"whole space": 10, "ball": 8, "box": 8, "simplex": 4, "polytope": 4}

# Steps whose bias is proved to be small move nothing in a minute: they are longer here,
# and the chain for the right temperature shows that their bias is not what is noticed.
LONGER = {"RandomizedSeries": RandomizedSeries(step_size=4e-4, num_steps=10)}


@one_in(6)
@pytest.mark.parametrize(("domain", "loss"), by_turns(TARGETS))
def test_the_exact_starts_have_the_law_of_the_quadrature(domain, loss):
    case, starts = grid_case(domain, loss), exact_starts(domain, loss)
    assert case.inside(starts).all()
    assert law_margin(case, starts) < 1.0


@one_in(12)
@pytest.mark.parametrize("domain", DOMAINS)
def test_enough_samplers_support_each_domain(domain):
    names = [name for name in SAMPLERS if supported_losses(name, domain)]
    assert len(names) >= LEAST.get(domain, 4), names


@pytest.mark.parametrize(("name", "domain", "losses"), rows_by_tier())
def test_draws_from_exact_starts_have_the_exact_law(name, domain, losses):
    for loss in supported_losses(name, domain, losses):
        case = grid_case(domain, loss)
        _, draws = stationary(name, domain, loss)
        points = draws.reshape(-1, case.dim)
        assert case.inside(points).all(), f"left the domain, {loss}"
        contains = case.domain.contains
        assert all(contains(x) for x in points[:: len(points) // 100]), loss
        for turn in (0, 2):
            assert law_margin(case, draws[:, turn]) < 1.0, (loss, turn)


@pytest.mark.parametrize(("name", "domain", "losses"), rows_by_tier())
def test_draws_satisfy_steins_identities(name, domain, losses):
    for loss in supported_losses(name, domain, losses):
        _, draws = stationary(name, domain, loss)
        case = grid_case(domain, loss)
        for turn in range(draws.shape[1]):
            assert stein_margin(case, draws[:, turn]) < 1.0, (loss, turn)


@pytest.mark.parametrize(("name", "domain", "losses"), rows_by_tier())
def test_stationary_pairs_are_exchangeable(name, domain, losses):
    if SAMPLERS[name].is_reversible:
        for loss in supported_losses(name, domain, losses):
            starts, draws = stationary(name, domain, loss)
            case = grid_case(domain, loss)
            assert asymmetry_margin(case, starts, draws[:, 0]) < 1.0, loss
            assert asymmetry_margin(case, starts, draws[:, 2]) < 1.0, loss


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_independent_draws_forget_the_start(name):
    if SAMPLERS[name].exactness == "iid":
        for domain, loss in TARGETS:
            if supported(name, domain, loss)[0]:
                starts, draws = stationary(name, domain, loss)
                case = grid_case(domain, loss)
                assert dependence_margin(case, starts, draws[:, 0]) < 1.0


@pytest.mark.slow
def test_a_dependent_draw_is_noticed():
    starts, draws = stationary("RandomWalk", "ball", "hinge")
    assert_rejected(dependence_margin(grid_case("ball", "hinge"), starts, draws[:, 0]))


@one_in(5)
@pytest.mark.parametrize(("name", "domain"), ROWS)
def test_what_is_not_supported_is_refused_with_a_remedy(name, domain):
    for loss in ("logistic", "hinge", "absolute"):
        is_supported, reason = supported(name, domain, loss)
        assert isinstance(is_supported, bool) and isinstance(reason, str)
        if is_supported:
            assert reason == ""
            continue
        assert reason.endswith(".") and "use " in reason.lower(), reason
        target, sampler = grid_case(domain, loss).target, SAMPLERS[name]
        with pytest.raises(ValueError) as refusal:
            sampler.prepare(target, np.random.default_rng(0))
        assert reason in str(refusal.value)
        with pytest.raises(ValueError) as refusal:
            dps.sample(target, sampler=sampler, num_draws=2, progress=False)
        assert reason in str(refusal.value)


# Planted bugs: each must be caught by the check that the sampler passes above.


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_chain_for_another_temperature_is_noticed(name):
    domain, loss = next(cell for cell in TARGETS if supported(name, *cell)[0])
    case, sampler = grid_case(domain, loss), LONGER.get(name, SAMPLERS[name])
    starts = exact_starts(domain, loss)[: 2_000 if name in LONGER else MANY]

    def margin(target):
        prepared = sampler.prepare(target, np.random.default_rng(1))
        used, draws = moved(prepared, starts, np.random.default_rng(2), 30)
        assert law_margin(case, used) < 1.0
        return law_margin(case, draws[:, -1])

    assert_rejected(margin(dps.Gibbs(case.target.problem, k=1.6 * case.k, mu=case.mu)))
    if name in LONGER:
        assert margin(case.target) < 1.0


def margin_of(
    name, domain, loss, *, step=None, plan=None, k=None, num_draws=20, count=MANY
):
    """Margin of a plain sampler's last draw, with a change that is a bug."""
    prepared, case = prepared_cell(name, domain, loss), grid_case(domain, loss)
    if plan is not None:
        prepared = PreparedChain(
            target=prepared.target,
            plan=plan(prepared.plan),
            run=prepared.run,
            init_fn=prepared.init_fn,
            functions_fn=prepared.functions_fn,
            start=prepared.start,
        )
    draws = fast_draws(
        prepared,
        exact_starts(domain, loss, count),
        np.random.default_rng(21),
        num_draws,
        run=None if step is None else mutants.run_of(step),
        numbers=None if k is None else case.target.numbers._replace(k=k * case.k),
    )
    return law_margin(case, draws[:, -1])


@pytest.mark.parametrize(
    ("name", "domain", "loss", "step"),
    [
        slow("RandomWalk", "ball", "absolute", mutants.clamped),
        slow("BallWalk", "polytope", "hinge", mutants.speedy),
        slow("MALA", "whole space", "absolute", mutants.without_reverse),
        slow("MALA", "box", "logistic", mutants.stale_gradient),
        slow("TiltedGibbs", "whole space", "absolute", mutants.tangent_at_x),
    ],
)
def test_a_wrong_step_is_caught(name, domain, loss, step):
    assert margin_of(name, domain, loss) < 1.0
    assert_rejected(margin_of(name, domain, loss, step=step))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("PreconditionedCrankNicolson", lambda p: p._replace(whiten=1.2 * p.whiten)),
        slow(
            "PreconditionedCrankNicolson", lambda p: p._replace(factor=1.2 * p.factor)
        ),
        ("TiltedGibbs", lambda p: p._replace(whiten=1.2 * p.whiten)),
        ("MALA", lambda p: p._replace(whiten=1.2 * p.whiten)),
    ],
)
def test_a_wrong_plan_is_caught(name, change):
    options = {"num_draws": 8, "count": PLANTED}
    assert margin_of(name, "whole space", "logistic", **options) < 1.0
    assert_rejected(margin_of(name, "whole space", "logistic", plan=change, **options))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["RandomWalk", "BallWalk", "MALA"])
def test_a_temperature_that_is_15_percent_off_is_caught(name):
    assert_rejected(margin_of(name, "whole space", "logistic", k=1.15, num_draws=60))


@pytest.mark.parametrize(
    ("name", "domain", "loss", "step", "change", "count"),
    [
        slow("RandomWalk", "box", "hinge", mutants.clamped, {}, MANY),
        ("RandomWalk", "simplex", "logistic", None, {"k": 30.0}, PLANTED),
        slow("MALA", "whole space", "logistic", None, {"k": 12.0}, MANY),
        ("BallWalk", "ball", "absolute", None, {"mu": 0.0}, PLANTED),
        slow("TiltedGibbs", "schatten ball", "hinge", None, {"k": 25.0}, MANY),
    ],
)
def test_a_wrong_law_breaks_an_identity(name, domain, loss, step, change, count):
    case, prepared = grid_case(domain, loss), prepared_cell(name, domain, loss)
    draws = fast_draws(
        prepared,
        exact_starts(domain, loss, count),
        np.random.default_rng(31),
        60,
        run=None if step is None else mutants.run_of(step),
        numbers=case.target.numbers._replace(**change),
    )
    assert_rejected(stein_margin(case, draws[:, -1]))


@pytest.mark.slow
def test_a_scan_in_a_fixed_order_is_invariant_but_not_reversible():
    case, starts = grid_case("ball", "hinge"), exact_starts("ball", "hinge")
    draws = fast_draws(
        prepared_cell("RandomWalk", "ball", "hinge"),
        starts,
        np.random.default_rng(41),
        1,
        run=mutants.run_of(mutants.in_fixed_order),
    )[:, 0]
    assert law_margin(case, draws) < 1.0
    assert_rejected(asymmetry_margin(case, starts, draws))
