"""Ledgers: totals, what remains, warnings, refusals and exact JSON."""

import itertools
import json
import math
import os
import pickle
import subprocess
import sys
from contextlib import ExitStack
from fractions import Fraction

import numpy as np
import pytest

import dpsample as dps
from dpsample import verify
from dpsample.noise import gaussian_mechanism, laplace_mechanism
from dpsample.optimizers import NoisyGD
from dpsample.privacy import (
    AllocatedGaussianEvent,
    ApproximateEvent,
    Budget,
    ComposedEvent,
    ConcentratedEvent,
    EventCertificate,
    GaussianEvent,
    Ledger,
    LedgerFile,
    NearEvent,
    PoissonGaussianEvent,
    PureEvent,
    TiltEvent,
    calibrate,
    delta_of,
    epsilon_of,
    gaussian_epsilon,
    gdp_from_budget,
    group_event,
)
from dpsample.privacy.certificates.ledger import Remaining, _describe_remaining
from tests.support.public_facts import BUDGET, final, linear_facts, logistic_facts
from tests.support.tiers import slow, usual

TOTAL = Budget(epsilon=2.0, delta=1e-6)
ZERO_OUT = Budget(epsilon=1.0, delta=1e-6, relation="zero_out")


def noisy_mean(**changes):
    fields = {"mechanism": "noisy mean", "budget": BUDGET, "event": GaussianEvent(0.2)}
    return EventCertificate.of(**fields | changes)


def full():
    ledger = Ledger(budget=TOTAL)
    ledger.add(final(linear_facts()), "slopes")
    ledger.add(noisy_mean(seeded=True))
    ledger.add(GaussianEvent(0.1), label="count")
    ledger.add(noisy_mean(event=GaussianEvent(0.5), calibration="paper"), "printed")
    return ledger


def test_gaussian_releases_compose_exactly():
    ledger = Ledger(budget=TOTAL)
    for gdp in (0.3, 0.4):
        ledger.add(GaussianEvent(gdp))
    exact = gaussian_epsilon(1e-6, 0.5)
    assert ledger.epsilon() == pytest.approx(exact, rel=1e-10)
    assert ledger.epsilon(1e-6) == ledger.epsilon()
    assert ledger.delta(ledger.epsilon()) <= 1e-6
    assert ledger.delta() == ledger.delta(2.0) < 1.0


def test_certificates_and_their_events_count_alike():
    one, other = Ledger(), Ledger()
    for item in (final(sampler_share=0.1), noisy_mean()):
        one.add(item)
        other.add(item.event)
    assert one.epsilon(1e-5) == other.epsilon(1e-5) > 0.0
    assert one.event == other.event


def test_two_draws_cost_less_than_the_sum_of_their_budgets():
    ledger = Ledger(budget=TOTAL)
    for _ in range(2):
        ledger.add(final())
    root_two = gaussian_epsilon(1e-6, math.sqrt(2.0) * gdp_from_budget(1.0, 1e-6))
    assert ledger.epsilon() == pytest.approx(root_two, rel=1e-9)
    assert ledger.epsilon() < 1.5


def test_an_empty_ledger_costs_nothing():
    ledger = Ledger(budget=TOTAL)
    assert (ledger.epsilon(), ledger.delta(0.0), ledger.entries) == (0.0, 0.0, ())
    assert ledger.remaining() == (gdp_from_budget(2.0, 1e-6), 2.0)
    assert "0 releases" in repr(ledger)


OTHERS = {
    "gaussian": GaussianEvent(0.2),
    "pure": PureEvent(0.5),
    "concentrated": ConcentratedEvent(0.01),
    "near": NearEvent(GaussianEvent(0.2), 1e-8),
    "allocated": AllocatedGaussianEvent(
        noise_multiplier=16.0, num_steps=30, num_epochs=2
    ),
    "tilt": TiltEvent(log_determinant=0.1, distance=0.2),
    "sampled": PoissonGaussianEvent(
        sampling_rate=0.1, noise_multiplier=8.0, num_steps=30
    ),
}


@usual("pure", "gaussian")
@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("kind", OTHERS)
def test_what_remains_can_be_spent_and_no_more(kind, relation):
    budget = Budget(epsilon=2.0, delta=1e-6, relation=relation)
    ledger = Ledger(relation, budget)
    ledger.add(OTHERS[kind])
    gdp, epsilon = ledger.remaining()
    assert 0.0 < gdp < gdp_from_budget(2.0, 1e-6) and 0.0 < epsilon < 2.0
    whole = ComposedEvent((OTHERS[kind], GaussianEvent(gdp)))
    assert epsilon_of(whole, delta=1e-6, relation=relation) <= 2.0
    # Calibrating the next release to the remaining epsilon keeps the total inside.
    next_gdp = gdp_from_budget(epsilon, 1e-6)
    assert next_gdp == pytest.approx(gdp, rel=1e-6) and next_gdp <= gdp
    for factor, fits in ((1.0, True), (1.0 + 1e-5, False)):
        total = ComposedEvent((OTHERS[kind], GaussianEvent(next_gdp * factor)))
        found = epsilon_of(total, delta=1e-6, relation=relation)
        assert (found <= 2.0) == fits
    ledger.add(GaussianEvent(next_gdp))
    assert ledger.epsilon() <= 2.0
    assert ledger.remaining().gdp <= 2e-3


def test_what_remains_can_be_spent_down_to_the_last_digit():
    ledger = Ledger(budget=TOTAL)
    ledger.spend(GaussianEvent(gdp_from_budget(TOTAL.epsilon, TOTAL.delta)))
    while len(ledger.entries) < 9 and (gdp := ledger.remaining().gdp) > 0.0:
        ledger.spend(GaussianEvent(gdp))


def test_nothing_remains_of_an_exceeded_budget():
    ledger = Ledger(budget=BUDGET)
    ledger.add(PureEvent(3.0))
    assert ledger.remaining() == (0.0, 0.0)
    assert ledger.remaining(Budget(epsilon=9.0, delta=1e-6)).gdp > 0.0


def test_unproved_entries_make_epsilon_infinite():
    ledger = full()
    assert ledger.epsilon() < math.inf
    ledger.add(noisy_mean(event=None, calibration="paper"), "clipped")
    assert (ledger.epsilon(), ledger.delta(1.0)) == (math.inf, 1.0)
    assert ledger.remaining() == (0.0, 0.0)
    assert ledger.warnings[-1] == "5. clipped: unproved: epsilon is infinite"
    assert "infinite" in repr(ledger)


def test_warnings_name_the_entry_and_the_reason():
    ledger = full()
    ledger.add(calibrate(logistic_facts(), BUDGET).certificate)
    warnings = ledger.warnings
    assert len(warnings) == 5
    assert warnings[0].startswith("2. noisy mean: seeded")
    assert warnings[1].startswith("2. noisy mean: declared")
    assert "4. printed: not releasable: published constants" in warnings[2]
    assert "5. exponential mechanism, no sampler yet: not releasable" in warnings[4]
    clean = Ledger()
    clean.add(final())
    assert clean.warnings == ()


def test_what_its_author_declares_is_not_shown_as_proved():  # P4
    ledger = Ledger(budget=TOTAL)
    ledger.spend(noisy_mean())
    (line,) = (line for line in repr(ledger).splitlines() if line.startswith("1"))
    assert line.endswith("declared") and "proved" not in line
    assert "its author's word" in ledger.warnings[0]
    assert ledger.epsilon() > 0.0  # it counts with its event


def test_labels_cannot_command_a_terminal():  # F8
    ledger = Ledger(budget=TOTAL)
    label = "\x1b[2J\x1b]0;title\x07a\nb\u202e" + 99 * "x"
    ledger.add(noisy_mean(), label)
    assert all(line.isprintable() for line in repr(ledger).splitlines())
    assert all(map(str.isprintable, ledger.warnings))
    assert "\\x1b[2J" in repr(ledger)
    assert max(map(len, repr(ledger).splitlines())) < 140
    assert Ledger.from_json(ledger.to_json()).entries[0].label == label


def test_the_table_lists_entries_total_and_what_remains():
    lines = repr(full()).splitlines()
    assert lines[0] == "Ledger under replace_one, 4 releases"
    assert lines[2].split()[:4] == ["1", "slopes", "1", "proved"]
    assert "NOT a guarantee" in lines[3] and "as declared" in lines[4]
    assert lines[6].startswith("Total: epsilon = ") and "of 2 at" in lines[6]
    assert lines[7] == "Remaining: nothing."
    assert lines[8].startswith("Warning: 2. noisy mean: seeded")
    without = Ledger()
    without.add(PureEvent(0.1))
    assert "No budget" in repr(without)


def test_json_round_trip_keeps_certificates_and_totals():
    ledger = full()
    again = Ledger.from_json(ledger.to_json())
    assert again.to_json() == ledger.to_json()
    assert again.entries == ledger.entries and repr(again) == repr(ledger)
    assert (again.relation, again.budget) == (ledger.relation, ledger.budget)
    for entry in again.entries:
        if entry.relation is not None:
            assert verify(entry.item)
    plain = Ledger("zero_out")
    plain.add(OTHERS["near"], "x")
    assert Ledger.from_json(plain.to_json()).entries == plain.entries


def test_a_certificate_that_was_changed_is_no_entry():
    content = json.loads(full().to_json())
    (given, *_) = (e for e in content["entries"] if "event" in e.get("certificate", {}))
    given["certificate"]["epsilon_proved"] /= 2.0
    with pytest.raises(ValueError, match="was changed since it was written"):
        Ledger.from_json(json.dumps(content))


def test_other_relations_are_refused_with_a_remedy():
    ledger = Ledger()
    zeroed = noisy_mean(budget=ZERO_OUT)
    with pytest.raises(ValueError, match="item must be under 'replace_one'.*group_ev"):
        ledger.add(zeroed)
    ledger.add(group_event(zeroed.event, 2))
    assert ledger.entries[0].event == GaussianEvent(0.4)
    with pytest.raises(ValueError, match="item must be under 'zero_out'.*one ledger"):
        Ledger("zero_out").add(noisy_mean())
    with pytest.raises(ValueError, match="budget.relation must be 'replace_one'"):
        Ledger(budget=ZERO_OUT)
    with pytest.raises(ValueError, match="budget.relation must be 'replace_one'"):
        ledger.remaining(ZERO_OUT)


def edited(**changes):
    return json.dumps(json.loads(full().to_json()) | changes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Ledger("add_remove"), "relation must be one of"),
        (lambda: Ledger(budget=1.0), "budget must be a Budget or NoneType"),
        (lambda: Ledger().add(0.5), "item must be a Certificate or EventCertificate"),
        (lambda: Ledger().add(OTHERS["pure"], 3), "label must be a str, got 3"),
        (
            lambda: Ledger().epsilon(),
            "budget must be a Budget, of the ledger or .*None",
        ),
        (lambda: Ledger().delta(), "budget must be a Budget, of the ledger or .*None"),
        (
            lambda: Ledger().remaining(),
            "budget must be a Budget, of the ledger or .*None",
        ),
        (lambda: Ledger().epsilon(-0.1), "delta must be >= 0"),
        (lambda: Ledger().epsilon(math.nan), "delta must be >= 0"),
        (lambda: Ledger().delta(-1.0), "epsilon must be a finite number >= 0"),
        (lambda: Ledger.from_json(""), "text must be the JSON of a"),
        (lambda: Ledger.from_json(None), "text must be the JSON of a"),
        (lambda: Ledger.from_json(final().to_json()), "text must be the JSON of a"),
        (lambda: Ledger.from_json(edited(x=1)), "text must be a ledger with exactly"),
        (lambda: Ledger.from_json(edited(relation="x")), "relation must be one of"),
        (lambda: Ledger.from_json(edited(budget={"x": 1})), "budget must be a complet"),
        (lambda: Ledger.from_json(edited(budget={})), "budget must be a complet"),
        (lambda: Ledger.from_json(edited(entries=3)), "entries must be a list"),
        (lambda: Ledger.from_json(edited(entries=[3])), "entry must be a dict"),
        (
            lambda: Ledger.from_json(edited(entries=[{"label": ""}])),
            "entry must be a label with an event or a certificate",
        ),
        (
            lambda: Ledger.from_json(
                edited(entries=[{"label": "", "certificate": {"format": "x"}}])
            ),
            "format must be one of",
        ),
        (lambda: Ledger.from_json(edited(relation="zero_out")), "budget.relation must"),
    ],
)
def test_bad_input_is_refused_in_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_spending_stops_at_the_budget_and_leaves_no_trace():
    ledger = Ledger(budget=TOTAL)
    whole = final(budget=TOTAL)
    ledger.spend(whole, "all of it")
    with pytest.raises(ValueError, match="with room for this release"):
        ledger.spend(GaussianEvent(1e-3))
    assert [entry.label for entry in ledger.entries] == ["all of it"]
    unproved = noisy_mean(event=None, calibration="paper")
    with pytest.raises(ValueError, match="with room for this release"):
        Ledger(budget=TOTAL).spend(unproved)
    Ledger().spend(unproved)  # without a budget it is only recorded


def test_what_another_thread_spends_meanwhile_counts(monkeypatch):
    ledger = Ledger(budget=TOTAL)

    def interrupted(*args, **kwargs):
        monkeypatch.undo()
        ledger.spend(final(budget=TOTAL), "all of it")
        return delta_of(*args, **kwargs)

    monkeypatch.setattr("dpsample.privacy.certificates.ledger.delta_of", interrupted)
    with pytest.raises(ValueError, match="with room for this release"):
        ledger.spend(GaussianEvent(0.1))
    assert [entry.label for entry in ledger.entries] == ["all of it"]


def test_a_copy_that_another_process_spends_from_says_so(monkeypatch):
    copy = pickle.loads(pickle.dumps(Ledger(budget=TOTAL)))
    copy.spend(GaussianEvent(0.1))  # a copy of this process
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.warns(UserWarning, match="Use a LedgerFile for a budget that workers"):
        copy.spend(GaussianEvent(0.1))
    Ledger(budget=TOTAL).spend(GaussianEvent(0.1))  # its own


@pytest.mark.parametrize("epsilon", [700.0, 1e300])
def test_budgets_beyond_what_accounting_follows_can_be_spent(epsilon):
    ledger = Ledger(budget=Budget(epsilon=epsilon, delta=1e-6))
    ledger.spend(GaussianEvent(ledger.remaining().gdp))
    with pytest.raises(ValueError, match="with room for this release"):
        ledger.spend(GaussianEvent(1.0))
    assert 0.0 <= ledger.remaining().gdp < 1.0
    assert f"of {epsilon:g} at delta" in repr(ledger)


def test_a_ledger_file_is_kept_and_refuses_another_one(tmp_path):
    path = tmp_path / "spent.json"
    LedgerFile(path, budget=TOTAL).spend(noisy_mean(), "mean")
    path.write_text(path.read_text(), encoding="utf-8-sig", newline="\r\n")
    again = LedgerFile(path, budget=TOTAL)
    assert [entry.label for entry in again.read().entries] == ["mean"]
    for other in ({"budget": BUDGET}, {"budget": ZERO_OUT, "relation": "zero_out"}):
        with pytest.raises(ValueError, match="path must be a ledger"):
            LedgerFile(path, **other)
    path.write_text(Ledger().to_json())  # no budget is no limit
    with pytest.raises(ValueError, match="path must be a ledger"):
        again.spend(noisy_mean())
    refusal = r"path must be the file of a ledger, got .*spent"
    for damaged in (b"{}", b"\xff"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=refusal):
            again.spend(noisy_mean())
    path.unlink()
    with pytest.raises(FileNotFoundError):
        again.spend(noisy_mean())


def test_a_ledger_file_takes_no_entry_that_it_could_not_read_again(tmp_path):
    class Own(GaussianEvent):
        name = "own"

    deep = GaussianEvent(0.01)
    for _ in range(50):
        deep = ComposedEvent((deep,))
    ledger = LedgerFile(tmp_path / "spent.json", budget=TOTAL)
    for event in (deep, Own(0.01)):
        with pytest.raises(ValueError, match="must be"):
            ledger.spend(event)
    ledger.spend(deep.events[0], "as deep as may be")
    assert len(ledger.read().entries) == 1


@pytest.mark.skipif(os.name == "nt", reason="no modes")
def test_a_new_ledger_file_is_its_owners_only(tmp_path):  # P4
    path = tmp_path / "spent.json"
    ledger = LedgerFile(path, budget=TOTAL)
    ledger.spend(noisy_mean())
    for file in (path, tmp_path / "spent.json.lock"):
        assert file.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)  # its owner's wish
    ledger.spend(noisy_mean())
    assert path.stat().st_mode & 0o777 == 0o640


SPENDER = """
import os, signal, sys
from dpsample.privacy import Budget, GaussianEvent, LedgerFile
ledger = LedgerFile(sys.argv[1], budget=Budget(epsilon=2.0, delta=1e-6))
try:
    for _ in range(int(sys.argv[3])):
        ledger.spend(GaussianEvent(0.2))
        if sys.argv[2] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
except ValueError:
    pass
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
@pytest.mark.parametrize(
    ("ends", "turns"), [(("killed", "whole"), 6), slow(("whole", "killed", "whole"), 3)]
)
def test_processes_spend_one_budget_and_what_is_killed_has_spent(tmp_path, ends, turns):
    path = tmp_path / "spent.json"
    ledger = LedgerFile(path, budget=TOTAL)
    with ExitStack() as running:
        for end in ends:
            command = [sys.executable, "-c", SPENDER, str(path), end, str(turns)]
            running.enter_context(subprocess.Popen(command))
    # Five times 0.2 fit in the budget; seven were wanted.
    kept = ledger.read()
    assert len(kept.entries) == 5
    assert kept.remaining().gdp < 0.2


def test_verbs_enter_their_certificates_before_they_draw(tmp_path, monkeypatch):
    ledger = LedgerFile(tmp_path / "spent.json", budget=BUDGET)
    mechanism = gaussian_mechanism(BUDGET, sensitivity=1.0)

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(mechanism.noise), "_noisy", fail)
        mechanism.release([1.0], ledger=ledger)
    assert len(ledger.read().entries) == 1
    rows = np.eye(3)[[0, 1, 2] * 10]
    example = dps.Problem(
        rows,
        np.tile([1.0, -1.0], 15),
        row_bound=1.0,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
    )
    for verb in (
        lambda: mechanism.release([1.0], ledger=ledger),
        lambda: dps.release(example, BUDGET, ledger=ledger),
        lambda: dps.minimize(example, NoisyGD(num_steps=3), BUDGET, ledger=ledger),
    ):
        with pytest.raises(ValueError, match="with room for this release"):
            verb()
    open_ledger = Ledger()
    dps.release(example, BUDGET, ledger=open_ledger, seed=1)
    dps.minimize(example, NoisyGD(num_steps=3), BUDGET, ledger=open_ledger, seed=1)
    assert len(open_ledger.entries) == 2
    with pytest.raises(ValueError, match="budget must be"):
        dps.minimize(example, NoisyGD(num_steps=3), ledger=open_ledger, seed=1)


# Compositions that must fit (A1), exact sums (A2), empty ledgers (A3), no delta (A5).


def near(epsilon, delta):
    """A release's certificate, of a law that is near to a Gaussian one."""
    budget = Budget(epsilon=epsilon, delta=delta)
    return final(budget=budget, sampler_share=0.1)


@pytest.mark.parametrize("total", [1.0, 1.5, 3.0, 6.0, 10.0, 60.0, 599.0])
def test_a_larger_total_takes_what_a_smaller_one_takes(total):  # A1
    ledger = Ledger(budget=Budget(epsilon=total, delta=total * 1e-6))
    for _ in range(min(int(total), 4)):
        ledger.spend(near(1.0, 1e-6))
    assert ledger.epsilon() <= total and ledger.delta() <= total * 1e-6


def test_releases_fit_wherever_their_promises_add_up(tmp_path):  # A1
    for number in (2, 5):
        total = Budget(epsilon=number, delta=number * 1e-6)
        file = LedgerFile(tmp_path / f"{number}.json", budget=total)
        for _ in range(number):
            file.spend(near(1.0, 1e-6))
        assert file.read().remaining().gdp > 0.0
    ledger = Ledger(budget=Budget(epsilon=1.0, delta=2e-6))
    for epsilon in (0.3, 0.7):  # no multiples of a share of the total
        ledger.spend(ApproximateEvent(epsilon=epsilon, delta=1e-6))
    assert 0.999 < ledger.epsilon() <= 1.0 and 1.9e-6 < ledger.delta() <= 2e-6


SPLITS = [(0.3, 0.3, 0.4), (0.1,) * 10, (0.7, 0.2, 0.1), (0.6, 0.3, 0.1), (1 / 3,) * 3]


@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_budgets_that_add_up_to_the_total_fit_and_no_more(split, delta):  # A2, A5
    ledger = Ledger(budget=Budget(epsilon=1.0, delta=delta))
    for epsilon in split:
        mech = laplace_mechanism(Budget(epsilon=epsilon, delta=delta), sensitivity=1.0)
        mech.release([3.0], ledger=ledger)
    assert ledger.epsilon(0.0) <= 1.0 and ledger.delta(1.0) == 0.0
    assert sum(map(Fraction, map(repr, split))) <= 1
    if delta == 0.0 and split != SPLITS[-1]:
        assert ledger.remaining() == (0.0, 0.0)
        with pytest.raises(ValueError, match=r"epsilon = 1\.0000000\d+ at that delta"):
            ledger.spend(PureEvent(1e-8))


def test_every_split_into_decimals_fits():  # A2
    for total, parts in itertools.product(
        (1, 3), itertools.product(range(1, 9), repeat=2)
    ):
        rest = 10 * total - sum(parts)
        if rest < 0:
            continue
        ledger = Ledger(budget=Budget(epsilon=total, delta=1e-9))
        for tenths in (*parts, rest):
            ledger.spend(PureEvent(tenths / 10))
        assert ledger.delta() == 0.0


def test_a_used_up_ledger_prints_that_nothing_remains():  # A3
    for delta in (0.0, 1e-6):
        ledger = Ledger(budget=Budget(epsilon=1.0, delta=delta))
        for _ in range(2):
            ledger.spend(PureEvent(0.5))
        gdp, epsilon = ledger.remaining()
        assert epsilon == 0.0 and gdp < 1e-4  # delta alone may pay for a trace
        assert "Total: epsilon = 1 of 1" in repr(ledger)
        assert "Remaining: nothing." in repr(ledger)
    words = _describe_remaining(Remaining(1e-5, 0.0), Budget(epsilon=1.0, delta=1e-2))
    assert words == "no epsilon, and delta for one release of gdp = 1e-05"
    ledger = Ledger(budget=Budget(epsilon=1.0, delta=1e-6))
    ledger.add(ApproximateEvent(epsilon=1.0, delta=1e-6))
    assert ledger.remaining() == (0.0, 0.0) and "nothing" in repr(ledger)
    ledger = Ledger(budget=Budget(epsilon=5.0, delta=5e-6))
    for _ in range(5):
        ledger.spend(ApproximateEvent(epsilon=1.0, delta=1e-6))
    assert "Remaining: nothing." in repr(ledger)  # its gdp of 1e-10 is none


def test_a_pure_ledger_says_what_pure_releases_remain():  # A5
    ledger = Ledger(budget=Budget(epsilon=1.0, delta=0.0))
    ledger.spend(PureEvent(0.3))
    assert ledger.remaining() == (0.0, 0.7)
    ledger.spend(PureEvent(ledger.remaining().epsilon))
    with pytest.raises(ValueError, match="got a total of epsilon = infinity"):
        Ledger(budget=ledger.budget).spend(GaussianEvent(0.01))
    again = Ledger.from_json(ledger.to_json())
    assert again.budget.delta == 0.0 and again.epsilon() == 1.0
