"""Audits: what refutes a claim of privacy."""

from dpsample.audits import neighbors
from dpsample.audits.auditing import audit
from dpsample.audits.exponential import ExactCurve, exact_curve
from dpsample.audits.findings import AuditCurve, AuditReport
from dpsample.audits.sequential import SequentialReport
from dpsample.core.public import dir_of
from dpsample.papers import clipping_instance

__all__ = [
    "AuditCurve",
    "AuditReport",
    "ExactCurve",
    "SequentialReport",
    "audit",
    "clipping_instance",
    "exact_curve",
    "neighbors",
]
__dir__ = dir_of(__all__)
