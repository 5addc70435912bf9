"""Objective perturbation with delta = 0: tilts, noise, laws, certificates."""

import json
import math

import numpy as np
import pytest
from scipy.stats import expon, gamma, uniform

import dpsample as dps
from dpsample import losses
from dpsample.core.streams import streams
from dpsample.domains import Ball, Box, Polytope, SchattenBall, Simplex, WholeSpace
from dpsample.noise.noise import grid_step
from dpsample.optimizers import ObjectivePerturbation
from dpsample.optimizers.loop.iterate_errors import counted_scale, phase_error
from dpsample.optimizers.loop.solve import fill_norm_tilt
from dpsample.privacy import EventCertificate, Ledger, PureEvent
from dpsample.privacy.certificates.registry import registry
from dpsample.problem.facts import RELATIONS, PublicFacts, smoothness
from dpsample.running import descent
from dpsample.verification.ball_checker import NotProved, prove
from tests.support.clipped_cases import linear, logistic, rows_and_labels
from tests.support.former_certificates import resealed
from tests.support.statistics import assert_law, rejected
from tests.support.tiers import one_in

DOMAINS = {
    "ball": Ball(2.0),
    "moved": Ball(1.0, center=(1.0, 0.0, -1.0, 0.5)),
    "l1": Ball(1.0, p=1.0),
    "l3": Ball(1.0, p=3.0),
    "box": Box(-1.0, 0.5),
    "simplex": Simplex(),
    "polytope": Polytope(np.vstack([np.eye(4), -np.ones((1, 4))]), np.ones(5)),
    "nuclear": SchattenBall(1.0, p=1.0, shape=(2, 2)),
    "free": WholeSpace(),
}


def smooth_losses():
    return (
        losses.Linear(),
        losses.Logistic(),
        losses.CappedLogistic(0.3),
        losses.CappedLogistic(0.7),
        losses.CalibratedLogistic(),
        losses.SmoothedHinge(0.25),
        losses.Huber(0.2),
        losses.Squared(),
        losses.PowerFour(),
        losses.Custom(label="own", declared_slope=2.0, upper_curvature=3.0),
    )


def pure(relation="replace_one"):
    return dps.Budget(epsilon=1.0, delta=0.0, relation=relation)


def facts(loss, domain, **changes):
    options = {"num_records": 500, "dim": 4, "row_bound": 1.5, "row_norm": 2.0}
    options |= {"loss": loss, "domain": DOMAINS[domain], "response_bound": 1.0}
    return PublicFacts(**(options | changes))


def has_bounds(loss, domain):
    """Squares and fourth powers have no Lipschitz constant on unbounded domains."""
    grows = isinstance(loss, losses.Squared | losses.PowerFour)
    return not (grows and domain == "free")


@one_in(9)
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_parts_of_epsilon_add_up_for_every_loss_and_domain(domain):
    for loss in (x for x in smooth_losses() if has_bounds(x, domain)):
        for number, relation in enumerate(RELATIONS):
            public = facts(loss, domain, row_norm=(2.0, math.inf)[number])
            budget = dps.Budget(epsilon=0.7, delta=0.0, relation=relation)
            ridge = 0.01 + smoothness(public) / (2 * 500 * math.expm1(0.2))
            recipe = ObjectivePerturbation(ridge=ridge).recipe(public, budget)
            x = recipe.inputs
            shift = (2.0 if relation == "replace_one" else 1.0) * public.lipschitz(2.0)
            tau = math.sqrt(x["gap"] / ridge)
            tilt = shift / x["tilt_scale"] + x["log_determinant"]
            output = 2.0 * math.sqrt(4.0) * tau / x["output_scale"]
            assert 0.7 * (1.0 - 1e-9) <= tilt + output <= 0.7
            assert tilt == pytest.approx(0.99 * 0.7, rel=1e-9)
            assert x["log_determinant"] == pytest.approx(
                math.log1p(smoothness(public) / (1000 * ridge)), rel=1e-9
            )
            assert recipe.event == PureEvent(0.7)


@pytest.mark.parametrize("domain", ["ball", "l1", "nuclear"])
def test_the_default_ridge_is_near_the_best_of_the_bound(domain):
    for loss in (losses.Logistic(), losses.Linear(), losses.Squared()):
        public = facts(loss, domain)
        best = ObjectivePerturbation(risk="empirical").recipe(public, pure()).inputs
        for factor in (0.5, 0.9, 1.1, 2.0):
            other = ObjectivePerturbation(
                ridge=factor * best["ridge"], risk="empirical"
            )
            bound = other.recipe(public, pure()).inputs["risk_bound"]
            # Output noise is no part of what the ridge minimizes.
            assert bound >= best["risk_bound"] * (1.0 - 0.06)


def test_tilts_have_a_gamma_length_and_a_uniform_direction():
    rng, tilts = streams(5, 1)[0], np.empty((40_000, 3))
    for tilt in tilts:
        fill_norm_tilt(rng, 2.0, math.inf, tilt)
    lengths = np.linalg.norm(tilts, axis=1)
    assert_law(lengths / 2.0, gamma(3).cdf)
    axis = np.array([2.0, -1.0, 2.0]) / 3.0
    heights = tilts @ axis / lengths  # Archimedes: uniform on a sphere
    assert_law(heights, uniform(-1.0, 2.0).cdf)
    assert_law(np.arctan2(tilts[:, 1], tilts[:, 0]), uniform(-np.pi, 2 * np.pi).cdf)
    for wrong in (gamma(2).cdf, expon.cdf, lambda x: gamma(3).cdf(x / 1.1)):
        with rejected():  # one exponential less, no dimension, another scale
            assert_law(lengths / 2.0, wrong)
    with rejected():  # one coordinate is shorter
        flat = np.random.default_rng(1).normal(size=(40_000, 3)) * [0.6, 1.0, 1.0]
        assert_law(flat[:, 0] / np.linalg.norm(flat, axis=1), uniform(-1.0, 2.0).cdf)


def test_a_long_tilt_is_shortened_and_keeps_its_direction():
    for dim in (1, 4):
        whole, cut = np.empty(dim), np.empty(dim)
        fill_norm_tilt(streams(3, 1)[0], 1.0, math.inf, whole)
        fill_norm_tilt(streams(3, 1)[0], 1.0, 0.01, cut)
        length = np.linalg.norm(whole)
        assert np.linalg.norm(cut) == pytest.approx(0.01, rel=1e-14)
        np.testing.assert_allclose(cut / 0.01, whole / length, rtol=1e-14)


def test_minimizer_of_a_linear_loss_has_its_law():
    problem = linear(50, 2, domain=Ball(200.0))
    recipe = ObjectivePerturbation(ridge=0.3).recipe(problem.facts, pure())
    program = descent.Program(problem, recipe)
    thetas = np.array([program.run(rng).theta for rng in streams(1, 1000)])
    rows, y = problem.data.dense, problem.data.response
    mean = (y[:, None] * rows).mean(axis=0) / 0.6
    scale = recipe.inputs["tilt_scale"] / (50 * 0.6)
    # The output noise is a twentieth of the tilt, a Kolmogorov distance below 0.01.
    assert_law(np.linalg.norm(thetas - mean, axis=1), gamma(2, scale=scale).cdf)
    with rejected():  # lambda |w|^2 taken for lambda/2 |w|^2
        assert_law(np.linalg.norm(thetas - mean, axis=1), gamma(2, scale=2 * scale).cdf)


def test_the_logistic_minimizer_has_the_law_of_the_change_of_variables():
    # In one dimension w solves n F'(w) + 2 n lambda w = -b, which increases in w.
    rows, labels = rows_and_labels(40, 1)
    problem = dps.Problem(
        rows, labels, loss=losses.Logistic(), domain=Ball(50.0), row_bound=1.0
    )
    recipe = ObjectivePerturbation(ridge=0.2).recipe(problem.facts, pure())
    program = descent.Program(problem, recipe)
    thetas = np.array([program.run(rng).theta[0] for rng in streams(4, 1500)])

    def cdf(w, ridge=0.2):
        slopes = problem.loss.slope(np.outer(w, rows[:, 0]), labels)
        pull = slopes @ rows[:, 0] + 2.0 * 40 * ridge * w
        half = 0.5 * np.exp(-abs(pull) / recipe.inputs["tilt_scale"])
        return np.where(pull < 0.0, half, 1.0 - half)

    assert_law(thetas, cdf)
    with rejected():
        assert_law(thetas, lambda w: cdf(w, 0.1))


def fit(problem, method=None, budget=None, **options):
    method, budget = method or ObjectivePerturbation(), budget or pure()
    return dps.minimize(problem, method, budget, **options)


@pytest.mark.parametrize("domain", [Ball(2.0), Box(-1.0, 1.0), Ball(1.0, p=1.0)])
def test_certificates_are_pure_and_verified(domain):
    for relation in RELATIONS:
        answer = fit(logistic(domain=domain), budget=pure(relation))
        certificate = answer.certificate
        is_counted = domain != Ball(1.0, p=1.0)
        kind = "objective/pure" + "/rounded" * is_counted
        assert certificate.kind == kind and certificate.releasable
        assert ("ARITHMETIC" in certificate.assumptions) != is_counted
        words = "ObjectivePerturbation(ridge=None, risk='population') is "
        words += "1-differentially private (pure) when"
        assert words in certificate.statement
        parsed = EventCertificate.from_json(certificate.to_json())
        for checker in ("standard", "ball"):
            assert dps.verify(parsed, checker=checker)


def test_the_tilt_may_be_chosen_under_any_budget_and_spends_no_delta():
    problem, ledger = logistic(), Ledger(relation="replace_one")
    method = ObjectivePerturbation(tilt="norm")
    explicit = fit(problem, method, dps.Budget(epsilon=1.0, delta=1e-6), ledger=ledger)
    default = fit(problem, method, seed=1)
    assert explicit.certificate.budget == pure() and explicit.certificate.inputs == (
        default.certificate.inputs
    )
    assert ledger.epsilon(delta=0.0) == 1.0
    assert str(explicit.certificate.mechanism).endswith("tilt='norm')")
    assert dps.verify(explicit.certificate) and dps.verify(
        explicit.certificate, checker="ball"
    )


def test_what_has_no_proof_is_refused():
    problem = logistic()
    gaussian = ObjectivePerturbation(tilt="gaussian")
    for options in (gaussian, dps.optimizers.ApproximateObjectivePerturbation()):
        with pytest.raises(ValueError, match=r"budget\.delta must be > 0"):
            fit(problem, options)
    with pytest.raises(ValueError, match=r"budget\.delta must be > 0 for a published"):
        fit(problem, calibration="paper")
    with pytest.raises(ValueError, match="tilt must be one of"):
        ObjectivePerturbation(tilt="laplace")
    hinge = dps.Problem(
        *rows_and_labels(20, 2), loss=losses.Hinge(), domain=Ball(1.0), row_bound=1.0
    )
    with pytest.raises(ValueError, match="loss must be of bounded curvature"):
        fit(hinge)


def test_output_noise_hides_the_errors_of_the_solver():
    for domain in (Ball(2.0), Box(-1.0, 1.0)):
        for loss in (losses.Logistic(), losses.CalibratedLogistic()):
            problem = logistic(domain=domain).with_model(loss, domain)
            recipe = ObjectivePerturbation().recipe(problem.facts, pure())
            (phase,) = recipe.phases
            assert recipe.kind == "objective/pure/rounded"
            center = problem.facts.center
            scale = counted_scale(problem.facts, phase, center, center)
            error = phase_error(problem.facts, phase, center)
            tau = math.sqrt(2.0 * phase.gap / phase.ridge)
            sensitivity = 2.0 * math.sqrt(3.0) * (tau + error)
            assert 0.0 < error < tau
            assert sensitivity / scale <= phase.output_epsilon * (1.0 + 1e-12)
            # Released points are multiples of a public power of two.
            theta = fit(problem, seed=3).theta
            step = grid_step(scale)
            inside = abs(theta) < 1.0
            assert (theta[inside] / step == np.round(theta[inside] / step)).all()


def forged(content):
    """Return the text of a changed certificate, with a seal and a digest that fit."""
    used = (*content["theorems"], *content["assumptions"])
    return json.dumps(resealed(content | {"registry": registry().seal(used)}))


def refuses(text):
    """Return whether a text is no certificate that `dps.verify` accepts."""
    try:
        dps.verify(EventCertificate.from_json(text))
    except ValueError:
        return True
    return False


def mutations(content):
    """Changes of one number, name or item of a certificate."""
    rng = np.random.default_rng(7)
    for index, (name, value) in enumerate(content["inputs"]):
        for factor in (0.5, 0.9, 0.999, 1.0 - 1e-7, 1.0 + 1e-7, 1.001, 1.1, 2.0):
            pairs = [list(pair) for pair in content["inputs"]]
            pairs[index][1] = value * factor
            if name != "risk_bound":
                yield {"inputs": pairs}
        pairs = [list(pair) for pair in content["inputs"]]
        if name != "risk_bound":  # the proof does not need it
            yield {"inputs": pairs[:index] + pairs[index + 1 :]}
    for name in ("row_bound", "num_records", "dim"):
        for extra in (1, 2, 7, 40):
            yield {"facts": content["facts"] | {name: content["facts"][name] + extra}}
    for p in (1.0, 1.5, 1.999):  # a smaller ball, whose projection is not counted
        domain = content["facts"]["domain"] | {"p": p}
        yield {"facts": content["facts"] | {"domain": domain}}
    for loss in (
        {"name": "huber", "width": 2.0},
        {"name": "squared"},
        {"name": "hinge"},
    ):
        yield {"facts": content["facts"] | {"loss": loss}}
    for _ in range(20):
        epsilon = float(1.0 - 1e-6 - 0.9 * rng.random() ** 4)
        yield {"event": {"name": "pure", "epsilon": epsilon}}
        yield {"budget": content["budget"] | {"epsilon": epsilon}}
        yield {
            "event": {"name": "pure", "epsilon": epsilon},
            "budget": content["budget"] | {"epsilon": epsilon},
            "epsilon_proved": epsilon,
        }
    for name in ("theorems", "assumptions"):
        for index in range(len(content[name])):
            yield {name: content[name][:index] + content[name][index + 1 :]}
    yield {"budget": content["budget"] | {"relation": "replace_one"}}
    yield {"kind": "objective/pure"}
    parameters = content["mechanism"]["parameters"]
    for change in ({"tilt": "gaussian"}, {"ridge": 1.0}, {"clip": 1.0}):
        spec = {"type": "ObjectivePerturbation", "parameters": parameters | change}
        yield {"mechanism": spec}


def is_weaker(content, change):
    """Return whether a change may be a true claim, such as more noise."""
    before = dict(content["inputs"])
    after = dict(change.get("inputs", content["inputs"]))
    ratios = {name: after.get(name, 0.0) / before[name] for name in before}
    changed = {name: ratio for name, ratio in ratios.items() if ratio != 1.0}
    is_noisier = set(changed) == {"tilt_scale"} and changed["tilt_scale"] > 1.0
    # Shorter tilts than the closed form says may be as private.
    is_other_length = set(changed) == {"max_tilt"} and changed["max_tilt"] >= 0.9
    return is_noisier or is_other_length or change == {"kind": "objective/pure"}


def test_forged_certificates_are_refused_by_both_checkers():
    budget = pure("zero_out")
    method, count = ObjectivePerturbation(tilt="norm"), 0
    content = json.loads(fit(logistic(), method, budget).certificate.to_json())
    assert not refuses(json.dumps(content))
    for change in mutations(content):
        text = forged(content | change)
        count += 1
        assert refuses(text), change
        if not is_weaker(content, change):
            with pytest.raises(NotProved):
                prove(text)
    assert count > 150
