"""Budgets, the Gaussian privacy curve, calibration and certificates."""

from dpsample.privacy.accounting import delta_of, epsilon_of
from dpsample.privacy.additive import (
    gaussian_stddev,
    generalized_gaussian_gdp,
    generalized_gaussian_sigma,
    pure_scale,
)
from dpsample.privacy.budget import Budget
from dpsample.privacy.calibration import calibrate
from dpsample.privacy.certificate import Certificate
from dpsample.privacy.closed_form import fact2_gdp, paper_gdp
from dpsample.privacy.conversions import (
    compose_gdp,
    rho_from_bounded_range,
    rho_from_budget,
    rho_from_gdp,
    rho_from_pure,
    zcdp_delta,
    zcdp_epsilon,
)
from dpsample.privacy.event_certificate import EventCertificate
from dpsample.privacy.events import (
    ApproximateEvent,
    ComposedEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
)
from dpsample.privacy.exponent_choice import ExponentChoice, best_exponent, noise_cost
from dpsample.privacy.gaussian import gaussian_delta, gaussian_epsilon, gdp_from_budget
from dpsample.privacy.mechanism import ExponentialMechanism
from dpsample.privacy.renyi import rdp_delta, rdp_epsilon
from dpsample.privacy.verification import verify
from dpsample.privacy.verification_report import VerificationReport

__all__ = [
    "ApproximateEvent",
    "Budget",
    "Certificate",
    "ComposedEvent",
    "ConcentratedEvent",
    "Event",
    "EventCertificate",
    "ExponentChoice",
    "ExponentialMechanism",
    "GaussianEvent",
    "NearEvent",
    "ParallelEvent",
    "PoissonGaussianEvent",
    "PureEvent",
    "VerificationReport",
    "best_exponent",
    "calibrate",
    "compose_gdp",
    "delta_of",
    "epsilon_of",
    "fact2_gdp",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_stddev",
    "gdp_from_budget",
    "generalized_gaussian_gdp",
    "generalized_gaussian_sigma",
    "noise_cost",
    "paper_gdp",
    "pure_scale",
    "rdp_delta",
    "rdp_epsilon",
    "rho_from_bounded_range",
    "rho_from_budget",
    "rho_from_gdp",
    "rho_from_pure",
    "verify",
    "zcdp_delta",
    "zcdp_epsilon",
]
