"""What README, package metadata and continuous integration promise holds."""

import importlib
import os
import re
import shlex
from pathlib import Path

import pytest
import yaml

import dpsample
from benchmarks import house
from dpsample import cli
from tests.support.project_files import (
    CSV_TUTORIAL,
    HOUSE,
    PROJECT,
    README,
    ROOT,
    blocks,
    shown_to_users,
)
from tools import set_version


def test_the_version_stands_in_one_line_and_one_command_changes_it(tmp_path):
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT
    assert set(set_version.versions(ROOT).values()) == {dpsample.__version__}
    for name in (*set_version.lines(), "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    set_version.write(tmp_path, "9.8.7")
    assert set(set_version.versions(tmp_path).values()) == {"9.8.7"}
    changes = (tmp_path / "CHANGELOG.md").read_text("utf-8")
    assert "\n## 9.8.7\n" in changes and "\n## Unreleased\n" not in changes
    with pytest.raises(SystemExit, match="must be like"):
        set_version.write(tmp_path, "one")


def test_the_first_section_of_the_readme_has_two_commands_of_one_line():
    title, text = re.findall(
        r"^## (.*?)\n(.*?)(?=^## )", README, re.MULTILINE | re.DOTALL
    )[0]
    assert title == "Install and test"
    first = blocks("sh", text)[0].strip().splitlines()
    assert len(first) == 2
    for command in first:
        assert command.startswith("python3 -m venv ")
        for extras in re.findall(r"\.\[(.*?)\]", command):
            assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert "dpsample demo" in first[0]
    assert "pytest" in first[1]


def missing_parts(shown, out):
    """Return parts of a shown output, separated by [...], that an output lacks."""
    out = " ".join(out.split())
    parts = (" ".join(part.split()) for part in shown.split("[...]"))
    return [part for part in parts if part not in out]


@shown_to_users
def test_the_example_of_the_readme_runs_and_prints_what_it_shows(capsys):
    pytest.importorskip("sklearn", reason="an extra is not installed")
    (code,) = blocks("python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out
    for shown in blocks("text"):
        assert missing_parts(shown, out) == []
        assert missing_parts(shown.replace("27.2", "27.1"), out) != []


@shown_to_users
def test_commands_of_the_tutorial_run_on_the_files_it_shows(
    tmp_path, monkeypatch, capsys
):
    tutorial = CSV_TUTORIAL.read_text("utf-8")
    (tmp_path / "patients.csv").write_text(blocks("csv", tutorial)[0])
    (tmp_path / "bounds.toml").write_text(blocks("toml", tutorial)[0])
    monkeypatch.chdir(tmp_path)
    many_draws = (ROOT / "docs" / "how-to" / "many-draws.md").read_text("utf-8")
    for command, words in (
        (blocks("sh", tutorial)[0], "epsilon = 1, delta = 1e-6"),
        (blocks("sh", many_draws)[0], "NOT PRIVATE"),
    ):
        program, *arguments = shlex.split(command)
        assert program == "dpsample"
        assert cli.main(arguments) == 0
        assert words in capsys.readouterr().out
    assert (tmp_path / "draws.nc").is_file()
    answer = dpsample.Fit.load("answer.json")
    names = ("age", "cost", "ward=north", "ward=south", "ward=unknown", "intercept")
    assert answer.feature_names == names


PAGES = sorted(
    page
    for pattern in (
        "*.md",
        "docs/**/*.md",
        *(f"{name}/*.md" for name in ("studies", "notebooks", "benchmarks")),
    )
    for page in ROOT.glob(pattern)
)
PROGRAMS = sorted(
    program
    for folder in ("dpsample", "tests", "studies", "notebooks", "benchmarks")
    for program in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_exist(page):
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text("utf-8")):
        assert (page.parent / link).exists(), link


def resolves(path):
    """Whether a dotted path is a module, or something in one."""
    parts = path.split(".")
    for k in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:k]))
        except ImportError:
            continue
        for part in parts[k:]:
            value = getattr(value, part, None)
        return value is not None
    return False


def mentioned(text):
    """Dotted paths of this package, also in words and in programs within strings."""
    text = re.sub(r"^```\w+ \S+\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for path in re.findall(r"\b(?:dps|dpsample)(?:\.[A-Za-z_]\w*)+", text):
        yield re.sub(r"^dps\b", "dpsample", path)
    imports = r"\bfrom (dpsample[\w.]*) import (\([^)]*\)|[^\n;\"'\\]*)"
    for module, names in re.findall(imports, text):
        for name in re.findall(r"\w+", re.sub(r"\bas \w+|#.*", "", names)):
            yield f"{module}.{name}"


def test_every_name_of_the_package_that_is_mentioned_exists():
    this = Path(__file__).parent
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    files = pages + [file for file in PROGRAMS if file.parent != this]
    unknown = {
        f"{file.relative_to(ROOT)}: {path}"
        for file in files
        for path in set(mentioned(file.read_text("utf-8")))
        if not resolves(path)
    }
    assert not unknown, unknown
    assert "dpsample.attic" in mentioned("`from dpsample import attic`")
    assert not resolves("dpsample.attic")


def test_citation_and_metadata_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == dpsample.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]
    assert f"\n## {dpsample.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_hooks_of_a_commit_are_those_of_the_environment():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [repo["repo"] for repo in hooks["repos"]] == ["local"]
    assert {hook["language"] for hook in hooks["repos"][0]["hooks"]} == {"system"}


def test_files_that_are_installed_exist():
    package = Path(dpsample.__file__).parent
    assert (package / "py.typed").is_file()
    assert (package / "datasets" / "catalog.toml").is_file()
    for name in ("causes.toml", "errata.toml", "papers.toml"):
        assert (package / "papers" / name).is_file()
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert "## " in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("name", dpsample.__all__)
def test_every_public_name_resolves(name):
    assert getattr(dpsample, name) is not None


def test_the_house_stays_one_to_live_in():
    measured, _ = house.measures(ROOT / "dpsample")
    too_much = {n: measured[n] for n, most in HOUSE.items() if measured[n] > most}
    assert too_much == {}


def test_what_makes_the_house_worse_is_counted(tmp_path):
    for room in ("first", "second", "third"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").touch()
        (tmp_path / room / "plan.py").write_text(
            "\nArray = Any\nclass Plan:\n    def run(self, *given: Any) -> Any: ...\n"
        )
    measured, vague = house.measures(tmp_path)
    assert measured == {
        "top-level modules": 0,
        "top-level folders": 3,
        "files": 6,
        "lines": 12,
        "classes of one name": ["Plan"],
        "basenames used three times": ["plan"],
        "definitions of Array": 3,
        "Any in signatures": 6,
    }
    assert vague[0][1:] == (4, "run")


def test_ci_is_executable_and_installs_what_the_readme_says():
    for name in ("run", "nightly", "matrix", "extras", "packages"):
        assert os.access(ROOT / ".ci" / name, os.X_OK)
    assert "-e '.[test,dev,docs]'" in (ROOT / ".ci" / "run").read_text()


def misplaced_privacy_fixes(changelog):
    """Return entries that call themselves privacy fixes outside *Security*."""
    elsewhere = re.sub(r"### Security\n.*?(?=\n##|\Z)", "", changelog, flags=re.DOTALL)
    return re.findall(r"^- \**(?:Privacy|Security)\b.*", elsewhere, flags=re.MULTILINE)


def test_privacy_fixes_stand_where_the_security_policy_promises_them():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert misplaced_privacy_fixes(changelog) == []
    assert "under *Security*" in (ROOT / "SECURITY.md").read_text("utf-8")
    security = changelog.partition("### Security")[2].partition("\n## ")[0]
    assert "`gaussian_delta` could be" in security and "`shuffle_delta`" in security
    entry = "### Fixed\n\n- **Privacy: more noise**\n"
    planted = changelog.replace("### Fixed\n", entry)
    assert len(misplaced_privacy_fixes(planted)) == 1


# A helper of two test modules is in tests/support, or in a conftest.py or a module of
# another name in their folder. Programs that tests run in a process count as well.
IMPORT_OF_TEST = re.compile(
    r"\bfrom (?:tests\.|\.)[\w.]*\btest_\w+ import|\bfrom test_\w+ import"
    r"|\bfrom tests\.\w+ import [^\n]*\btest_|\bimport tests\.[\w.]*\btest_"
)


def test_no_test_module_is_imported_from_another():
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for match in IMPORT_OF_TEST.finditer(path.read_text())
        if path != Path(__file__)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "from tests.api.test_release import problem",
        "    from .test_release import problem",
        "from test_release import problem",
        "from tests.api import support, test_release",
        "import tests.api.test_release",
    ],
)
def test_an_import_from_a_test_module_is_found(line):
    assert IMPORT_OF_TEST.search(line)
