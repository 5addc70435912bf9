"""The site: code blocks run, public names have a page, links lead somewhere."""

import contextlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
import typer

import dpsample as dps
from dpsample import cli
from dpsample.cli.commands import app
from dpsample.core.public import public_modules
from tests.support.project_files import CSV_TUTORIAL, PROJECT, ROOT, shown_to_users
from tests.support.tiers import one_in, slow

# README.md and CONTRIBUTING.md have tests of their own; CHANGELOG.md has no code.
PAGES = [ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += [ROOT / name / "README.md" for name in ("benchmarks", "notebooks", "studies")]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Pages that draw, or compile losses of their own, for many seconds.
LONG = {"audits", "audit-a-claim", "diagnostics", "diagnose-a-sampler", "estimators"}
LONG |= {"first-private-model", "large-records", "many-draws", "own-domain"}
LONG |= {"own-regularizer", "constrained-parameters", "flux-space", "tune-privately"}
LONG |= {"choose-a-sampler"}
# Pages about a model of another library, which may be missing.
LIBRARIES = {"jax-function": "jax", "pymc-model": "pymc", "stan-model": "bridgestan"}
PROGRAMS = set(". asv cd dask export git jupyter jupytext pip python".split())
PROGRAMS.add("peers/bin/pip")


def blocks(page, *languages):
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [text for language, text in found if language in languages]


def lines(page):
    """Commands for the shell, as words."""
    text = "".join(blocks(page, "sh"))
    for line in re.split(r"\n|&&", text.strip()):
        if words := shlex.split(line, comments=True):
            yield words


@pytest.fixture
def folder(made, tmp_path):
    """The same for one page alone, which may write files of its own."""
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the files of a tutorial, and the answer that its command makes."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "patients.csv").write_text(blocks(CSV_TUTORIAL, "csv")[0])
    (folder / "bounds.toml").write_text(blocks(CSV_TUTORIAL, "toml")[0])
    (folder / "new.csv").write_text("ward,cost,age\nsouth,700,66\n")
    with contextlib.chdir(folder):
        assert cli.main(shlex.split(blocks(CSV_TUTORIAL, "sh")[0])[1:]) == 0
    return folder


# A page that fits releasable models may not be the first of this process to do so.
@one_in(2)
@pytest.mark.filterwarnings("ignore:This process has fitted:UserWarning")
@shown_to_users
@pytest.mark.parametrize(
    "page",
    [slow(p) if p.stem in LONG else p for p in PAGES if blocks(p, "python")],
    ids=lambda page: page.stem,
)
def test_python_blocks_run_from_their_page_alone(page, folder, monkeypatch):
    if page.stem in LIBRARIES:
        pytest.importorskip(LIBRARIES[page.stem], reason="an extra is not installed")
    if page.stem == "stan-model" and "BRIDGESTAN" not in os.environ:
        pytest.skip("BRIDGESTAN does not name a folder with the sources of BridgeStan")
    monkeypatch.chdir(folder)
    names = {}
    for code in blocks(page, "python"):
        exec(compile(code, page.name, "exec"), names)


def check_line(words):
    """Parse our commands; of others, files and extras must exist."""
    group, rest = typer.main.get_command(app), words[1:]
    if words[0] == "dpsample":
        while hasattr(group, "resolve_command"):
            _, group, rest = group.resolve_command(typer.Context(group), rest)
        group.make_context(words[0], list(rest))
        return
    assert words[0] in PROGRAMS, words
    for word in words:
        for extra in re.findall(r"^\.\[(.*?)\]", word):
            assert set(extra.split(",")) <= set(PROJECT["optional-dependencies"])
        if word.endswith((".py", ".txt")):
            assert (ROOT / word).is_file(), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_lines_for_the_shell_are_understood_and_run_on_the_answer(
    page, folder, monkeypatch
):
    monkeypatch.chdir(folder)
    assert not blocks(page, ""), "a block of code says in which language it is"
    for words in lines(page):
        check_line(words)
        if words[0] == "dpsample" and "answer.json" in words:
            # The files of the page before are there.
            more = ["--overwrite"] * ("--output" in words or "--html" in words)
            assert cli.main([*words[1:], *more]) == 0


def test_a_command_that_does_not_exist_is_found():
    for line in ("dpsample relase x.csv", "dpsample verify x --chekcer ball"):
        with pytest.raises(Exception, match=r"No such (command|option)"):
            check_line(line.split())
    with pytest.raises(AssertionError):
        check_line(["python", "benchmarks/nothing.py"])


class Links(HTMLParser):
    """Targets of links and pictures of a page, and its anchors."""

    def __init__(self, file):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given.get("id"), given.get("name")}
        self.targets += [given[key] for key in ("href", "src") if given.get(key)]


def broken(site):
    """Links within the site to files or anchors that are not there."""
    files = (file for file in site.rglob("*.html") if "_static" not in file.parts)
    pages = {file: Links(file) for file in files}
    for file, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            place = (file.parent / (unquote(parts.path) or file.name)).resolve()
            anchor = unquote(parts.fragment)
            is_there = place.exists()
            if is_there and anchor and place in pages:
                is_there = anchor in pages[place].anchors
            if not is_there:
                yield f"{file.relative_to(site)}: {target}"


def inventory(site):
    """Names that the API reference documents."""
    content = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {line.split()[0] for line in zlib.decompress(content).decode().splitlines()}


def without_page(documented):
    """Public names that are documented under none of the names that they have."""
    offered = [
        (f"{module}.{name}", getattr(importlib.import_module(module), name))
        for module in public_modules(dps)
        for name in importlib.import_module(module).__all__
    ]
    known = {id(value) for path, value in offered if path in documented}
    return [path for path, value in offered if id(value) not in known]


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_is_whole(tmp_path):
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    site = tmp_path / "site"
    options = ["-q", "-W", "--keep-going", "-d", str(tmp_path / "trees"), "-c", "docs"]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(site)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert list(broken(site)) == []
    assert without_page(inventory(site)) == []
    assert len(without_page(set())) > 200


def test_broken_links_are_found(tmp_path):
    text = '<p id="here"><a href="b.html#there"><a href="#here"><img src="z.png">'
    (tmp_path / "a.html").write_text(text)
    (tmp_path / "b.html").write_text('<p id="elsewhere">')
    assert list(broken(tmp_path)) == ["a.html: b.html#there", "a.html: z.png"]


# Characters that fit beside the navigation on a laptop. Words in a cell are not broken.
MAX_TABLE_WIDTH = 105
GENERATED = {"papers.md", "causes.md", "errata.md"}


def wide_tables(text):
    """Return first lines of tables that cannot be made as narrow as a laptop."""
    text = re.sub(r"\]\([^)]*\)", "]", text).replace(r"\|", "/")
    for table in re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE):
        rows = [line.strip("| ").split("|") for line in table.strip().splitlines()]
        cells = [row for row in rows if not set("".join(row)) <= set("-: ")]
        widths = [
            max(len(word) for cell in column for word in [*cell.split(), ""])
            for column in zip(*cells, strict=False)
        ]
        if sum(widths) + 3 * len(widths) > MAX_TABLE_WIDTH:
            yield table.splitlines()[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_fit_on_a_laptop(page):
    if page.name not in GENERATED:
        assert list(wide_tables(page.read_text("utf-8"))) == []


def test_a_wide_table_is_found():
    word = "a_name_of_a_test_that_is_far_too_long_for_one_column_of_a_table"
    row = f"| {word} | x | {word} |"
    assert list(wide_tables(f"| a | b | c |\n|---|---|---|\n{row}\n")) == [
        "| a | b | c |"
    ]
    assert list(wide_tables("| a | b |\n|---|---|\n| two words | [x](long) |\n")) == []


def test_every_page_of_results_says_how_it_was_made():
    readme = (ROOT / "studies" / "README.md").read_text("utf-8")
    _, _, table = readme.partition("## Where the results come from")
    pages = sorted((ROOT / "studies" / "results").glob("*.md"))
    assert len(pages) > 30
    for page in pages:
        pattern = r"Cells took ([\d.]+) s of work\..*?\"processor\": \"(\w+)\""
        seconds, processor = re.search(pattern, page.read_text("utf-8")).groups()
        row = re.search(rf"^\| \[{page.stem}\]\(results/.*", table, re.MULTILINE)[0]
        cells = row.strip("| ").split(" | ")
        assert cells[3:] == [processor, f"{float(seconds):,.0f}"], page.stem
        assert re.fullmatch(r"[0-9a-f]{8}, \d{4}-\d\d-\d\d", cells[1])
        assert re.fullmatch(r"[0-9a-f]{8}|not recorded", cells[2])
