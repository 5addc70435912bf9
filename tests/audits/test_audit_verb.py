"""The verb `audit`: reports, reproducibility, and errors at the door."""

import json
import math

import matplotlib
import numpy as np
import pytest

import dpsample as dps
from dpsample import domains, losses
from dpsample.audits import neighbors
from dpsample.privacy.accounting.events import GaussianEvent, PoissonGaussianEvent

matplotlib.use("Agg")

BUDGET = dps.Budget(epsilon=1.0, delta=1e-3)


def release(value, rng, num_draws):
    return value + rng.standard_normal(num_draws)


def quick(value=0.0, neighbor=1.0, mechanism=release, **options):
    options = {"num_draws": 4000, "seed": 1, "progress": False, **options}
    return dps.audit(mechanism, value, neighbor, BUDGET, **options)


def exponential_pair(dim=2, relation="replace_one"):
    facts = dps.PublicFacts(
        num_records=20,
        dim=dim,
        loss=losses.Linear(),
        domain=domains.Ball(1.0),
        row_bound=1.0,
        row_norm=2.0,
    )
    budget = dps.Budget(epsilon=1.0, delta=1e-3, relation=relation)
    return dps.calibrate(facts, budget), neighbors.worst_case(facts, relation)


def test_a_report_says_what_was_tested_and_what_was_found():
    report = quick(0.0, 3.0)
    text = repr(report)
    for words in (
        "the algorithm release",
        "(1, 0.001)-DP under replace_one",
        "4000 draws of each law",
        "REFUTED",
    ):
        assert words in " ".join(text.split())
    assert report.verdict.startswith("REFUTED: epsilon >= ")


def test_a_claim_that_stands_is_not_called_proved():
    report = quick(0.0, 0.0)
    assert not report.is_refuted and report.reasons == ()
    assert "proves nothing" in repr(report)
    assert report.epsilon_lower == report.gdp_lower == report.delta_lower == 0.0


def test_reports_travel_as_json():
    found = json.loads(json.dumps(quick(0.0, 2.0).to_dict()))
    assert found["is_refuted"] and found["budget"]["relation"] == "replace_one"
    curve = found["curve"]
    assert set(curve) == {"epsilons", "delta_lower", "delta_estimate", "claimed"}
    assert 1.0 in curve["epsilons"] and len(set(map(len, curve.values()))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("neighbor", [0.0, 3.0])
def test_the_plot_shows_the_claim_and_the_bound(neighbor):
    import matplotlib.pyplot as plt

    report = quick(0.0, neighbor)
    axes = report.plot()
    assert axes.get_yscale() == "log"
    assert axes.get_title() == ("refuted" if neighbor else "not refuted")
    assert report.plot(ax=axes) is axes
    axes.figure.canvas.draw()
    plt.close("all")


@pytest.mark.parametrize("options", [{}, {"score": lambda rows: rows[:, 0]}])
def test_threads_change_nothing_and_seeds_do(options):
    one = quick(threads=1, **options).to_dict()
    assert one == quick(threads=3, **options).to_dict()
    assert one != quick(seed=2, **options).to_dict()
    assert quick(seed=None, **options).to_dict() != one


def test_threads_change_no_audit_of_an_exponential_mechanism():
    mech, pair = exponential_pair()
    reports = [
        dps.audit(
            mech, *pair, BUDGET, num_draws=3000, seed=4, threads=n, progress=False
        )
        for n in (1, 3)
    ]
    assert reports[0].to_dict() == reports[1].to_dict()
    assert "Exact() made independent exact draws" in reports[0].notes[0]


def test_a_known_log_ratio_is_trusted_and_gives_the_exact_curve():
    report = quick(log_ratio=lambda rows: rows[:, 0] - 0.5, num_draws=200_000)
    true = dps.privacy.gaussian_delta(1.0, 1.0)
    i = list(report.curve.epsilons).index(1.0)
    assert report.curve.delta_estimate[i] == pytest.approx(true, rel=0.03)
    assert 0.95 * true < report.delta_lower < true


def test_data_may_be_anything_and_outputs_may_have_any_shape():
    def matrix(data, rng, num_draws):
        return data["shift"] + rng.standard_normal((num_draws, 2, 3))

    assert quick({"shift": 0.0}, {"shift": 2.0}, mechanism=matrix).is_refuted


def test_outputs_may_have_any_size():
    def signs(data, rng, num_draws):
        return np.where(rng.random(num_draws) < data, 1e308, -1e308)

    assert quick(0.1, 0.9, mechanism=signs).is_refuted


def test_an_odd_number_of_draws_loses_one():
    assert quick(num_draws=4001).num_draws == 4000


def test_the_gdp_that_is_claimed_can_be_given():
    assert quick(gdp=0.3).gdp_claimed == 0.3
    assert quick(gdp=0.3).is_refuted
    assert any("gdp" in reason for reason in quick(gdp=0.3).reasons)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_draws": 99}, "num_draws must be an integer >= 100"),
        ({"num_draws": 1e5}, "num_draws must be an integer"),
        ({"alpha": 0.0}, "alpha must be > 0 and < 1"),
        ({"alpha": math.nan}, "alpha must be"),
        ({"threads": 0}, "threads must be an integer >= 1"),
        ({"seed": -1}, "seed must be an integer >= 0"),
        ({"progress": 1}, "progress must be a bool"),
        ({"gdp": -1.0}, "gdp must be a finite number >= 0"),
        ({"gdp": math.inf}, "gdp must be a finite number >= 0"),
        ({"mechanism": 3}, "mechanism must be a calibrated mechanism or a function"),
        ({"score": 3}, "score must be a function of rows"),
        ({"log_ratio": "x"}, "log_ratio must be a function of rows"),
        (
            {"log_ratio": lambda rows: rows[:, 0], "score": lambda rows: rows[:, 0]},
            "score must be None where log_ratio is given",
        ),
        ({"score": lambda rows: rows}, r"scores must be of shape \(125,\)"),
        ({"score": lambda rows: rows[:, 0] * np.nan}, "scores must be numbers"),
        (
            {"mechanism": lambda data, rng, count: np.zeros(count + 1)},
            r"mechanism must be a function that returns outputs of shape \(125, ...\)",
        ),
        (
            {"mechanism": lambda data, rng, count: np.full(count, np.inf)},
            "mechanism must be a function of finite outputs",
        ),
        ({"mechanism": lambda data, rng, count: 1.0}, "got shape"),
    ],
)
def test_errors_name_the_argument(options, message):
    with pytest.raises(ValueError, match=message):
        quick(**options)


def test_budgets_samplers_and_problems_are_checked():
    mech, pair = exponential_pair()
    options = {"num_draws": 200, "progress": False}
    with pytest.raises(ValueError, match="budget must be a Budget"):
        dps.audit(mech, *pair, 1.0, **options)
    with pytest.raises(ValueError, match="problem must be a Problem"):
        dps.audit(mech, 0.0, 1.0, BUDGET, **options)
    with pytest.raises(ValueError, match="problem must be the one that was calibrated"):
        dps.audit(mech, *exponential_pair(dim=3)[1], BUDGET, **options)
    with pytest.raises(ValueError, match="different from problem in exactly one"):
        dps.audit(mech, pair[0], pair[0], BUDGET, **options)
    with pytest.raises(ValueError, match="one record's loss set to zero"):
        zeroed = dps.Budget(epsilon=1.0, delta=1e-3, relation="zero_out")
        dps.audit(mech, *pair, zeroed, **options)
    with pytest.raises(ValueError, match="sampler must be a Sampler"):
        dps.audit(mech, *pair, BUDGET, sampler="exact", **options)
    with pytest.raises(ValueError, match="score must be None for a mechanism of dps"):
        dps.audit(mech, *pair, BUDGET, score=lambda rows: rows[:, 0], **options)


def test_the_whole_curve_of_an_event_is_tested():
    # 2-GDP, where the event says 1-GDP.
    event = PoissonGaussianEvent(sampling_rate=1.0, noise_multiplier=2.0, num_steps=1)
    options = {"num_draws": 2000, "seed": 1, "progress": False}
    wide = dps.Budget(epsilon=3.0, delta=0.05)
    assert not dps.audit(release, 0.0, 2.0, wide, **options).is_refuted
    report = dps.audit(release, 0.0, 2.0, wide, event=event, **options)
    assert report.is_refuted and report.epsilon_lower < wide.epsilon
    assert "where the claim implies" in report.verdict
    assert "PoissonGaussianEvent(sampling_rate=1.0" in repr(report)
    assert json.loads(json.dumps(report.to_dict()))["event"] == event.to_dict()
    assert not dps.audit(release, 0.0, 1.0, wide, event=event, **options).is_refuted


def test_a_true_event_is_not_refuted():
    wide = dps.Budget(epsilon=5.0, delta=0.05)
    options = {"num_draws": 20_000, "seed": 1, "progress": False}
    event = GaussianEvent(1.0)
    assert not dps.audit(release, 0.0, 1.0, wide, event=event, **options).is_refuted


def test_events_are_checked():
    with pytest.raises(ValueError, match="event must be a"):
        quick(event=1.0)


def test_progress_is_shown_in_a_terminal(monkeypatch, capsys):
    from dpsample.running import progress

    shown = []

    class Screen:
        def show(self, words):
            shown.append(words)

        def clear(self):
            shown.append("")

    monkeypatch.setattr(progress, "is_shown", lambda: True)
    monkeypatch.setattr(progress, "_Terminal", Screen)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    quick(progress=True)
    assert shown[-2:] == ["audit: 100% of the draws", ""]
    shown.clear()
    quick(progress=False)
    assert shown == [] and capsys.readouterr() == ("", "")
