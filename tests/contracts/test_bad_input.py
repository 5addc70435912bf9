"""Bad arguments whose fault is in their structure, and what errors tell.

Values that are malformed whatever the door are in `test_doors`.
"""

import re

import numpy as np
import pytest

import dpsample as dps
from tests.contracts.door_calls import call
from tests.contracts.door_objects import BUDGET, problem
from tests.contracts.doors import DOORS
from tests.support.message_grammar import GRAMMAR
from tests.support.tiers import one_in

NAN, INF = float("nan"), float("inf")
ROWS = {
    "nan": [[NAN, 0.0]] * 3,
    "inf": [[INF, 0.0]] * 3,
    "vector": [1.0, 2.0, 3.0],
    "empty": np.empty((0, 2)),
    "no columns": np.empty((3, 0)),
    "text": [["a", "b"]] * 3,
    "above their bound": [[3.0, 0.0]] * 3,
}
CENTERS = {"nan": [NAN, 0.0], "long": np.zeros(3), "matrix": np.eye(2)}
# door.parameter: {kind: bad value}
KINDS = {
    "Problem.features": ROWS,
    "Problem.response": {
        "nan": [NAN, 1.0, 1.0],
        "short": [1.0, -1.0],
        "zero and one": [0.0, 1.0, 1.0],
    },
    "Problem.domain": {"of another dim": dps.domains.Ball(1.0, center=[0.0] * 5)},
    "Problem.feature_names": {"short": ["a"], "long": ["a", "b", "c"]},
    "Problem.offset": {"nan": [NAN, 0.0, 0.0], "above": [1.0, 0.0, 0.0]},
    "domains.Ball.center": CENTERS,
    "domains.Box.lower": {"above": 2.0, "long": [0.0] * 3},
    "domains.Box.upper": {"below": -2.0, "long": [2.0] * 3},
    "domains.Polytope.A": {"nan": [[NAN], [1.0]], "vector": [1.0, -1.0]},
    "domains.Polytope.b": {"nan": [NAN, 1.0], "empty set": [-1.0, -1.0]},
    "domains.SchattenBall.shape": {
        "zero": (0, 2),
        "three": (1, 1, 2),
        "another": (3, 3),
    },
    "sample.sampler": {"class": dps.Proximal},
    "sample.init": {"nan": [NAN, 0.0], "long": [0.0] * 3, "outside": [2.0, 0.0]},
    "minimize.optimizer": {"class": dps.optimizers.DPSGD},
    "replicate.verb": {"another": dps.calibrate},
    "replicate.arguments": {
        "no problem": (None, None),
        "text": ("a", "b", BUDGET),
    },
    "replicate.options": {
        "calibration": {"calibration": "nonsense"},
        "evaluation": {"evaluation": problem()},
    },
    "losses.record_gradient.gradient": {"of one argument": lambda row: None},
    "losses.record_gradient.value": {"of one argument": lambda row: None},
    "optimizers.ProximalSGD.groups": {"fraction": (0.5, 1.0), "negative": (-1, 0)},
}
CASES = [
    pytest.param(*name.rsplit(".", 1), value, id=f"{name}-{kind}")
    for name, values in KINDS.items()
    for kind, value in values.items()
]


@one_in(5)
@pytest.mark.parametrize(("door", "parameter", "value"), CASES)
def test_a_malformed_structure_is_refused_in_the_grammar(door, parameter, value):
    with pytest.raises(ValueError) as refusal:
        call(DOORS[door], **{parameter: value})
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
    simplex = problem(domain=dps.domains.Simplex(), loss=dps.losses.Hinge())
    with pytest.raises(dps.NoCertificate, match="no interior"):
        dps.release(simplex, BUDGET, p=1.0)


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
