"""Descent that starts with a noisy mean label: start, privacy, certificates."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.advise import label_share
from dpsample.api.minimize import plan_minimization
from dpsample.optimizers import NoisyGD
from dpsample.optimizers.loop.mean_label import (
    UNITS,
    FinalChoice,
    MeanLabel,
    sum_of_changes,
)
from dpsample.optimizers.loop.perturbations import gdp_of
from dpsample.privacy.budget import SHIFTS
from dpsample.verification.ball_checker import NotProved, prove
from tests.support.descents import descend
from tests.support.former_certificates import resealed
from tests.support.statistics import assert_frequency, rejected

BUDGET = dps.Budget(epsilon=0.3, delta=1e-6)
METHOD = NoisyGD(output="scaled", label_share=0.05)
CHOICE = NoisyGD(output="decaying", label_share=0.05, choice_share=0.05)
NUM_RECORDS = 3000


def hinge(rate=0.05):
    """Return the same records with the hinge loss."""
    return problem(rate, loss=dps.losses.Hinge())


def problem(rate=0.05, **changes):
    """Return a logistic regression in which a share of the labels is 1."""
    rng = np.random.default_rng(1)
    labels = np.where(np.arange(NUM_RECORDS) < rate * NUM_RECORDS, 1.0, -1.0)
    facts = {
        "loss": dps.losses.CalibratedLogistic(),
        "domain": dps.domains.Ball(8.0),
        "row_bound": 1.0,
        "intercept": True,
    }
    rows = rng.uniform(-0.5, 0.5, (NUM_RECORDS, 4))
    return dps.Problem(rows, labels, **(facts | changes))


def test_the_start_is_the_log_odds_of_a_rare_label_and_0_otherwise():
    query = MeanLabel(stddev=0.0)
    for rate in (0.05, 0.9):
        start = query.answer(problem(rate), np.random.default_rng(0))
        assert start[-1] == pytest.approx(math.log(rate / (1.0 - rate)), rel=1e-12)
        assert not start[:-1].any()
    for rate in (0.16, 0.5, 0.84):
        assert not query.answer(problem(rate), np.random.default_rng(0)).any()
    # The start is within the ball, and finite if there is one label only.
    ball = dps.domains.Ball(0.5)
    start = query.answer(problem(0.0, domain=ball), np.random.default_rng(0))
    assert start[-1] == -0.5


def test_noise_shrinks_the_mean_and_limits_it():
    query = MeanLabel(stddev=0.3)
    for mean in (-5.0, -0.8, 0.71, 0.99, 40.0):
        shrunken = np.clip(mean * (1.0 - 0.09 / mean**2), -0.7, 0.7)
        assert query.intercept(mean) == pytest.approx(2.0 * math.atanh(shrunken))
    assert query.intercept(0.7) == query.intercept(-0.3) == 0.0


def test_the_start_of_a_hinge_loss_is_the_commoner_label():
    for rate, intercept in ((0.05, -1.0), (0.29, -1.0), (0.31, 0.0), (0.75, 1.0)):
        query = CHOICE.recipe(hinge().facts, None).phases[0]
        start = query.answer(hinge(rate), np.random.default_rng(0))
        assert start[-1] == intercept
        assert not start[:-1].any()


def test_a_choice_keeps_the_start_unless_descent_is_better():
    case, rng = hinge(), np.random.default_rng(0)
    start, worse = np.array([0.0, 0.0, 0.0, 0.0, -1.0]), np.full(5, 0.1)
    exact = FinalChoice(stddev=0.0, lipschitz=2.0)
    assert (exact.answer_at(case, rng, worse, start) == start).all()
    # From a worse start the iterate is kept, and from 0, where nothing is compared.
    moved = 0.5 * start
    assert case.risk(start) < case.risk(moved)
    assert (exact.answer_at(case, rng, start, moved) == start).all()
    assert (exact.answer_at(case, rng, worse, np.zeros(5)) == worse).all()
    # Noise of 100 units hides any difference, and a deviation holds back.
    noisy = FinalChoice(stddev=100.0, lipschitz=2.0)
    num_kept = sum(
        bool((noisy.answer_at(case, rng, start, moved) == moved).all())
        for _ in range(2000)
    )
    assert_frequency(num_kept, 2000, 1.0 - 0.5 * math.erfc(math.sqrt(0.5)))
    with rejected():
        assert_frequency(num_kept, 2000, 1.0 - 0.5 * math.erfc(math.sqrt(2.0)))


def test_one_record_moves_the_compared_mean_by_2_over_n_at_most():
    rng = np.random.default_rng(5)
    case, theta, start = hinge(), rng.normal(size=5), np.eye(5)[4]
    loss, bound = case.loss, 1e-3  # smaller than any difference of losses
    total = sum_of_changes(case.data, loss, theta, start, bound)
    assert isinstance(total, int)
    features, labels = np.asarray(case.data.dense)[:, :4].copy(), case.data.response
    changes = []
    for row, label in ((np.full(4, 0.5), 1.0), (np.full(4, -0.5), -1.0)):
        features[0], other = row, labels.copy()
        other[0] = label
        data = case.with_records(features, other).data
        changes.append(sum_of_changes(data, loss, theta, start, bound) - total)
    assert max(map(abs, changes)) <= 2 * UNITS
    # Limited to one unit, whatever the values are: NaN is no change.
    lost = sum_of_changes(case.data, loss, np.full(5, np.nan), start, bound)
    assert lost == 0
    assert abs(sum_of_changes(case.data, loss, 1e300 * theta, start, 1e-300)) <= (
        UNITS * NUM_RECORDS
    )


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_the_squares_of_label_choice_and_steps_are_the_budget(relation):
    budget = replace(BUDGET, relation=relation)
    recipe = CHOICE.recipe(hinge().facts, budget)
    inputs, unit = recipe.inputs, SHIFTS[relation] / NUM_RECORDS
    steps = unit * inputs["lipschitz"] / inputs["noise_stddev"]
    square = steps**2 * inputs["num_steps"]
    for name in ("label_stddev", "choice_stddev"):
        square += (unit / inputs[name]) ** 2
    assert 1.0 - 1e-10 < square / gdp_of(budget) ** 2 <= 1.0
    # What is stated is what runs.
    first, loop, last = recipe.phases
    assert first.stddev == inputs["label_stddev"]
    assert loop.noise.scale == inputs["noise_stddev"]
    assert last.stddev == inputs["choice_stddev"]
    assert last.lipschitz == inputs["lipschitz"]


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("share", [0.05, 0.6])
def test_the_squares_of_label_and_steps_are_the_budget(relation, share):
    budget = replace(BUDGET, relation=relation)
    recipe = replace(METHOD, label_share=share).recipe(problem().facts, budget)
    inputs, unit = recipe.inputs, SHIFTS[relation] / NUM_RECORDS
    steps = unit * inputs["lipschitz"] / inputs["noise_stddev"]
    label = unit / inputs["label_stddev"]
    square = steps**2 * inputs["num_steps"] + label**2
    assert recipe.event == dps.privacy.GaussianEvent(gdp_of(budget))
    assert 1.0 - 1e-10 < square / gdp_of(budget) ** 2 <= 1.0
    # What is stated is what runs.
    first, *loops = recipe.phases
    assert first.stddev == inputs["label_stddev"]
    assert {loop.noise.scale for loop in loops} == {inputs["noise_stddev"]}
    assert {loop.step.stddev for loop in loops} == {inputs["noise_stddev"]}
    assert sum(loop.num_steps for loop in loops) == inputs["num_steps"]


def test_the_noise_of_the_mean_is_the_stated_one():
    # The mean label is -1. A shrunken mean, m (1 - s^2/m^2), is at its limit of -0.95
    # if m is below -0.95262, which has a probability of 0.828. The planted bug is the
    # noise of a zeroed record, half as large.
    case, limit = problem(0.0), 0.95
    chance = 0.5 * math.erfc(-(1.0 - 0.952624) / 0.05 / math.sqrt(2.0))

    def hits(stddev):
        query, rng = MeanLabel(stddev=0.05), np.random.default_rng(7)
        drawn = MeanLabel(stddev=stddev)
        start = [drawn.noisy_mean(case, rng) for _ in range(2000)]
        means = np.tanh([0.5 * query.intercept(mean) for mean in start])
        return int((means < -limit + 1e-9).sum())

    assert_frequency(hits(0.05), 2000, chance)
    with rejected():
        assert_frequency(hits(0.025), 2000, chance)


def test_steps_are_shorter_only_if_the_start_has_moved():
    method = replace(METHOD, num_steps=40, step_size=0.1)
    for rate, size in ((0.05, 0.025), (0.5, 0.1)):
        case = problem(rate)
        recipe, thetas = method.recipe(case.facts, None), []
        label, *loops = recipe.phases
        assert {loop.step.moved_factor for loop in loops} == {0.25}
        steps = [replace(loop.step, sizes=size, moved_factor=1.0) for loop in loops]
        plain = [replace(p, step=s) for p, s in zip(loops, steps, strict=True)]
        for phases in (loops, plain):
            variant = replace(recipe, phases=(label, *phases))
            thetas.append(descend(case, variant, np.random.default_rng(0)).theta)
        np.testing.assert_allclose(thetas[0], thetas[1], rtol=1e-9)
        assert np.abs(thetas[0][:-1]).max() > 1e-3  # it has moved


def test_a_fit_of_a_rare_label_has_its_intercept():
    thetas = [dps.minimize(problem(), METHOD, BUDGET, seed=3).theta for _ in range(2)]
    assert (thetas[0] == thetas[1]).all()
    assert -4.5 < thetas[0][-1] < -1.5  # log odds of 0.05 are -2.9


def test_a_hinge_fit_that_no_column_helps_is_the_commoner_label():
    rows = np.random.default_rng(2).uniform(-0.5, 0.5, (NUM_RECORDS, 4))
    case = hinge().with_records(rows, problem(0.0).data.response)
    theta = dps.minimize(case, CHOICE, BUDGET, seed=3).theta
    assert (theta == [0.0, 0.0, 0.0, 0.0, -1.0]).all()


def planned(method=METHOD, case=problem):
    """Return the certificate of a method."""
    return plan_minimization(case(), method, BUDGET, "exact", seeded=False).certificate


@pytest.mark.parametrize(
    ("method", "case", "names"),
    [
        (METHOD, problem, ("label_stddev", "noise_stddev")),
        (CHOICE, hinge, ("label_stddev", "choice_stddev", "noise_stddev")),
    ],
)
def test_both_checkers_prove_certificates_and_refuse_less_noise(method, case, names):
    certificate = planned(method, case)
    for checker in ("standard", "ball"):
        dps.verify(certificate, checker=checker)
    content = json.loads(certificate.to_json())
    assert "label_share=0.05" in str(certificate.mechanism)
    for name in names:
        forged = json.loads(json.dumps(content))
        index = next(i for i, pair in enumerate(forged["inputs"]) if pair[0] == name)
        forged["inputs"][index][1] *= 0.999
        with pytest.raises(NotProved, match="event of the noise"):
            prove(json.dumps(resealed(forged)))
    # Without the noise of a query it would not be counted.
    for name in names[:-1]:
        forged = json.loads(json.dumps(content))
        forged["inputs"] = [p for p in forged["inputs"] if p[0] != name]
        with pytest.raises(NotProved, match="come together"):
            prove(json.dumps(resealed(forged)))


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("num_records", [3000, 1_000_003, 900_000_001])
def test_the_noise_covers_the_rounding_of_the_means(relation, num_records):
    """The share of the label is nearly all, so that its slack is that of the sum."""
    facts = replace(problem().facts, num_records=num_records)
    budget = replace(BUDGET, relation=relation)
    method = replace(METHOD, label_share=1.0 - 1e-6)
    stddev = Fraction(method.recipe(facts, budget).inputs["label_stddev"])
    gdp = Fraction(gdp_of(budget)) ** 2 * Fraction(1.0 - 1e-6)
    rng, worst = np.random.default_rng(2), Fraction(0)
    step = 1 if relation == "zero_out" else 2
    for total in rng.integers(-num_records, num_records - step, 300).tolist():
        pair = total / num_records, (total + step) / num_records
        worst = max(worst, Fraction(pair[1]) - Fraction(pair[0]))
    assert worst > Fraction(step, num_records)
    assert (worst / stddev) ** 2 <= gdp


@pytest.mark.parametrize("checker", ["standard", "ball"])
def test_false_claims_within_the_tolerance_of_inputs_are_refused(checker):
    """Also noise for less than the Lipschitz constant of the facts."""
    for plain, names, share in (
        (planned(), ["noise_stddev"], 1e-12),
        (planned(), ["noise_stddev", "lipschitz"], 9e-10),
        (planned(), ["label_stddev"], 9e-10),
        (planned(CHOICE, hinge), ["choice_stddev"], 9e-10),
    ):
        content = json.loads(plain.to_json())
        forged = json.loads(json.dumps(content))
        for pair in forged["inputs"]:
            pair[1] *= 1.0 - share if pair[0] in names else 1
        text = json.dumps(resealed(forged))
        with pytest.raises(ValueError, match="event of the noise<=event"):
            dps.verify(dps.privacy.EventCertificate.from_json(text), checker=checker)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("mechanism", "parameters", "label_share"), 0.0),
        (("mechanism", "parameters", "label_share"), True),
        (("mechanism", "parameters", "label_share"), 7.0),
        (("mechanism", "parameters", "output"), "average"),
        (("mechanism", "parameters", "clip"), 0.1),
        (("facts", "offset_bound"), 0.5),
        (("mechanism", "parameters", "choice_share"), 0.96),
        (("mechanism", "parameters", "choice_share"), None),
    ],
)
def test_the_ball_checker_refuses_what_no_mean_label_has(path, value):
    case = (CHOICE, hinge) if path[-1] == "choice_share" else (METHOD, problem)
    at = content = json.loads(planned(*case).to_json())
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(NotProved, match="label|choice|out of range|is not a float"):
        prove(json.dumps(resealed(content)))


def test_a_mean_label_needs_an_intercept_and_labels():
    facts = problem().facts
    for changes, words in (
        ({"intercept": False}, "intercept must be True"),
        ({"loss": dps.losses.Huber(1.0), "response_bound": 1.0}, "loss must be one of"),
        ({"offset_bound": 0.5}, "offset_bound must be 0"),
        ({"domain": dps.domains.Ball(1.0, center=np.ones(5))}, "domain must be about"),
    ):
        with pytest.raises(ValueError, match=words):
            METHOD.recipe(replace(facts, **changes), BUDGET)
    with pytest.raises(ValueError, match="clip must be None"):
        replace(METHOD, clip=0.1).recipe(facts, BUDGET)
    with pytest.raises(ValueError, match="step_size must be None"):
        replace(CHOICE, step_size=0.1).recipe(hinge().facts, BUDGET)
    with pytest.raises(ValueError, match="choice_share must be > 0 and < 0.95"):
        replace(CHOICE, choice_share=0.95).recipe(hinge().facts, BUDGET)
    with pytest.raises(ValueError, match="None without a label_share"):
        NoisyGD(output="decaying", choice_share=0.1)
    with pytest.raises(ValueError, match="output='decaying'"):
        replace(METHOD, choice_share=0.1)
    with pytest.raises(ValueError, match="output='scaled'"):
        NoisyGD(label_share=0.1)
    with pytest.raises(ValueError, match="label_share"):
        replace(METHOD, label_share=1.0)
    for output in ("scaled", "decaying"):
        assert "_share" not in repr(NoisyGD(output=output))


def test_advise_asks_for_a_mean_label_by_public_facts():
    facts = problem(loss=dps.losses.Logistic()).facts
    for epsilon, is_first in ((0.01, False), (0.15, True), (3.0, False)):
        budget = dps.Budget(epsilon=epsilon, delta=1e-6)
        advice = dps.advise(facts, budget)
        assert (advice.table[0].method == "labels_first") == is_first
        share = label_share(facts, budget)
        if is_first:
            assert advice.choice.label_share == share == 0.05
            assert "mean label" in advice.reason
    budget = dps.Budget(epsilon=0.15, delta=1e-6)
    assert label_share(replace(facts, intercept=False), budget) == 0.0
    assert label_share(facts, dps.Budget(epsilon=0.15, delta=0.0)) == 0.0
    # Fewer records are enough if a neighbor lacks a record.
    half = replace(facts, num_records=NUM_RECORDS // 3)
    assert label_share(half, budget) < label_share(
        half, replace(budget, relation="zero_out")
    )
    for relation in ("replace_one", "zero_out"):
        row = dps.advise(hinge().facts, replace(BUDGET, relation=relation)).table[0]
        assert row.method == "labels_first"
        assert (row.choice.output, row.choice.choice_share) == ("decaying", 0.05)
    without = replace(hinge().facts, intercept=False)
    assert dps.advise(without, BUDGET).table[0].method == "decaying"
