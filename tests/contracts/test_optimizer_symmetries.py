"""Symmetries of every optimizer, and the table of what is tested of which."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import dpsample as dps
from dpsample import optimizers as opt
from dpsample.domains import Ball, WholeSpace
from dpsample.optimizers.loop.optimizer import Optimizer
from dpsample.optimizers.loop.steps import FrankWolfeStep
from tests.contracts.optimizer_cases import AFFINE, DEFAULTS, LIMITED, Case, problem
from tests.contracts.optimizer_lists import LOCALIZED, ONE_PASS_CASES, STEPWISE
from tests.support.descents import descend
from tests.support.plain_descent import without_noise
from tests.support.tiers import one_in

VERTEX = ("HeavyTailedFrankWolfe", "HeavyTailedLasso")
# How public numbers scale with the rows; those of the other names do not.
POWERS = {
    "clip": 1.0,
    "distance": -1.0,
    "l1": 1.0,
    "moment_bound": 2.0,
    "ridge": 2.0,
    "step_size": -2.0,
}


def loss_of(case: Case) -> dps.losses.Loss:
    if case.name in ("HeavyTailedLasso", "AdaSSP"):
        return dps.losses.Squared()
    return dps.losses.Logistic()


def scaled(method: Optimizer, scale: float) -> Optimizer:
    changes = {}
    for field in fields(method):
        value = getattr(method, field.name)
        if field.name in POWERS and value is not None:
            changes[field.name] = value * scale ** POWERS[field.name]
    return replace(method, **changes)


@one_in(9)
@pytest.mark.parametrize("case", DEFAULTS, ids=str)
def test_scaling_rows_and_bounds_scales_the_answer_back(case: Case) -> None:
    """With the same random numbers, noise and default hyper-parameters included."""
    ends = []
    for scale in (1.0, 2.0):
        domain, unit = case.domain, scale
        if isinstance(domain, Ball) and case.name != "HeavyTailedLasso":
            domain = Ball(domain.radius / scale, p=domain.p)
        data, method = problem(loss_of(case), domain, scale=scale), case.optimizer
        if case.name == "HeavyTailedLasso":  # records, responses too, of any unit
            data, unit = in_units(data, scale), 1.0
            method = replace(method, entry_bound=scale)  # the default has no unit
        method = scaled(method, unit)
        theta = dps.minimize(data, method, case.budget, seed=3).theta
        ends.append(unit * theta)
    assert np.abs(ends[0]).max() > 1e-4
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-12)


def in_units(data: dps.Problem, scale: float) -> dps.Problem:
    """The same rows with responses, and their bound, times ``scale``."""
    return dps.Problem(
        data.data.dense,
        scale * data.data.response,
        loss=data.loss,
        domain=data.domain,
        row_bound=scale,
        response_bound=scale,
    )


def without_choices(recipe):
    """The recipe without noise, vertices being the best ones."""

    def best(phase):
        if isinstance(getattr(phase, "step", None), FrankWolfeStep):
            return replace(phase, step=replace(phase.step, epsilon=np.inf))
        return phase

    quiet = without_noise(recipe)
    return replace(quiet, phases=tuple(map(best, quiet.phases)))


# Generalized Gaussian vectors are not drawn coordinate by coordinate.
COORDINATEWISE = [c for c in DEFAULTS if c.name != "NoisyMirrorDescent"] + [
    Case(opt.NoisyMirrorDescent(p=1.5, distance=1.0), WholeSpace())
]


@one_in(3)
@pytest.mark.parametrize("case", COORDINATEWISE, ids=str)
def test_permuting_columns_permutes_the_answer(case: Case) -> None:
    order, ends = np.array([2, 0, 1]), []
    data = problem(loss_of(case), case.domain, dim=3)
    recipe = without_choices(case.recipe(data))
    for columns in (np.arange(3), order):
        permuted = dps.Problem(
            data.data.dense[:, columns],
            data.data.response,
            loss=data.loss,
            domain=data.domain,
            row_bound=1.0,
            response_bound=1.0,
        )
        ends.append(descend(permuted, recipe, np.random.default_rng(5)).theta)
    assert np.ptp(ends[0]) > 1e-5
    np.testing.assert_allclose(ends[1], ends[0][order], rtol=0.0, atol=1e-12)


@one_in(9, 1)
@pytest.mark.parametrize("case", DEFAULTS, ids=str)
def test_in_one_dimension_all_norms_coincide(case: Case) -> None:
    """Norms of the rows, of the domain and of the method, noise included."""
    method, domain, ends = case.optimizer, case.domain, []
    is_vertex = case.name in VERTEX  # on l1 balls only
    for p in (1.0, 1.5, 2.0, np.inf):
        if isinstance(domain, Ball) and not is_vertex:
            # Proximal points have a closed form in the l2 ball and in boxes.
            domain = Ball(2.0, p=max(p, 2.0) if "Proximal" in case.name else p)
        if case.name == "NoisyMirrorDescent":
            method = replace(method, p=min(max(p, 1.2), 2.0))
        if case.name == "PhasedSGD":
            method = replace(method, p=max(p, 2.0))
        data = problem(loss_of(case), domain, dim=1, row_norm=p)
        ends.append(float(dps.minimize(data, method, case.budget, seed=3).theta[0]))
    assert abs(ends[0]) > 1e-5
    # Noise ends on a grid: rounding errors may move an answer by one of its steps.
    assert ends == pytest.approx([ends[2]] * 4, rel=1e-9, abs=2.0**-10)


NAMES = set(opt.__all__)
TILTED = ("ObjectivePerturbation", "ApproximateObjectivePerturbation")
NOT_PRIVATE = "ProximalSGD"
CONTRACTS = {
    "neutrality": AFFINE,
    "ledger": STEPWISE,
    "one pass": ONE_PASS_CASES,
    "sensitivity": LIMITED,
    "law": AFFINE,
    "symmetries": DEFAULTS,
    "audit": (),
}
LASSO = "test_heavy_tailed::test_without_noise_the_lasso_runs_frank_wolfe_on_clipped"
OBJECTIVE = "test_objective_perturbation_optimizer"
ONCE = "test_private_stochastic_approximation"
ELSEWHERE = {
    "neutrality": {
        VERTEX[0]: "test_heavy_tailed::test_without_noise_and_limits_folds_run_frank",
        VERTEX[1]: LASSO,
        "AdaSSP": "test_ada_ssp::test_without_noise_it_is_ridge_regression",
    },
    "ledger": {
        "NoisyMirrorDescent": "test_noisy_mirror_descent::test_recorded_noise_gives",
        "PhasedSGD": "test_phased_sgd::test_recorded_noise_of_every_phase_gives_back",
        "SVRG": "test_svrg::test_noise_is_the_sensitivity_of_the_certified_point",
        LOCALIZED[0]: "test_localized_clipped_gd::test_noise_of_every_phase_spends",
        **dict.fromkeys(LOCALIZED[1:], f"{ONCE}::test_every_run_spends_the_budget"),
        **dict.fromkeys(TILTED, f"{OBJECTIVE}::test_noise_is_the_proved_one_for"),
        VERTEX[0]: "test_heavy_tailed::test_no_neighbor_changes_a_selection_by_more",
        VERTEX[1]: "test_heavy_tailed::test_selections_of_the_lasso_compose",
        "AdaSSP": "test_ada_ssp::test_computed_means_of_neighbors_are_within",
    },
    "sensitivity": {
        **dict.fromkeys(TILTED, "test_printed_tilted::test_attacks_are_below_the"),
        VERTEX[0]: "test_heavy_tailed::test_no_neighbor_changes_a_selection_by_more",
        VERTEX[1]: "test_heavy_tailed::test_clipped_records_move_scores_by_at_most",
        "AdaSSP": "test_ada_ssp::test_computed_means_of_neighbors_are_within",
    },
    "law": {
        **dict.fromkeys(VERTEX, "test_heavy_tailed::test_vertices_are_drawn_with_the"),
        "AdaSSP": "test_ada_ssp::test_errors_have_the_stated_covariance",
    },
    "audit": dict.fromkeys(
        NAMES - {NOT_PRIVATE},
        "test_optimizer_audits::test_every_private_optimizer_is_audited",
    ),
}
# What has no noise, or reads records again and again.
EXEMPT = {
    "ledger": {NOT_PRIVATE},
    "sensitivity": {NOT_PRIVATE},
    "audit": {NOT_PRIVATE},
    "one pass": NAMES - {case.name for case in ONE_PASS_CASES},
}


@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_optimizer_is_tested_for_every_property(contract: str) -> None:
    elsewhere = ELSEWHERE.get(contract, {})
    covered = {case.name for case in CONTRACTS[contract]} | set(elsewhere)
    assert covered | EXEMPT.get(contract, set()) == NAMES
    assert not covered & EXEMPT.get(contract, set())
    for place in set(elsewhere.values()):
        module, function = place.split("::")
        files = Path(__file__).parents[1].rglob(f"{module}.py")
        assert any(f"def {function}" in file.read_text() for file in files)
