"""Budgets, the Gaussian privacy curve, calibration and certificates."""

from dpsample.privacy.budget import Budget
from dpsample.privacy.calibration import calibrate
from dpsample.privacy.certificate import Certificate
from dpsample.privacy.closed_form import fact2_gdp, paper_gdp
from dpsample.privacy.gaussian import gaussian_delta, gaussian_epsilon, gdp_from_budget
from dpsample.privacy.mechanism import ExponentialMechanism
from dpsample.privacy.verification import VerificationReport, verify

__all__ = [
    "Budget",
    "Certificate",
    "ExponentialMechanism",
    "VerificationReport",
    "calibrate",
    "fact2_gdp",
    "gaussian_delta",
    "gaussian_epsilon",
    "gdp_from_budget",
    "paper_gdp",
    "verify",
]
