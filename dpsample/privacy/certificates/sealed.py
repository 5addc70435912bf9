"""Base of all certificates: a digest over the fields, their JSON, and the details.

A certificate also has a level of protection, which follows from two numbers of the risk
of attacks. *Success* is the probability that an attacker with two equally likely
candidates for a record names the right one, 1/2 by a blind guess. *Evidence* is the
factor by which an alarm can raise the odds of a suspicion, if one of 1000 other cases
raises a false alarm.
"""

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
from dpsample.privacy.certificates.former_calls import read_mechanism
from dpsample.privacy.certificates.json_form import (
    canonical_text,
    load_json,
    parse,
    round_up,
    to_plain,
)
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from dpsample.privacy.certificates.registry import Kind, check_parameters, registry
from dpsample.problem.facts import PublicFacts

if TYPE_CHECKING:
    from rich.text import Text

Level = Literal["high", "limited", "weak", "none"]
# Share of false alarms for which the evidence of an alarm is computed.
FALSE_ALARMS = 0.001
# High protection needs at most one more right answer in ten than a blind guess, and
# evidence that leaves a suspicion of 1 in 100 improbable.
LITTLE_SUCCESS = 0.6
LITTLE_EVIDENCE = 10.0
# Protection is weak, with a warning, if an attacker is right in three cases of four,
# half of the way from a blind guess to certainty, or if an alarm makes a suspicion of 1
# in 100 as likely as not.
WEAK_SUCCESS = 0.75
WEAK_EVIDENCE = 100.0
# There is no useful protection if an attacker is wrong once in a hundred cases, or if
# an alarm turns a suspicion of 1 in 10 into 99 in 100.
NO_SUCCESS = 0.99
NO_EVIDENCE = 990.0
# First words of the warning at low levels.
PROTECTION = {"weak": "WEAK PROTECTION", "none": "NO USEFUL PROTECTION"}
# Without a number of records, delta is compared with one over this usual number.
USUAL_RECORDS = 1000
# Last assumption of a fit that may be one of many.
SEARCH = "FIT.SEARCH"


def of_search(assumptions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the identifier of a fit of a search, if it is the last one."""
    return assumptions[-1:] if assumptions[-1:] == (SEARCH,) else ()


class Sealed(ABC):
    """Base of frozen dataclasses with a ``digest`` field that seals all others."""

    FORMAT: ClassVar[str]
    # Formats of earlier versions that are read, too. In them a mechanism is a text.
    FORMER_FORMATS: ClassVar[tuple[str, ...]]
    # Name of the field that holds the mechanism.
    MECHANISM: ClassVar[str]
    DERIVED: ClassVar[tuple[str, ...]] = ("format", "registry", "releasable")
    # Whether the certificate was read from JSON, whose author is unknown, and
    # `dpsample.verify` has not passed yet.
    is_unverified: ClassVar[bool] = False
    budget: Budget
    epsilon_proved: float
    theorems: tuple[str, ...]
    assumptions: tuple[str, ...]
    seeded: bool
    digest: str
    # Version of the registry whose sentences the certificate binds. Files keep theirs.
    version: int | None = None
    # Former format of the file that the certificate was read from. Its digest binds it.
    former_format: str | None = None

    @property
    @abstractmethod
    def statement(self) -> str:
        """Sentence that states the guarantee."""

    @property
    @abstractmethod
    def is_proved(self) -> bool:
        """Whether the budget's epsilon is implied by a theorem."""

    @abstractmethod
    def _rows(self) -> list[tuple[str, str]]:
        """Return name and value of every line of the details."""

    @property
    @abstractmethod
    def _kind(self) -> str:
        """Kind in the registry."""

    @abstractmethod
    def _obstacles(self) -> tuple[str, ...]:
        """Return why the guarantee may not be given to others. Empty if it may."""

    def _accuracy(self) -> str:
        """Return what is proved of the accuracy, in words. Empty for nothing."""
        return ""

    @abstractmethod
    def _facts_and_risk(self) -> tuple[PublicFacts | None, AttackRisk | None]:
        """Return the facts of the problem and the risk of attacks, if there are any."""

    @staticmethod
    def parse_field(name: str, value: object) -> Any:
        """Turn the JSON value of one field into the field's type."""
        return parse(name, value)

    @property
    @abstractmethod
    def registered(self) -> Kind:
        """Registered facts about certificates of this kind."""

    @property
    def releasable(self) -> bool:
        """Whether the guarantee may be given to others.

        It must be proved, its random numbers must not come from a seed, and its kind
        must be releasable. A draw without a named sampler is not, and neither is an
        event that its author declares.
        """
        return self.registered.releasable and self.is_proved and not self.seeded

    @property
    def format(self) -> str:
        """Format of the JSON form."""
        return self.former_format or self.FORMAT

    @property
    def registry(self) -> str:
        """Version of the registry, and SHA-256 of the sentences in the certificate."""
        return registry().seal((*self.theorems, *self.assumptions), self.version)

    def words(self, identifiers: tuple[str, ...]) -> tuple[str, ...]:
        """Return the sentences of identifiers, as the certificate binds them."""
        return registry().words(identifiers, version=self.version)

    @cached_property
    def level(self) -> Level:
        """Level of protection of one record, by the thresholds of this file."""
        level = level_of(self._facts_and_risk()[1])
        return "weak" if self._has_large_delta() and level != "none" else level

    def _has_large_delta(self) -> bool:
        """Return whether delta is 1/n or more.

        Then even the publication of one random record would keep the promise.
        """
        facts = self._facts_and_risk()[0]
        count = USUAL_RECORDS if facts is None else facts.num_records
        return self.budget.delta >= 1.0 / count

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why the guarantee protects little. Empty if it does protect."""
        risk = self._facts_and_risk()[1]
        warnings = []
        level = level_of(risk)
        if risk is not None and level in PROTECTION:
            right = percent(1.0 - risk.bayes_risk(), up=True)
            factor = f"{float(round_decimal(evidence_of(risk), digits=3, up=True)):g}"
            warnings.append(
                f"{PROTECTION[level]}: an attacker who asks "
                f"{QUESTIONS[risk.relation]}, both equally likely, may be right in up "
                f"to {right}% of all cases (guessing: 50%), and an alarm may "
                f"raise the odds of a suspicion {factor}-fold."
            )
        if self._has_large_delta():
            warnings.append(self._describe_large_delta())
        return tuple(warnings)

    def _describe_large_delta(self) -> str:
        """Return what it means that delta is 1/n or more."""
        facts = self._facts_and_risk()[0]
        many = f"n = {USUAL_RECORDS} records, as are usual"
        if facts is not None:
            many = f"n = {facts.num_records}"
        return (
            f"LARGE DELTA: delta = {self.budget.delta!r} is no smaller than 1/n, "
            f"{many}: publishing one record as it is, picked at random, would keep "
            "the promise, too."
        )

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
        """Return the certificate as JSON, with exact floats."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def to_dict(self) -> Json:
        """Return the fields, and values that follow from them, as JSON values."""
        content = {name: to_plain(getattr(self, name)) for name in _names(type(self))}
        mechanism = getattr(self, self.MECHANISM)
        if self.former_format and mechanism is not None:
            content[self.MECHANISM] = str(mechanism)
        return {name: getattr(self, name) for name in self.DERIVED} | content

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a certificate that `to_json` wrote.

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
            If the text is not a certificate of this or a former format, a field is
            missing, unknown, repeated, invalid or not written as `to_json` writes it.
        """
        return cls.from_dict(load_json(text, cls.FORMAT, cls.FORMER_FORMATS))

    @classmethod
    def from_dict(cls, content: Json) -> Self:
        """Read a dictionary that `to_dict` returned, with the checks of `from_json`."""
        check.instance(dict, content=content)
        differences = set(content) ^ {*_names(cls), *cls.DERIVED}
        if differences:
            names = ", ".join(sorted(map(str, differences)))
            condition = "a certificate with exactly the known fields"
            check.fail("text", condition, f"a difference in {names}")
        check.one_of((cls.FORMAT, *cls.FORMER_FORMATS), format=content["format"])
        is_former = content["format"] != cls.FORMAT
        fields = {
            name: cls.parse_field(name, content[name])
            for name in _names(cls)
            if name != cls.MECHANISM
        }
        stated = content[cls.MECHANISM]
        if is_former:
            fields[cls.MECHANISM] = read_mechanism(stated)
        elif isinstance(stated, dict):
            fields[cls.MECHANISM] = MechanismSpec.from_dict(stated, name=cls.MECHANISM)
        else:
            fields[cls.MECHANISM] = stated
        certificate = cls(**fields)
        if is_former:
            object.__setattr__(certificate, "former_format", content["format"])
        elif certificate.registered.by:
            check_parameters(fields[cls.MECHANISM], field=cls.MECHANISM)
        # Each stated value must be the one that follows from the fields, so that a file
        # cannot show other sentences or another verdict than its fields imply.
        version = registry().version_of(content["registry"])
        object.__setattr__(certificate, "version", version)
        for name, value in certificate.to_dict().items():
            if canonical_text(content[name]) != canonical_text(value):
                condition = f"{value!r}, as the fields imply"
                check.fail(name, condition, content[name])
        object.__setattr__(certificate, "is_unverified", True)
        return certificate

    def computed_digest(self) -> str:
        """Return the SHA-256 of all fields except the digest."""
        content = self.to_dict() | {"digest": ""}
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def _guarantee(self, subject: str, also: str = "") -> str:
        """Return the guarantee about ``subject``, with warnings if it is weak."""
        relation, delta = self.budget.relation, self.budget.delta
        level, pure = f"({round_up(self.epsilon_proved)}, {delta!r})", ""
        if self.budget.is_pure:
            level, pure = round_up(self.epsilon_proved), " (pure)"
        text = (
            f"{level}-DP{pure} under {relation}: {subject} is "
            f"{level}-differentially private{pure} "
            f"when {RELATION_WORDS[relation]}{also}."
        )
        if not self.is_proved:
            text += (
                f" The published constants aim at epsilon = {self.budget.epsilon!r} "
                "and are not a proof of it."
            )
        facts = self._facts_and_risk()[0]
        if facts is not None and delta >= 1.0 / facts.num_records:
            text += f" WARNING: {self._describe_large_delta()}"
        return text

    def _may_be_released(self) -> str:
        """Return "yes", with a hint at warnings, or "NO" with the obstacles."""
        obstacles = self._obstacles()
        if obstacles:
            return f"NO: {', '.join(obstacles)}"
        return "yes, but read the warning" if self.warnings else "yes"

    def _foundation(self) -> list[tuple[str, str]]:
        """Return the lines about theorems and assumptions, in their binding words."""
        fallback = self.registered.fallback
        main = tuple(name for name in self.theorems if name not in fallback)
        other = tuple(name for name in self.theorems if name in fallback)
        sentences = self._sentences(other)
        if other:
            sentences += "\nWhich of the two paths was taken is not disclosed."
        return [
            ("theorems", self._sentences(main)),
            ("fallback", sentences),
            ("assumptions", self._sentences(self.assumptions)),
        ]

    def _sentences(self, identifiers: tuple[str, ...]) -> str:
        """Return a line for each identifier, with its binding sentence."""
        pairs = zip(identifiers, self.words(identifiers), strict=True)
        return "\n".join(f"{name}: {words}" for name, words in pairs)

    def _state(self) -> str:
        """Return a word for a repr: whether the guarantee may be given to others."""
        if not self.releasable:
            return "NOT releasable"
        return "releasable, WEAK protection" if self.warnings else "releasable"

    def details(self) -> str:
        """Return the numbers, public inputs, theorems and assumptions as text.

        ``print(certificate)`` shows the first screen, for readers who are not experts.
        This is the second level. It says what the budget is spent on, and has every
        public input and the binding sentences of theorems and assumptions, by
        identifier. The third level is `to_json`, with full precision.

        Returns
        -------
        str
            Lines of at most 88 characters. Warnings come first.
        """
        rows = [("WARNING", words) for words in self.warnings]
        rows += [row for row in self._rows() if row[1]]
        margin = " " * (2 + max(len(name) for name, _ in rows))
        return "\n".join(
            textwrap.fill(
                part,
                width=88,
                initial_indent=margin if i else name.ljust(len(margin)),
                subsequent_indent=margin,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for name, value in rows
            for i, part in enumerate(value.splitlines())
        )

    def __rich__(self) -> Text:
        """Return the first screen for the terminal. Rich is imported only here."""
        from rich.text import Text

        return Text(str(self))


def level_of(risk: AttackRisk | None) -> Level:
    """Return the level of protection by a risk of attacks, "none" without a proof."""
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
    """Return the factor by which an alarm can raise the odds of a suspicion."""
    return float(risk.true_positive_rate(FALSE_ALARMS)) / FALSE_ALARMS


def _names(kind: Any) -> list[str]:
    """Return the names of the fields of a dataclass."""
    return [field.name for field in dataclasses.fields(kind)]
