"""Verification: every number of a certificate beside the one recomputed from inputs."""

import math
from dataclasses import dataclass
from typing import NoReturn

from dpsample.core import check
from dpsample.privacy.accounting.accounting import theorems_used
from dpsample.privacy.calibration.exponential_mechanism import calibrate
from dpsample.privacy.certificates.certificate import Certificate, base_assumptions
from dpsample.privacy.certificates.event_certificate import (
    SLACK,
    EventCertificate,
    proved,
)
from dpsample.privacy.certificates.sealed import COMMON_ASSUMPTIONS
from dpsample.privacy.curves.gaussian import gaussian_delta

# Platforms differ in the last digits of logarithms and linear programs.
TOLERANCE = 1e-9
# Rounding allowance of the inequalities between stated numbers.
ROUNDING = 1e-12
INPUTS = ("p", "risk", "calibration", "sampler_share", "strong_convexity", "confidence")
PROOF = ("lipschitz", "diff_lipschitz", "range_bound", "delta_exact", "gdp", "k", "mu")
DERIVED = (*PROOF, "epsilon_proved", "gamma", "risk_bound")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of a report: what is claimed, and the recomputed value."""

    name: str
    stated: str
    recomputed: str


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """Every check that a certificate passed; printing it lists them.

    Attributes
    ----------
    statement : str
        The certificate's guarantee, in words.
    checks : tuple of Check
        ``name``, ``stated`` and ``recomputed`` of each check, as words.

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

    def __str__(self) -> str:
        """One line for each check."""
        width = max(len(line.name) for line in self.checks)
        lines = [
            f"{line.name:<{width}}  {line.stated}  [{line.recomputed}]"
            for line in self.checks
        ]
        return "\n".join([f"Verified: {self.statement}", *lines])

    __repr__ = __str__


def verify(certificate: Certificate | EventCertificate) -> VerificationReport:
    """Recompute every number of a certificate from what it lists.

    A `Certificate` is calibrated again from its public inputs. Of an
    `EventCertificate`, epsilon is computed again from the event; that the event follows
    from the listed inputs is what its theorems say.

    Parameters
    ----------
    certificate : Certificate or EventCertificate
        Of a release, of a mechanism, or read from JSON.

    Returns
    -------
    VerificationReport
        The checks, one a line when printed.

    Raises
    ------
    ValueError
        Naming the first number that disagrees, or a field that was edited.

    Guarantee
    ---------
    What passes follows from the listed inputs, theorems and assumptions. That the
    inputs are those of the actual run, and that the sampler keeps its promise, is not
    visible in a certificate.

    Examples
    --------
    >>> import dpsample as dps
    >>> from dpsample.problem.facts import PublicFacts
    >>> facts = PublicFacts(num_records=2000, dim=20, row_bound=1.0, row_norm=2.0,
    ...                     loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> mech = dps.calibrate(facts, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> print(str(verify(mech.certificate)).splitlines()[1])
    lipschitz       1  [1]
    """
    check.instance((Certificate, EventCertificate), certificate=certificate)
    if isinstance(certificate, EventCertificate):
        checks = _event_checks(certificate)
    else:
        checks = [*_recomputed(certificate), *_identities(certificate)]
    digest = certificate.computed_digest()
    if certificate.digest != digest:
        _disagree("digest", digest, certificate.digest)
    sealed = Check(name="digest", stated=digest[:16], recomputed="all fields as sealed")
    checks.append(sealed)
    return VerificationReport(statement=certificate.statement, checks=tuple(checks))


class CertificateError(RuntimeError):
    """A certificate that this package made does not verify: nothing is released."""


def verify_own(certificate: Certificate | EventCertificate) -> None:
    """Verify a certificate before anything is drawn under it.

    CertificateError is raised if it does not verify: no input should bring that about.
    """
    try:
        verify(certificate)
    except ValueError as error:
        raise CertificateError(
            "The certificate of this release does not verify, so nothing was drawn: "
            f"{error} This is an error of dpsample: please report it."
        ) from error


def _event_checks(c: EventCertificate) -> list[Check]:
    """Account for the event again."""
    checks = [_agreeing("epsilon_proved", c.epsilon_proved, proved(c.event, c.budget))]
    if c.calibration == "exact":
        limit = c.budget.epsilon * (1.0 + SLACK)
        checks.append(_at_most("epsilon_proved<=epsilon", c.epsilon_proved, limit))
    relation = c.budget.relation
    expected = theorems_used(c.event, epsilon=c.epsilon_proved, relation=relation)
    if not set(expected) <= set(c.theorems):
        _disagree("theorems", expected, c.theorems)
    if c.assumptions[: len(COMMON_ASSUMPTIONS)] != COMMON_ASSUMPTIONS:
        _disagree("assumptions", COMMON_ASSUMPTIONS, c.assumptions)
    return checks


def _recomputed(stated: Certificate) -> list[Check]:
    """Calibrate again from the inputs and compare."""
    inputs = {name: getattr(stated, name) for name in INPUTS}
    again = calibrate(stated.facts, stated.budget, **inputs)
    checks = [
        _agreeing(name, getattr(stated, name), getattr(again, name)) for name in DERIVED
    ]
    if stated.regularizer != again.regularizer:
        _disagree("regularizer", again.regularizer, stated.regularizer)
    if stated.theorems[: len(again.theorems)] != again.theorems:
        _disagree("theorems", again.theorems, stated.theorems)
    assumptions = base_assumptions(again)
    if stated.assumptions[: len(assumptions)] != assumptions:
        _disagree("assumptions", assumptions, stated.assumptions)
    return checks


def _identities(c: Certificate) -> list[Check]:
    """Check the inequalities of the proof on the stated numbers themselves."""
    distance = c.diff_lipschitz / c.facts.num_records
    distance *= math.sqrt(c.k / (c.mu * c.curvature_kept))
    curve = gaussian_delta(c.epsilon_proved, c.gdp)
    total = c.delta_exact
    if c.gamma > 0.0:
        total += c.gamma + math.exp(c.epsilon_proved + math.log(c.gamma))
    return [
        _at_most("(G_Delta/n)*sqrt(k/mu)<=gdp", distance, c.gdp),
        _at_most("delta(epsilon;gdp)<=delta_0", curve, c.delta_exact),
        _at_most("delta_0+(1+e^epsilon)*gamma<=delta", total, c.budget.delta),
    ]


def _agreeing(name: str, stated: object, recomputed: float) -> Check:
    """Return the line of a number that agrees; fail if it does not."""
    agrees = isinstance(stated, float | int) and math.isclose(
        stated, recomputed, rel_tol=TOLERANCE, abs_tol=0.0
    )
    if not agrees:
        _disagree(name, recomputed, stated)
    return Check(name=name, stated=f"{stated:.6g}", recomputed=f"{recomputed:.6g}")


def _at_most(name: str, value: float, limit: float) -> Check:
    """Return the line of an inequality that holds; fail if it does not."""
    if not value <= limit * (1.0 + ROUNDING):
        check.fail(name, f"at most {limit!r}", repr(value), "It is not a proof.")
    return Check(name=name, stated=f"{value:.6g}", recomputed=f"{limit:.6g}")


def _disagree(name: str, expected: object, stated: object) -> NoReturn:
    """Fail because of one field."""
    check.fail(
        f"certificate.{name}",
        f"{expected!r}, recomputed from the public inputs",
        repr(stated),
        "The certificate was edited or made by other code: do not trust it.",
    )
