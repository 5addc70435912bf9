"""What `calibrate` refuses, and how it says so."""

import math

import pytest

from dpsample import domains, losses
from dpsample.privacy import (
    Budget,
    calibrate,
)
from tests.support.public_facts import BUDGET, ZERO_OUT
from tests.support.public_facts import linear_facts as facts

UNBOUNDED = facts(domain=domains.WholeSpace())
BAD = {
    "problem must be a PublicFacts, got 3. Pass a dps.Problem": {"problem": 3},
    "budget must be a Budget, got 1. Use dps.Budget": {"budget": 1},
    "p must be >= 1, got 0.5": {"p": 0.5},
    "p must be >= 1, got nan": {"p": math.nan},
    "p must be >= 1, got '2'": {"p": "2"},
    "risk must be one of 'population', 'empirical', got 'erm'": {"risk": "erm"},
    "calibration must be one of 'exact', 'closed_form', 'paper'": {
        "calibration": "tight"
    },
    "sampler_share must be < 1, got 1. It is": {"sampler_share": 1.0},
    "sampler_share must be a finite number >= 0": {"sampler_share": -0.1},
    "strong_convexity must be a finite number >= 0": {"strong_convexity": -1.0},
    "strong_convexity must be a finite": {"strong_convexity": math.inf},
    "confidence must be > 0 and < 1, got 1": {"confidence": 1},
    "confidence must be > 0 and < 1, got 0": {"confidence": 0.0},
    "confidence must be > 0 and < 1, got 'high'": {"confidence": "high"},
    "confidence must be None with calibration='paper'": {
        "confidence": 0.9,
        "calibration": "paper",
    },
    "domain must be bounded unless the objective carries a ridge, got WholeSpace(). "
    "Use a Ball or a Box, or pass strong_convexity > 0.": {"problem": UNBOUNDED},
    "domain must be bounded for the squared loss": {
        "problem": facts(
            domain=domains.WholeSpace(), loss=losses.Squared(), response_bound=1.0
        ),
        "strong_convexity": 1.0,
    },
    "domain must be of dimension >= 1": {
        "problem": facts(dim=1, domain=domains.Simplex())
    },
    "num_records must be >= 2 with strong_convexity under zero_out": {
        "problem": facts(num_records=1),
        "budget": ZERO_OUT,
        "strong_convexity": 1.0,
    },
    "delta must be > 0 and < 0.5, got 0.6. Use calibration='exact'": {
        "budget": Budget(epsilon=1.0, delta=0.6),
        "calibration": "closed_form",
    },
    "dim must be >= 3, got 2": {
        "problem": facts(dim=2),
        "p": 1.0,
        "calibration": "paper",
    },
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused_with_a_sentence(message):
    arguments = {"problem": facts(), "budget": BUDGET} | BAD[message]
    with pytest.raises(ValueError) as caught:
        calibrate(arguments.pop("problem"), arguments.pop("budget"), **arguments)
    assert str(caught.value).startswith(message)
    assert ", got " in str(caught.value)
