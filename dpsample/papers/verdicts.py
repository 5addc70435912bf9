"""Registry of five papers: errata, causes, and a verdict on every numbered item."""

import inspect
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from dpsample.core import check
from dpsample.papers.bounds import FUNCTIONS, Key
from dpsample.papers.claim import PAPERS, Meaning

Verdict = Literal[
    "holds as printed",
    "holds up to a stated constant",
    "needs a stated assumption",
    "misprint",
    "printed proof has a gap",
    "false as printed",
    "not reproduced",
    "not decided",
]
# A table of a TOML file.
Table = dict[str, Any]
# A kind of an erratum is a verdict, or one of two more.
Kind = Verdict | Literal["conservative", "remark"]


@dataclass(frozen=True, kw_only=True)
class Affected:
    """A setting in which the claimed epsilon is not the true one.

    `dpsample.papers.Claim` explains ``meaning``.
    """

    setting: str
    epsilon: float
    delta: float
    true_epsilon: float
    meaning: Meaning

    @property
    def line(self) -> str:
        """The setting, as text."""
        claimed = f"({self.epsilon:g}, {self.delta:g})"
        signs = {"exact": "", "upper bound": "at most ", "attack": "at least "}
        true = f"{signs[self.meaning]}{self.true_epsilon:g}"
        return f"{self.setting}: claimed {claimed}, true epsilon {true}"


@dataclass(frozen=True, kw_only=True)
class Erratum:
    """One erratum of a paper.

    Attributes
    ----------
    id, also : str, tuple of str
        Its code, and other codes of the same erratum.
    paper, place : str
        Key of `dpsample.papers.PAPERS`, and where in it.
    kind : str
        A verdict, "conservative" or "remark".
    printed, true, shown : str
        The published statement, the true one, and the proof or counterexample.
    test : str
        The test that runs the proof or counterexample.
    command : str
        Command that recomputes the numbers, if there is one.
    affected : tuple of Affected
        Settings with their true epsilon.
    open : str
        Part of the statement that was not derived again.
    """

    id: str
    paper: str
    place: str  # a field of errata.toml, lint: ok
    kind: Kind
    printed: str
    true: str
    shown: str  # a field of errata.toml, lint: ok
    test: str
    also: tuple[str, ...] = ()
    command: str = ""
    affected: tuple[Affected, ...] = ()
    open: str = ""

    def lines(self) -> Iterator[str]:
        """Yield lines of text, without the head."""
        yield f"Where: {self.place} ({self.kind})"
        yield f"Published: {self.printed}"
        yield f"True: {self.true}"
        yield f"Shown by: {self.shown}"
        yield from (f"Affected: {case.line}" for case in self.affected)
        if self.open:
            yield f"Not derived again: {self.open}"
        yield f"Test: {self.test}"
        if self.command:
            yield f"Command: {self.command}"

    @property
    def head(self) -> str:
        """The code, followed by other codes of the same erratum."""
        return f"{self.id}{''.join(f' = {code}' for code in self.also)}"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One defect, with the verdict of all items that rest on it.

    Attributes
    ----------
    id, title : str
        Name, and what it is about.
    verdict : str
        Key of `vocabulary`.
    defect, example : str
        What is published and what is wrong with it; the simplest counterexample inside
        the stated range, or the evidence.
    true, use : str
        Strongest statement that is known to be true, and advice for users of it.
    errata, tests : tuple of str
        Codes of `errata`, the main one first, and the tests that run the example.
    """

    id: str
    title: str
    verdict: Verdict
    defect: str
    example: str
    true: str
    use: str
    errata: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Item:
    """One numbered item of a paper, with a verdict.

    Attributes
    ----------
    paper, item, about, place : str
        Key of `dpsample.papers.PAPERS`, and where it is.
    quote, reading : str
        Words of a transcription, and how they were read if that is not plain.
    verdict, cause : str
        Key of `vocabulary`, and the id of the cause from which it is inherited, or "".
    why, true, use : str
        What was done, what stays true, and advice.
    by, runs : tuple of str
        Studies, tests and errata that show it, and names below ``dpsample``.
    bounds : tuple of str
        Calls of `bound` that return its published bounds, with their symbols.
    """

    paper: str
    item: str
    about: str
    place: str  # a field of papers.toml, lint: ok
    quote: str
    verdict: Verdict
    why: str
    true: str
    use: str
    by: tuple[str, ...]
    reading: str = ""
    cause: str = ""
    runs: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield lines of text, without the head."""
        cause = f", cause [{self.cause}](causes.md#{self.cause})" if self.cause else ""
        yield f"**{self.verdict.capitalize()}**{cause}"
        yield f"**{self.place}.** `` {self.quote} ``"
        if self.reading:
            yield f"**Read as.** {self.reading}"
        yield f"**Evidence.** {self.why} ({', '.join(self.by)})"
        yield f"**Stays true.** {self.true}"
        yield f"**Use.** {self.use}"
        if self.runs:
            names = ", ".join(f"`dpsample.{name}`" for name in self.runs)
            yield f"**Runs as.** {names}"
        if self.bounds:
            calls = ", ".join(f"`dpsample.papers.{call}`" for call in self.bounds)
            yield f"**Published bound.** {calls}"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A published bound, which is called with the symbols of its paper.

    Symbols are keywords, positive numbers all. ``c`` is a constant that the paper
    hides, 1 by default. Conditions of the statement are in `formula` and are not
    checked, because some need more than numbers.

    Attributes
    ----------
    paper, item, part : str
        Key of `dpsample.papers.PAPERS`, numbered item, and which of its bounds.
    symbols : tuple of str
        Keywords of a call.
    formula : str
        Formula and conditions.
    verdict : str
        Verdict of the item, whose page says what stays true.

    Examples
    --------
    >>> risk = bound("gopi", "Theorem 5")
    >>> risk.verdict, risk.symbols
    ('false as printed', ('n', 'd', 'epsilon', 'delta', 'G', 'mu'))
    >>> round(risk(n=1000, d=5, epsilon=1.0, delta=1e-6, G=1.0, mu=0.1), 6)
    0.001312
    """

    paper: str
    item: str
    part: str
    symbols: tuple[str, ...]
    formula: str
    verdict: Verdict
    function: Callable[..., float]

    def __call__(self, **symbols: float) -> float:
        """Return the published value. It is a ValueError if a symbol is not there."""
        # Errors name the symbol, where Python's own would name the function.
        for name in symbols:
            check.one_of(self.symbols, symbol=name)
        needed = inspect.signature(self.function).parameters
        for name, parameter in needed.items():
            if name not in symbols and parameter.default is inspect.Parameter.empty:
                check.fail(name, "given", "nothing", self.formula)
        values: dict[str, Any] = dict(symbols)
        check.positive(**values)
        return float(self.function(**symbols))

    @property
    def call(self) -> str:
        """The call, as text."""
        return _call((self.paper, self.item, self.part), self.symbols)


def bounds(paper: str | None = None) -> tuple[Bound, ...]:
    """Return the published bounds of one paper, or of all.

    Parameters
    ----------
    paper : str, optional
        Key of `dpsample.papers.PAPERS`.

    Returns
    -------
    tuple of Bound
        In the order of the registry.

    Raises
    ------
    ValueError
        If ``paper`` is not a key.

    Guarantee
    ---------
    None: the verdicts say which of the bounds hold.

    Examples
    --------
    >>> [b.item for b in bounds("su")][:3]
    ['Theorem 2', 'Theorem 4', 'Theorem 5']
    """
    every = []
    for entry in items(paper):
        for (key, item, part), function in FUNCTIONS.items():
            if (key, item) == (entry.paper, entry.item):
                doc = inspect.getdoc(function) or ""
                every.append(
                    Bound(
                        paper=key,
                        item=item,
                        part=part,
                        symbols=_symbols(function),
                        formula=doc.partition("\n\n")[2],
                        verdict=entry.verdict,
                        function=function,
                    )
                )
    return tuple(every)


def bound(paper: str, item: str, part: str = "") -> Bound:
    r"""Return a published bound of a numbered item.

    Parameters
    ----------
    paper, item : str
        Key of `dpsample.papers.PAPERS`, and an item such as "Theorem 2".
    part : str
        Which bound, if the item has several.

    Returns
    -------
    Bound
        Called with the symbols of the paper.

    Raises
    ------
    ValueError
        If the paper is not a key, or the item has no such bound.

    Guarantee
    ---------
    None: ``verdict`` says whether the bound holds.

    Examples
    --------
    >>> print(bound("bassily", "Lemma 3.4").formula.partition(".")[0])
    :math:`2 L^2 T \eta/n`
    """
    check.one_of(tuple(PAPERS), paper=paper)
    every = {(b.item, b.part): b for b in bounds(paper)}
    check.one_of(tuple(dict.fromkeys(name for name, _ in every)), item=item)
    check.one_of(tuple(word for name, word in every if name == item), part=part)
    return every[item, part]


def _symbols(function: Callable[..., float]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _call(key: Key, symbols: tuple[str, ...]) -> str:
    names = ", ".join(f'"{word}"' for word in key if word)
    return f"bound({names})({', '.join(symbols)})"


def errata() -> tuple[Erratum, ...]:
    """Return all errata.

    >>> print(errata()[0].id, errata()[0].kind)
    GLLST-E1 false as printed
    """
    # The file has lists and tables, which become tuples and records here.
    return tuple(
        Erratum(
            **{
                **entry,
                "test": "tests/errata/" + entry["test"],
                "also": tuple(entry.get("also", ())),
                "affected": tuple(Affected(**x) for x in entry.get("affected", ())),
            }
        )
        for entry in _read("errata.toml")["erratum"]
    )


def erratum(code: str) -> Erratum:
    """Return the erratum of a code. It is a ValueError if there is none.

    >>> erratum("privacy-9").id
    'gradient-E15'
    """
    by_code = {name: entry for entry in errata() for name in (entry.id, *entry.also)}
    check.one_of(tuple(by_code), code=code)
    return by_code[code]


def vocabulary() -> dict[Verdict, str]:
    """Return the verdicts, each with its meaning.

    >>> list(vocabulary())[0]
    'holds as printed'
    """
    return dict(_read("causes.toml")["vocabulary"])


def transcriptions() -> str:
    """Return the note on the source of all quotations."""
    return str(_read("causes.toml")["transcriptions"])


def causes() -> tuple[Cause, ...]:
    """Return the causes of all verdicts that are not plain.

    >>> print(causes()[0].title)
    A replaced record is counted once
    """
    return tuple(
        Cause(
            **{
                **entry,
                "errata": tuple(entry["errata"]),
                "tests": tuple(entry["tests"]),
            }
        )
        for entry in _read("causes.toml")["cause"]
    )


def items(paper: str | None = None) -> tuple[Item, ...]:
    """Return every numbered item of one paper, or of all. A ValueError if unknown.

    An item with a cause has its verdict, and what stays true and the advice of both.

    >>> print(items()[0].paper, items()[0].item, items()[0].verdict)
    bassily Algorithm 1 false as printed
    """
    if paper is not None:
        check.one_of(tuple(PAPERS), paper=paper)
    # An item and its cause are in two files, and are joined here.
    by_id = {cause.id: cause for cause in causes()}
    return tuple(
        _item(key, entry, by_id)
        for key, entries in _read("papers.toml").items()
        for entry in entries
        if paper in (None, key)
    )


def _item(paper: str, entry: Table, causes: dict[str, Cause]) -> Item:
    """Return the item of one entry of papers.toml."""
    cause = causes[entry["cause"]] if "cause" in entry else None
    verdict = entry["verdict"] if cause is None else cause.verdict
    if cause is None:
        default_true = "The statement." if verdict.startswith("holds") else "Open."
        true = entry.get("true", default_true)
    else:
        true = " ".join(filter(None, (entry.get("true"), cause.true)))
    advice = {
        "holds as printed": "Use it as published.",
        "holds up to a stated constant": "Use it with that constant.",
        "not decided": "Do not rest a proof on it.",
    }
    use = entry.get("use", advice[verdict] if cause is None else cause.use)
    inherited = {"verdict": verdict, "true": true, "use": use}
    lists = {name: tuple(entry.get(name, ())) for name in ("by", "runs")}
    # Functions have no verdict of their own, so that it is said in one file only.
    lists["bounds"] = tuple(
        _call(key, _symbols(function))
        for key, function in FUNCTIONS.items()
        if key[:2] == (paper, entry["item"])
    )
    return Item(paper=paper, **{**entry, **inherited, **lists})


def _read(name: str) -> Table:
    return tomllib.loads(
        resources.files("dpsample.papers").joinpath(name).read_text("utf-8")
    )


def errata_page() -> Iterator[str]:
    """Yield the lines of the page of errata."""
    entries = errata()
    yield "# Errata of five papers\n"
    yield "Regenerated by `dpsample errata --markdown`; `dpsample errata CODE` prints"
    yield "one entry, `pytest tests/errata` runs every proof and counterexample.\n"
    yield f"{transcriptions()} The published text is paraphrased here.\n"
    yield "[papers.md](papers.md) has exact quotations and defines the verdicts."
    yield "Further kinds are conservative (true, and more than is needed) and remark"
    yield "(nothing is wrong, and a user should know).\n"
    yield "An erratum is about one defect, whose kind it has. Other items"
    yield "under *Where* may hold. [papers.md](papers.md) has the verdict of each item."
    yield "Errata, items and [causes](causes.md) are counted separately. An erratum may"
    yield "concern several items, and a cause may have several errata.\n"
    yield f"{len(entries)} errata: {_counts(entry.kind for entry in entries)}."
    for key, title in PAPERS.items():
        yield f"\n## {title}"
        for entry in entries:
            if entry.paper == key:
                yield f"\n### {entry.head}\n"
                yield from (f"- {line}" for line in entry.lines())


def causes_page() -> Iterator[str]:
    """Yield the lines of the page of causes."""
    every, by_cause = causes(), Counter(entry.cause for entry in items())
    yield "# Causes of verdicts on five papers\n"
    yield "Regenerated by `dpsample papers --causes --markdown`.\n"
    yield f"{transcriptions()} [papers.md](papers.md) defines the verdicts.\n"
    yield f"{len(every)} causes: {_counts(entry.verdict for entry in every)}.\n"
    yield "| cause | about | verdict | items |"
    yield "| --- | --- | --- | ---: |"
    for cause in every:
        link = f"[{cause.id}](#{cause.id})"
        yield f"| {link} | {cause.title} | {cause.verdict} | {by_cause[cause.id]} |"
    for cause in every:
        yield f"\n## {cause.id}\n"
        yield f"{cause.title} (**{cause.verdict}**).\n"
        yield f"- **Items.** {', '.join(_names(cause))}"
        yield f"- **Defect.** {cause.defect}"
        yield f"- **Example.** {cause.example}"
        yield f"- **True.** {cause.true}"
        yield f"- **Use.** {cause.use}"
        yield f"- **Errata.** {', '.join(cause.errata)}"
        if cause.tests:
            yield f"- **Tests.** {', '.join(cause.tests)}"


def _names(cause: Cause) -> Iterator[str]:
    """Yield the items of a cause, each after its paper."""
    for entry in items():
        if entry.cause == cause.id:
            yield f"{PAPERS[entry.paper].partition(' (')[0]}, {entry.item}"


def items_page() -> Iterator[str]:
    """Yield the lines of the page of numbered items."""
    every = items()
    yield "# Five papers, item by item\n"
    yield "Regenerated by `dpsample papers --markdown`.\n"
    yield f"{transcriptions()}\n"
    yield "| verdict | meaning | items | causes |"
    yield "| --- | --- | ---: | ---: |"
    counts = Counter[str](entry.verdict for entry in every)
    causes_by_verdict = Counter[str](cause.verdict for cause in causes())
    for verdict, meaning in vocabulary().items():
        numbers = f"{counts[verdict]} | {causes_by_verdict[verdict]}"
        yield f"| {verdict} | {meaning} | {numbers} |"
    yield f"\n{len(every)} items. [causes.md](causes.md) has one page for all causes.\n"
    yield "Rules:\n"
    yield from (f"- {rule}" for rule in _read("causes.toml")["rules"])
    for key, title in PAPERS.items():
        paper_items = [entry for entry in every if entry.paper == key]
        yield f"\n## {title}\n"
        yield f"{_counts(entry.verdict for entry in paper_items)}."
        for entry in paper_items:
            yield f"\n### {entry.item}, {entry.about}\n"
            yield from (f"- {line}" for line in entry.lines())


def _counts(words: Iterable[str]) -> str:
    return ", ".join(f"{n} {word}" for word, n in Counter(words).most_common())
