"""Public facts refuse releases; what records make slow is announced and run."""

import dataclasses
import math

import numpy as np
import pytest

import dpsample as dps
from dpsample.api import release as verb
from dpsample.api import release_plan
from dpsample.samplers.localized import mode as modes
from dpsample.samplers.localized.prepared import Localization
from dpsample.samplers.proximal import metric
from dpsample.samplers.proximal.proximal import Pilot, ProximalSetting, Trial
from dpsample.samplers.proximal.requirements import no_proximal_proof
from tests.support.localized_laws import LocalCase, accepted, line_levels
from tests.support.statistics import assert_law
from tests.support.tiers import one_in, slow

L, D = dps.losses, dps.domains
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)


def records(num_records=200, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((num_records, dim))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = np.where(rows @ np.linspace(-3.0, 3.0, dim) > 0.0, 1.0, -1.0)
    return rows, labels


def problem(domain, loss, rows=None, **options):
    if rows is None:
        rows = records()[0]
    labels = records(len(rows), rows.shape[1])[1]
    options = {"row_bound": 1.0} | options
    return dps.Problem(rows, labels, loss=loss, domain=domain, **options)


def certified(given, **options):
    """Release that is verified."""
    answer = dps.release(given, BUDGET, seed=1, **options)
    dps.verify(answer.certificate)
    assert given.domain.contains(answer.theta)
    return answer


@one_in(4)
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("kind", ["spread", "one column", "zeros", "one side"])
def test_all_records_on_a_simplex_are_released(p, kind):
    rows = records()[0]
    if kind == "one column":
        rows = np.tile([1.0, 0.0, 0.0], (200, 1))
    elif kind == "zeros":
        rows = np.zeros((200, 3))
    elif kind == "one side":
        rows = np.abs(rows)
    certified(problem(D.Simplex(), L.Logistic(), rows), p=p)


def test_a_square_of_the_columns_has_to_fit_into_memory(monkeypatch):
    monkeypatch.setattr(release_plan, "MAX_DIM", 2)
    for options in ({}, {"constant_time": True}):
        with pytest.raises(ValueError, match="at most 2 coefficients, got 3"):
            dps.release(problem(D.Ball(1.0), L.Logistic()), BUDGET, **options)


def test_a_domain_without_room_is_refused_before_any_record_is_read(monkeypatch):
    monkeypatch.setattr(ProximalSetting, "from_sampler", None)
    for domain, words, options in (
        (D.Simplex(), "no interior", {"p": 1.0}),
        (D.Polytope(np.eye(3), np.ones(3)), "unbounded", {"strong_convexity": 0.1}),
    ):
        with pytest.raises(dps.NoCertificate, match=words):
            dps.release(problem(domain, L.Hinge()), BUDGET, **options)


def test_a_domain_without_room_is_drawn_from_by_rejection(monkeypatch):
    monkeypatch.setattr(modes, "find", lambda *a, **k: None)
    monkeypatch.setattr(modes, "find_slowly", lambda _: None)
    answer = certified(problem(D.Simplex(), L.Logistic(), 0.2 * records()[0]), p=1.0)
    assert answer.nonprivate_diagnostics["method"] == "rejection"


@one_in(2)
@pytest.mark.parametrize("domain", [D.Simplex(), D.Ball(2.0)])
def test_a_mode_that_is_not_found_is_no_refusal(monkeypatch, domain):
    monkeypatch.setattr(modes, "find", lambda *a, **k: None)
    monkeypatch.setattr(modes, "find_slowly", lambda _: None)
    answer = certified(problem(domain, L.Logistic()))
    assert answer.nonprivate_diagnostics["method"] == "proximal"


@pytest.mark.parametrize(
    ("domain", "entropy"),
    [slow(D.Simplex(), None), (D.Simplex(), dps.regularizers.Entropy())],
)
def test_rejection_without_localization_has_the_law(domain, entropy):
    rng = np.random.default_rng(4)
    case = LocalCase(
        L.Logistic(),
        domain,
        rng.standard_normal((5, 3)),
        np.ones(5),
        20.0,
        0.3,
        entropy=entropy,
    )
    place = Localization.whole_domain(case.target)
    assert place.region.contains(np.full((1, 2), 1e9)).all()
    sample = accepted(place.prepare(rng), rng, 4_000)
    for direction in ([1.0, -1.0, 0.0], [1.0, 1.0, -2.0]):
        assert_law(line_levels(case, sample, direction), lambda u: u)


@pytest.mark.parametrize("ratio", [1.0, 1e-8, 1e-12, 1e-15])
def test_a_small_ridge_still_gives_a_valid_metric(ratio):
    rng = np.random.default_rng(5)
    factor = rng.standard_normal((4, 4)) @ np.diag([1.0, 1.0, 1e-9, 0.0])
    risk = factor @ factor.T
    ridge = ratio * np.linalg.eigvalsh(risk)[-1]
    low = metric._lower_bound_matrix(risk, ridge)
    hessian = risk + ridge * np.eye(4)
    # The risk's range and null space, in which 1e-15 is seen.
    assert np.linalg.eigvalsh(low)[0] > 0.0
    vectors = np.linalg.svd(factor)[0]
    for v in vectors.T:
        assert v @ low @ v <= (v @ hessian @ v) * (1.0 + 1e-12)
    assert vectors[:, 3] @ low @ vectors[:, 3] >= 0.5 * ridge
    if ratio == 1e-15:
        with pytest.raises(dps.NoCertificate, match="no strong convexity"):
            metric._lower_bound_matrix(risk, 0.0)


def test_a_proof_of_years_is_announced_and_run(monkeypatch):
    monkeypatch.setattr(verb.screen, "patience", silent := Silent())
    given, slow = problem(D.Ball(2.0), L.Hinge()), dps.Proximal(step_size=1e-14)
    with pytest.raises(dps.SamplingError, match="max_work passes over the records"):
        dps.release(given, BUDGET, seed=1, sampler=slow, max_work=1e6)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(release_plan.chains, "advance", stop)
    with pytest.raises(KeyboardInterrupt, match="counts as spent"):
        dps.release(given, BUDGET, seed=1, sampler=slow)
    assert any("NOT PRIVATE" in t and "years of work" in t for t in silent.texts)
    assert any("smaller domain" in text for text in silent.texts)


class Silent:
    """Stands for the live line."""

    def __init__(self):
        self.texts = []

    def __call__(self, title, **options):
        return self

    def __enter__(self):
        return self.texts.append

    def __exit__(self, *_):
        return None


def test_a_limit_is_kept_while_the_chain_runs(monkeypatch):
    given = problem(D.Ball(5.0), L.Hinge())
    seen = certified(given).nonprivate_diagnostics
    passes = seen["counts"]["records"] / given.num_records
    prepared = ProximalSetting.prepare

    def cheap(*arguments):
        found = prepared(*arguments)
        return dataclasses.replace(
            found, trial=dataclasses.replace(found.trial, step_work=0.0)
        )

    monkeypatch.setattr(ProximalSetting, "prepare", cheap)
    fresh = problem(D.Ball(5.0), L.Hinge())
    with pytest.raises(dps.SamplingError, match="max_work"):
        dps.release(fresh, BUDGET, seed=1, max_work=0.5 * passes)


@pytest.mark.slow
def test_a_pilot_that_finds_no_step_starts_anew_inside(monkeypatch):
    sides = np.concatenate([-np.eye(3), np.ones((1, 3))])
    corner = D.Polytope(sides, [0.0, 0.0, 0.0, 1.0])
    given, trial = problem(corner, L.Hinge()), Pilot.trial
    start = ProximalSetting.from_sampler(
        dps.Proximal(), dps.calibrate(given, BUDGET).target(given)
    ).start

    def stuck(self, step, num_steps):
        if np.array_equal(self.state.position, start):
            return Trial(step=step, work=math.inf, acceptance=0.0)
        return trial(self, step, num_steps)

    monkeypatch.setattr(Pilot, "trial", stuck)
    answer = certified(given)
    assert answer.nonprivate_diagnostics["acceptance"] > 0.0


def test_no_step_at_all_is_announced(monkeypatch):
    monkeypatch.setattr(verb.screen, "patience", silent := Silent())
    monkeypatch.setattr(
        Pilot,
        "trial",
        lambda self, step, num_steps: Trial(
            step=step, work=math.inf, acceptance=0.0, step_seconds=math.inf
        ),
    )
    given = problem(D.Ball(1.0), L.Hinge())
    with pytest.raises(dps.NoCertificate, match="impractical"):
        target = dps.calibrate(given, BUDGET).target(given)
        dps.Proximal().prepare(target, np.random.default_rng(0))

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(release_plan.chains, "advance", stop)
    with pytest.raises(KeyboardInterrupt):
        dps.release(given, BUDGET, seed=1)
    assert any("longer than the pilot run can tell" in text for text in silent.texts)


PLANE = D.Polytope(-np.eye(3), np.zeros(3), [[1.0, 1.0, 1.0]], [1.0])


@one_in(4)
@pytest.mark.parametrize("size", [0.0, 1e-80, 1e-70, 1e-30])
def test_tiny_records_on_a_plane_are_released(size):
    """Bounds of the reduced problem are public: no record is too small for them."""
    rows = np.zeros((200, 3))
    rows[0] = size * np.array([0.6, 0.0, 0.8])
    certified(problem(PLANE, L.Logistic(), rows))


@pytest.mark.parametrize("scale", [slow(0.3), 1.0])
def test_a_loss_is_not_compared_again_on_the_margins_of_the_reduced_problem(scale):
    """They are those of the original; a wider bound for them refused some records."""
    loss = L.custom(
        lambda u, y: 0.5 * u * u,
        lambda u, y: u,
        slope_bound=1.256,
        upper_curvature=1.0,
        name="half square",
    )
    rows = np.random.default_rng(1).standard_normal((200, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    certified(problem(PLANE, loss, scale * rows, response_bound=1.0))


def test_an_unbounded_plane_has_no_walk_for_any_records():
    """So that records for which rejection is slow are not refused later."""
    plane = D.Polytope(-np.eye(3), np.ones(3), [[1.0, -1.0, 0.0]], [0.0])
    given = problem(plane, dataclasses.replace(L.Logistic()))
    target = dps.Gibbs(given, k=10.0, mu=0.1)
    assert "unbounded" in no_proximal_proof(target)


def test_a_failure_says_the_same_of_all_records():  # L1
    texts = set()
    for seed in (1, 2):
        rows = np.random.default_rng(seed).standard_normal((200, 3))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        with pytest.raises(dps.SamplingError) as caught:
            given = problem(D.Ball(5.0), L.Hinge(), rows)
            dps.release(given, BUDGET, seed=1, max_work=1.0)
        texts.add(str(caught.value))
    assert len(texts) == 1
