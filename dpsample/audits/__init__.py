"""Audits: what refutes a claim of privacy."""

from dpsample.audits import clipping_instance, neighbors
from dpsample.audits.auditing import audit
from dpsample.audits.quadrature import ExactCurve, exact_curve
from dpsample.audits.report import AuditCurve, AuditReport

__all__ = [
    "AuditCurve",
    "AuditReport",
    "ExactCurve",
    "audit",
    "clipping_instance",
    "exact_curve",
    "neighbors",
]
