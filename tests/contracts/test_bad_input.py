"""Every public parameter refuses every kind of bad value in the same grammar.

Cases come from the public signatures: a parameter without an entry in KINDS fails
`test_every_public_parameter_is_covered`, so none can be forgotten.
"""

import inspect
import re

import numpy as np
import pytest

import dpsample as dps
from tests.contracts.bad_values import BUDGET, KINDS, problem
from tests.contracts.optimizer_values import OPTIMIZER_KINDS, OPTIMIZER_SIGNATURES
from tests.sampler_grid import SAMPLERS

GRAMMAR = re.compile(
    r"^(?P<name>[A-Za-z_]+[A-Za-z0-9_\[\] <=]*) must be .+, got .+\.( .+\.)?$"
)
SIGNATURES = {
    "Budget": dps.Budget,
    "Problem": dps.Problem,
    "Gibbs": dps.Gibbs,
    "calibrate": dps.calibrate,
    "release": dps.release,
    "sample": dps.sample,
    "Ball": dps.domains.Ball,
    "Box": dps.domains.Box,
    "Polytope": dps.domains.Polytope,
    "SchattenBall": dps.domains.SchattenBall,
    "SquaredNorm": dps.regularizers.SquaredNorm,
    "SmoothedHinge": dps.losses.SmoothedHinge,
    "Huber": dps.losses.Huber,
    "Quantile": dps.losses.Quantile,
    "gaussian_delta": dps.privacy.gaussian_delta,
    "gaussian_epsilon": dps.privacy.gaussian_epsilon,
    "gdp_from_budget": dps.privacy.gdp_from_budget,
} | {name: type(sampler) for name, sampler in SAMPLERS.items()}
SIGNATURES |= OPTIMIZER_SIGNATURES
KINDS = KINDS | OPTIMIZER_KINDS
CASES = [
    pytest.param(function, valid | {parameter: value}, parameter, id="-".join(label))
    for name, (function, valid, parameters) in KINDS.items()
    for parameter, values in parameters.items()
    for label, value in (((name, parameter, kind), v) for kind, v in values.items())
]


def test_every_public_parameter_is_covered():
    for name, function in SIGNATURES.items():
        missing = set(inspect.signature(function).parameters) - set(KINDS[name][2])
        assert not missing, f"{name} has parameters without bad values: {missing}"
    assert set(SIGNATURES) == set(KINDS)
    assert len(CASES) >= 60


@pytest.mark.parametrize(("function", "arguments", "parameter"), CASES)
def test_bad_value_is_refused_in_the_grammar(function, arguments, parameter):
    with pytest.raises(ValueError) as refusal:
        function(**arguments)
    message = str(refusal.value)
    assert GRAMMAR.match(message), message


@pytest.mark.parametrize(
    ("function", "arguments", "remedy"),
    [
        (problem, {"response": [0.0, 1.0, 1.0]}, "2 * y - 1"),
        (problem, {"features": [[3.0, 0.0]] * 3}, "clip_rows=True"),
        (problem, {"features": [[3.0, 0.0]] * 3}, "record 0"),
        (problem, {"loss": dps.losses.Squared()}, "Pass the public bound"),
        (problem, {"loss": "logistic"}, "dps.losses"),
        (
            lambda **k: dps.calibrate(problem(**k), BUDGET),
            {"domain": dps.domains.WholeSpace()},
            "strong_convexity",
        ),
        (
            lambda **k: dps.Gibbs(problem(**k), k=1.0, mu=0.0),
            {"domain": dps.domains.WholeSpace()},
            "regularizer",
        ),
    ],
)
def test_error_names_the_remedy(function, arguments, remedy):
    with pytest.raises(ValueError, match=re.escape(remedy)):
        function(**arguments)


def test_release_refuses_domains_without_a_proof():
    simplex = problem(domain=dps.domains.Simplex())
    with pytest.raises(dps.NoCertificate, match="no interior"):
        dps.release(simplex, BUDGET)


@pytest.mark.parametrize(
    ("domain", "mu", "words"),
    [
        (dps.domains.Polytope(np.eye(2), np.ones(2)), 1.0, "is unbounded"),
        (dps.domains.Simplex(), 1.0, "has no interior"),
        (dps.domains.Ball(1.0), 0.0, "no strong convexity"),
    ],
)
def test_what_has_no_proof_is_refused_with_the_reason(domain, mu, words):
    hinge = dps.Gibbs(problem(domain=domain, loss=dps.losses.Hinge()), k=1.0, mu=mu)
    supported, reason = dps.Proximal().supports(hinge)
    assert not supported and words in reason
    with pytest.raises(dps.NoCertificate, match=words):
        dps.Proximal().prepare(hinge, np.random.default_rng(0))
