"""What a private answer may say about itself: public inputs, targets and theorems."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from dpsample import _check as check
from dpsample.privacy.budget import RELATION_WORDS
from dpsample.privacy.terms import MechanismTerms
from dpsample.privacy.words import parse, plain, round_up

FORMAT = "dpsample certificate 1"
ASSUMPTIONS = (
    "the loss is convex and the declared bounds hold for every possible record",
    "real arithmetic: rounding errors of floating point are not counted",
    "ideal random bits",
    "the number of records and all other inputs listed here are public",
    "running time and failure messages are side channels: keep them private",
)
RIDGE_ASSUMPTION = "the ridge strong_convexity * r is public, common to all records"


@dataclass(frozen=True, kw_only=True)
class Certificate(MechanismTerms):
    """Public inputs, targets and theorems behind one differentially private answer.

    It holds nothing that depends on the records: it can be published with the answer.
    The fields of `MechanismTerms` come first.

    Attributes
    ----------
    sampler : str or None
        Sampler of the draw; None while the certificate describes an exact draw.
    assumptions : tuple of str
        What the guarantee takes for granted.
    seeded : bool
        Whether a seed, which somebody may know, made the random bits.
    digest : str
        SHA-256 of all other fields: finds slips, not forgery, for it is no signature.

    Examples
    --------
    >>> import dpsample as dps
    >>> from dpsample.facts import PublicFacts
    >>> facts = PublicFacts(num_records=2000, dim=20, row_bound=1.0, row_norm=2.0,
    ...                     loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> mech = dps.calibrate(facts, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> mech.certificate.releasable
    False
    >>> final = mech.certificate.with_sampler(sampler="Exact()")
    >>> final.releasable, Certificate.from_json(final.to_json()) == final
    (True, True)
    """

    sampler: str | None
    assumptions: tuple[str, ...]
    seeded: bool
    digest: str = ""

    def __post_init__(self) -> None:
        """Check the inputs and seal the content."""
        super().__post_init__()
        if not self.digest:
            object.__setattr__(self, "digest", self.computed_digest())

    @classmethod
    def of(cls, terms: MechanismTerms) -> Certificate:
        """Certificate of an exact draw from a calibrated mechanism."""
        common = {f.name: getattr(terms, f.name) for f in _fields(MechanismTerms)}
        return cls(
            **common, sampler=None, assumptions=base_assumptions(terms), seeded=False
        )

    def with_sampler(
        self,
        *,
        sampler: str,
        theorems: tuple[str, ...] = (),
        assumptions: tuple[str, ...] = (),
        seeded: bool = False,
    ) -> Certificate:
        """Return a copy for a draw by ``sampler``, with what its proof rests on.

        Parameters
        ----------
        sampler : str
            The sampler, whose total-variation error is proved to be <= ``gamma``.
        theorems, assumptions : tuple of str
            Added to those of the calibration.
        seeded : bool
            Whether a seed made the random bits: then the draw is not releasable.

        Returns
        -------
        Certificate
            The final certificate.

        Raises
        ------
        ValueError
            If ``sampler`` is empty or ``seeded`` is not a bool.
        """
        if not (isinstance(sampler, str) and sampler):
            check.fail("sampler", "the sampler in words", check.shown(sampler))
        check.instance(bool, seeded=seeded)
        return dataclasses.replace(
            self,
            sampler=sampler,
            theorems=(*self.theorems, *theorems),
            assumptions=(*self.assumptions, *assumptions),
            seeded=seeded,
            digest="",
        )

    @property
    def releasable(self) -> bool:
        """Whether a sampler is named, the bits are not seeded, the constants proved."""
        return self.sampler is not None and not self.seeded and self.is_proved

    @property
    def is_proved(self) -> bool:
        """Whether the calibration is implied by a theorem (all but "paper" are)."""
        return self.calibration != "paper"

    @property
    def statement(self) -> str:
        """The guarantee, in words."""
        relation, n = self.budget.relation, self.facts.num_records
        pair = f"({round_up(self.epsilon_proved)}, {self.budget.delta!r})"
        text = (
            f"{pair}-DP under {relation}: one draw is {pair}-differentially private "
            f"when {RELATION_WORDS[relation]} (n = {n}, public)."
        )
        if not self.is_proved:
            text += (
                f" The printed constants aim at epsilon = {self.budget.epsilon!r} and "
                "are not a proof of it."
            )
        return text

    def to_json(self) -> str:
        """Return the certificate as JSON; every float survives exactly."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, with the statement in words."""
        content = {f.name: plain(getattr(self, f.name)) for f in _fields(Certificate)}
        head = {"format": FORMAT, "statement": self.statement}
        return head | {"releasable": self.releasable} | content

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read what `to_json` wrote.

        Parameters
        ----------
        text : str
            JSON of one certificate.

        Returns
        -------
        Certificate
            Equal to the one that was written. `dpsample.verify` recomputes it.

        Raises
        ------
        ValueError
            If the text is not a certificate, a field is missing, unknown or invalid,
            or the statement does not follow from the fields.
        """
        try:
            given = json.loads(text)
        except (TypeError, ValueError):
            given = None
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            check.fail("text", f'the JSON of a "{FORMAT}"', check.shown(text))
        names = [f.name for f in _fields(cls)]
        derived = ("format", "statement", "releasable")
        odd = set(given) ^ {*names, *derived}
        if odd:
            condition = "a certificate with exactly the known fields"
            check.fail("text", condition, f"a difference in {', '.join(sorted(odd))}")
        certificate = cls(**{name: parse(name, given[name]) for name in names})
        for name in derived:
            expected = certificate.to_dict()[name]
            if given[name] != expected:
                check.fail(name, f"{expected!r}, as the fields imply", given[name])
        return certificate

    def computed_digest(self) -> str:
        """SHA-256 of every field but the digest."""
        content = self.to_dict() | {"digest": ""}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def __repr__(self) -> str:
        """Return the statement and the numbers a reader wants first."""
        sampler = "an exact draw" if self.sampler is None else self.sampler
        state = "releasable" if self.releasable else "NOT releasable"
        return (
            f"Certificate({self.statement} k={self.k:.6g}, mu={self.mu:.6g}, "
            f"gdp={self.gdp:.6g}, gamma={self.gamma:.3g}; {sampler}; {state})"
        )

    def __rich__(self) -> Any:
        """Return a table for the terminal."""
        from dpsample.privacy.table import certificate_table

        return certificate_table(self)


def base_assumptions(terms: MechanismTerms) -> tuple[str, ...]:
    """Return what every draw takes for granted."""
    return ASSUMPTIONS + ((RIDGE_ASSUMPTION,) if terms.has_ridge else ())


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)
