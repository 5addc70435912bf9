"""Time of releases: answers at a public deadline, and the same work for all records."""

import contextlib
import threading
import time

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import ks_2samp

import dpsample as dps
from dpsample.api import release as releases
from dpsample.core import pauses
from dpsample.samplers.errors import (
    BottomError,
    DeadlineError,
    NoCertificate,
    SamplingError,
)
from dpsample.samplers.proximal import fixed_passes
from tests.support.fake_clock import FakeClock

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
LOGISTIC = dps.losses.Logistic()
KEPT = 0.05  # seconds after a deadline


def problem(n=300, dim=2, *, loss=None, domain=None, flipped=None, **options):
    data = dps.datasets.logistic(n, dim, seed=1)
    if flipped is not None:
        data.response[flipped] *= -1.0
    return dps.Problem(
        data.features,
        data.response,
        row_bound=1.0,
        loss=dps.losses.Logistic() if loss is None else loss,
        domain=dps.domains.Ball(1.0) if domain is None else domain,
        **options,
    )


# Level 1: a deadline.


def test_an_answer_comes_at_the_deadline_and_not_before(capfd, monkeypatch):
    known = problem()
    early = dps.release(known, BUDGET, seed=1)
    clock = FakeClock(monkeypatch)
    answer = dps.release(known, BUDGET, seed=1, deadline=1.0)
    assert clock.now == pytest.approx(101.0, abs=1e-9)
    np.testing.assert_array_equal(answer.theta, early.theta)
    assert "DRAW.DEADLINE" in answer.certificate.assumptions
    assert "DRAW.DEADLINE" not in early.certificate.assumptions
    again = dps.Certificate.from_json(answer.certificate.to_json())
    dps.verify(again)
    dps.verify(again, checker="ball")
    assert capfd.readouterr() == ("", "")


@pytest.mark.alone
def test_an_answer_comes_soon_after_the_deadline():
    known = problem()
    dps.release(known, BUDGET)  # compiles
    begin = time.monotonic()
    dps.release(known, BUDGET, deadline=1.0)
    assert 1.0 <= time.monotonic() - begin < 1.0 + KEPT


def lasting(self, pilot, stream, say):
    while True:
        releases.time.sleep(0.001)
        pauses.notify_listeners()


def failing(self, pilot, stream, say):
    raise SamplingError(f"record {self.target.data.response[0]:g} is to blame")


def late(self, pilot, stream, say):
    releases.time.sleep(0.01)
    releases.time.now += 0.14
    return np.zeros(self.target.dim), {}


@pytest.mark.parametrize("draw", [lasting, failing, late])
def test_what_fails_or_is_late_fails_at_the_deadline_with_one_message(
    draw, monkeypatch
):
    known = problem()
    dps.release(known, BUDGET)  # compiles
    monkeypatch.setattr(releases.ReleasePlan, "draw", draw)
    clock = FakeClock(monkeypatch)
    with pytest.raises(DeadlineError) as caught:
        dps.release(known, BUDGET, deadline=0.1)
    assert 100.1 - 1e-9 <= clock.now <= 100.15 + 1e-9
    assert str(caught.value) == str(DeadlineError())
    assert caught.value.__context__ is None and caught.value.__cause__ is None


def test_real_draws_stop_at_the_first_pause_after_a_deadline(monkeypatch):
    """By a clock on which a second passes at every look."""
    endless, known = dps.Proximal(step_size=1e-3), problem(100_000, 20)
    dps.release(problem(), BUDGET, sampler=endless)  # compiles
    clock = FakeClock(monkeypatch, tick=1.0)
    with pytest.raises(DeadlineError):
        dps.release(known, BUDGET, sampler=endless, deadline=5.0)
    # The looks that find it late: at the pause, and before and after the wait.
    assert 105.0 <= clock.now <= 108.0


@pytest.mark.alone
@pytest.mark.parametrize(
    "sampler",
    [
        dps.Proximal("tangent", step_size=1e-4),
        dps.Proximal(step_size=1e-3),
        dps.samplers.Localized(),
    ],
)
def test_real_draws_stop_soon_after_a_deadline(sampler):
    dps.release(problem(), BUDGET, sampler=sampler)  # compiles, whatever that takes
    known = problem(100_000, 20)
    for deadline in (0.3, 0.6):
        begin = time.monotonic()
        with contextlib.suppress(DeadlineError):
            dps.release(known, BUDGET, sampler=sampler, deadline=deadline)
        seconds = time.monotonic() - begin
        assert deadline <= seconds < deadline + 4 * KEPT


@pytest.mark.parametrize("deadline", [0.0, -1.0, np.nan, np.inf, True, "1"])
def test_a_deadline_is_a_number_of_seconds(deadline):
    with pytest.raises(ValueError, match="deadline must be"):
        dps.release(problem(), BUDGET, deadline=deadline)


def test_ctrl_c_ends_the_wait(monkeypatch):
    sleep = time.sleep

    def interrupted(seconds):
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        sleep(seconds)  # of the thread that times pauses

    monkeypatch.setattr(releases.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt, match="Nothing is released"):
        dps.release(problem(), BUDGET, deadline=60.0)


def test_ctrl_c_between_the_draw_and_the_wait_leaves_no_answer(monkeypatch):
    def draw():
        monkeypatch.setattr(releases.time, "monotonic", interrupted)
        return "secret"

    def interrupted():
        monkeypatch.undo()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        releases._return_at_deadline(time.monotonic() + 60.0, draw)
    frames = [entry.frame for entry in caught.traceback]
    (answers,) = [f.f_locals["answers"] for f in frames if "answers" in f.f_locals]
    assert answers == []


def test_nothing_is_shown_while_the_time_is_public(monkeypatch, capfd):
    shown = []

    class Screen:
        def show(self, words):
            shown.append(words)

        def clear(self):
            pass

    pair = problem(), problem(flipped=0)
    for known in pair:
        # Each way is compiled here, so that nothing is said of the compiler later.
        dps.release(known, BUDGET)
        dps.release(known, BUDGET, deadline=1.0)
        dps.release(known, BUDGET, constant_time=True)
    capfd.readouterr()
    FakeClock(monkeypatch)
    monkeypatch.setattr(releases.screen, "_Terminal", Screen)
    monkeypatch.setattr(releases.screen, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(releases.screen, "is_shown", lambda: True)
    for known in pair:
        dps.release(known, BUDGET, deadline=1.0)
        dps.release(known, BUDGET, constant_time=True)
    assert capfd.readouterr() == ("", "") and shown == []
    dps.release(pair[0], BUDGET)
    assert shown  # where the time is not public


# Level 2: the same passes over all records.


def test_a_constant_time_release_says_what_it_does_and_verifies(capfd):
    known = problem()
    answer = dps.release(known, BUDGET, constant_time=True)
    certificate = answer.certificate
    assert answer.theta.shape == (2,) and certificate.releasable
    assert "TIME" not in certificate.assumptions
    assert "TIME.UNITS" in certificate.assumptions
    words = certificate.details()
    assert "Idealized numerics" in words and "work=" in words
    for checker in ("standard", "ball"):
        names = [line.name for line in answer.verify(checker=checker).checks]
        assert "P(nothing released)<=0.1*gamma" in names
    assert dps.Certificate.from_json(certificate.to_json()) == certificate
    assert "non_private_theta" not in answer.nonprivate_diagnostics
    assert capfd.readouterr() == ("", "")


def test_work_is_as_asked_for_or_refused_before_any_draw(monkeypatch):
    known = problem()
    least = dps.release(known, BUDGET, constant_time=True, seed=1)
    work = least.nonprivate_diagnostics["num_passes"]
    more = dps.release(known, BUDGET, constant_time=True, num_passes=work + 100, seed=1)
    assert f"work={work + 100})" in str(more.certificate.sampler)
    assert not least.certificate.releasable  # a seed
    monkeypatch.setattr(fixed_passes, "draw", None)
    with pytest.raises(
        ValueError, match=f"num_passes must be >= {work} passes"
    ) as caught:
        dps.release(known, BUDGET, constant_time=True, num_passes=work - 1)
    assert "num_passes=None takes it" in str(caught.value)


def test_nothing_is_released_with_one_message(monkeypatch):
    monkeypatch.setattr(fixed_passes, "draw", lambda *_: (None, None))
    with pytest.raises(BottomError, match="budget counts as spent"):
        dps.release(problem(), BUDGET, constant_time=True)


class Own(dps.losses.Logistic):
    """A loss of a name that is known, and formulas that are not."""


REFUSED = {
    "a kinked loss": {"loss": dps.losses.Hinge()},
    "a subclass": {"loss": Own()},
    "a linear loss": {"loss": dps.losses.Linear()},
    "a box": {"domain": dps.domains.Box(-1.0, 1.0)},
    "an l1 ball": {"domain": dps.domains.Ball(1.0, p=1.0)},
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_losses_and_domains_are_refused_by_public_facts(name):
    with pytest.raises(dps.samplers.NoCertificate, match="constant_time=True is not"):
        dps.release(problem(**REFUSED[name]), BUDGET, constant_time=True)


def test_other_norms_rows_and_options_are_refused():
    known = problem()
    with pytest.raises(dps.samplers.NoCertificate, match="p = 2"):
        dps.release(known, BUDGET, p=1.5, constant_time=True)
    rows = csr_array(np.eye(2))
    sparse = dps.Problem(
        rows, [1.0, -1.0], row_bound=1.0, loss=LOGISTIC, domain=dps.domains.Ball(1.0)
    )
    with pytest.raises(ValueError, match="features must be dense"):
        dps.release(sparse, BUDGET, constant_time=True)
    for name, value in {
        "sampler": dps.Proximal(),
        "max_work": 5.0,
        "deadline": 1.0,
    }.items():
        with pytest.raises(ValueError, match=f"{name} must be None"):
            dps.release(known, BUDGET, constant_time=True, **{name: value})
    with pytest.raises(ValueError, match="num_passes must be None"):
        dps.release(known, BUDGET, num_passes=10)


EXTREME = {
    "rows of zeros": (np.zeros((3, 2)), np.ones(3), {}),
    "one record": (np.eye(2)[:1], np.ones(1), {}),
    "large responses": (
        np.eye(2),
        np.array([1e6, -1e6]),
        {"loss": dps.losses.Huber(1.0), "response_bound": 1e6},
    ),
    "rows of 1e50": (
        np.array([[1e50, 0.0], [5e-324, -1e50]]),
        np.ones(2),
        {"row_bound": 1e50, "domain": dps.domains.Ball(1e-50)},
    ),
}


@pytest.mark.parametrize("name", EXTREME)
def test_extreme_records_are_released_like_others(name):
    rows, response, options = EXTREME[name]
    given = {"row_bound": 1.0, "loss": LOGISTIC, "domain": dps.domains.Ball(1.0)}
    known = dps.Problem(rows, response, **given | options)
    answer = dps.release(known, BUDGET, constant_time=True)
    assert np.isfinite(answer.theta).all()
    answer.verify(checker="ball")


def test_an_unbounded_domain_needs_a_ridge_and_has_a_plan():
    known = problem(500, 3, domain=dps.domains.WholeSpace())
    answer = dps.release(known, BUDGET, strong_convexity=0.1, constant_time=True)
    answer.verify()
    answer.verify(checker="ball")


@pytest.mark.alone
def test_seconds_of_neighbors_are_not_told_apart():
    rows, response = np.zeros((2000, 5)), np.ones(2000)
    other, flipped = rows.copy(), response.copy()
    other[0, 0], flipped[0] = 1.0, -1.0
    given = {"row_bound": 1.0, "loss": LOGISTIC, "domain": dps.domains.Ball(1.0)}
    pair, seconds = ((rows, response), (other, flipped)), [[], []]
    order = np.random.default_rng(1)
    for run in range(505):
        for which in order.permutation(2):
            # Anew: two that stay are told apart by where they lie, of the same records.
            known = dps.Problem(*pair[which], **given)
            begin = time.perf_counter()
            dps.release(known, BUDGET, constant_time=True)
            if run >= 5:  # after compilation
                seconds[which].append(time.perf_counter() - begin)
    assert ks_2samp(*seconds).pvalue >= 1e-3


def test_a_ledger_is_charged_whether_there_is_an_answer_or_not(monkeypatch):
    ledger = dps.privacy.Ledger(budget=dps.Budget(epsilon=5.0, delta=1e-3))
    known = problem()
    dps.release(known, BUDGET)  # compiles
    dps.release(known, BUDGET, constant_time=True, ledger=ledger)
    FakeClock(monkeypatch)
    dps.release(known, BUDGET, deadline=2.0, ledger=ledger)
    monkeypatch.setattr(fixed_passes, "draw", lambda *_: (None, None))
    with pytest.raises(BottomError):
        dps.release(known, BUDGET, constant_time=True, ledger=ledger)
    assert len(ledger.entries) == 3


def test_a_late_answer_is_in_no_traceback(monkeypatch):
    monkeypatch.setattr(releases.ReleasePlan, "draw", late)
    FakeClock(monkeypatch)
    with pytest.raises(DeadlineError) as caught:
        dps.release(problem(), BUDGET, deadline=0.1)
    entry, kept = caught.value.__traceback__, []
    while entry is not None:
        kept += [
            v for v in entry.tb_frame.f_locals.values() if isinstance(v, dps.Release)
        ]
        kept += entry.tb_frame.f_locals.get("answers", [])
        entry = entry.tb_next
    assert not kept and caught.value.__context__ is None


@pytest.mark.parametrize("size", [1e6, 1e17])
def test_bounds_whose_rounding_would_decide_tries_are_refused(size):
    known = problem(
        1000, domain=dps.domains.WholeSpace(), offset=np.zeros(1000), offset_bound=size
    )
    options = {"strong_convexity": 1.0, "constant_time": True}
    if size < 1e12:
        assert dps.release(known, BUDGET, **options).certificate.releasable
        return
    with pytest.raises(NoCertificate, match="rounding errors"):
        dps.release(known, BUDGET, **options)
    unbounded = problem(loss=dps.losses.Huber(1.0))
    with pytest.raises(NoCertificate, match="smaller response_bound"):
        dps.release(unbounded, BUDGET, constant_time=True)
