"""Certificate of one private draw, with its public inputs, numbers and theorems."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from dpsample.core import check
from dpsample.privacy.accounting.attack_risk import AttackRisk
from dpsample.privacy.accounting.events import (
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    NearEvent,
)
from dpsample.privacy.certificates.former_calls import read_mechanism
from dpsample.privacy.certificates.json_form import round_up
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from dpsample.privacy.certificates.overview import domain_name
from dpsample.privacy.certificates.page import Published
from dpsample.privacy.certificates.registry import (
    Kind,
    check_mechanism,
    problem_assumptions,
    registry,
)
from dpsample.privacy.certificates.terms import MechanismTerms
from dpsample.problem.facts import PublicFacts


@dataclass(frozen=True, kw_only=True)
class Certificate(Published, MechanismTerms):
    """Public inputs, numbers and theorems behind one differentially private draw.

    It holds nothing that depends on the records, so it can be published with the
    answer. The first fields are those of `ExponentialMechanism`.

    Attributes
    ----------
    sampler : MechanismSpec or None
        Type and parameters of the sampler of the draw, printed as its ``repr``. None
        while the certificate describes an exact draw.
    max_work : float or None
        Public limit of the passes over the records.
    assumptions : tuple of str
        Identifiers of the assumptions on which the guarantee rests.
    seeded : bool
        Whether a seed, which others may know, made the random numbers.
    digest : str
        SHA-256 of all other fields. It detects accidental changes, but it is not a
        signature and does not detect forgery.

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

    FORMAT: ClassVar[str] = "dpsample certificate 3"
    FORMER_FORMATS: ClassVar[tuple[str, ...]] = ("dpsample certificate 2",)
    MECHANISM: ClassVar[str] = "sampler"

    sampler: MechanismSpec | None
    max_work: float | None
    assumptions: tuple[str, ...]
    seeded: bool
    digest: str = ""

    def __post_init__(self) -> None:
        """Check the inputs and seal the content."""
        super().__post_init__()
        if self.sampler is not None:
            check_mechanism(kind_of(self.sampler), self.sampler, field="sampler")
            # A part of delta must be left for the error of a sampler that has one.
            if self.budget.is_pure:
                check_may_be_pure(self.sampler)
            if self.gamma == 0.0 and not self.registered.exact:
                remedy = "Pass sampler_share > 0 to calibrate: gamma is 0."
                check.fail("sampler", "an exact one", self.sampler, remedy)
        if self.max_work is not None:
            check.at_least(1.0, max_work=self.max_work)
            if self.sampler is None:
                check.fail("max_work", "None without a sampler", self.max_work)
        self.seal()

    @classmethod
    def of(cls, terms: MechanismTerms) -> Certificate:  # a public name, lint: ok
        """Return the certificate of an exact draw from a calibrated mechanism."""
        fields = dataclasses.fields(MechanismTerms)
        common = {f.name: getattr(terms, f.name) for f in fields}
        return cls(
            **common,
            sampler=None,
            max_work=None,
            assumptions=assumptions_of(terms),
            seeded=False,
        )

    def with_sampler(
        self,
        *,
        sampler: MechanismSpec | str,
        clip_rows: bool = False,
        max_work: float | None = None,
        has_deadline: bool = False,
        seeded: bool = False,
    ) -> Certificate:
        """Return a copy for a draw by ``sampler``, with the theorems of its proof.

        Parameters
        ----------
        sampler : MechanismSpec or str
            Sampler of the registry, or what ``repr`` writes of it. Its total-variation
            error is proved to be at most ``gamma``.
        clip_rows : bool
            Whether rows above their bound were scaled down, instead of rejected.
        max_work : float, optional
            Public limit of the passes over the records.
        has_deadline : bool
            Whether the answer is handed over at a public time, not earlier.
        seeded : bool
            Whether a seed made the random numbers. Then the draw is not releasable.

        Returns
        -------
        Certificate
            The final certificate.

        Raises
        ------
        ValueError
            If there is no proof for ``sampler``, or it is not exact and gamma is 0.
        """
        check.instance(
            bool, clip_rows=clip_rows, has_deadline=has_deadline, seeded=seeded
        )
        if self.sampler is not None:
            check.fail("sampler", "named once", self.sampler)
        spec: Any = read_mechanism(sampler)
        # An empty digest is computed again, over the new fields.
        limit = None if max_work is None else float(max_work)
        return dataclasses.replace(
            self,
            sampler=spec,
            max_work=limit,
            theorems=(*self.theorems, *registry().kind(kind_of(spec)).theorems),
            assumptions=assumptions_of(
                self,
                sampler=spec,
                max_work=limit,
                has_deadline=has_deadline,
                clip_rows=clip_rows,
            ),
            seeded=seeded,
            digest="",
        )

    @property
    def registered(self) -> Kind:
        """Registered facts about draws by the sampler."""
        return registry().kind(kind_of(self.sampler))

    @property
    def is_proved(self) -> bool:
        """Whether the calibration is implied by a theorem (all but "paper" are)."""
        return self.calibration != "paper"

    @property
    def statement(self) -> str:
        """Sentence that states the guarantee."""
        return self._guarantee("one draw", f" (n = {self.facts.num_records}, public)")

    @property
    def event(self) -> Event:
        """Privacy event of one draw, for ledgers and accountants."""
        # The draw is within gamma of an exact one in total variation.
        exact: Event = GaussianEvent(self.gdp)
        if self.calibration == "range":
            exact = BoundedRangeEvent(self.range)
        return NearEvent(exact, self.gamma) if self.gamma > 0.0 else exact

    @property
    def attack_risk(self) -> AttackRisk:
        """Bounds on what an attacker can learn about one record."""
        return AttackRisk(event=self.event, relation=self.budget.relation)

    def __repr__(self) -> str:
        """Return the statement and the most important numbers."""
        sampler = "an exact draw" if self.sampler is None else str(self.sampler)
        return (
            f"Certificate({self.statement} k={self.k:.6g}, mu={self.mu:.6g}, "
            f"gdp={self.gdp:.6g}, gamma={self.gamma:.3g}; {sampler}; {self._state()})"
        )

    def _facts_and_risk(self) -> tuple[PublicFacts, AttackRisk]:
        return self.facts, self.attack_risk

    @property
    def _kind(self) -> str:
        return kind_of(self.sampler)

    def _obstacles(self) -> tuple[str, ...]:
        obstacles = {
            "the random bits are seeded": self.seeded,
            "the published constants are not proved": not self.is_proved,
            "no sampler is named": self.sampler is None,
        }
        return tuple(words for words, is_there in obstacles.items() if is_there)

    def _accuracy(self) -> str:
        """Return the meaning of the risk bound, in words."""
        if not self.is_proved:
            return ""
        if self.confidence is not None:
            said = self.risk_statement
            return f"Proved for the exact distribution of the draw: {said}."
        bound, value = round_up(self.risk_bound), "expected loss"
        if self.has_ridge:
            value += " plus penalty"
        average, of_what = "On average over draws", "the records"
        if self.risk == "population":
            average += (
                " and over records that are an independent sample of a population"
            )
            of_what = "a new record"
        return (
            f"{average}, the {value} of {of_what} is at most {bound} above the "
            f"smallest one in {domain_name(self.facts.domain)}. This bound is proved "
            "for the exact distribution of the draw. It is not an estimate."
        )

    def _spending(self) -> str:
        """Return what delta is spent on."""
        total = f"epsilon = {round_up(self.epsilon_proved)}"
        total += f", delta = {self.budget.delta!r}"
        sampler = "nothing for the sampler"
        if self.gamma > 0.0:
            cost = self.gamma * (1.0 + math.exp(min(self.epsilon_proved, 700.0)))
            sampler = f"(1 + e^epsilon) gamma = {cost:.6g} for the sampler"
        return f"{total} (delta_0 = {self.delta_exact:.6g} for the draw, {sampler})"

    def _settings(self) -> str:
        """Return the public inputs of the calibration that no other line has."""
        names = ("p", "risk", "calibration", "sampler_share", "strong_convexity")
        listed = [f"{name} = {getattr(self, name)!r}" for name in names]
        if self.confidence is not None:
            listed.append(f"confidence = {self.confidence!r}")
        return ", ".join([*listed, f"relation = {self.budget.relation}"])

    def _rows(self) -> list[tuple[str, str]]:
        """Return name and value of every line of the details."""
        facts = self.facts
        sampler = "an exact draw (no sampler yet)"
        if self.sampler is not None:
            sampler = str(self.sampler)
        limit = "" if self.max_work is None else f"; max_work = {self.max_work:g}"
        sensitivity = f"G = {self.lipschitz:.6g}, G_Delta = {self.diff_lipschitz:.6g}"
        privacy = f"gdp = {self.gdp:.6g}, delta_0 = {self.delta_exact:.6g}"
        if self.calibration == "range":
            omega = facts.loss_range(self.budget.relation)
            sensitivity = f"Omega = {omega:.6g} (range of a change of the losses)"
            privacy = f"range = {self.range:.6g}, delta_0 = {self.delta_exact:.6g}"
        described = self.regularizer.describe(facts.domain, facts.dim)
        return [
            ("guarantee", self.statement),
            ("releasable", self._may_be_released()),
            ("spending", self._spending()),
            ("density", f"exp(-k (F + mu r)), k = {self.k:.6g}, mu = {self.mu:.6g}"),
            ("privacy", privacy),
            ("sampler", f"{sampler}; total variation <= {self.gamma:.6g}{limit}"),
            ("risk bound", self.risk_statement),
            ("attacks", str(self.attack_risk)),
            *facts.rows(),
            ("regularizer", f"{described}, range {self.range_bound:.6g}"),
            ("sensitivity", sensitivity),
            ("settings", self._settings()),
            *self._foundation(),
        ]


def kind_of(sampler: object) -> str:
    """Return the kind of the certificate of a draw by ``sampler``.

    The registry need not know it.

    Examples
    --------
    >>> kind_of(MechanismSpec("Proximal", (("oracle", "metric"),)))
    'draw/proximal'
    """
    if sampler is None:
        return "draw"
    if isinstance(sampler, MechanismSpec):
        return f"draw/{sampler.type.lower()}"
    if not isinstance(sampler, str):
        condition = "the type of a sampler with its parameters"
        check.fail("sampler", condition, check.describe(sampler))
    # A text is not a sampler. Its first word is the kind that the error is about.
    return f"draw/{sampler.split('(')[0].lower()}"


def check_may_be_pure(sampler: MechanismSpec) -> None:
    """Raise a ValueError unless draws of a sampler have no error, rounding included."""
    kind = registry().kind(kind_of(sampler))
    if not (kind.exact and kind.counted):
        remedy = "Every other one has an error, which only delta > 0 can pay."
        check.fail(
            "sampler", "Global() or TangentCells() at delta = 0", str(sampler), remedy
        )


def assumptions_of(
    terms: MechanismTerms,
    *,
    sampler: MechanismSpec | None = None,
    max_work: float | None = None,
    has_deadline: bool = False,
    clip_rows: bool = False,
) -> tuple[str, ...]:
    """Return identifiers of all that a draw takes for granted."""
    declared, records = problem_assumptions("draw", terms.facts, clip_rows=clip_rows)
    kind = registry().kind(kind_of(sampler))
    base = (declared, *kind.common, *(("RIDGE",) if terms.has_ridge else ()))
    if sampler is None:
        return base
    # Work limits and deadlines make some outcomes depend on the records, which the
    # guarantee excludes by these assumptions.
    limited = () if max_work is None else ("DRAW.WORK",)
    due = ("DRAW.DEADLINE",) if has_deadline else ()
    return (*base, *kind.assumptions, *limited, *due, records)
