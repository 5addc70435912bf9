"""Commands ``dpsample claims``, ``errata`` and ``papers``, about five papers."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from dpsample.cli import screen
from dpsample.cli.screen import Side
from dpsample.core import check
from dpsample.papers import PAPERS, Claim, claims
from dpsample.papers import verdicts as papers
from dpsample.running import progress

HEAD = (
    "where",
    "setting",
    "held against",
    "relation",
    "claimed",
    "true epsilon",
    "noise needed",
    "verdict",
)
SIDES: tuple[Side, ...] = (*("left",) * 4, *("right",) * 3, "left")
LEGEND = (
    "true epsilon: at the claimed delta; <= a proved bound that need not be attained, "
    ">= attained by the named pair",
    "noise needed: to meet the claim, in units of the published noise, or none if "
    "10,000 times as much is not enough",
)


def run(paper: str | None, *, markdown: bool = False, as_json: bool = False) -> None:
    """Compute the table, with progress on stderr, and print it on stdout."""
    if markdown and as_json:
        check.fail("json", "False with markdown", True, "Choose one format.")
    if paper is not None:
        check.one_of(tuple(PAPERS), paper=paper)
    with progress.line() as paint:
        rows = claims(
            paper, progress=lambda done, total: paint(f"claims: {done} of {total}")
        )
    if as_json:
        print(json.dumps([row.to_dict() for row in rows], indent=1))
    elif markdown:
        print("\n".join(markdown_lines(rows)))
    else:
        _print_words(HEAD, [(row.paper, cells(row)) for row in rows], SIDES)
        for note in LEGEND:
            screen.console().print(note)


def markdown_lines(rows: Sequence[Claim]) -> list[str]:
    """Return the tables as lines of Markdown."""
    lines = []
    for key, title in PAPERS.items():
        paper_rows = [row for row in rows if row.paper == key]
        if not paper_rows:
            continue
        rule = tuple("---:" if side == "right" else "---" for side in SIDES)
        body = [HEAD, rule, *(cells(row) for row in paper_rows)]
        lines += [f"## {title}", ""]
        lines += [f"| {' | '.join(line)} |" for line in body]
        lines.append("")
        lines += [
            f"- {row.place}: {row.formula}"
            for row in {(row.place, row.formula): row for row in paper_rows}.values()
        ]
        lines.append("")
    return [*lines, *(f"- {line}" for line in LEGEND)]


def cells(row: Claim) -> tuple[str, ...]:
    """Return one line of the table as texts."""
    true = "unknown"
    if row.true_epsilon is not None:
        signs = {"exact": "", "upper bound": "<= ", "attack": ">= "}
        true = f"{signs[row.meaning]}{row.true_epsilon:.3g}"
    # A formula that fails without a factor needs more than any factor that is tried.
    needed = "none" if row.verdict == "fails" else "unknown"
    if row.noise_factor is not None:
        needed = f"x {row.noise_factor:.3g}"
    claimed = f"({row.epsilon:g}, {row.delta:g})"
    location = (row.place, row.setting, row.accounting, row.relation)
    return (*location, claimed, true, needed, row.verdict)


def print_errata(code: str | None, *, markdown: bool = False) -> None:
    """Print one erratum, or all of them."""
    if code is not None and markdown:
        check.fail("markdown", "False with a code", True, "One page has all errata.")
    if markdown:
        print("\n".join(papers.errata_page()))
    elif code is not None:
        entry = papers.erratum(code)
        print("\n".join([f"{entry.head}: {PAPERS[entry.paper]}", *entry.lines()]))
    else:
        rows = [(x.paper, (x.id, x.place, x.kind, x.true)) for x in papers.errata()]
        head = ("code", "where", "kind", "what is true")
        _print_words(head, rows, sentences=("where", "what is true"))


def print_items(
    paper: str | None = None,
    *,
    markdown: bool = False,
    as_json: bool = False,
    causes: bool = False,
) -> None:
    """Print the verdicts on all items or those of one paper, or the causes."""
    if markdown and as_json:
        check.fail("json", "False with markdown", True, "Choose one format.")
    if paper is not None and (markdown or causes):
        remedy = "Pages and causes are about all papers."
        check.fail("paper", "None with markdown or causes", paper, remedy)
    rows = papers.items(paper)
    if as_json:
        chosen = papers.causes() if causes else rows
        print(json.dumps([asdict(row) for row in chosen], indent=1))
    elif markdown:
        print("\n".join(papers.causes_page() if causes else papers.items_page()))
    elif causes:
        _print_causes()
    else:
        head = ("item", "about", "class", "verdict", "cause")
        texts = [
            (x.paper, (x.item, x.about, _classes(x), x.verdict, x.cause)) for x in rows
        ]
        _print_words(head, texts, ("left",) * 5, sentences=("about",))
    if not (as_json or markdown):
        screen.console().print(papers.transcriptions())


def _classes(item: papers.Item) -> str:
    """Return the names that run an item, without their modules."""
    return ", ".join(name.rpartition(".")[2] for name in item.runs)


def _print_causes() -> None:
    """Print a table of the causes."""
    head = ("cause", "verdict", "what stays true")
    rows = [(x.id, x.verdict, x.true) for x in papers.causes()]
    screen.print_table("Causes", head, rows, ("left",) * 3, sentences=head[2:])


def _print_words(
    head: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str]]],
    sides: Sequence[Side] = ("left",) * 4,
    *,
    sentences: Sequence[str] = (),
) -> None:
    """Print a table for each paper that has rows."""
    for key, title in PAPERS.items():
        paper_rows = [cells for paper, cells in rows if paper == key]
        if paper_rows:
            screen.print_table(title, head, paper_rows, sides, sentences=sentences)
