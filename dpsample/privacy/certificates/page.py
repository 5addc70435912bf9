"""Page about a certificate for readers who are not experts: one HTML file.

`document` writes the whole page and `summary` the short form for notebooks. The other
functions return sections of the page as `Html`, in the order in which they stand on it.

The page is complete in itself. It has no script, font or picture from elsewhere, and
the file to verify is inside, as a link with its content. Only the private answer on it
depends on the records.
"""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsample.core import check
from dpsample.core.public import __version__
from dpsample.privacy.accounting.accounting import LARGEST_EPSILON, delta_of
from dpsample.privacy.accounting.attack_risk import (
    QUESTIONS,
    REPORTED_RATES,
    AttackRisk,
    percent,
)
from dpsample.privacy.certificates.json_form import round_up
from dpsample.privacy.certificates.registry import registry
from dpsample.privacy.certificates.sealed import ADDS_UP, Sealed

# Maximum number of coefficients in the first table, which shows the largest ones.
MAX_BARS = 30
# The other world to which the guarantee compares, by the neighboring relation.
OTHERWISE = {
    "replace_one": "had one record held any other values",
    "zero_out": "had one record been left out",
}
# Information about a single record in the answer, by the level of protection.
PROTECTION = {
    "high": "so that the answer says very little about any single record",
    "limited": "which limits what the answer says about any single record",
    "weak": "but so little of it that the answer may say much about a single record",
    "none": "but the answer may say nearly everything about a single record",
}
SEAL = {"yes": "✔", "weak": "⚠", "no": "✘"}
# Style sheet of the page, for screens and for print.
STYLE = """
:root { color-scheme: light; }
body { font: 1rem/1.55 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 46rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
bdi, code, .details td { overflow-wrap: anywhere; }
h1 { font-size: 1.9rem; margin: .5rem 0; } h2 { margin: 2.2rem 0 .6rem; }
h1, h2 { line-height: 1.2; }
a { color: #0b4f8a; }
.state { border: 2px solid; border-left-width: .6rem; padding: .6rem .8rem;
  font-size: 1.15rem; font-weight: 600; }
.yes { color: #14532d; } .no, .weak { color: #8a1c1c; }
blockquote { margin: 1rem 0; padding: .2rem 1rem; border-left: 4px solid #767676; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .5rem;
  border-bottom: 1px solid #c4c4c4; }
th { font-weight: 600; } thead th { border-bottom: 2px solid #1a1a1a; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
figure { margin: 1.2rem 0; } figcaption { color: #444; font-size: .95rem; }
svg { width: 100%; height: auto; } .chart { max-width: 30rem; display: block; }
.bar { width: 38%; } .bar svg { height: 1rem; vertical-align: middle; }
.details th { width: 8.5rem; } .details td { white-space: pre-line; }
.exact { color: #444; font-size: .875rem; display: block; }
li { margin: .45rem 0; }
code { font: .95em ui-monospace, monospace; background: #f1f1f1; padding: .1em .3em; }
footer { margin-top: 3rem; border-top: 1px solid #c4c4c4; color: #444; }
@media (max-width: 30rem) { th, td { padding: .3rem .25rem; }
  .details th { width: 6rem; } .bar { width: 28%; } }
@media print { body { max-width: none; font-size: 10pt; padding: 0; }
  h2 { break-after: avoid; } tr, figure, blockquote { break-inside: avoid; } }
"""


class Html(str):
    """A piece of markup. Strings of any other type are escaped on the page."""

    __slots__ = ()


def escape_hidden(text: str) -> str:
    r"""Return a text in which invisible characters are replaced by escapes.

    Names come from files. A character that reverses the direction of writing, for
    example, could show a reader another text than a program reads.

    Examples
    --------
    >>> escape_hidden("a" + chr(0x202E) + "b")
    'a\\u202eb'
    """
    # Joiners belong to the spelling in several scripts, and the page itself has spaces
    # that do not break.
    return "".join(
        c
        if c.isprintable() or c in "\n\xa0\u200c\u200d"
        else c.encode("unicode_escape").decode()
        for c in text
    )


def tag(name: str, *content: str, **attributes: object) -> Html:
    """Return one HTML element. Attributes and content that is not markup are escaped.

    An underscore in the name of an attribute stands for a hyphen, and one at its end is
    left out, because ``class`` is a keyword of Python.

    Examples
    --------
    >>> tag("td", "<script>", class_="number")
    '<td class="number">&lt;script&gt;</td>'
    """
    inner = "".join(
        part if isinstance(part, Html) else html.escape(escape_hidden(part))
        for part in content
    )
    rendered = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{rendered}>{inner}</{name}>")


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Return a table whose first column has names and whose others have numbers."""
    top = [tag("th", head[0], scope="col")]
    top += [tag("th", cell, scope="col", class_="number") for cell in head[1:]]
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_="number") for cell in row[1:]),
        )
        for row in rows
    ]
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *top)),
        tag("tbody", *body),
    )


@dataclass(frozen=True, kw_only=True)
class AxisScale:
    """One axis of a chart: its ends, where the ticks are, and what it shows."""

    low: float
    high: float
    ticks: Sequence[float]
    label: str
    is_log: bool = False

    def position(self, value: float) -> float:
        """Return the position of a value, from 0 at the low end to 1 at the high end.

        Values beyond an end are moved to it.
        """
        value = min(max(value, self.low), self.high)
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def decade_scale(label: str, low: float) -> AxisScale:
    """Return a logarithmic scale from a power of ten to 1."""
    exponents = range(round(math.log10(low)), 1)
    interval = -(-len(exponents) // 8)  # at most eight ticks
    ticks = [10.0**e for e in exponents if e % interval == 0]
    return AxisScale(low=low, high=1.0, ticks=ticks, label=label, is_log=True)


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
    right: float = 386.0
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
            parts += [svg_label(f"{tick:g}", a, b + 18.0, "middle")]
        for tick in self.y.ticks:
            a, b = self.to_pixels(self.x.low, tick)
            parts += [svg_line([(a, b), (self.right, b)], stroke="#ddd")]
            parts += [svg_label(f"{tick:g}", a - 6.0, b + 4.0, "end")]
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


def attack_section(risk: AttackRisk) -> list[Html]:
    """Return bounds on all attacks, in a table, in a chart and in sentences."""
    rows = []
    for rate in REPORTED_RATES:
        true_positive_rate = float(risk.true_positive_rate(rate))
        odds = f"{float(percent(true_positive_rate / rate, up=True)) / 100:.4g}"
        true_cases = f"{percent(true_positive_rate, up=True)}\u00a0%"
        alarms = f"{100 * rate:g}\u00a0%"
        rows.append((alarms, true_cases, alarms, f"×\u00a0{odds}"))
    # Ten points for each factor of ten draw a smooth curve.
    grid = np.geomspace(1e-4, 1.0, 41).tolist()
    best_attacks = [(rate, float(risk.true_positive_rate(rate))) for rate in grid]
    picture = chart(
        decade_scale("share of false alarms", 1e-4),
        decade_scale("share of true cases found", 1e-4),
        title=(
            "Line: the largest share of true cases that an attack finds, over its "
            "share of false alarms. Dashed line below it: a blind guess."
        ),
        lines=[
            ("any attack, at most", best_attacks, NamePosition(-8.0, -4.0, "end")),
            (
                "blind guess",
                [(rate, rate) for rate in grid],
                NamePosition(8.0, 16.0, "start"),
            ),
        ],
        name="attacks",
    )
    return [
        tag(
            "p",
            f"An attacker sees the answer and asks {QUESTIONS[risk.relation]}. The "
            "table bounds how many true cases he finds, by how many false alarms he "
            "accepts. The bounds hold for every attacker, whatever else he knows.",
        ),
        table(
            "Bounds of any attack",
            ["False alarms", "True cases found, at most"]
            + ["By blind guess", "One alarm raises the odds, at most"],
            rows,
        ),
        tag(
            "p",
            "The last column is the Bayes factor of an alarm, by which it can multiply "
            "the odds that a suspicion is true. If both cases are equally likely, an "
            "attacker is wrong at least "
            f"{percent(risk.bayes_risk(), up=False)}\u00a0% of the time (blind guess: "
            "50\u00a0%). His advantage, true cases found less false alarms, is at most "
            f"{percent(risk.advantage, up=True)}\u00a0%.",
        ),
        tag(
            "figure",
            picture,
            tag("figcaption", "The closer the two lines, the less can be learnt."),
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
    numbers = [(e, round_up(d) if (d := delta_at(float(e))) else "0") for e in points]
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


def coefficients(caption: str, pairs: Sequence[tuple[str, float]]) -> Html:
    """Return a table of names and values, with bars that begin at a common zero."""
    # The range includes 0, at which all bars begin.
    low = min(0.0, *(value for _, value in pairs))
    high = max(0.0, *(value for _, value in pairs))
    # Lengths of bars are percentages of the range.
    unit = 100.0 / (high - low or 1.0)
    rows = []
    for name, value in pairs:
        start, size = (min(value, 0.0) - low) * unit, abs(value) * unit
        bar = {"x": f"{start:.2f}", "width": f"{size:.2f}", "y": 2, "height": 6}
        zero = {"x": f"{-low * unit - 0.25:.2f}", "width": 0.5, "height": 10}
        chart_of_value = tag(
            "svg",
            tag("rect", fill="#0b4f8a", **bar),
            tag("rect", fill="#1a1a1a", **zero),
            viewBox="-1 0 102 10",
            preserveAspectRatio="none",
            aria_hidden="true",
        )
        cells = (
            tag("th", tag("bdi", shorten_name(name)), scope="row"),
            tag("td", f"{value:.6g}".replace("-", "−"), class_="number"),
            tag("td", chart_of_value, class_="bar"),
        )
        rows.append(tag("tr", *cells))
    classes = {"Name": "name", "Value": "number", "Size": "bar"}
    head = [tag("th", word, scope="col", class_=kind) for word, kind in classes.items()]
    top = tag("thead", tag("tr", *head))
    return tag("table", tag("caption", caption), top, tag("tbody", *rows))


def coefficient_table(pairs: Sequence[tuple[str, float]]) -> Html:
    """Return a table of all coefficients, or of the largest ones if there are many."""
    caption = f"{len(pairs)} coefficients"
    # The largest ones stay in the order of the features.
    if len(pairs) > MAX_BARS:
        caption = f"The {MAX_BARS} largest of {caption}"
        order = sorted(range(len(pairs)), key=lambda j: -abs(pairs[j][1]))
        pairs = [pairs[j] for j in sorted(order[:MAX_BARS])]
    return coefficients(caption, pairs)


def state_line(certificate: Sealed) -> Html:
    """Return a line that says whether the answer may be published, with a sign."""
    # From the worst state to the best. A file with other fields than its digest covers
    # may state anything, so it is tested first.
    kind, words = "no", "Not for publication: "
    if certificate.digest != certificate.computed_digest():
        words += "the certificate was changed since it was written."
    elif not certificate.releasable:
        reasons = dict(certificate._rows())["releasable"].removeprefix("NO: ")
        words = " ".join([f"{words}{reasons}.", *certificate.warnings])
    elif certificate.is_unverified:
        text = (
            "Not verified: the numbers are as a file states them. Recompute them "
            "before you rely on them or publish them."
        )
        kind, words = "weak", " ".join([text, *certificate.warnings])
    elif certificate.warnings:
        kind, words = "weak", " ".join(certificate.warnings)
    else:
        kind, words = "yes", "May be published."
    return tag("p", f"{SEAL[kind]} {words}", class_=f"state {kind}")


def summary_section(certificate: Sealed) -> list[Html]:
    """Return the meaning of the guarantee. Every sentence follows from its numbers."""
    facts, risk = certificate._facts_and_risk()
    count = "records" if facts is None else f"{facts.num_records} records"
    if risk is None:
        said = f"An answer was computed from {count}. No protection is proved."
        return [tag("p", said), tag("blockquote", tag("p", certificate.statement))]
    change = OTHERWISE[certificate.budget.relation]
    same = ""
    if certificate.level == "high":
        same = f"Each record is protected as a whole: {change}, nearly the same could "
        same += "have been published. "
    points = percent(risk.advantage, up=True)
    first = (
        f"An answer was computed from {count}. Random noise was added on purpose, "
        f"{PROTECTION[certificate.level]}. This page says how much can be learnt from "
        "it at most."
    )
    second = (
        f"{same}{change.capitalize()}, the probability of any set of answers would "
        f"have changed by at most {points} percentage points. A person who gave "
        f"several records is protected less. {ADDS_UP}"
    )
    # The sentences above presuppose that the obstacle to publication is removed.
    if not certificate.releasable:
        first += " It holds only without the obstacle above."
    statement = tag("blockquote", tag("p", certificate.statement))
    return [tag("p", first), statement, tag("p", second)]


def summary(certificate: Sealed, *, answer: Sequence[tuple[str, float]] = ()) -> str:
    """Return the short form, for notebooks: answer, statement, bounds of attacks."""
    risk = certificate._facts_and_risk()[1]
    numbers = [] if risk is None else [tag("pre", str(risk))]
    table_of_answer = [coefficient_table(answer)] if answer else []
    words = tag("p", f"{certificate.statement} {ADDS_UP}")
    return tag("div", *table_of_answer, state_line(certificate), words, *numbers)


def document(
    certificate: Sealed,
    *,
    answer: Sequence[tuple[str, float]] = (),
    saved: str | None = None,
) -> str:
    """Return the whole page.

    Parameters
    ----------
    certificate : Certificate or EventCertificate
        The certificate of the page.
    answer : sequence of (name, value)
        The private coefficients, if they are to be shown.
    saved : str, optional
        Content of the file to verify. By default the JSON of the certificate.

    Raises
    ------
    ValueError
        If the digest of the certificate does not fit its fields.
    """
    digest = certificate.computed_digest()
    if certificate.digest != digest:
        remedy = "The certificate was changed since it was written."
        check.fail("digest", digest, certificate.digest, remedy)
    risk = certificate._facts_and_risk()[1]
    parts = [
        tag("h1", "Privacy certificate"),
        state_line(certificate),
        tag("h2", "In short"),
        *summary_section(certificate),
    ]
    if answer:
        parts += [tag("h2", "What was released"), coefficient_table(answer)]
    parts += [tag("h2", "What an attacker can learn")]
    if risk is None:
        parts += [tag("p", "No protection is proved.")]
    else:
        parts += attack_section(risk)
        parts += [tag("h2", "The privacy curve")]
        parts += curve_section(certificate, risk)
    parts += [tag("h2", "What is taken for granted"), _assumptions(certificate)]
    parts += [tag("h2", "How to verify"), *_verification(certificate, saved)]
    parts += [tag("h2", "All numbers and theorems"), _details(certificate)]
    if len(answer) > MAX_BARS:
        parts += [tag("h2", "All coefficients"), coefficients("In order", answer)]
    parts += [tag("footer", tag("p", f"Made by dpsample {__version__}."))]
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


def _assumptions(certificate: Sealed) -> Html:
    """Return the assumptions: their meaning, and below it the exact sentence."""
    names = certificate.assumptions
    exact = certificate.words(names)
    plain = (registry().plain.get(name, "") for name in names)
    items = (
        tag("li", meaning, tag("span", f"Exactly: {words}.", class_="exact"))
        for meaning, words in zip(plain, exact, strict=True)
    )
    return tag("ul", *items)


def _verification(certificate: Sealed, saved: str | None) -> list[Html]:
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
    install = f"pip install dpsample=={__version__}"
    items = (
        ("Install this program, which needs Python: ", tag("code", install)),
        (link, " (it is inside this page)."),
        ("Recompute every number: ", tag("code", f"dpsample verify {file}")),
        ("Compare the digest that it shows: ", tag("code", certificate.digest)),
    )
    steps = (tag("li", *item) for item in items)
    warning = (
        "A digest detects accidental changes. It is not a signature. Recomputed "
        "numbers do not show that the program was run as described, on records within "
        "the declared bounds. For that you rely on the publisher of this page."
    )
    return [tag("ol", *steps), tag("p", warning)]


def _details(certificate: Sealed) -> Html:
    """Return the lines of the certificate that do not have a section of their own."""
    rows = [
        tag("tr", tag("th", name, scope="row"), tag("td", value))
        for name, value in certificate._rows()
        if value and name not in ("attacks", "assumptions", "guarantee", "releasable")
    ]
    caption = tag("caption", "For experts")
    return tag("table", caption, tag("tbody", *rows), class_="details")


class Published(Sealed):
    """Base of certificates that have a page."""

    def to_html(self) -> str:
        """Return a page for readers who are not experts, to be published.

        Returns
        -------
        str
            One HTML document without scripts that loads nothing from elsewhere: what is
            promised, what an attacker can learn, the privacy curve, assumptions in
            plain words, and the certificate itself, as a link, with how to verify it.
            It says "Not verified" if the certificate was read from JSON, unless
            `dpsample.verify` has passed before, as in the page of an answer and on the
            command line.

        Raises
        ------
        ValueError
            If the certificate was changed since it was written: its digest is another.
        """
        return document(self)

    def _repr_html_(self) -> str:
        """Return the short form for notebooks."""
        return summary(self)
