"""Verification of certificates: every number is recomputed from the public inputs.

`recompute` calibrates the mechanism again, or accounts for its event again, and
compares each number with the stated one. An *event* describes a release, such as
Gaussian noise, so that accounting can compute epsilon and delta from it. Then
`recompute` checks the inequalities of the privacy proof on the stated numbers
themselves, because these are the numbers on which the guarantee rests. A certificate
that fails raises a ValueError with the name of the field.

The number gdp is a distance of two unit Gaussians. The outputs for neighboring data
sets are at least as hard to distinguish as these (Gaussian differential privacy).

Stated and recomputed numbers may differ by rounding, as certificates are made on other
machines. Inequalities must hold on the stated numbers. They are checked with a margin
against the claim, which may make a true claim fail, but never lets a false one pass.
"""

import math
from typing import NoReturn

from dpsample.core import check
from dpsample.privacy.accounting.accounting import (
    LARGEST_EPSILON,
    delta_of,
    theorems_used,
)
from dpsample.privacy.accounting.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    ConcentratedEvent,
    GaussianEvent,
    PureEvent,
)
from dpsample.privacy.accounting.normal_form import ideal_form
from dpsample.privacy.calibration.exponential_mechanism import (
    MARGIN,
    ExponentialMechanism,
    calibrate,
)
from dpsample.privacy.certificates import certificate as draw_certificate
from dpsample.privacy.certificates import event_certificate
from dpsample.privacy.certificates.certificate import Certificate
from dpsample.privacy.certificates.event_certificate import (
    SLACK,
    EventCertificate,
    proved_epsilon,
)
from dpsample.privacy.certificates.registry import registry
from dpsample.privacy.certificates.sealed import of_search
from dpsample.privacy.certificates.verification_report import (
    CertificateError,
    Check,
    VerificationReport,
)
from dpsample.privacy.curves.bounded_range import bounded_range_delta
from dpsample.privacy.curves.gaussian import gaussian_delta

# Relative tolerance of recomputed numbers. Platforms differ in the last digits of
# logarithms and linear programs.
TOLERANCE = 1e-9
# Relative amount by which the side that must be smaller is increased before both are
# compared. It is larger than the rounding errors of the few operations on both sides.
# The privacy curve is rounded up on its own.
ROUNDING = 8.0 * 2.0**-53


def recompute(certificate: Certificate | EventCertificate) -> VerificationReport:
    """Recompute all numbers of a certificate, and return the report.

    This is the first part of `dpsample.verify`. A ValueError names the first number
    that disagrees, or a field that was edited.
    """
    if isinstance(certificate, EventCertificate):
        checks = _account_again(certificate)
    else:
        recalibrated = _recalibrate(certificate)
        checks = [
            *_compare_derived(certificate, recalibrated),
            *_inequalities(certificate, recalibrated),
        ]
    # The digest comes last, because the name of an edited field is more useful.
    digest = certificate.computed_digest()
    if certificate.digest != digest:
        fail_disagreement("digest", digest, certificate.digest)
    sealed = Check(name="digest", stated=digest, recomputed="of all fields")
    checks.append(sealed)
    return VerificationReport(
        statement=certificate.statement, checks=tuple(checks), certificate=certificate
    )


def verify_own(certificate: Certificate | EventCertificate) -> None:
    """Verify a certificate before anything is drawn under it.

    A CertificateError is raised if it does not verify. No input should cause that, so
    it is a bug of the package.
    """
    try:
        recompute(certificate)
    except ValueError as error:
        raise CertificateError(
            "The certificate of this release does not verify, so nothing was drawn: "
            f"{error} This is an error of dpsample: please report it."
        ) from error


def _account_again(c: EventCertificate) -> list[Check]:
    """Account for the event of a certificate again, and compare."""
    checks = [
        check_agreement(
            "epsilon_proved", c.epsilon_proved, proved_epsilon(c.event, c.budget)
        )
    ]
    # A published calibration may exceed the budget. epsilon_proved states by how much.
    # An exact one may by SLACK, because losses are composed on a grid.
    if c.calibration == "exact":
        limit = c.budget.epsilon * (1.0 + SLACK)
        checks.append(check_at_most("epsilon_proved<=epsilon", c.epsilon_proved, limit))
    relation = c.budget.relation
    if _has_formula(c) and c.event is not None:
        delta = delta_of(c.event, epsilon=c.epsilon_proved, relation=relation)
        # `delta_of` is rounded up by more than twice the amount 4 ROUNDING. So the true
        # delta is within the budget even if the computed one exceeds it by so much.
        limit = c.budget.delta * (1.0 + 4.0 * ROUNDING)
        checks.append(check_at_most("delta(epsilon;event)<=delta", delta, limit))
    # Some theorems are registered for the kind, others depend on the event.
    accounted = theorems_used(c.event, epsilon=c.epsilon_proved, relation=relation)
    _compare_theorems((*c.registered.theorems, *accounted), c)
    # Nothing but the list itself states whether records were clipped, or whether the
    # fit may be one of a search. All other assumptions follow from kind and facts.
    clipped = "RECORDS.CLIPPED" in c.assumptions
    expected = event_certificate.assumptions_of(c.kind, c.facts, clip_rows=clipped)
    _compare_assumptions(expected, c)
    return checks


def _has_formula(c: EventCertificate) -> bool:
    """Return whether delta has a formula, so that machines agree up to rounding.

    The formulas are those of single parts. Other events are composed on a grid of
    losses, whose result depends on the machine by more than rounding errors. Accounting
    ends at `LARGEST_EPSILON`, so there is no formula beyond it.
    """
    if c.event is None or not c.epsilon_proved <= LARGEST_EPSILON:
        return False
    parts = ideal_form(c.event, c.budget.relation).parts
    simple = GaussianEvent | PureEvent | ApproximateEvent | ConcentratedEvent
    simple |= BoundedRangeEvent
    return len(parts) == 1 and isinstance(parts[0], simple)


def _recalibrate(stated: Certificate) -> ExponentialMechanism:
    """Calibrate the mechanism again from the inputs of its certificate."""
    names = (
        *("p", "risk", "calibration", "sampler_share", "strong_convexity"),
        "confidence",
    )
    inputs = {name: getattr(stated, name) for name in names}
    return calibrate(stated.facts, stated.budget, **inputs)


def _compare_derived(
    stated: Certificate, recalibrated: ExponentialMechanism
) -> list[Check]:
    """Compare the derived numbers with the recalibrated ones."""
    derived = (
        *("lipschitz", "diff_lipschitz", "range_bound", "delta_exact", "gdp"),
        *("k", "mu", "epsilon_proved", "gamma", "risk_bound"),
    )
    checks = [
        check_agreement(name, getattr(stated, name), getattr(recalibrated, name))
        for name in derived
    ]
    if stated.regularizer != recalibrated.regularizer:
        fail_disagreement("regularizer", recalibrated.regularizer, stated.regularizer)
    theorems = (*recalibrated.theorems, *stated.registered.theorems)
    _compare_theorems(theorems, stated)
    expected = draw_certificate.assumptions_of(
        stated,
        sampler=stated.sampler,
        max_work=stated.max_work,
        has_deadline="DRAW.DEADLINE" in stated.assumptions,
        clip_rows="RECORDS.CLIPPED" in stated.assumptions,
    )
    _compare_assumptions(expected, stated)
    return checks


def _inequalities(c: Certificate, recalibrated: ExponentialMechanism) -> list[Check]:
    """Check the inequalities of the proof on the stated numbers themselves.

    In the names of checks G_Delta is ``diff_lipschitz``, delta_0 is ``delta_exact``,
    the delta of an exact draw, and gamma is the sampler's error in total variation.
    """
    # The larger sensitivity, in case the stated one was rounded down.
    diff = max(c.diff_lipschitz, recalibrated.diff_lipschitz)
    # `calibrate` leaves the relative difference MARGIN between both sides of the first
    # inequality. Half of it is used up here, and half remains for rounding errors.
    distance = diff / c.facts.num_records * (1.0 + 0.5 * MARGIN)
    # Both neighbors have the strong convexity k mu times ``curvature_kept``. This is 1,
    # or 1 - 1/n if the regularizer is a part of the records' losses, so that a zeroed
    # record loses its part.
    distance *= math.sqrt(c.k / (c.mu * c.curvature_kept))
    checks = [check_at_most("(G_Delta/n)*sqrt(k/mu)<=gdp", distance, c.gdp)]
    if c.calibration == "range":
        curve = bounded_range_delta(c.epsilon_proved, c.range * (1.0 + ROUNDING))
        name = "delta(epsilon;k*Omega/n)<=delta_0"
    else:
        curve = gaussian_delta(c.epsilon_proved, c.gdp)
        name = "delta(epsilon;gdp)<=delta_0"
    checks.append(check_at_most(name, curve, c.delta_exact))
    if c.gamma > 0.0:
        # The sampler's part of delta may be far smaller than delta_0, and a sum of both
        # would lose its digits. The difference delta - delta_0 is exact if the
        # sampler's share of delta is at most 1/2, and is rounded once otherwise.
        sampler_delta = c.gamma * (1.0 + math.exp(c.epsilon_proved))
        spare_delta = c.budget.delta - c.delta_exact
        return [
            *checks,
            check_at_most(
                "(1+e^epsilon)*gamma<=delta-delta_0", sampler_delta, spare_delta
            ),
        ]
    # An exact draw has no gamma. Both numbers are stated, so they have no error, and
    # the factor cancels the margin of `check_at_most`.
    limit = c.budget.delta * (1.0 + ROUNDING)
    return [*checks, check_at_most("delta_0<=delta", c.delta_exact, limit)]


def _compare_theorems(
    expected: tuple[str, ...], stated: Certificate | EventCertificate
) -> None:
    """Fail unless a certificate has the theorems of its kind, known to its version.

    A certificate of a former version lists fewer assumptions, but has no newer theorem.
    """
    _compare_identifiers("theorems", expected, stated.theorems)
    former = registry().select_version(expected, stated.version)
    _compare_identifiers("theorems", former, stated.theorems)


def _compare_assumptions(
    expected: tuple[str, ...], stated: Certificate | EventCertificate
) -> None:
    """Fail unless a certificate has the assumptions of its kind and version."""
    present = (*expected, *of_search(stated.assumptions))
    listed = registry().select_version(present, stated.version)
    _compare_identifiers("assumptions", listed, stated.assumptions)


def _compare_identifiers(
    name: str, expected: tuple[str, ...], stated: tuple[str, ...]
) -> None:
    """Fail unless a certificate has the identifiers of its kind, in their order."""
    if stated != expected:
        fail_disagreement(name, expected, stated)


def check_agreement(
    name: str, stated: object, recomputed: float, *, tolerance: float = TOLERANCE
) -> Check:
    """Return the line of a number that agrees, and fail if it does not."""
    agrees = isinstance(stated, float | int) and math.isclose(
        stated, recomputed, rel_tol=tolerance, abs_tol=0.0
    )
    if not agrees:
        fail_disagreement(name, recomputed, stated)
    return Check(name=name, stated=f"{stated:.6g}", recomputed=f"{recomputed:.6g}")


def check_at_most(name: str, value: float, limit: float) -> Check:
    """Return the line of an inequality that holds, and fail if it does not."""
    if not value * (1.0 + ROUNDING) <= limit:
        check.fail(name, f"at most {limit!r}", repr(value), "It is not a proof.")
    return Check(name=name, stated=f"{value:.6g}", recomputed=f"{limit:.6g}")


def fail_disagreement(name: str, expected: object, stated: object) -> NoReturn:
    """Raise a ValueError that names a field and its expected value."""
    check.fail(
        f"certificate.{name}",
        f"{expected!r}, recomputed from the public inputs",
        repr(stated),
        "The certificate was edited or made by other code: do not trust it.",
    )
