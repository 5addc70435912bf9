"""Certificate of one private draw: public inputs, targets and theorems."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from dpsample.core import check
from dpsample.privacy.accounting.events import Event, GaussianEvent, NearEvent
from dpsample.privacy.certificates.sealed import COMMON_ASSUMPTIONS, Sealed, yes_unless
from dpsample.privacy.certificates.terms import MechanismTerms
from dpsample.problem.facts import PublicFacts

DECLARED = "the loss is convex and the declared bounds hold for every possible record"
ASSUMPTIONS = (DECLARED, *COMMON_ASSUMPTIONS)
RIDGE_ASSUMPTION = "the ridge strong_convexity * r is public, common to all records"


@dataclass(frozen=True, kw_only=True)
class Certificate(Sealed, MechanismTerms):
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
    >>> from dpsample.problem.facts import PublicFacts
    >>> facts = PublicFacts(num_records=2000, dim=20, row_bound=1.0, row_norm=2.0,
    ...                     loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> mech = dps.calibrate(facts, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> mech.certificate.releasable
    False
    >>> final = mech.certificate.with_sampler(sampler="Exact()")
    >>> final.releasable, Certificate.from_json(final.to_json()) == final
    (True, True)
    """

    FORMAT: ClassVar[str] = "dpsample certificate 1"

    sampler: str | None
    assumptions: tuple[str, ...]
    seeded: bool
    digest: str = ""

    def __post_init__(self) -> None:
        """Check the inputs and seal the content."""
        super().__post_init__()
        self.seal()

    @classmethod
    def of(cls, terms: MechanismTerms) -> Certificate:
        """Certificate of an exact draw from a calibrated mechanism."""
        fields = dataclasses.fields(MechanismTerms)
        common = {f.name: getattr(terms, f.name) for f in fields}
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
        return self._guarantee("one draw", f" (n = {self.facts.num_records}, public)")

    @property
    def event(self) -> Event:
        """What one draw does to privacy, for ledgers and accountants."""
        exact = GaussianEvent(self.gdp)
        return NearEvent(exact, self.gamma) if self.gamma > 0.0 else exact

    def __repr__(self) -> str:
        """Return the statement and the numbers a reader wants first."""
        sampler = "an exact draw" if self.sampler is None else self.sampler
        state = "releasable" if self.releasable else "NOT releasable"
        return (
            f"Certificate({self.statement} k={self.k:.6g}, mu={self.mu:.6g}, "
            f"gdp={self.gdp:.6g}, gamma={self.gamma:.3g}; {sampler}; {state})"
        )

    def _rows(self) -> list[tuple[str, str]]:
        """Name and value of every line of the certificate."""
        facts = self.facts
        obstacles = {
            "the random bits are seeded": self.seeded,
            "the printed constants are not proved": not self.is_proved,
            "no sampler is named": self.sampler is None,
        }
        sampler = self.sampler
        if sampler is None:
            sampler = "an exact draw (no sampler yet)"
        records = f"n = {facts.num_records}, d = {facts.dim}, {_row_words(facts)}"
        sensitivity = f"G = {self.lipschitz:.6g}, G_Delta = {self.diff_lipschitz:.6g}"
        return [
            ("guarantee", self.statement),
            ("releasable", yes_unless(obstacles)),
            ("density", f"exp(-k (F + mu r)), k = {self.k:.6g}, mu = {self.mu:.6g}"),
            ("privacy", f"gdp = {self.gdp:.6g}, delta_0 = {self.delta_exact:.6g}"),
            ("sampler", f"{sampler}; total variation <= {self.gamma:.6g}"),
            ("risk bound", self.risk_statement),
            ("loss, domain", f"{facts.loss!r} on {facts.domain!r}"),
            ("regularizer", f"{self.regularizer!r}, range {self.range_bound:.6g}"),
            ("records", records),
            ("sensitivity", sensitivity),
            ("theorems", "\n".join(self.theorems)),
            ("assumptions", "\n".join(self.assumptions)),
        ]


def base_assumptions(terms: MechanismTerms) -> tuple[str, ...]:
    """Return what every draw takes for granted."""
    return ASSUMPTIONS + ((RIDGE_ASSUMPTION,) if terms.has_ridge else ())


def _row_words(facts: PublicFacts) -> str:
    """Say what is declared about a record."""
    kind = "Schatten" if facts.is_matrix else "l"
    words = f"rows with {kind}-{facts.row_norm:g} norm <= {facts.row_bound:g}"
    if facts.intercept:
        words += " and an intercept"
    if facts.response_bound is not None:
        words += f", |response| <= {facts.response_bound:g}"
    if facts.offset_bound:
        words += f", |offset| <= {facts.offset_bound:g}"
    return words
