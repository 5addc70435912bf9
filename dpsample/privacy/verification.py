"""Recompute a certificate from its public inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NoReturn

from dpsample import _check as check
from dpsample.privacy.calibration import calibrate
from dpsample.privacy.certificate import Certificate, base_assumptions
from dpsample.privacy.gaussian import gaussian_delta

# Platforms differ in the last digits of logarithms and linear programs.
TOLERANCE = 1e-9
ROUNDING = 1e-12
NUMBERS = (
    "lipschitz",
    "diff_lipschitz",
    "range_bound",
    "delta_exact",
    "gdp",
    "k",
    "mu",
    "epsilon_proved",
    "gamma",
    "risk_bound",
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

    Attributes
    ----------
    statement : str
        The certificate's guarantee, in words.
    checks : tuple of Check
        ``name``, ``stated`` and ``recomputed`` of each check, as words.

    Examples
    --------
    >>> import dpsample as dps
    >>> from dpsample.facts import PublicFacts
    >>> facts = PublicFacts(num_records=2000, dim=20, row_bound=1.0, row_norm=2.0,
    ...                     loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> mech = dps.calibrate(facts, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> [line.stated for line in verify(mech.certificate).checks if line.name == "gdp"]
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


def verify(certificate: Certificate) -> VerificationReport:
    """Recompute every number of a certificate from its public inputs.

    Parameters
    ----------
    certificate : Certificate
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
    >>> from dpsample.facts import PublicFacts
    >>> facts = PublicFacts(num_records=2000, dim=20, row_bound=1.0, row_norm=2.0,
    ...                     loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> mech = dps.calibrate(facts, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> print(str(verify(mech.certificate)).splitlines()[1])
    lipschitz       1  [1]
    """
    check.instance(Certificate, certificate=certificate)
    checks = (
        *_recomputed(certificate),
        *_identities(certificate),
        _same_words(certificate),
    )
    return VerificationReport(statement=certificate.statement, checks=checks)


def _recomputed(stated: Certificate) -> list[Check]:
    """Calibrate again from the inputs and compare."""
    again = calibrate(
        stated.facts,
        stated.budget,
        p=stated.p,
        risk=stated.risk,
        calibration=stated.calibration,
        sampler_share=stated.sampler_share,
        strong_convexity=stated.strong_convexity,
        confidence=stated.confidence,
    )
    checks = []
    for name in NUMBERS:
        have, want = getattr(stated, name), getattr(again, name)
        agrees = isinstance(have, float | int) and math.isclose(
            have, want, rel_tol=TOLERANCE, abs_tol=0.0
        )
        if not agrees:
            _disagree(name, want, have)
        checks.append(_line(name, have, f"{want:.6g}"))
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


def _same_words(c: Certificate) -> Check:
    digest = c.computed_digest()
    if c.digest != digest:
        _disagree("digest", digest, c.digest)
    return Check(name="digest", stated=digest[:16], recomputed="all fields as sealed")


def _at_most(name: str, value: float, limit: float) -> Check:
    if not value <= limit * (1.0 + ROUNDING):
        check.fail(name, f"at most {limit!r}", repr(value), "It is not a proof.")
    return _line(name, value, f"{limit:.6g}")


def _line(name: str, stated: float, recomputed: str) -> Check:
    return Check(name=name, stated=f"{stated:.6g}", recomputed=recomputed)


def _disagree(name: str, expected: Any, stated: Any) -> NoReturn:
    check.fail(
        f"certificate.{name}",
        f"{expected!r}, recomputed from the public inputs",
        repr(stated),
        "The certificate was edited or made by other code: do not trust it.",
    )
