"""``dpsample stat``: statistics of a file, saved, verified, entered and refused."""

import json

import pytest

import dpsample as dps
from dpsample import cli
from dpsample.privacy import Ledger
from tests.support.tiers import one_in

KINDS = {
    "count": ("--column", "returned", "--value", "yes"),
    "histogram": ("--column", "ward"),
    "edges": ("--column", "age", "--edges", "0,40,110"),
    "sum": ("--column", "cost"),
    "mean": ("--column", "age"),
    "quantile": ("--column", "age", "--level", "0.9"),
    "group-means": ("--column", "age", "--by", "ward"),
}
BOUNDS = """
[numeric]
age = [0, 110]

[log]
cost = [0, 1000]

[categorical]
ward = ["north", "south", "unknown"]
returned = ["no", "yes"]

[missing]
ward = "unknown"
"""


@pytest.fixture
def folder(tmp_path):
    rows = ["age,cost,ward,returned"]
    for i in range(60):
        ward = ("north", "south", "")[i % 3]
        rows.append(f"{20 + i},{10 * i},{ward},{('no', 'yes')[i % 2]}")
    (tmp_path / "p.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "b.toml").write_text(BOUNDS)
    return tmp_path


def run(folder, kind, *more, epsilon="50"):
    name = "histogram" if kind == "edges" else kind
    bounds = ("--bounds", str(folder / "b.toml"), "--epsilon", epsilon)
    return cli.main(["stat", str(folder / "p.csv"), name, *bounds, *more])


@one_in(4)
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_are_saved_and_verified_by_both_checkers(kind, folder, capsys):
    file = folder / "s.json"
    assert run(folder, kind, *KINDS[kind], "--output", str(file)) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "(pure)" in out and "releases of the same records add up" in out
    value = json.loads(file.read_text())["value"]
    expected = {
        "count": 30,
        "histogram": {"north": 20, "south": 20, "unknown": 20},
        "edges": {"[0.0, 40.0)": 20, "[40.0, 110.0]": 40},
        "sum": 17_700.0,
        "mean": 49.5,
        "quantile": 74.0,
        "group-means": {"north": 48.5, "south": 49.5, "unknown": 50.5},
    }
    assert value == pytest.approx(expected[kind], abs=700.0 if kind == "sum" else 8.0)
    for checker in ("standard", "ball"):
        assert cli.main(["verify", str(file), "--checker", checker]) == 0
        assert "May be published" in capsys.readouterr().out
    assert cli.main(["certificate", str(file), "--html", str(folder / "s.html")]) == 0
    page = (folder / "s.html").read_text()
    assert "differentially private (pure)" in page and "What was released" in page
    content = json.loads(file.read_text()) | {"totals": [1]}
    file.write_text(json.dumps(content))
    assert cli.main(["verify", str(file)]) == 1


def test_without_an_output_the_values_are_shown(folder, capsys):
    assert run(folder, "group-means", "--column", "age", "--by", "ward") == 0
    out = capsys.readouterr().out
    assert "Private statistic" in out and "north" in out and "count" in out
    assert run(folder, "count", "--column", "ward", "--value", "north") == 0
    assert "Private statistic" in capsys.readouterr().out


def test_a_full_ledger_refuses_the_second_statistic(folder, capsys):
    file, answer = folder / "spent.json", folder / "s.json"
    total = ("--ledger", str(file), "--ledger-epsilon", "50", "--ledger-delta", "0")
    assert run(folder, "mean", "--column", "age", *total) == 0
    more = ("--ledger", str(file), "--output", str(answer))
    assert run(folder, "mean", "--column", "age", *more, epsilon="1") == 2
    assert "with room for this release" in capsys.readouterr().err
    assert not answer.exists()
    assert len(Ledger.from_json(file.read_text()).entries) == 1


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("variance", ("--column", "age"), "STATISTIC must be"),
        ("mean", ("--column", "ward"), "declared with its range"),
        ("mean", ("--column", "absent"), "column 'absent' must be one of the file"),
        ("histogram", ("--column", "age"), "declared with its levels"),
        ("histogram", ("--column", "age", "--edges", "a,b"), "--edges must be numbers"),
        ("count", ("--column", "ward"), "--value must be given"),
        ("count", ("--column", "ward", "--value", "west"), "--value must be a public"),
        ("group-means", ("--column", "age"), "--by must be given"),
        ("mean", ("--column", "age", "--by", "ward"), "--by must be used with"),
        ("quantile", ("--column", "age", "--level", "2"), "level must be"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_spent(
    kind, more, words, folder, capsys
):
    ledger = folder / "spent.json"
    total = ("--ledger", str(ledger), "--ledger-epsilon", "99", "--ledger-delta", "0")
    assert run(folder, kind, *more, *total) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not ledger.exists()


def test_a_missing_entry_without_a_rule_is_an_error(folder, capsys):
    (folder / "b.toml").write_text(BOUNDS.split("[missing]")[0])
    assert run(folder, "histogram", "--column", "ward") == 2
    assert "must be complete" in " ".join(capsys.readouterr().err.split())


def test_the_saved_statistic_is_the_one_of_python(folder):
    file = folder / "s.json"
    assert (
        run(folder, "mean", "--column", "age", "--seed", "7", "--output", str(file))
        == 0
    )
    made = dps.Statistic.load(file)
    ages = [20.0 + i for i in range(60)]
    budget = dps.Budget(epsilon=50.0, delta=0.0)
    same = dps.stats.mean(ages, (0.0, 110.0), budget, seed=7)
    assert made.totals == same.totals and made.digest == same.digest
