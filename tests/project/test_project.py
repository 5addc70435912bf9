"""What README, package metadata and continuous integration promise holds."""

import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import dpsample
from dpsample import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_versions_agree():
    assert PROJECT["version"] == dpsample.__version__


def test_readme_begins_with_two_commands_of_one_line():
    first = blocks("sh")[0].strip().splitlines()
    assert len(first) == 2
    assert README.index(first[0]) < README.index("## ")
    for command in first:
        assert command.startswith("python3 -m venv ")
        for extra in re.search(r"\.\[(.*?)\]", command).group(1).split(","):
            assert extra in PROJECT["optional-dependencies"]
    assert "dpsample demo" in first[0]
    assert "pytest" in first[1]


def test_the_demo_needs_no_more_than_the_first_command_installs():
    plots = PROJECT["optional-dependencies"]["plots"]
    assert any(name.startswith("matplotlib") for name in plots)


def test_the_readme_examples_run_one_after_the_other(capsys):
    names = {}
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), names)
    out = capsys.readouterr().out
    statement = " ".join(blocks("text")[0].split())
    assert statement in " ".join(out.split())


def test_the_readme_commands_run_on_the_files_it_shows(tmp_path, monkeypatch, capsys):
    (tmp_path / "patients.csv").write_text(blocks("csv")[0])
    (tmp_path / "bounds.toml").write_text(blocks("toml")[0])
    monkeypatch.chdir(tmp_path)
    for command, words in zip(
        blocks("sh")[1:], ("(1, 1e-06)-DP", "NOT PRIVATE"), strict=True
    ):
        program, *arguments = shlex.split(command)
        assert program == "dpsample"
        assert cli.main(arguments) == 0
        assert words in capsys.readouterr().out
    assert (tmp_path / "draws.nc").is_file()
    answer = dpsample.Release.load("answer.json")
    names = ("age", "cost", "ward=north", "ward=south", "ward=unknown", "intercept")
    assert answer.feature_names == names


def test_links_of_the_readme_exist():
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / link).is_file(), link


def test_files_that_are_installed_exist():
    package = Path(dpsample.__file__).parent
    assert (package / "py.typed").is_file()
    assert (package / "datasets" / "catalog.toml").is_file()
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert "## " in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("name", dpsample.__all__)
def test_every_public_name_resolves(name):
    assert getattr(dpsample, name) is not None


def test_ci_is_executable_and_installs_what_the_readme_says():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "-e '.[test,dev]'" in script.read_text()
