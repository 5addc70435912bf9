"""Registry of five papers: errata, and a verdict on every numbered item."""

import functools
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from dpsample.core import check
from dpsample.core.public import dir_of
from dpsample.privacy.printed import PAPERS
from dpsample.privacy.printed.claim import Meaning

__all__ = ["Affected", "Erratum", "Item", "errata", "erratum", "items", "sources"]
__dir__ = dir_of(__all__)

Kind = Literal["wrong", "optimistic", "asymptotic only", "conservative", "misprint"]
Verdict = Literal["confirmed", "refuted", "not comparable"]
TESTS = "tests/errata/"
SIGNS = {"exact": "", "upper bound": "at most ", "attack": "at least "}


@dataclass(frozen=True, kw_only=True)
class Affected:
    """A setting in which privacy is not what is claimed.

    ``meaning`` is that of `dpsample.privacy.printed.Claim`.
    """

    setting: str
    epsilon: float
    delta: float
    true_epsilon: float
    meaning: Meaning

    def __str__(self) -> str:
        claimed = f"({self.epsilon:g}, {self.delta:g})"
        true = f"{SIGNS[self.meaning]}{self.true_epsilon:g}"
        return f"{self.setting}: claimed {claimed}, true epsilon {true}"


@dataclass(frozen=True, kw_only=True)
class Erratum:
    """One erratum of a paper.

    Attributes
    ----------
    id, also : str, tuple of str
        How it is cited, and other codes of it.
    paper, place : str
        Key of `dpsample.privacy.printed.PAPERS`, and where in it.
    kind : str
        wrong, optimistic, asymptotic only, conservative or misprint.
    printed, true, shown : str
        What is printed, what is true, and the proof or counterexample.
    test : str
        The test that runs it.
    command : str
        What recomputes the numbers, if anything.
    affected : tuple of Affected
        Settings with their true epsilon.
    open : str
        What was not derived again.
    """

    id: str
    paper: str
    place: str
    kind: Kind
    printed: str
    true: str
    shown: str
    test: str
    also: tuple[str, ...] = ()
    command: str = ""
    affected: tuple[Affected, ...] = ()
    open: str = ""

    def lines(self) -> Iterator[str]:
        """Lines of text, without the head."""
        yield f"Where: {self.place} ({self.kind})"
        yield f"Printed: {self.printed}"
        yield f"True: {self.true}"
        yield f"Shown by: {self.shown}"
        yield from (f"Affected: {case}" for case in self.affected)
        if self.open:
            yield f"Not derived again: {self.open}"
        yield f"Test: {self.test}"
        if self.command:
            yield f"Command: {self.command}"

    @property
    def head(self) -> str:
        """The code, with the others that mean the same."""
        return f"{self.id}{''.join(f' = {code}' for code in self.also)}"


@dataclass(frozen=True, kw_only=True)
class Item:
    """One numbered item of a paper and what became of it.

    ``by`` names what shows it: studies, tests and errata; ``why`` says how.
    """

    paper: str
    item: str
    about: str
    verdict: Verdict
    why: str
    by: tuple[str, ...]


def errata() -> tuple[Erratum, ...]:
    """All errata, in the order of the papers.

    Examples
    --------
    >>> print(errata()[0].id, errata()[0].kind)
    GLLST-E1 wrong
    """
    return _errata()


def erratum(code: str) -> Erratum:
    """Return the erratum of a code.

    Parameters
    ----------
    code : str
        An id or another code of it.

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> erratum("privacy-9").id
    'gradient-E15'
    """
    found = {name: entry for entry in errata() for name in (entry.id, *entry.also)}
    check.one_of(tuple(found), code=code)
    return found[code]


def items() -> tuple[Item, ...]:
    """Every numbered item, in the order of the papers.

    Examples
    --------
    >>> print(items()[0].item, items()[0].verdict)
    Theorem 1 refuted
    """
    return _items()


def sources(text: str) -> Iterator[str]:
    """Codes of errata in a text.

    Examples
    --------
    >>> list(sources("as GLLST-E1 and BFTT-10 say"))
    ['GLLST-E1', 'BFTT-10']
    """
    import re

    yield from re.findall(r"\b(?:GLLST-E|BFTT-|gradient-E|privacy-)\d+\w*", text)


@functools.cache
def _errata() -> tuple[Erratum, ...]:
    return tuple(
        Erratum(
            **{
                **entry,
                "test": TESTS + entry["test"],
                "also": tuple(entry.get("also", ())),
                "affected": tuple(Affected(**x) for x in entry.get("affected", ())),
            }
        )
        for entry in _read("errata.toml")["erratum"]
    )


@functools.cache
def _items() -> tuple[Item, ...]:
    return tuple(
        Item(paper=paper, **{**entry, "by": tuple(entry["by"])})
        for paper, entries in _read("papers.toml").items()
        for entry in entries
    )


def _read(name: str) -> dict[str, list[dict[str, object]]]:
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    return tomllib.loads(text)


def errata_page() -> Iterator[str]:
    """Lines of the page of errata."""
    entries = errata()
    kinds = Counter(entry.kind for entry in entries)
    yield "# Errata of five papers"
    yield "\nRegenerated by `dpsample errata --markdown`. " + _counted(kinds, "entry")
    yield "\n`dpsample errata CODE` prints one entry, and `pytest tests/errata` runs every"
    yield "proof and counterexample. wrong: false as stated or in its proof; optimistic:"
    yield "holds with a worse constant only; asymptotic only: says nothing at usual sizes;"
    yield "conservative: true, and more than needed."
    for key, title in PAPERS.items():
        yield f"\n## {title}"
        for entry in entries:
            if entry.paper == key:
                yield f"\n### {entry.head}\n"
                yield from (f"- {line}" for line in entry.lines())


def papers_page() -> Iterator[str]:
    """Lines of the page of numbered items."""
    every = items()
    yield "# Five papers, item by item"
    verdicts = Counter(entry.verdict for entry in every)
    yield "\nRegenerated by `dpsample papers --markdown`. " + _counted(verdicts, "item")
    yield "\nconfirmed: measured or recomputed here and consistent with what is printed;"
    yield "refuted: a proof, an exact computation or an attack contradicts it; not"
    yield "comparable: it states nothing that could be checked at finite size."
    for key, title in PAPERS.items():
        yield f"\n## {title}\n"
        yield "| item | about | verdict | how | shown by |"
        yield "| --- | --- | --- | --- | --- |"
        for entry in every:
            if entry.paper == key:
                words = (entry.item, entry.about, entry.verdict, entry.why)
                yield f"| {' | '.join((*words, ', '.join(entry.by)))} |"


def _counted(counts: Counter[str], word: str) -> str:
    parts = ", ".join(f"{number} {name}" for name, number in counts.items())
    return f"{counts.total()} {word.replace('ry', 'rie')}s: {parts}."
