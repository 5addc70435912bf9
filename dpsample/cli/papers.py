"""``dpsample errata`` and ``dpsample papers``: what is claimed of five papers."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from dpsample.cli import screen
from dpsample.core import check
from dpsample.experiments import papers
from dpsample.privacy.printed import PAPERS


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
        _print_tables(("code", "where", "kind", "what is true"), rows)


def print_items(*, markdown: bool = False) -> None:
    """Print the verdicts on all items."""
    if markdown:
        print("\n".join(papers.items_page()))
        return
    rows = [(x.paper, (x.item, x.about, x.verdict, x.why)) for x in papers.items()]
    _print_tables(("item", "about", "verdict", "how"), rows)


def _print_tables(
    head: tuple[str, ...], rows: Sequence[tuple[str, tuple[str, ...]]]
) -> None:
    console = screen.console()
    for key, title in PAPERS.items():
        table = Table(*head, title=title, title_justify="left")
        for paper, cells in rows:
            if paper == key:
                table.add_row(*(Text(cell) for cell in cells))
        console.print(table)
