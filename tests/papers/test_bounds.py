"""Published bounds as functions: values, verdicts, and what they refuse."""

import inspect
import json
import math

import numpy as np
import pytest

from dpsample import cli, papers
from dpsample.papers import verdicts
from dpsample.papers.bounds import FUNCTIONS
from studies._table1 import printed_bound as table_1

SIZES = {"n": 2000, "d": 7, "epsilon": 0.5, "delta": 1e-6}
LOG, HALF_LOG = math.log(1e6), math.log(0.5e6)
# Positive numbers for every symbol; some have ranges.
SYMBOLS = {
    **SIZES,
    "T": 10,
    "t": 3,
    "k": 3.0,
    "p": 1.5,
    "m": 100,
    "s": 5,
    "d_1": 6,
    "d_2": 4,
    "beta": 0.01,
    "zeta": 0.05,
    "failure": 0.05,
    "gamma": 0.01,
    "theta": 3.0,
    "Delta": 9.0,
    "epsilon_0": 0.3,
    "M": 64.0,
}
# Items that state no bound, or one that has no formula: verdicts of words, experiments,
# privacy of an algorithm, and noise.
WITHOUT = ("Algorithm", "Figure", "Table")
WORDS = {
    "bassily": {"Lemma 2.2", "Theorem 3.1", "Theorem 5.2", "Theorem 5.6"},
    "gopi": {
        *(f"Proposition {i}" for i in (1, 2, 3, 6, 7)),
        *(f"Lemma {i}" for i in (1, 2, 3, 4)),
        "Fact 1",
    },
    "su": {"Theorem 1", "Theorem 3", "Theorem 6", "Theorem 9", "Lemma 1"},
    "xie": {"Proposition 1"},
    "xu": {"Lemma 2", "Lemma 4"},
}


def value(paper, item, part="", **changes):
    bound = papers.bound(paper, item, part)
    known = {name: SYMBOLS.get(name, 1.0) for name in bound.symbols} | changes
    return bound(**known)


def test_every_item_with_a_formula_has_its_bounds_and_verdict():
    items = {(item.paper, item.item): item for item in verdicts.items()}
    bounded = {(b.paper, b.item) for b in papers.bounds()}
    assert {key[:2] for key in FUNCTIONS} == bounded and len(FUNCTIONS) >= 69
    for (paper, name), item in items.items():
        has_none = name.startswith(WITHOUT) or name in WORDS[paper]
        assert ((paper, name) in bounded) == (not has_none), (paper, name)
        calls = [b.call for b in papers.bounds(paper) if b.item == name]
        assert list(item.bounds) == calls
    for bound in papers.bounds():
        assert bound.verdict == items[bound.paper, bound.item].verdict
        assert ":math:" in bound.formula or "log" in bound.formula
        assert inspect.getdoc(bound.function).startswith("Return the bound of ")
        assert value(bound.paper, bound.item, bound.part) < math.inf


def test_hidden_constants_multiply_and_no_other_bound_has_one():
    hidden = [b for b in papers.bounds() if "c" in b.symbols]
    assert len(hidden) >= 25
    for b in hidden:
        once, twice = (value(b.paper, b.item, b.part, c=c) for c in (1.0, 2.0))
        assert twice == pytest.approx(2.0 * once, rel=1e-12)
    plain = [b for b in papers.bounds() if "c" not in b.symbols]
    assert not any("O(" in b.formula for b in plain)


@pytest.mark.parametrize("risk", ["empirical", "population"])
@pytest.mark.parametrize(
    ("item", "p", "part"),
    [
        ("Corollary 2", 1.5, {"empirical": "(7), ", "population": "(9), "}),
        ("Corollary 3", 1.0, {"empirical": "(10), ", "population": "(12), "}),
        ("Corollary 4", 4.0, {"empirical": "(13), ", "population": "(15), "}),
    ],
)
def test_corollaries_are_those_of_the_studies(item, p, part, risk):
    params = {"p": p, "n": 2000, "risk": risk}
    private = {"epsilon": 0.5, "delta": 1e-6}
    expected = table_1(params, dim=7, width=7, **private)
    changes = {} if p == 1.0 else {"p": p}
    found = value("gopi", item, part[risk] + risk, D=2.0, **changes)
    assert found == pytest.approx(expected, rel=1e-12)
    matrix = table_1(params, dim=24, width=4, **private)
    found = value("gopi", "Corollary 5", risk, D=2.0, p=p)
    assert found == pytest.approx(matrix, rel=1e-12)


RATE = math.sqrt(7 * LOG) / 1000.0
MOMENT = 2000**-0.5 + RATE ** (2.0 / 3.0)
EXPECTED = {
    ("bassily", "Theorem 3.2", ""): 640.0 * max(RATE, 2000**-0.5),
    ("bassily", "Theorem 5.3", ""): 128.0 * math.sqrt(1e-3 + 4.0 * RATE**2),
    ("bassily", "Lemma 3.3", ""): 204.8 + 0.5 * (160.0 * RATE**2 + 1.0),
    ("gopi", "Theorem 3", ""): math.sqrt(56.0 * HALF_LOG) / 1000.0,
    ("gopi", "Theorem 6", ""): (1.0 + 14.0 * HALF_LOG / 500.0) / 2000.0,
    ("gopi", "Proposition 9", ""): 7 ** (1 / 3) * math.log(14e6) ** 2,
    ("su", "Theorem 2", ""): math.sqrt(LOG) / 1000.0 + 2000**-0.5,
    ("su", "Theorem 7", ""): RATE**0.4,
    ("su", "Theorem 10", ""): 64 * (7 * LOG) ** 0.25 / 1000**0.5 * math.log(20.0),
    ("xie", "Corollary 2", ""): 10**-0.5
    + 1.5 * (LOG * 10) ** 0.25 * (math.log(20.0) / 1000.0) ** 0.5,
    ("xu", "Theorem 6", ""): MOMENT,
    ("xu", "Theorem 7", ""): MOMENT**1.5,
    ("xu", "Lemma 1", "gap"): 1.0,
    ("xu", "Lemma 7", "bias"): 0.5,
}


@pytest.mark.parametrize("key", EXPECTED)
def test_values_are_those_of_the_formula(key):
    assert value(*key) == pytest.approx(EXPECTED[key], rel=1e-12)


def test_bounds_agree_where_the_papers_say_so():
    two = {"p": 2.0, "D": 3.0}
    lp = value("gopi", "Corollary 2", "(7), empirical", **two)
    assert lp == pytest.approx(value("gopi", "Theorem 3", Theta=4.5))
    assert lp == pytest.approx(value("gopi", "Corollary 4", "(13), empirical", **two))
    assert value("gopi", "Theorem 1", "empirical") == value("gopi", "Theorem 3")
    nine = value("gopi", "Proposition 9", p=2.0)
    assert nine == pytest.approx(value("gopi", "Proposition 8"))
    smooth = value("bassily", "Theorem 3.2")
    assert value("bassily", "Theorem 4.4") == pytest.approx(2.4 * smooth)
    # Theorem 2 has one logarithm more than Theorem 3, and both fall as theta does.
    assert value("xu", "Theorem 2") > value("xu", "Theorem 3")
    steep = np.diff([value("xu", "Theorem 7", theta=t) for t in (1.5, 2.0, 3.0, 9.0)])
    assert (steep > 0.0).all()


def test_what_a_bound_does_not_take_is_refused():
    risk = papers.bound("gopi", "Theorem 3")
    known = {**SIZES, "G": 1.0, "Theta": 1.0}
    assert risk(**known) > 0.0
    for change, word in (
        ({"delta": 0.5}, "delta must be"),
        ({"n": 0}, "n must be"),
        ({"G": math.nan}, "G must be"),
        ({"L": 1.0}, "symbol must be one of"),
    ):
        with pytest.raises(ValueError, match=word):
            risk(**known | change)
    del known["G"]
    with pytest.raises(ValueError, match="G must be given"):
        risk(**known)
    for key in (("gopi", "Theorem 9"), ("gopi", "Corollary 2"), ("nobody", "Lemma 1")):
        with pytest.raises(ValueError, match="must be one of"):
            papers.bound(*key)


def test_the_command_names_the_bounds(capsys):
    assert cli.main(["papers", "--paper", "su", "--json"]) == 0
    rows = {row["item"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["Theorem 7"]["bounds"] == [papers.bound("su", "Theorem 7").call]
    assert rows["Algorithm 3"]["bounds"] == []
