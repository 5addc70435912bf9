"""Page about a certificate for readers who are not experts: one HTML file.

`document` writes the whole page and `summary` the short form for notebooks. The other
functions return sections of the page as `Html`, in the order in which they stand on it.

The page is complete in itself. It has no script, font or picture from elsewhere, and
the file to verify is inside, as a link with its content. Only the private answer on it
depends on the records. What the publisher states about the release is shown as such,
and is not part of the certificate.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.markup import Html, describe, table, tag
from dpsample.core.public import __version__
from dpsample.privacy.accounting.accounting import LARGEST_EPSILON, delta_of
from dpsample.privacy.accounting.attack_risk import AttackRisk
from dpsample.privacy.certificates.json_form import round_up
from dpsample.privacy.certificates.overview import (
    COLUMNS,
    Overview,
    State,
    as_text,
    overview,
    shorten_number,
)
from dpsample.privacy.certificates.registry import registry
from dpsample.privacy.certificates.sealed import Sealed

# Maximum number of coefficients in the first table, which shows the largest ones. With
# so many the page still prints on one sheet.
MAX_BARS = 12
# Information about a single record in the answer, by the level of protection.
PROTECTION = {
    "high": "so that the results say very little about any single record",
    "limited": "which limits what the results say about any single record",
    "weak": "but so little of it that the results may say much about a single record",
    "none": "but the results may say nearly everything about a single record",
}
# Blue that has a contrast of at least 3 to white and to the background of notebooks
# with a dark theme.
BAR_COLOR = "#1a73c8"
SEAL = {"yes": "✔", "weak": "⚠", "no": "✘"}
# Style sheet of the page, for screens and for one printed sheet of A4.
STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 1rem/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 58rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
bdi, code, .details td { overflow-wrap: anywhere; }
h1 { font-size: 1.8rem; margin: .3rem 0; }
h2 { font-size: 1.2rem; margin: 1.4rem 0 .4rem; }
h1, h2 { line-height: 1.2; } p { margin: .4rem 0; }
a { color: #0b4f8a; }
.state { border: 2px solid; border-left-width: .6rem; padding: .5rem .8rem;
  font-weight: 600; }
.yes { color: #14532d; } .no, .weak { color: #8a1c1c; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem .9rem;
  margin: .5rem 0; } dt { font-weight: 600; } dd { margin: 0; min-width: 0; }
.blank { border-bottom: 1px solid #767676; min-height: 1.3em; }
.pair { display: flex; flex-wrap: wrap; gap: 0 1.6rem; }
.pair > * { flex: 1 1 24rem; min-width: 0; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .4rem;
  border-bottom: 1px solid #c4c4c4; }
th { font-weight: 600; } thead th { border-bottom: 2px solid #1a1a1a; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; } th.name { min-width: 8.5em; }
figure { margin: .6rem 0; } figcaption, .note { color: #444; font-size: .92rem; }
svg { width: 100%; height: auto; } .chart { max-width: 27rem; display: block; }
.bar { width: 16%; } .bar svg { height: 1rem; vertical-align: middle; }
.details th { width: 8.5rem; } .details td { white-space: pre-line; }
ol, ul { margin: .4rem 0; padding-left: 1.5rem; } li { margin: .25rem 0; }
.box { font-size: 1.1em; }
code { font: .95em ui-monospace, monospace; background: #f1f1f1; padding: .1em .3em; }
summary { cursor: pointer; font-weight: 600; padding: .4rem 0; }
footer { margin-top: 1.5rem; border-top: 1px solid #c4c4c4; color: #444; }
@media (max-width: 30rem) { th, td { padding: .25rem .2rem; font-size: .92rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
  .details th { width: 6rem; } .bar { width: 12%; }
  th.name { min-width: 6.5em; } .pair > * { flex-basis: 100%; } }
@page { size: A4; margin: 8mm 11mm; }
@media print {
  body { max-width: none; font-size: 7.3pt; line-height: 1.2; padding: 0; }
  h1 { font-size: 12pt; margin: 0; } h2 { font-size: 9pt; margin: 4pt 0 1pt; }
  p, dl, ol, ul, table, figure { margin: 2pt 0; } li { margin: .5pt 0; }
  th, td { padding: 1pt 3pt; } .state { padding: 2pt 5pt; } dl { gap: 1pt 6pt; }
  .publisher { grid-template-columns: max-content 1fr max-content 1fr; }
  .chart { max-width: 5.4cm; } figcaption, .note { font-size: 1em; }
  .pair > * { flex-basis: 7cm; } .pair { gap: 0 12pt; }
  details:not([open]) { display: none; } footer { margin-top: 4pt; }
  h2 { break-after: avoid; } tr, figure { break-inside: avoid; } }
"""


class Answered(NamedTuple):
    """The private numbers, and what they stand for."""

    name: str
    value: float
    unit: str = ""  # what a feature of 1 is, in the units of its column


@dataclass(frozen=True, kw_only=True)
class AxisScale:
    """One axis of a chart: its ends, where the ticks are, and what it shows."""

    low: float
    high: float
    ticks: Sequence[float]
    label: str
    is_log: bool = False
    is_share: bool = False  # whether ticks are shown in percent

    def tick_text(self, tick: float) -> str:
        """Return the text of a tick."""
        rounded = float(f"{tick:g}")
        return f"{100 * tick:g}%" if self.is_share else shorten_number(rounded)

    def position(self, value: float) -> float:
        """Return the position of a value, from 0 at the low end to 1 at the high end.

        Values beyond an end are moved to it.
        """
        value = min(max(value, self.low), self.high)
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def decade_scale(label: str, low: float, *, is_share: bool = False) -> AxisScale:
    """Return a logarithmic scale from a power of ten to 1."""
    exponents = range(round(math.log10(low)), 1)
    interval = -(-len(exponents) // 8)  # at most eight ticks
    ticks = [10.0**e for e in exponents if e % interval == 0]
    return AxisScale(
        low=low, high=1.0, ticks=ticks, label=label, is_log=True, is_share=is_share
    )


class NamePosition(NamedTuple):
    """Position of a line's name: pixels right and down from the line's middle point."""

    right: float
    down: float
    anchor: str  # "start" or "end": the end of the text that is at the position


def svg_label(text: str, a: float, b: float, anchor: str, **attributes: object) -> Html:
    """Return a text whose start, middle or end (``anchor``) is at pixel (a, b)."""
    position = {"x": f"{a:.1f}", "y": f"{b:.1f}", "text_anchor": anchor}
    return tag("text", text, **position, **attributes)


def svg_line(ends: Sequence[tuple[float, float]], **attributes: object) -> Html:
    """Return a line through pixels."""
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in ends)
    return tag("path", d=path, fill="none", **attributes)


@dataclass(frozen=True, kw_only=True)
class ChartPlane:
    """Plane of a chart, with lengths in pixels from the left upper corner."""

    x: AxisScale
    y: AxisScale
    width: float = 400.0
    height: float = 290.0
    left: float = 74.0  # of the axes, as are the next three
    right: float = 380.0
    top: float = 12.0
    bottom: float = 244.0

    def to_pixels(self, a: float, b: float) -> tuple[float, float]:
        """Return the pixel of a point; the vertical axis of SVG points down."""
        across = self.left + self.x.position(a) * (self.right - self.left)
        down = self.top + (1.0 - self.y.position(b)) * (self.bottom - self.top)
        return across, down

    def axes(self) -> list[Html]:
        """Return grid lines, ticks and titles of both axes."""
        parts = []
        for tick in self.x.ticks:
            a, b = self.to_pixels(tick, self.y.low)
            parts += [svg_line([(a, b), (a, self.top)], stroke="#ddd")]
            parts += [svg_label(self.x.tick_text(tick), a, b + 18.0, "middle")]
        for tick in self.y.ticks:
            a, b = self.to_pixels(self.x.low, tick)
            parts += [svg_line([(a, b), (self.right, b)], stroke="#ddd")]
            parts += [svg_label(self.y.tick_text(tick), a - 6.0, b + 4.0, "end")]
        center = (self.left + self.right) / 2.0
        parts += [svg_label(self.x.label, center, self.height - 8.0, "middle")]
        rotation = f"rotate(-90 14 {self.bottom / 2.0})"
        middle = (self.bottom + self.top) / 2.0
        return [
            *parts,
            svg_label(self.y.label, 14.0, middle, "middle", transform=rotation),
        ]


def chart(
    x: AxisScale,
    y: AxisScale,
    *,
    title: str,
    lines: Sequence[tuple[str, Sequence[tuple[float, float]], NamePosition]],
    points: Sequence[tuple[str, float, float]] = (),
    name: str,
) -> Html:
    """Return a chart with named lines, and named points that are marked by circles.

    The first line is solid, the others are dashed. The name of a line stands near its
    middle, at the given position. ``name`` distinguishes the charts of a page.
    """
    plane = ChartPlane(x=x, y=y)
    parts = [tag("title", title, id=f"{name}-title"), *plane.axes()]
    for index, (label, values, position) in enumerate(lines):
        dashes = {"stroke_dasharray": "6 5"} if index else {}
        color = "#555" if index else "#0b4f8a"
        ends = [plane.to_pixels(*pair) for pair in values]
        parts += [svg_line(ends, stroke=color, stroke_width=2.5, **dashes)]
        # The middle point of the line, from which its name is moved.
        a, b = ends[len(ends) // 2]
        a += position.right
        # The name stays inside the chart.
        b = max(b + position.down, plane.top + 12.0)
        parts += [svg_label(label, a, b, position.anchor, fill=color)]
    for label, p, q in points:
        a, b = plane.to_pixels(p, q)
        circle = {"r": 5, "fill": "#fff", "stroke": "#1a1a1a", "stroke_width": 2.5}
        parts += [tag("circle", cx=f"{a:.1f}", cy=f"{b:.1f}", **circle)]
        parts += [svg_label(label, a + 9.0, b - 8.0, "start")]
    return tag(
        "svg",
        *parts,
        class_="chart",
        role="img",
        aria_labelledby=f"{name}-title",
        viewBox=f"0 0 {plane.width:g} {plane.height:g}",
        font_size=13,
        font_family="system-ui, sans-serif",
    )


def state_line(state: State, warnings: Sequence[str] = ()) -> Html:
    """Return a line that says whether the answer may be published, with a sign."""
    parts = [*warnings, state.text] if state.kind == "weak" else [state.text, *warnings]
    words = " ".join(parts)
    return tag("p", f"{SEAL[state.kind]} {words}", class_=f"state {state.kind}")


def publisher_section(publisher: Mapping[str, str]) -> list[Html]:
    """Return the statements of the publisher. What is not stated is left blank."""
    parts = []
    for key, name in registry().screen["publisher"].items():
        stated = publisher.get(key, "")
        blank = {} if stated else {"class_": "blank"}
        parts += [tag("dt", name), tag("dd", stated, **blank)]
    note = "By the publisher. The certificate does not cover these lines."
    return [tag("dl", *parts, class_="publisher"), tag("p", note, class_="note")]


def summary_section(certificate: Sealed, screen: Overview) -> list[Html]:
    """Return the page in short. Every sentence follows from the certificate."""
    records = screen.records
    if not screen.attacks:
        said = f"This page accompanies results from {records}. No protection is proved."
        return [tag("p", said)]
    first = (
        f"This page accompanies statistical results computed from {records}. Random "
        "noise was built into the computation on purpose, "
        f"{PROTECTION[certificate.level]}. The guarantee is mathematical. It holds "
        "against attackers with any background knowledge, under the conditions below."
    )
    # The sentences above presuppose that the obstacle to publication is removed.
    if not certificate.releasable:
        first += " It holds only without the obstacle above."
    return [tag("p", first)]


def attack_section(risk: AttackRisk, screen: Overview) -> list[Html]:
    """Return bounds on all attacks, in sentences, in a table and in a chart."""
    # Ten points for each factor of ten draw a smooth curve.
    lowest = 1e-3
    grid = np.geomspace(lowest, 1.0, 31).tolist()
    best_attacks = [(rate, float(risk.true_positive_rate(rate))) for rate in grid]
    picture = chart(
        decade_scale("false alarms accepted", lowest, is_share=True),
        decade_scale("true cases found, at most", lowest, is_share=True),
        title=(
            "Line: the largest share of true cases that an attack finds, over its "
            "share of false alarms. The dashed line below it is guessing."
        ),
        lines=[
            ("any attack, at most", best_attacks, NamePosition(-8.0, -4.0, "end")),
            (
                "guessing",
                [(rate, rate) for rate in grid],
                NamePosition(8.0, 16.0, "start"),
            ),
        ],
        name="attacks",
    )
    caption = tag("figcaption", "The closer the two lines, the less can be learnt.")
    return [
        tag("p", screen.attacker),
        tag(
            "div",
            tag(
                "div",
                table("Bounds of any attack", COLUMNS, screen.attacks),
                tag("p", screen.after_attacks),
            ),
            tag("figure", picture, caption),
            class_="pair",
        ),
    ]


def curve_section(certificate: Sealed, risk: AttackRisk) -> list[Html]:
    """Return the privacy curve, in a chart with the promised point and in a table."""

    def delta_at(e: float) -> float:
        return delta_of(risk.event, epsilon=e, relation=risk.relation)

    # Accounting ends at the largest epsilon, and infinity means that none is proved. In
    # both cases the chart shows the budget and has no promised point.
    epsilon, delta = certificate.epsilon_proved, certificate.budget.delta
    has_epsilon = epsilon < LARGEST_EPSILON
    promise = [("promised", epsilon, delta)] if has_epsilon else []
    epsilon = epsilon if has_epsilon else certificate.budget.epsilon
    max_epsilon = min(1.6 * (epsilon or certificate.budget.epsilon), LARGEST_EPSILON)
    grid = np.linspace(0.0, max_epsilon, 41).tolist()
    # A delta that holds at some epsilon holds at every larger one.
    deltas = np.minimum.accumulate([delta_at(e) for e in grid]).tolist()
    values = list(zip(grid, deltas, strict=True))
    # The axis begins a power of ten below the promised delta, which may be 0.
    low = 10.0 ** math.floor(math.log10(max(delta, 1e-290)) - 1.0)
    step = 10.0 ** math.floor(math.log10(max_epsilon / 2.0))
    # Ticks are 1, 2 or 5 times a power of ten apart. The factor is also 1 if even this
    # step is too long, because the logarithm was rounded up to a whole number.
    step *= next((m for m in (5.0, 2.0) if m * step <= max_epsilon / 2.0), 1.0)
    ticks = [step * i for i in range(int(max_epsilon / step) + 1)]
    above = [pair for pair in values if pair[1] >= low]
    picture = chart(
        AxisScale(low=0.0, high=max_epsilon, ticks=ticks, label="epsilon"),
        decade_scale("delta", low),
        title="Falling line: delta over epsilon."
        + " Circle: the promise." * has_epsilon,
        lines=[("proved", above or values[:1], NamePosition(-8.0, 16.0, "end"))],
        points=promise,
        name="curve",
    )
    points = [f"{share * epsilon:.4g}" for share in (0.25, 0.5, 1.0)]
    numbers = [(e, shorten_number(float(round_up(delta_at(float(e)))))) for e in points]
    return [
        tag(
            "p",
            "Epsilon limits how much the answer can change the odds of any suspicion. "
            "Delta is the part of the probability for which it need not hold. Smaller "
            "numbers mean more privacy."
            + " The promise is one point of a curve that is proved."
            * has_epsilon,
        ),
        tag("figure", picture),
        table("Points of the curve", ["Epsilon", "Delta, at most"], numbers),
    ]


def shorten_name(name: str) -> str:
    """Return a name, or the beginning of a very long one."""
    limit = 120
    if len(name) <= limit:
        return name
    return f"{name[:limit]}… ({len(name)} characters)"


def coefficients(caption: str, answer: Sequence[Answered]) -> Html:
    """Return a table of names and values, with bars that begin at a common zero."""
    # The range includes 0, at which all bars begin.
    low = min(0.0, *(item.value for item in answer))
    high = max(0.0, *(item.value for item in answer))
    # Lengths of bars are percentages of the range.
    unit = 100.0 / (high - low or 1.0)
    has_units = any(item.unit for item in answer)
    rows = []
    for item in answer:
        value = item.value
        start, size = (min(value, 0.0) - low) * unit, abs(value) * unit
        bar = {"x": f"{start:.2f}", "width": f"{size:.2f}", "y": 2, "height": 6}
        zero = {"x": f"{-low * unit - 0.25:.2f}", "width": 0.5, "height": 10}
        chart_of_value = tag(
            "svg",
            tag("rect", fill=BAR_COLOR, **bar),
            tag("rect", fill="currentColor", **zero),
            viewBox="-1 0 102 10",
            preserveAspectRatio="none",
            aria_hidden="true",
        )
        cells = [
            tag("th", tag("bdi", shorten_name(item.name)), scope="row", class_="name"),
            tag("td", f"{value:.3g}".replace("-", "−"), class_="number"),
            tag("td", chart_of_value, class_="bar"),
        ]
        if has_units:
            cells.insert(2, tag("td", shorten_name(item.unit)))
        rows.append(tag("tr", *cells))
    classes = {"Name": "name", "Value": "number", "Feature": "unit", "Bar": "bar"}
    if not has_units:
        del classes["Feature"]
    head = [tag("th", word, scope="col", class_=kind) for word, kind in classes.items()]
    top = tag("thead", tag("tr", *head))
    return tag("table", tag("caption", caption), top, tag("tbody", *rows))


def coefficient_table(answer: Sequence[Answered]) -> Html:
    """Return a table of all numbers, or of the largest ones if there are many."""
    count = len(answer)
    digits = "three digits shown" if count > 1 else "to three digits"
    caption = f"{count} released number{'s' * (count != 1)}, {digits}"
    # The largest ones stay in the order of the features.
    if count > MAX_BARS:
        caption = f"The {MAX_BARS} largest of {caption}"
        order = sorted(range(count), key=lambda j: -abs(answer[j].value))
        answer = [answer[j] for j in sorted(order[:MAX_BARS])]
    return coefficients(caption, answer)


def summary(
    certificate: Sealed, *, answer: Sequence[tuple[str, float]] = (), title: str = ""
) -> str:
    """Return answer, state and guarantee in short, for notebooks."""
    screen = overview(certificate)
    rows = [row for row in screen.facts if row[0] in ("Released", "From", "Guarantee")]
    attacks = [table("Bounds of any attack", COLUMNS, screen.attacks)]
    other = dict.fromkeys(screen.excluded[:1])
    parts = [state_line(screen.state, certificate.warnings)]
    if answer:
        parts.append(coefficient_table([Answered(*item) for item in answer]))
    parts += attacks if screen.attacks else []
    parts += [tag("p", f"Not included: {words}") for words in other]
    parts.append(tag("p", "All of it: print(certificate), certificate.details()."))
    return describe(title or "Privacy certificate", rows, *parts)


def document(
    certificate: Sealed,
    *,
    answer: Sequence[Answered] = (),
    saved: str | None = None,
    digest: str | None = None,
    meaning: str = "",
    publisher: Mapping[str, str] | None = None,
) -> str:
    """Return the whole page.

    Parameters
    ----------
    certificate : Certificate or EventCertificate
        The certificate of the page.
    answer : sequence of Answered
        The private numbers, if they are to be shown.
    saved : str, optional
        Content of the file to verify. By default the JSON of the certificate.
    digest : str, optional
        Digest of that file, which `dpsample verify` shows. By default the
        certificate's.
    meaning : str
        Meaning of the numbers, in a sentence.
    publisher : mapping of str to str, optional
        Statements of the publisher, by the names of `to_html`.

    Raises
    ------
    ValueError
        If the digest of the certificate does not fit its fields, or a statement of the
        publisher has an unknown name or is too long.
    """
    computed = certificate.computed_digest()
    if certificate.digest != computed:
        remedy = "The certificate was changed since it was written."
        check.fail("digest", computed, certificate.digest, remedy)
    stated = checked_publisher(publisher)
    screen, risk = overview(certificate), certificate._facts_and_risk()[1]
    parts = [
        tag("h1", "Privacy certificate"),
        state_line(screen.state, certificate.warnings),
        *publisher_section(stated),
        tag("h2", "In short"),
        *summary_section(certificate, screen),
        tag("h2", "What was released"),
        *_release_section(screen, answer, meaning),
        tag("h2", "What an attacker can learn about one record"),
    ]
    if risk is None:
        parts += [tag("p", "No protection is proved.")]
    else:
        parts += attack_section(risk, screen)
    parts += _conditions(screen)
    parts += [tag("h2", "How to check"), *_verification(certificate, saved, digest)]
    parts += _folded_sections(certificate, risk, answer)
    parts += [tag("footer", tag("p", f"Shown by dpsample {__version__}."))]
    head = (
        '<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Privacy certificate</title>\n<style>{STYLE}</style>"
    )
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def checked_publisher(publisher: object) -> dict[str, str]:
    """Return the statements of the publisher, or raise for one that is not allowed."""
    if publisher is None:
        return {}
    check.instance(Mapping, publisher=publisher)
    stated: dict[str, str] = {}
    names, longest = registry().screen["publisher"], 200
    assert isinstance(publisher, Mapping)
    for name, words in publisher.items():
        if name not in names:
            condition = f"with names among {', '.join(names)}"
            check.fail("publisher", condition, check.describe(name))
        if not isinstance(words, str) or len(words) > longest:
            condition = f"a text of at most {longest} characters"
            check.fail(f"publisher.{name}", condition, check.describe(words))
        stated[name] = " ".join(words.split())
    return stated


def _release_section(
    screen: Overview, answer: Sequence[Answered], meaning: str
) -> list[Html]:
    """Return the lines about the release, the numbers and their meaning."""
    lines = [
        part
        for name, words in screen.facts
        for part in (tag("dt", name), tag("dd", words))
    ]
    left = [tag("dl", *lines)]
    left += [tag("p", words) for words in (meaning, screen.accuracy) if words]
    if not answer:
        return left
    numbers = tag("div", coefficient_table(answer))
    return [tag("div", tag("div", *left), numbers, class_="pair")]


def _conditions(screen: Overview) -> list[Html]:
    """Return the conditions to confirm, with boxes, and what is not included."""
    box = tag("span", "☐", class_="box", aria_hidden="true")
    items = [tag("li", box, f" {words}") for words in screen.conditions]
    excluded = [tag("li", words) for words in screen.excluded]
    left = tag("h2", "Conditions that the data holder confirms"), tag("ol", *items)
    right = tag("h2", "Not included in epsilon and delta"), tag("ul", *excluded)
    return [tag("div", tag("div", *left), tag("div", *right), class_="pair")]


def _verification(
    certificate: Sealed, saved: str | None, digest: str | None
) -> list[Html]:
    """Return the steps to verify the certificate. A link holds the file itself."""
    # A data URL, so that the page needs no server and no second file.
    content = base64.b64encode((saved or certificate.to_json()).encode()).decode()
    file = "certificate.json" if saved is None else "answer.json"
    link = tag(
        "a",
        f"Save {file}",
        href=f"data:application/json;base64,{content}",
        download=file,
    )
    command = tag("code", f"dpsample verify {file}")
    code = tag("code", digest or certificate.digest)
    steps = tag(
        "p",
        f"Install dpsample {__version__} or newer (it needs Python) from the source "
        "that the publisher names. ",
        link,
        ", which is inside this page, and run ",
        command,
        ". It recomputes epsilon, delta and the numbers behind them, and shows the "
        "digest ",
        code,
        ". The bounds of attacks follow from these numbers.",
    )
    warning = (
        "A digest detects accidental changes. It is not a signature. Recomputed "
        "numbers do not show that the program was run as described, on records within "
        "the declared bounds. For that you rely on the publisher of this page."
    )
    return [steps, tag("p", warning)]


def _folded_sections(
    certificate: Sealed, risk: AttackRisk | None, answer: Sequence[Answered]
) -> list[Html]:
    """Return the folded sections, which are not printed unless they are opened."""
    sections = []
    if len(answer) > MAX_BARS:
        listed = coefficients("In order", answer)
        sections.append(("All released numbers", [listed]))
    if risk is not None:
        sections.append(("Privacy curve", curve_section(certificate, risk)))
    sections.append(("Technical details", [_details(certificate)]))
    return [tag("details", tag("summary", n), *parts) for n, parts in sections]


def _details(certificate: Sealed) -> Html:
    """Return the lines of the details of the certificate."""
    rows = [
        tag("tr", tag("th", name, scope="row"), tag("td", value))
        for name, value in certificate._rows()
        if value
    ]
    caption = tag("caption", "For experts, in binding words")
    return tag("table", caption, tag("tbody", *rows), class_="details")


class Published(Sealed):
    """Base of certificates that have a first screen and a page."""

    def __str__(self) -> str:
        """Return the first screen, for readers who are not experts."""
        return as_text(self)

    def to_html(self, *, publisher: Mapping[str, str] | None = None) -> str:
        """Return a page for readers who are not experts, to be published.

        Parameters
        ----------
        publisher : mapping of str to str, optional
            Statements of the publisher, any of ``data_set``, ``controller``,
            ``purpose``, ``record`` (what one record is), ``date``, ``other_releases``
            and ``software``, at most 200 characters each. They are shown as such and
            are not part of the certificate. Missing ones are blank lines.

        Returns
        -------
        str
            One HTML document without scripts that loads nothing from elsewhere. It has
            the first screen, a chart of the bounds on attacks, and the certificate
            itself, as a link, with how to verify it. The privacy curve and the details
            are folded. It prints on one sheet of A4. It says "Not verified" if the
            certificate was read from JSON, unless `dpsample.verify` has passed before,
            as in the page of an answer and on the command line.

        Raises
        ------
        ValueError
            If the certificate was changed since it was written, so that its digest is
            another, or a statement of the publisher is not allowed.
        """
        return document(self, publisher=publisher)

    def _repr_html_(self) -> str:
        """Return the short form for notebooks."""
        return summary(self)
