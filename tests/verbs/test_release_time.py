"""Time of releases: answers at a public deadline, and the same work for all records."""

import contextlib
import time

import numpy as np
import pytest

import dpsample as dps
from dpsample.core import pauses
from dpsample.samplers.errors import DeadlineError, SamplingError
from dpsample.verbs import release as releases
from tests.support.tiers import slow

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
KEPT = 0.05  # seconds after a deadline


def problem(n=300, dim=2, *, loss=None, domain=None, **options):
    data = dps.datasets.logistic(n, dim, seed=1)
    return dps.Problem(
        data.features,
        data.response,
        row_bound=1.0,
        loss=dps.losses.Logistic() if loss is None else loss,
        domain=dps.domains.Ball(1.0) if domain is None else domain,
        **options,
    )


# Level 1: a deadline.


def test_an_answer_comes_at_the_deadline_and_not_before(capfd):
    known = problem()
    early = dps.release(known, BUDGET, seed=1)
    begin = time.monotonic()
    answer = dps.release(known, BUDGET, seed=1, deadline=1.0)
    seconds = time.monotonic() - begin
    assert 1.0 <= seconds < 1.0 + KEPT
    np.testing.assert_array_equal(answer.theta, early.theta)
    assert "DRAW.DEADLINE" in answer.certificate.assumptions
    assert "DRAW.DEADLINE" not in early.certificate.assumptions
    again = dps.Certificate.from_json(answer.certificate.to_json())
    dps.verify(again)
    dps.verify(again, checker="ball")
    assert capfd.readouterr() == ("", "")


def lasting(self, pilot, stream, say):
    while True:
        time.sleep(0.001)
        pauses.heard()


def failing(self, pilot, stream, say):
    raise SamplingError(f"record {self.target.data.response[0]:g} is to blame")


def late(self, pilot, stream, say):
    time.sleep(0.15)
    return np.zeros(self.target.dim), {}


@pytest.mark.parametrize("draw", [lasting, failing, late])
def test_what_fails_or_is_late_fails_at_the_deadline_with_one_message(
    draw, monkeypatch
):
    monkeypatch.setattr(releases.ReleasePlan, "draw", draw)
    known = problem()
    begin = time.monotonic()
    with pytest.raises(DeadlineError) as caught:
        dps.release(known, BUDGET, deadline=0.1)
    seconds = time.monotonic() - begin
    assert 0.1 <= seconds < 0.15 + KEPT
    assert str(caught.value) == str(DeadlineError())
    assert caught.value.__context__ is None and caught.value.__cause__ is None


@pytest.mark.parametrize(
    "sampler",
    [
        slow(dps.Proximal("tangent", step_size=1e-4)),
        dps.Proximal(step_size=1e-3),
        slow(dps.samplers.Localized()),
    ],
)
def test_real_draws_stop_soon_after_a_deadline(sampler):
    known = problem(100_000, 20)
    with contextlib.suppress(DeadlineError):
        dps.release(known, BUDGET, sampler=sampler, deadline=1.0)  # compiles
    for deadline in (0.3, 0.6):
        begin = time.monotonic()
        with contextlib.suppress(DeadlineError):
            dps.release(known, BUDGET, sampler=sampler, deadline=deadline)
        seconds = time.monotonic() - begin
        assert deadline <= seconds < deadline + 4 * KEPT  # of a machine with load


@pytest.mark.parametrize("deadline", [0.0, -1.0, np.nan, np.inf, True, "1"])
def test_a_deadline_is_a_number_of_seconds(deadline):
    with pytest.raises(ValueError, match="deadline must be"):
        dps.release(problem(), BUDGET, deadline=deadline)


def test_ctrl_c_ends_the_wait(monkeypatch):
    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(releases.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt, match="Nothing is released"):
        dps.release(problem(), BUDGET, deadline=60.0)
