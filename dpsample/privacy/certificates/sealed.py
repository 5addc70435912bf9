"""Base of all certificates: a digest that seals the fields, and lines of text."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import textwrap
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from dpsample.core import check
from dpsample.core.spec import Json
from dpsample.privacy.accounting.attack_risk import (
    QUESTIONS,
    AttackRisk,
    percent,
    round_decimal,
)
from dpsample.privacy.budget import RELATION_WORDS, Budget
from dpsample.privacy.certificates.json_form import (
    canonical_text,
    load_json,
    parse,
    round_up,
    to_plain,
)
from dpsample.privacy.certificates.registry import Kind, registry
from dpsample.problem.facts import PublicFacts

if TYPE_CHECKING:
    from rich.table import Table

Level = Literal["high", "limited", "weak", "none"]
# Levels of protection follow from two numbers of the attack risk. Success: how often an
# attacker with two equally likely candidates is right; a blind guess is in half of all
# cases. Evidence: the factor by which an alarm can raise the odds of a suspicion, where
# one case in 1000 is a false alarm.
FALSE_ALARMS = 0.001
# High protection: less than one more right answer in ten than by a blind guess, and
# evidence that leaves a suspicion of 1 in 100 improbable.
LITTLE_SUCCESS = 0.6
LITTLE_EVIDENCE = 10.0
# Weak protection, with a warning: an attacker is right in three cases of four, half of
# the way from a blind guess to certainty, or an alarm makes a suspicion of 1 in 100 as
# likely as not.
WEAK_SUCCESS = 0.75
WEAK_EVIDENCE = 100.0
# No protection of any use: an attacker is wrong once in a hundred cases, or an alarm
# leaves fewer than one doubt in a hundred of a suspicion of 1 in 10.
NO_SUCCESS = 0.99
NO_EVIDENCE = 990.0
PROTECTION = {"weak": "WEAK PROTECTION", "none": "NO USEFUL PROTECTION"}
# Without a number of records delta is compared with one over a usual number.
USUAL_RECORDS = 1000
# Last assumption of a fit that may be one of many.
SEARCH = "FIT.SEARCH"
ADDS_UP = (
    "This certificate covers one release. Releases from the same records add up: keep "
    "their total in a ledger (dpsample.privacy.Ledger)."
)


def of_search(assumptions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the identifier of a fit of a search, if it is the last one."""
    return assumptions[-1:] if assumptions[-1:] == (SEARCH,) else ()


class Sealed(ABC):
    """Base of frozen dataclasses with a ``digest`` field that seals all others."""

    FORMAT: ClassVar[str]
    DERIVED: ClassVar[tuple[str, ...]] = ("format", "registry", "releasable")
    # Of what is read, until `dpsample.verify` has passed: its author may be anybody.
    is_unverified: ClassVar[bool] = False
    budget: Budget
    epsilon_proved: float
    theorems: tuple[str, ...]
    assumptions: tuple[str, ...]
    seeded: bool
    digest: str
    # Version of the registry whose sentences are bound: an older file's is kept.
    version: int | None = None

    @property
    @abstractmethod
    def statement(self) -> str:
        """The guarantee, in words."""

    @property
    @abstractmethod
    def is_proved(self) -> bool:
        """Whether the budget's epsilon is implied by a theorem."""

    @abstractmethod
    def _rows(self) -> list[tuple[str, str]]:
        """Name and value of every line of the certificate."""

    @abstractmethod
    def _facts_and_risk(self) -> tuple[PublicFacts | None, AttackRisk | None]:
        """Facts of the problem and risk of attacks, where there are any."""

    @staticmethod
    def parse_field(name: str, value: object) -> Any:
        """Turn the JSON value of one field into the field's type."""
        return parse(name, value)

    @property
    @abstractmethod
    def registered(self) -> Kind:
        """What the registry says of certificates of this kind."""

    @property
    def releasable(self) -> bool:
        """Whether the guarantee may be given to others.

        It is proved, no seed made the bits, and its kind may be released: no draw
        without a sampler's name may, nor what its author declares.
        """
        return self.registered.releasable and self.is_proved and not self.seeded

    @property
    def registry(self) -> str:
        """Version of the registry, and SHA-256 of the sentences that are used."""
        return registry().seal((*self.theorems, *self.assumptions), self.version)

    def words(self, identifiers: tuple[str, ...]) -> tuple[str, ...]:
        """Sentences of identifiers, as the certificate binds them."""
        return registry().words(identifiers, version=self.version)

    @cached_property
    def level(self) -> Level:
        """Protection of one record by what attacks can reach; see the constants."""
        level = level_of(self._facts_and_risk()[1])
        return "weak" if self._has_large_delta() and level != "none" else level

    def _has_large_delta(self) -> bool:
        facts = self._facts_and_risk()[0]
        count = USUAL_RECORDS if facts is None else facts.num_records
        return self.budget.delta >= 1.0 / count

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Why the guarantee protects little, in words; empty if it does protect."""
        facts, risk = self._facts_and_risk()
        warnings = []
        level = level_of(risk)
        if risk is not None and level in PROTECTION:
            right = percent(1.0 - risk.bayes_risk(), up=True)
            factor = f"{float(round_decimal(evidence_of(risk), digits=3, up=True)):g}"
            warnings.append(
                f"{PROTECTION[level]}: an attacker who asks "
                f"{QUESTIONS[risk.relation]}, both equally likely, may be right in up "
                f"to {right} % of all cases (blind guess: 50 %), and an alarm may "
                f"raise the odds of a suspicion {factor}-fold."
            )
        if self._has_large_delta():
            many = f"n = {USUAL_RECORDS} records, as are usual"
            if facts is not None:
                many = f"n = {facts.num_records}"
            warnings.append(
                f"LARGE DELTA: delta = {self.budget.delta!r} is no smaller than 1/n, "
                f"{many}: publishing one record as it is, picked at random, would keep "
                "the promise, too."
            )
        return tuple(warnings)

    def seal(self) -> None:
        """Check the identifiers, and compute the digest unless one was given."""
        for name in ("theorems", "assumptions"):
            value = getattr(self, name)
            check.instance((tuple, list), **{name: value})
            object.__setattr__(self, name, tuple(value))
            registry().words(tuple(value), field=name)
        if not self.digest:
            object.__setattr__(self, "digest", self.computed_digest())

    def to_json(self) -> str:
        """Return the certificate as JSON; every float survives exactly."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def to_dict(self) -> Json:
        """Return the fields as JSON values, and what follows from them."""
        content = {name: to_plain(getattr(self, name)) for name in _names(type(self))}
        derived = {name: getattr(self, name) for name in self.DERIVED[1:]}
        return {"format": self.FORMAT} | derived | content

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Parameters
        ----------
        text : str
            JSON of one certificate.

        Returns
        -------
        Certificate or EventCertificate
            Equal to the one that was written. `dpsample.verify` recomputes it.

        Raises
        ------
        ValueError
            If the text is not a certificate of this format, a field is missing,
            unknown, repeated, invalid or not written as `to_json` writes it.
        """
        return cls.from_dict(load_json(text, cls.FORMAT))

    @classmethod
    def from_dict(cls, given: Json) -> Self:
        """Read what `to_dict` returned; `from_json` says more."""
        check.instance(dict, given=given)
        odd = set(given) ^ {*_names(cls), *cls.DERIVED}
        if odd:
            condition = "a certificate with exactly the known fields"
            check.fail(
                "text", condition, f"a difference in {', '.join(sorted(map(str, odd)))}"
            )
        fields = {name: cls.parse_field(name, given[name]) for name in _names(cls)}
        certificate = cls(**fields)
        version = registry().version_of(given["registry"])
        object.__setattr__(certificate, "version", version)
        for name, value in certificate.to_dict().items():
            if canonical_text(given[name]) != canonical_text(value):
                condition = f"{value!r}, as the fields imply"
                check.fail(name, condition, given[name])
        object.__setattr__(certificate, "is_unverified", True)
        return certificate

    def computed_digest(self) -> str:
        """SHA-256 of every field except the digest."""
        content = self.to_dict() | {"digest": ""}
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def _guarantee(self, subject: str, also: str = "") -> str:
        """Sentence of privacy about ``subject``, with what printed constants aim at."""
        relation, delta = self.budget.relation, self.budget.delta
        pair = f"({round_up(self.epsilon_proved)}, {delta!r})"
        text = (
            f"{pair}-DP under {relation}: {subject} is {pair}-differentially private "
            f"when {RELATION_WORDS[relation]}{also}."
        )
        if not self.is_proved:
            text += (
                f" The printed constants aim at epsilon = {self.budget.epsilon!r} and "
                "are not a proof of it."
            )
        facts = self._facts_and_risk()[0]
        if facts is not None and delta >= 1.0 / facts.num_records:
            text += (
                f" WEAK: delta is no smaller than 1/n, n = {facts.num_records}, so "
                "publishing one record as it is, picked at random, would keep this "
                "promise too."
            )
        return text

    def _lines(self) -> list[tuple[str, str]]:
        """Lines that say something, warnings first."""
        rows = [row for row in self._rows() if row[1]]
        rows.insert(-1, ("other releases", ADDS_UP))
        return [*(("WARNING", words) for words in self.warnings), *rows]

    def _may_be_released(self, obstacles: dict[str, bool]) -> str:
        """Return yes, with what weakens it, or no with the obstacles that exist."""
        present = ", ".join(words for words, is_there in obstacles.items() if is_there)
        if present:
            return f"NO: {present}"
        return "yes, but read the warning" if self.warnings else "yes"

    def _state(self) -> str:
        """Word of a repr for whether the guarantee may be given to others."""
        if not self.releasable:
            return "NOT releasable"
        return "releasable, WEAK protection" if self.warnings else "releasable"

    def __str__(self) -> str:
        """Return every line of the certificate, at most 88 columns wide."""
        rows = self._lines()
        margin = " " * (2 + max(len(name) for name, _ in rows))
        return "\n".join(
            textwrap.fill(
                part,
                width=88,
                initial_indent=margin if i else name.ljust(len(margin)),
                subsequent_indent=margin,
                break_long_words=False,
            )
            for name, value in rows
            for i, part in enumerate(value.splitlines())
        )

    def __rich__(self) -> Table:
        """Return a table for the terminal; rich is imported only here."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title="Certificate of differential privacy", show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in self._lines():
            table.add_row(name, Text(value))
        return table


def level_of(risk: AttackRisk | None) -> Level:
    """Level of protection that bounds of attacks mean; none if nothing is proved."""
    if risk is None:
        return "none"
    success, evidence = 1.0 - risk.bayes_risk(), evidence_of(risk)
    if success > NO_SUCCESS or evidence >= NO_EVIDENCE:
        return "none"
    if success > WEAK_SUCCESS or evidence >= WEAK_EVIDENCE:
        return "weak"
    is_high = success <= LITTLE_SUCCESS and evidence <= LITTLE_EVIDENCE
    return "high" if is_high else "limited"


def evidence_of(risk: AttackRisk) -> float:
    """Factor by which an alarm can raise the odds, at few false alarms."""
    return float(risk.true_positive_rate(FALSE_ALARMS)) / FALSE_ALARMS


def _names(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]
