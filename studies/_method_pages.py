"""Tables of the pages on methods, from the rows of the study which_method.

``python -m studies._method_pages`` writes them below the marks of docs/which-method.md
and docs/faq.md.
"""

from itertools import pairwise
from pathlib import Path

import pandas as pd

from . import _public_records as records
from . import which_method

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "which-method.md"
QUESTIONS = ROOT / "docs" / "faq.md"
# Ends of the intervals of n epsilon/d in the table of the questions.
SIZES = (0.0, 30.0, 100.0, 300.0, 1000.0, float("inf"))


def verdict_frame(path=ROOT / "studies" / "results" / "which_method.csv"):
    """Return a row for each complete cell."""
    return pd.DataFrame(which_method.verdicts(path))


def lines_of(header, rows):
    """Return a table in Markdown."""
    rule = "|".join(["---"] * len(header))
    cells = [" | ".join(str(entry) for entry in row) for row in (header, *rows)]
    return "\n".join([f"| {cells[0]} |", f"|{rule}|", *(f"| {c} |" for c in cells[1:])])


def describe(frame):
    """Return cells, cells that are not lost, worst ratio, cells below a public answer.

    The ratio is over cells in which the excess is not within two standard errors of the
    best one's.
    """
    # From this level on an answer should not be worse than a public one.
    is_high = frame.epsilon >= 0.3
    worse = int((frame["worse than public"] & is_high).sum())
    lost = frame[frame.lost]
    worst = f"{lost.ratio.max():.2f}" if len(lost) else "none lost"
    return len(frame), int((~frame.lost).sum()), worst, f"{worse} of {is_high.sum()}"


def by_loss(frame):
    """Return a table with a line for each loss, number of records and relation."""
    rows = []
    keys = ["loss", "n", "relation"]
    for (loss, n, relation), part in frame.groupby(keys, sort=False):
        words = "replaced" if relation == "replace_one" else "zeroed"
        rows.append((loss, f"{n:,}", words, *describe(part)))
    for use in ("develop", "confirm"):
        part = frame[frame.use == use]
        if len(part):
            rows.append((f"all, {use}", "", "", *describe(part)))
    rows.append(("**all**", "", "", *describe(frame)))
    head = "loss", "n", "a record is", "cells", "best or near", "worst ratio"
    return lines_of((*head, "worse than 0 or a constant"), rows)


def by_method(frame):
    """Return a table of the advised methods, with the cells that they win and lose."""
    rows = []
    for advised, part in frame.groupby("advised", sort=False):
        lost = part[part.lost]
        winners = lost.groupby("best").size().sort_values(ascending=False)
        to = ", ".join(f"{name} {count}" for name, count in winners.items())
        losses = ", ".join(part.loss.unique())
        low, high = part.epsilon.min(), part.epsilon.max()
        rows.append(
            (
                advised,
                f"{losses}, ε = {low:g} to {high:g}",
                len(part),
                int((part.best == advised).sum()),
                int((~part.lost).sum()),
                to or "none",
            )
        )
    head = "method", "advised for", "cells", "best", "best or near", "lost to"
    return lines_of(head, rows)


def gains(frame):
    """Return for each cell n epsilon/d and the share of the possible gain that is kept.

    The gain is that of the best coefficients over the best constant prediction, in mean
    loss. With a hinge loss the constant itself can be the best, so it is left out.
    """
    part = frame[frame.loss != "hinge"]
    dims = [
        records.facts_of(row.records, records.LOSSES[row.loss], int(row.n)).dim
        for row in part.itertuples()
    ]
    shares = 1.0 - part.excess / part.constant
    return pd.DataFrame({"size": part.n * part.epsilon / dims, "share": shares})


def by_size(frame):
    """Return a table of the kept gain by n epsilon/d."""
    gain = gains(frame)
    rows = []
    for low, high in pairwise(SIZES):
        share = gain.share[(gain["size"] > low) & (gain["size"] <= high)]
        words = f"up to {high:g}" if low == 0.0 else f"{low:g} to {high:,.0f}"
        above = f"more than {low:,.0f}" if high == SIZES[-1] else words
        low_quartile, median = share.quantile([0.25, 0.5])
        better = int((share > 0.0).sum())
        middle = f"{100 * median:.0f}%", f"{100 * low_quartile:.0f}%"
        cells = above, len(share), *middle, f"{better} of {len(share)}"
        rows.append(tuple(str(cell).replace("-", "−") for cell in cells))
    head = "n ε/d", "settings", "median gain kept", "three of four are above"
    return lines_of((*head, "better than a constant"), rows)


def fill_tables(text, frame, tables=(("by loss", by_loss), ("by method", by_method))):
    """Return a page with its tables made of the rows."""
    for name, make in tables:
        mark = f"<!-- {name}: rows of which_method -->\n\n"
        before, after = text.split(mark)
        _, _, rest = after.partition("\n\n")
        text = f"{before}{mark}{make(frame)}\n\n{rest}"
    return text


if __name__ == "__main__":
    verdicts = verdict_frame()
    PAGE.write_text(fill_tables(PAGE.read_text("utf-8"), verdicts), "utf-8")
    filled = fill_tables(
        QUESTIONS.read_text("utf-8"), verdicts, (("by size", by_size),)
    )
    QUESTIONS.write_text(filled, "utf-8")
    print(by_loss(verdicts), by_method(verdicts), by_size(verdicts), sep="\n\n")
