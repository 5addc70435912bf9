"""The ball checker: random certificates, refusals, and a life without the package."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpsample as dps
from dpsample import domains, losses, verify
from dpsample.noise import k_norm_mechanism
from dpsample.privacy import Budget, Certificate, calibrate
from dpsample.privacy.accounting.accounting import delta_of
from dpsample.privacy.accounting.events import (
    ApproximateEvent,
    ComposedEvent,
    ConcentratedEvent,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PureEvent,
)
from dpsample.privacy.certificates.registry import registry
from dpsample.privacy.curves.gaussian import gaussian_delta
from dpsample.problem.facts import PublicFacts
from dpsample.verification import ball_checker as checker
from tests.contracts import pieces
from tests.support.public_facts import final, logistic_facts
from tests.support.tiers import slow

SCHATTEN = {"name": "schatten_ball", "radius": 1.0, "p": 1.0, "shape": [2, 3]}
CUSTOM = losses.Custom(label="own", declared_slope=2.0)
# As users make them, and with other parameters.
LOSSES = (
    CUSTOM,
    *(each for kind in pieces.LOSSES for each in pieces.examples(kind, 1)),
)


def power(rng, low, high):
    return float(10.0 ** rng.uniform(low, high))


def exponent(rng):
    return float(rng.choice([1.0, 2.0, np.inf, 1.0 + power(rng, -2.0, 1.0)]))


def domain(rng, dim):
    """One of every kind; polytopes only for losses whose slope is bounded at all."""
    kind = rng.integers(5)
    if kind == 0:
        center = rng.normal(size=dim) if rng.random() < 0.5 else None
        return domains.Ball(power(rng, -2, 2), p=exponent(rng), center=center)
    if kind == 1:
        ends = np.sort(rng.normal(size=(2, dim)), axis=0)
        return domains.Box(ends[0], ends[1] + 0.1)
    if kind == 2:
        return domains.Simplex()
    if kind == 3 and dim % 2 == 0:
        shape = (2, dim // 2)
        return domains.SchattenBall(power(rng, -2, 2), p=exponent(rng), shape=shape)
    sides = np.vstack([np.eye(dim), -np.eye(dim)])
    return domains.Polytope(sides, np.ones(2 * dim))


def random_certificate(rng):
    """A certificate of a draw from random public facts, and of noise now and then."""
    budget = Budget(
        epsilon=power(rng, -4, 1.5),
        delta=power(rng, -30, -1),
        relation=str(rng.choice(["replace_one", "zero_out"])),
    )
    if rng.random() < 0.1:
        case = {"sensitivity": power(rng, -9, 9), "p": exponent(rng)}
        r = float(rng.uniform(2.0, 9.0))
        made = dps.noise.generalized_gaussian_mechanism(budget, dim=9, r=r, **case)
        return made.certificate
    dim = int(rng.integers(2, 40))
    body, loss = domain(rng, dim), LOSSES[rng.integers(len(LOSSES))]
    grows = loss.name in ("squared", "power_four")
    if grows and body.name == "polytope":
        body = domains.Ball(1.0)
    facts = PublicFacts(
        num_records=int(10.0 ** rng.uniform(1, 9)),
        dim=dim,
        loss=loss,
        domain=body,
        row_bound=power(rng, -3, 3),
        row_norm=exponent(rng),
        response_bound=power(rng, -2, 2),
        offset_bound=float(rng.choice([0.0, 0.3])),
        intercept=bool(rng.random() < 0.3 and body.name != "schatten_ball"),
    )
    mech = calibrate(
        facts,
        budget,
        p=exponent(rng),
        risk=str(rng.choice(["population", "empirical"])),
        calibration=str(rng.choice(["exact", "exact", "closed_form"])),
        sampler_share=float(rng.choice([0.1, 0.7, power(rng, -6, -1)])),
        strong_convexity=float(rng.choice([0.0, power(rng, -3, 1)])),
        confidence=rng.choice([None, 0.9]),
    )
    return mech.certificate.with_sampler(sampler="Proximal(oracle='metric')")


def test_the_checker_has_tables_of_every_loss_and_domain():
    """It shares no code with the package, so its tables are its own."""
    own = {kind.name for kind in (*pieces.LOSSES, losses.Custom, losses.RecordGradient)}
    assert set(checker.LOSSES) == own
    # Nothing is certified on a domain that a problem refuses.
    public = {kind.name for kind in pieces.DOMAINS if kind.has_public_bounds}
    assert set(checker.DOMAINS) == public


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_checker_finds_the_slope_that_a_loss_declares(loss):
    facts = logistic_facts(loss=loss, response_bound=1.7, domain=domains.Ball(1.3))
    slope = checker._slope_bound(facts.to_dict())
    assert float(slope) == pytest.approx(facts.slope_bound, rel=1e-12)


@pytest.mark.parametrize(("seed", "count"), [(1, 60), slow(2, 2000)])
def test_random_certificates_are_proved(seed, count):
    rng, proved = np.random.default_rng(seed), 0
    while proved < count:
        try:
            certificate = random_certificate(rng)
        except ValueError:  # refused by public facts
            continue
        report = verify(certificate, checker="ball")
        assert len(report.checks) >= 2 and report.statement == certificate.statement
        proved += 1


def resealed(content):
    digest = checker._sha256(content | {"digest": ""})
    return json.dumps(content | {"digest": digest})


@pytest.mark.parametrize("version", range(1, registry().version))
def test_certificates_of_former_sentences_are_proved_and_show_them(version):
    certificate = final(sampler_share=0.1)
    listed = registry().select_version(certificate.assumptions, version)
    names = (*certificate.theorems, *listed)
    present = registry().words(names)
    content = json.loads(certificate.to_json()) | {"assumptions": list(listed)}
    text = resealed(content | {"registry": registry().seal(names, version)})
    assert checker.prove(text)
    former = Certificate.from_json(text)
    assert verify(former).statement == certificate.statement
    assert registry().words(names, version=version) != present
    shown = " ".join(former.details().split())
    for words in registry().words(names, version=version):
        assert " ".join(words.split()) in shown


@pytest.mark.parametrize(
    ("name", "factor", "words"),
    [
        ("gdp", 1.0 - 2e-12, r"gdp is false"),
        ("gdp", 1.0 + 2e-12, r"delta_0 is false"),
        ("k", 1.0 + 4e-12, r"gdp is false"),
        ("mu", 1.0 - 4e-12, r"gdp is false"),
        ("delta_exact", 1.0 + 2e-12, r"<=delta is false"),
        ("gamma", 1.0 + 2e-12, r"<=delta is false"),
        ("lipschitz", 1.0 - 2e-9, r"lipschitz as stated is false"),
    ],
)
def test_claims_that_are_false_in_the_twelfth_digit_are_not_proved(name, factor, words):
    content = json.loads(final(sampler_share=0.1).to_json())
    assert checker.prove(resealed(content))
    changed = resealed(content | {name: content[name] * factor})
    with pytest.raises(checker.NotProved, match=words):
        checker.prove(changed)


@pytest.mark.parametrize(
    "changes",
    [
        {"risk_bound": "proved to be 0"},
        {"risk_bound": None},
        {"range_bound": "small"},
        {"range_bound": "inf"},
        {"confidence": "high"},
        {"confidence": 1.5},
    ],
    ids=json.dumps,
)
def test_words_about_the_risk_are_refused(changes):
    content = json.loads(final(sampler_share=0.1).to_json())
    with pytest.raises(checker.NotProved, match=r"float|out of range|range|confid"):
        checker.prove(resealed(content | changes))


BODIES = [
    {"name": "box", "lower": 1.0, "upper": 2.0},
    {"name": "box", "lower": [-1.0, -1.0, -1.0], "upper": [1.0, 1.0, 1e9]},
    {"name": "ball", "radius": 1.0, "p": 0.5, "center": None},
    {"name": "ball", "radius": 1.0, "p": 1.0, "center": [0.0] * 7},
    {"name": "ball", "radius": 1.0, "p": 1.0, "center": [0.0, 1e-20, 0.0]},
    {"name": "schatten_ball", "radius": 1.0, "p": 1.0, "shape": [3, 5]},
    {"name": "polytope", "A": [[1.0, 1.0, 0.0]], "b": [-0.5]},
    {"name": "polytope", "A": [[1.0, 1.0]], "b": [0.5]},
    {"name": "polytope", "A": 1.0, "b": [0.5]},
    {"name": "polytope", "A": ["inf"], "b": [1.0]},
    {"name": "polytope", "A": [[None, None, None]], "b": [1.0]},
    {"name": "polytope", "A": [[[1], [2], [3]]], "b": [1.0]},
    {"name": "polytope", "A": [[0.0, 0.0, 0.0]], "b": [1.0]},
    {"name": "ball", "radius": 1.0, "p": 1.0, "center": [None] * 3},
    {"name": "simplex"},
    {"name": "whole_space"},
]


@pytest.mark.parametrize("body", BODIES, ids=json.dumps)
def test_what_is_no_unit_ball_of_a_norm_is_refused(body):
    """The first checker builds the body; this one must see by itself what it is."""
    box = domains.Box(-1.0, 1.0)
    budget = Budget(epsilon=1.0, delta=1e-6)
    made = k_norm_mechanism(budget, domain=box, dim=3, sensitivity=1.0)
    content = json.loads(made.certificate.to_json())
    assert checker.prove(resealed(content))
    (index,) = (i for i, (name, _) in enumerate(content["inputs"]) if name == "K")
    content["inputs"][index][1] = json.dumps(body)
    with pytest.raises(checker.NotProved):
        checker.prove(resealed(content))


NO_FACTS = [
    {"domain": {"name": "polytope", "A": [], "b": []}},
    {"domain": {"name": "polytope", "A": [[0.0] * 6], "b": [1.0]}},
    {"domain": {"name": "polytope", "A": None, "b": None}},
    {"domain": {"name": "polytope", "A": [[1.0] * 6], "b": [None]}},
    {"domain": {"name": "ball", "radius": 1.0, "p": 2.0, "center": [None] * 6}},
    {"domain": {"name": "ball", "radius": 1.0, "p": 2.0, "center": ["inf"] * 6}},
    {"loss": {"name": "quantile", "level": None}},
    {"loss": {"name": "quantile", "level": 1.5}},
    {"loss": {"name": "smoothed_hinge", "width": 0.0}},
    {"intercept": True, "domain": SCHATTEN},
]


@pytest.mark.parametrize("facts", NO_FACTS, ids=json.dumps)
def test_what_no_problem_has_is_refused(facts):
    content = json.loads(final(sampler_share=0.1).to_json())
    assert content["facts"]["dim"] == 6 and checker.prove(resealed(content))
    content["facts"] |= facts
    words = (
        "malformed|not a point|in the center|in b|no rows|is 0|level|width|no intercept"
    )
    with pytest.raises(checker.NotProved, match=words):
        checker.prove(resealed(content))


@pytest.mark.parametrize("gdp", [None, -0.1, 1e-320, "inf"])
def test_parts_that_are_no_gaussians_are_refused(gdp):
    event = {"name": "composed", "events": [{"name": "gaussian", "gdp": gdp}]}
    with pytest.raises(checker.NotProved):
        checker._event_delta(event, 1.0)
    with pytest.raises(checker.NotProved, match="no parts"):
        checker._check_form({"name": "composed", "events": []}, checker.EVENTS, "event")


@pytest.mark.parametrize("kind", ["frank_wolfe", "noise/laplace"])
def test_digits_on_demand_are_not_proved_for_a_delta_above_0(kind):
    """With such a budget digits are cut off, and the error probability is not 0."""
    budget = Budget(epsilon=1.0, delta=0.0)
    if kind == "frank_wolfe":
        problem = dps.Problem(
            np.full((4, 2), 0.5),
            np.ones(4),
            loss=losses.Huber(),
            domain=domains.Ball(0.1, p=1.0),
            row_bound=1.0,
        )
        spec = dps.optimizers.HeavyTailedFrankWolfe(num_steps=1)
        made = dps.minimize(problem, spec, budget).certificate
    else:
        made = dps.noise.laplace_mechanism(budget, sensitivity=1.0).certificate
    content = json.loads(made.to_json())
    assert content["kind"] == f"{kind}/pure" and checker.prove(resealed(content))
    content["budget"]["delta"] = 1e-300
    with pytest.raises(checker.NotProved, match="digits on demand"):
        checker.prove(resealed(content))


@pytest.mark.parametrize("content", [{"theta": 5}, {"certificate": [1]}])
def test_a_malformed_release_is_not_proved(content):
    names = "format theta feature_names encoding certificate digest"
    release = (
        dict.fromkeys(names.split(), "") | {"format": checker.Format.release} | content
    )
    with pytest.raises(checker.NotProved):
        checker.prove(json.dumps(release))


def test_a_box_of_a_million_sides_takes_no_time():
    facts = {"domain": {"name": "box", "lower": -2.0, "upper": 1.0}, "dim": 10**12}
    reach = checker._domain_norm(facts | {"row_norm": 2.0})
    assert float(reach.mid()) == pytest.approx(2e6, rel=1e-15)


EVENTS = (
    GaussianEvent(0.3),
    PureEvent(0.4),
    ApproximateEvent(epsilon=0.4, delta=1e-7),
    ConcentratedEvent(0.02),
    NearEvent(GaussianEvent(0.2), 1e-8),
    ComposedEvent((GaussianEvent(0.2), GaussianEvent(0.1))),
    ParallelEvent((GaussianEvent(0.2), PureEvent(0.1))),
)


@pytest.mark.parametrize("event", EVENTS, ids=repr)
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_deltas_of_events_agree_with_the_accountants(event, epsilon):
    checker.ctx.prec = 200
    known = delta_of(event, epsilon=epsilon, relation="replace_one")
    ball = checker._event_delta(event.to_dict(), epsilon)
    assert float(ball.mid()) <= known
    # Accountants are not below the truth; of sums, orders and parts they may take more.
    assert known <= float(ball.mid()) * (1.0 + 1e-6) + 3e-14


def test_the_curve_is_enclosed():
    checker.ctx.prec = 256
    for epsilon, gdp in ((1.0, 0.2367), (1e-6, 1e-6), (50.0, 9.0), (3.0, 0.1)):
        ball = checker._gaussian_delta(epsilon, gdp)
        error = abs(checker.arb(gaussian_delta(epsilon, gdp)) / ball - 1)
        assert ball > 0 and error < 1e-11


def test_what_the_checker_cannot_decide_it_says():
    body = domains.Polytope(np.vstack([np.eye(6), -np.eye(6)]), np.ones(12))
    grows = logistic_facts(loss=losses.Squared(), response_bound=1.0, domain=body)
    with pytest.raises(checker.NotProved, match="no table for the squared loss on a p"):
        verify(final(grows, sampler_share=0.1), checker="ball")


def test_whole_numbers_are_numbers():
    case = {"dim": 7, "sensitivity": 1, "p": 2, "r": 4}
    made = dps.noise.generalized_gaussian_mechanism(final().budget, **case)
    verify(made.certificate)
    verify(made.certificate, checker="ball")


def test_without_flint_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(checker, "arb", None)
    with pytest.raises(ImportError, match=r"pip install 'dpsample\[verify\]'"):
        verify(final(), checker="ball")


BLOCK = """
import importlib.abc, runpy, sys

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "numba", "scipy", "dpsample"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Block())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*arguments):
    done = subprocess.run(
        [sys.executable, "-c", BLOCK, checker.__file__, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_it_runs_by_its_path_without_numpy_numba_and_the_package(tmp_path):
    file = tmp_path / "c.json"
    file.write_text(final(sampler_share=0.1).to_json())
    code, text = run(str(file))
    assert code == 0 and text.splitlines()[-1] == "Proved.", text
    file.write_text(file.read_text().replace('"seeded": false', '"seeded": true'))
    code, text = run(str(file))
    assert code == 1 and text.startswith("Not proved: releasable is not False.")
    assert run()[0] == 2 and run(str(tmp_path / "none"))[0] == 1


def test_it_imports_the_standard_library_and_flint_only():
    names = set()
    for node in ast.walk(ast.parse(Path(checker.__file__).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.split(".")[0])
    assert names - set(sys.stdlib_module_names) == {"flint"}
