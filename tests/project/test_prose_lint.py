"""The lint of the project's English finds what it is meant to find."""

import json

import pytest

from tests.support.project_files import ROOT

PROSE = {
    "house-word": "The draw follows this law whatever the seed.",
    "but-except": "Every entry but the last is positive and finite.",
    "what-noun": "The sum includes the error of what rounding leaves in it.",
    "causal-for": "The step is short, for the bound is small.",
    "is-no": "The sum is no bound of the error.",
    "pronoun-chain": "The noise is larger than that of the descent.",
    "animate-thing": "The descent forgets its first iterates.",
    "of-opening": "Else the smaller of two bounds is used.",
    "semicolon": "The first part is exact; the second is rounded.",
    "colon-glue": "The sum is exact: the terms are integers.",
    "decimal": "The rate is at most .05 for all of them.",
    "digit-space": "There are 20 000 records in the file.",
    "long-sentence": " ".join(["The", *["word"] * 36, "ends"]) + ".",
    "fragment-comment": "of the first part, before the noise",
}
CODE = {
    "fragment-docstring": 'def count():\n    """What the count is."""\n',
    "empty-name": "def count(found):\n    return found\n",
    "house-name": "def draw_of_law():\n    return 0\n",
    "bare-participle": "def counted():\n    return 0\n",
    "class-word": "class RowRoom:\n    pass\n",
    "tuple-constants": "FIRST, SECOND = 0.5, 0.25\n",
    "flag-in-array": "control[IS_DONE] = 1.0\n",
    "numbered-scratch": "first = state.scratch[0]\n",
    "module-constant": "RATE = 0.5\n",
    "domain-isinstance": "is_ball = isinstance(domain, Ball)\n",
    "nested-ternary": "y = 1 if a else 2 if b else 3\n",
    "long-function": "def count():\n" + "    a = 1\n" * 61,
    "many-positional": "def count(a, b, c, d, e, f):\n    return a\n",
    "long-file": "a = 1\n" * 601,
    "few-comments": "a = 1\n" * 150,
}
CLEAN = '''"""Count records."""


def count_records(rows):
    """Return the number of rows, because each row is a record."""
    # An empty file has one row without entries.
    return len(rows)
'''


@pytest.fixture
def lint(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import prose_lint

    return prose_lint


def find(lint, folder, source):
    (folder / "module.py").write_text(source)
    report = lint.check_repository(folder)
    return {rule for rule, findings in report.findings.items() if findings}


@pytest.mark.parametrize("rule", PROSE)
def test_sentences_that_break_a_rule_are_found(lint, tmp_path, rule):
    assert find(lint, tmp_path, f"# {PROSE[rule]}\n") == {rule}


@pytest.mark.parametrize("rule", CODE)
def test_code_that_breaks_a_rule_is_found(lint, tmp_path, rule):
    assert rule in find(lint, tmp_path, CODE[rule])


def test_every_rule_has_an_example_and_clean_code_passes(lint, tmp_path):
    assert PROSE.keys() | CODE.keys() == lint.rules.RULES.keys()
    assert find(lint, tmp_path, CLEAN) == set()


def test_ceilings_are_only_lowered(lint, tmp_path, capsys):
    ceilings = tmp_path / "ceilings.json"

    def status(source, *, write=False):
        (tmp_path / "module.py").write_text(source)
        report = lint.check_repository(tmp_path)
        return lint.check_ratchet(report, ceilings, write=write)

    two, one = "A = 1\nB = 2\n", "A = 1\n"
    assert status(two, write=True) == 0
    assert status(one, write=True) == 0
    assert json.loads(ceilings.read_text())["module-constant"] == 1
    assert status(two) == 1
    assert "module-constant: 2 findings, at most 1 allowed." in capsys.readouterr().out
    assert status(two, write=True) == 1
    assert json.loads(ceilings.read_text())["module-constant"] == 1
