"""``dpsample claims``: what it prints."""

import json

import pytest

from dpsample import cli
from dpsample import papers as printed


@pytest.mark.slow
def test_the_command_prints_tables_markdown_and_json(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["claims", "--paper", "gopi"]) == 0
    out = capsys.readouterr().out
    assert "Gopi et al. (2022)" in out and "1.57" in out and "fails" in out
    assert cli.main(["claims", "--paper", "gopi", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("## Gopi") and lines[3].count("|") == 9
    assert sum(line.startswith("| Theorems") for line in lines) == 9
    assert cli.main(["claims", "--paper", "gopi", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content == [row.to_dict() for row in printed.claims("gopi")]


def test_the_command_refuses_two_formats_and_unknown_papers(capsys):
    assert cli.main(["claims", "--markdown", "--json"]) == 2
    assert "json must be False with markdown" in capsys.readouterr().err
    assert cli.main(["claims", "--paper", "7"]) == 2
    assert "paper must be one of" in capsys.readouterr().err
