"""Verification: every number of a certificate beside the one recomputed from inputs."""

import math
from dataclasses import dataclass, field
from typing import NoReturn

from dpsample.core import check
from dpsample.privacy.accounting.accounting import (
    LARGEST_EPSILON,
    delta_of,
    theorems_used,
)
from dpsample.privacy.accounting.events import (
    ApproximateEvent,
    ConcentratedEvent,
    GaussianEvent,
    PureEvent,
)
from dpsample.privacy.accounting.normal_form import ideal_form
from dpsample.privacy.certificates import certificate as draws
from dpsample.privacy.certificates import event_certificate as fits
from dpsample.privacy.certificates.certificate import Certificate
from dpsample.privacy.certificates.event_certificate import (
    SLACK,
    EventCertificate,
    proved,
)
from dpsample.privacy.certificates.sealed import of_search
from dpsample.privacy.curves.gaussian import gaussian_delta
from dpsample.privacy.exponential_mechanism import (
    MARGIN,
    ExponentialMechanism,
    calibrate,
)

# Platforms differ in the last digits of logarithms and linear programs.
TOLERANCE = 1e-9
# Inequalities are rounded against the claim, by more than the errors of the few
# operations on their sides; the curve itself is rounded up.
ROUNDING = 8.0 * 2.0**-53
INPUTS = ("p", "risk", "calibration", "sampler_share", "strong_convexity", "confidence")
PROOF = ("lipschitz", "diff_lipschitz", "range_bound", "delta_exact", "gdp", "k", "mu")
DERIVED = (*PROOF, "epsilon_proved", "gamma", "risk_bound")
# What no certificate shows to whoever recomputes it.
UNSEEN = (
    "that the program was run as stated, on records within the declared bounds",
    "the random bits and the noise that was drawn",
)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of a report: what is claimed, and the recomputed value."""

    name: str
    stated: str
    recomputed: str


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """Every check that a certificate passed; printing it lists them.

    The first line is "consistent", not more: what is stated follows from what is
    listed. The last line says what was not checked.

    Attributes
    ----------
    statement : str
        The guarantee that the certificate states, in words.
    checks : tuple of Check
        ``name``, ``stated`` and ``recomputed`` of each check, as words.
    unchecked : tuple of str
        What the checker did not look at, beside what nobody can see in a certificate.
    warnings : tuple of str
        Why the stated guarantee protects little; empty if it does protect.

    Examples
    --------
    >>> import dpsample as dps
    >>> from dpsample.problem.facts import PublicFacts
    >>> facts = PublicFacts(num_records=2000, dim=20, row_bound=1.0, row_norm=2.0,
    ...                     loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> mech = dps.calibrate(facts, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> checks = dps.verify(mech.certificate).checks
    >>> [line.stated for line in checks if line.name == "gdp"]
    ['0.236704']
    """

    statement: str
    checks: tuple[Check, ...]
    unchecked: tuple[str, ...] = ()
    certificate: Certificate | EventCertificate | None = field(
        default=None, repr=False, compare=False
    )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the certificate, computed when they are read."""
        return () if self.certificate is None else self.certificate.warnings

    def __str__(self) -> str:
        """One line for each check, between the verdict and what was not checked."""
        width = max((len(line.name) for line in self.checks), default=0)
        count = len(self.checks)
        return "\n".join(
            [
                *(f"WARNING: {words}" for words in self.warnings),
                f"Consistent: {count} number{'s' * (count != 1)} recomputed.",
                f"Stated: {self.statement}",
                *(
                    f"{line.name:<{width}}  {line.stated}  [{line.recomputed}]"
                    for line in self.checks
                ),
                f"Not checked: {'; '.join([*self.unchecked, *UNSEEN])}.",
            ]
        )

    __repr__ = __str__


def recomputed(certificate: Certificate | EventCertificate) -> VerificationReport:
    """First part of `dpsample.verify`: calibrate or account again, compare the words.

    ValueError names the first number that disagrees, or a field that was edited.
    """
    if isinstance(certificate, EventCertificate):
        checks = _event_checks(certificate)
    else:
        again = _again(certificate)
        checks = [*_recomputed(certificate, again), *_identities(certificate, again)]
    digest = certificate.computed_digest()
    if certificate.digest != digest:
        disagree("digest", digest, certificate.digest)
    sealed = Check(name="digest", stated=digest, recomputed="all fields as sealed")
    checks.append(sealed)
    return VerificationReport(
        statement=certificate.statement, checks=tuple(checks), certificate=certificate
    )


class CertificateError(RuntimeError):
    """A certificate that this package made does not verify: nothing is released."""


def verify_own(certificate: Certificate | EventCertificate) -> None:
    """Verify a certificate before anything is drawn under it.

    CertificateError is raised if it does not verify: no input should bring that about.
    """
    try:
        recomputed(certificate)
    except ValueError as error:
        raise CertificateError(
            "The certificate of this release does not verify, so nothing was drawn: "
            f"{error} This is an error of dpsample: please report it."
        ) from error


def _event_checks(c: EventCertificate) -> list[Check]:
    """Account for the event again."""
    checks = [agreeing("epsilon_proved", c.epsilon_proved, proved(c.event, c.budget))]
    if c.calibration == "exact":
        limit = c.budget.epsilon * (1.0 + SLACK)
        checks.append(at_most("epsilon_proved<=epsilon", c.epsilon_proved, limit))
    relation = c.budget.relation
    if _has_formula(c) and c.event is not None:
        delta = delta_of(c.event, epsilon=c.epsilon_proved, relation=relation)
        # `delta_of` is rounded up by more than twice that.
        limit = c.budget.delta * (1.0 + 4.0 * ROUNDING)
        checks.append(at_most("delta(epsilon;event)<=delta", delta, limit))
    accounted = theorems_used(c.event, epsilon=c.epsilon_proved, relation=relation)
    _exactly("theorems", (*c.registered.theorems, *accounted), c.theorems)
    clipped = "RECORDS.CLIPPED" in c.assumptions
    expected = fits.assumptions_of(c.kind, c.facts, clip_rows=clipped)
    _exactly("assumptions", (*expected, *of_search(c.assumptions)), c.assumptions)
    return checks


def _has_formula(c: EventCertificate) -> bool:
    """Whether delta follows by a formula, the same on every machine up to rounding."""
    if c.event is None or not c.epsilon_proved <= LARGEST_EPSILON:
        return False
    parts = ideal_form(c.event, c.budget.relation).parts
    simple = GaussianEvent | PureEvent | ApproximateEvent | ConcentratedEvent
    return len(parts) == 1 and isinstance(parts[0], simple)


def _again(stated: Certificate) -> ExponentialMechanism:
    """Calibrate again from the inputs."""
    inputs = {name: getattr(stated, name) for name in INPUTS}
    return calibrate(stated.facts, stated.budget, **inputs)


def _recomputed(stated: Certificate, again: ExponentialMechanism) -> list[Check]:
    """Compare with what was calibrated again."""
    checks = [
        agreeing(name, getattr(stated, name), getattr(again, name)) for name in DERIVED
    ]
    if stated.regularizer != again.regularizer:
        disagree("regularizer", again.regularizer, stated.regularizer)
    theorems = (*again.theorems, *stated.registered.theorems)
    _exactly("theorems", theorems, stated.theorems)
    expected = draws.assumptions_of(
        stated,
        sampler=stated.sampler,
        max_work=stated.max_work,
        has_deadline="DRAW.DEADLINE" in stated.assumptions,
        clip_rows="RECORDS.CLIPPED" in stated.assumptions,
    )
    expected = (*expected, *of_search(stated.assumptions))
    _exactly("assumptions", expected, stated.assumptions)
    return checks


def _identities(c: Certificate, again: ExponentialMechanism) -> list[Check]:
    """Check the inequalities of the proof on the stated numbers themselves."""
    diff = max(c.diff_lipschitz, again.diff_lipschitz)
    distance = diff / c.facts.num_records * (1.0 + 0.5 * MARGIN)
    distance *= math.sqrt(c.k / (c.mu * c.curvature_kept))
    curve = gaussian_delta(c.epsilon_proved, c.gdp)
    checks = [
        at_most("(G_Delta/n)*sqrt(k/mu)<=gdp", distance, c.gdp),
        at_most("delta(epsilon;gdp)<=delta_0", curve, c.delta_exact),
    ]
    if c.gamma > 0.0:
        # delta_0 is so near delta that only their difference, which is exact for
        # shares up to 1/2 and else rounded once, can be compared.
        near = c.gamma * (1.0 + math.exp(c.epsilon_proved))
        rest = c.budget.delta - c.delta_exact
        return [*checks, at_most("(1+e^epsilon)*gamma<=delta-delta_0", near, rest)]
    limit = c.budget.delta * (1.0 + ROUNDING)  # both are stated: no error
    return [*checks, at_most("delta_0<=delta", c.delta_exact, limit)]


def _exactly(name: str, expected: tuple[str, ...], stated: tuple[str, ...]) -> None:
    """Fail unless the identifiers are those of the kind, in their order."""
    if stated != expected:
        disagree(name, expected, stated)


def agreeing(
    name: str, stated: object, recomputed: float, *, tolerance: float = TOLERANCE
) -> Check:
    """Return the line of a number that agrees; fail if it does not."""
    agrees = isinstance(stated, float | int) and math.isclose(
        stated, recomputed, rel_tol=tolerance, abs_tol=0.0
    )
    if not agrees:
        disagree(name, recomputed, stated)
    return Check(name=name, stated=f"{stated:.6g}", recomputed=f"{recomputed:.6g}")


def at_most(name: str, value: float, limit: float) -> Check:
    """Return the line of an inequality that holds; fail if it does not."""
    if not value * (1.0 + ROUNDING) <= limit:
        check.fail(name, f"at most {limit!r}", repr(value), "It is not a proof.")
    return Check(name=name, stated=f"{value:.6g}", recomputed=f"{limit:.6g}")


def disagree(name: str, expected: object, stated: object) -> NoReturn:
    """Fail because of one field."""
    check.fail(
        f"certificate.{name}",
        f"{expected!r}, recomputed from the public inputs",
        repr(stated),
        "The certificate was edited or made by other code: do not trust it.",
    )
