"""The registry: codes and tests exist, items are complete, pages are current."""

import json
import operator
import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

import dpsample
from dpsample import cli
from dpsample.papers import PAPERS
from dpsample.papers import verdicts as papers

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"\b(?:GLLST-E|BFTT-|gradient-E|privacy-)\d+\w*")
TEXTS = ("*.md", "dpsample/**/*.py", "dpsample/**/*.toml", "tests/**/*.py")
TEXTS = (*TEXTS, "studies/**/*.py", "studies/**/*.md", "docs/*.md", "notebooks/**/*.py")
NUMBERED = {
    "bassily": {
        "Algorithm": (1, 2, 3),
        "Lemma": (2.2, 3.3, 3.4, 4.3, 5.4, 5.5),
        "Theorem": (3.1, 3.2, 4.4, 5.2, 5.3, 5.6, 5.7, 5.8),
        "Fact": (4.6,),
        "Appendix": ("C",),
    },
    "gopi": {
        "Theorem": range(1, 7),
        "Corollary": range(1, 6),
        "Proposition": range(1, 10),
        "Lemma": range(1, 6),
        "Fact": (1, 2),
        "Table": (1,),
    },
    "su": {
        "Algorithm": range(1, 5),
        "Theorem": range(1, 11),
        "Lemma": range(1, 5),
        "Table": (1, 2),
    },
    "xie": {
        "Algorithm": range(1, 5),
        "Proposition": (1,),
        "Theorem": (1, 2, 3),
        "Corollary": (1, 2),
        "Figure": range(1, 5),
        "Table": (1,),
    },
    "xu": {
        "Algorithm": range(1, 8),
        "Theorem": range(1, 12),
        "Lemma": range(1, 8),
        "Figure": range(1, 7),
        "Table": (1,),
    },
}


def is_there(test):
    """Whether a file of tests, or one function of it, exists."""
    file, _, name = test.partition("::")
    path = ROOT / file
    return path.is_file() and (not name or f"\ndef {name}(" in path.read_text("utf-8"))


def test_entries_are_complete_and_their_tests_exist():
    entries = papers.errata()
    codes = [code for entry in entries for code in (entry.id, *entry.also)]
    assert len(entries) >= 45 and len(set(codes)) == len(codes)
    for entry in entries:
        assert entry.paper in PAPERS and entry.kind in {
            *papers.vocabulary(),
            "conservative",
            "remark",
        }
        assert is_there(entry.test), entry.test
        if entry.affected:
            source = (ROOT / entry.test.partition("::")[0]).read_text("utf-8")
            assert re.search(rf'recompute\(\s*"{entry.id}"', source), entry.id
        if entry.kind == "conservative":
            assert all(case.true_epsilon <= case.epsilon for case in entry.affected)
        if entry.command:
            assert entry.command == f"dpsample claims --paper {entry.paper}"
    assert not is_there("tests/errata/test_gopi.py::test_nothing")


def test_every_code_that_is_cited_resolves():
    known = {code for entry in papers.errata() for code in (entry.id, *entry.also)}
    cited = Counter(
        code
        for pattern in TEXTS
        for path in ROOT.glob(pattern)
        if path != Path(__file__)  # which cites one that there is not
        for code in CODE.findall(path.read_text("utf-8"))
    )
    assert set(cited) <= known, set(cited) - known
    assert not known & set(CODE.findall("gradient-E99 and BFTT-2e"))
    assert len(cited) > 30


@pytest.mark.parametrize("paper", PAPERS)
def test_every_numbered_item_has_one_verdict(paper):
    found = [entry.item for entry in papers.items() if entry.paper == paper]
    wanted = [f"{kind} {n}" for kind, ns in NUMBERED[paper].items() for n in ns]
    assert sorted(found) == sorted(wanted)


def test_verdicts_rest_on_studies_tests_and_errata_that_exist():
    codes = {entry.id for entry in papers.errata()}
    for entry in papers.items():
        assert entry.verdict in papers.vocabulary()
        assert entry.by and entry.quote and entry.place, entry
        for name in entry.by:
            is_study = (ROOT / "studies" / f"{name}.py").is_file()
            assert name in codes or is_study or is_there(name), name
        for name in entry.runs:
            assert resolves(name), name
    totals = Counter(entry.verdict for entry in papers.items())
    print(dict(totals))
    assert totals["not decided"] <= 8
    assert not resolves("optimizers.Nothing")


def resolves(name):
    """Whether a name below the package exists."""
    try:
        operator.attrgetter(name)(dpsample)
    except AttributeError:
        return False
    return True


def test_items_inherit_the_verdict_of_their_cause_and_no_other():
    """One defect, one verdict: plain verdicts have no cause, all others have one."""
    causes = {cause.id: cause for cause in papers.causes()}
    own = ("holds as printed", "not decided", "holds up to a stated constant")
    used = Counter(entry.cause for entry in papers.items() if entry.cause)
    assert set(used) == set(causes) and 15 <= len(causes) <= 30
    for entry in papers.items():
        if entry.cause:
            cause = causes[entry.cause]
            assert entry.verdict == cause.verdict and entry.true.endswith(cause.true)
        else:
            assert entry.verdict in own, entry
    assert set(papers.vocabulary()) == set(get_args(papers.Verdict))


def test_kinds_of_errata_agree_with_the_verdicts_of_their_causes():
    """The first erratum of a cause is the main one; figures have remarks only."""
    errata = {entry.id: entry for entry in papers.errata()}
    for cause in papers.causes():
        kinds = [errata[code].kind for code in cause.errata]
        if cause.verdict == "not reproduced":
            assert set(kinds) <= {"remark", "misprint"}
        else:
            assert kinds[0] == cause.verdict, cause.id
        assert all(is_there(name) for name in cause.tests), cause.tests
    # A statement that is true, more than needed or misprinted rests on no false one.
    strong = {"false as printed", "needs a stated assumption"}
    for entry in papers.items():
        kinds = {errata[code].kind for code in entry.by if code in errata}
        if entry.verdict in strong:
            assert entry.verdict in kinds, entry


def test_figures_and_existence_statements_are_never_called_false():
    for entry in papers.items():
        if entry.item.startswith("Figure"):
            assert entry.verdict == "not reproduced"
        if "There is an" in entry.quote or entry.cause.startswith("existence"):
            assert entry.verdict == "printed proof has a gap"


@pytest.mark.parametrize(
    ("command", "page"),
    [
        ("errata", "errata.md"),
        ("papers", "papers.md"),
        ("papers --causes", "causes.md"),
    ],
)
def test_pages_are_current(command, page, capsys):
    assert cli.main([*command.split(), "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert printed == (ROOT / "docs" / page).read_text("utf-8")


def test_the_commands_print_one_and_all(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert cli.main(["errata", "privacy-9"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("gradient-E15 = privacy-9: Xu et al.")
    assert "at least 79665" in out and "tests/errata/test_xu.py::" in out
    assert cli.main(["errata"]) == 0
    assert "GLLST-E1" in capsys.readouterr().out
    assert cli.main(["papers"]) == 0
    out = capsys.readouterr().out
    assert "not decided" in out and "machine transcriptions" in out
    assert cli.main(["papers", "--paper", "xu", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["paper"] for row in rows} == {"xu"} and len(rows) == 32
    (lnc,) = [row for row in rows if row["item"] == "Algorithm 3"]
    assert lnc["runs"] == ["optimizers.LocalizedClippedGD"]
    assert lnc["verdict"] == "needs a stated assumption" and lnc["quote"]
    assert cli.main(["papers", "--causes"]) == 0
    assert "few-large-batches" in capsys.readouterr().out
    assert cli.main(["papers", "--causes", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(papers.causes())
    for wrong in (["--json", "--markdown"], ["--paper", "xu", "--causes"]):
        assert cli.main(["papers", *wrong]) == 2
        assert "must be" in capsys.readouterr().err
    assert cli.main(["errata", "GLLST-E99"]) == 2
    assert "code must be one of" in capsys.readouterr().err
    assert cli.main(["errata", "BFTT-1", "--markdown"]) == 2
    assert "markdown must be False with a code" in capsys.readouterr().err
