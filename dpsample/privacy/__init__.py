"""Budgets, the Gaussian privacy curve, calibration and certificates."""

from dpsample._public import dir_of
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
from dpsample.privacy.concentrated import (
    rho_from_bounded_range,
    rho_from_gdp,
    rho_from_pure,
)
from dpsample.privacy.conversions import (
    compose_gdp,
    rho_from_budget,
    zcdp_delta,
    zcdp_epsilon,
)
from dpsample.privacy.entries import Entry
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
from dpsample.privacy.groups import group_delta, group_epsilon, group_event
from dpsample.privacy.ledger import Ledger
from dpsample.privacy.mechanism import ExponentialMechanism
from dpsample.privacy.objective_calibration import (
    ApproximateNoise,
    approximate_noise,
    objective_event,
    objective_stddev,
)
from dpsample.privacy.objective_perturbation import PerturbedObjective
from dpsample.privacy.output_perturbation import minimizer_error, minimizer_sensitivity
from dpsample.privacy.poisson import fixed_size_epsilon, poisson_noise_multiplier
from dpsample.privacy.remaining import Remaining
from dpsample.privacy.renyi import rdp_delta, rdp_epsilon
from dpsample.privacy.shuffled_noise import (
    LocalNoise,
    shuffle_local_noise,
    shuffle_total_delta,
)
from dpsample.privacy.shuffling import (
    shuffle_closed_form,
    shuffle_delta,
    shuffle_epsilon,
)
from dpsample.privacy.verification import CertificateError, verify
from dpsample.privacy.verification_report import VerificationReport

__all__ = [
    "ApproximateEvent",
    "ApproximateNoise",
    "Budget",
    "Certificate",
    "CertificateError",
    "ComposedEvent",
    "ConcentratedEvent",
    "Entry",
    "Event",
    "EventCertificate",
    "ExponentChoice",
    "ExponentialMechanism",
    "GaussianEvent",
    "Ledger",
    "LocalNoise",
    "NearEvent",
    "ParallelEvent",
    "PerturbedObjective",
    "PoissonGaussianEvent",
    "PureEvent",
    "Remaining",
    "VerificationReport",
    "approximate_noise",
    "best_exponent",
    "calibrate",
    "compose_gdp",
    "delta_of",
    "epsilon_of",
    "fact2_gdp",
    "fixed_size_epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_stddev",
    "gdp_from_budget",
    "generalized_gaussian_gdp",
    "generalized_gaussian_sigma",
    "group_delta",
    "group_epsilon",
    "group_event",
    "minimizer_error",
    "minimizer_sensitivity",
    "noise_cost",
    "objective_event",
    "objective_stddev",
    "paper_gdp",
    "poisson_noise_multiplier",
    "pure_scale",
    "rdp_delta",
    "rdp_epsilon",
    "rho_from_bounded_range",
    "rho_from_budget",
    "rho_from_gdp",
    "rho_from_pure",
    "shuffle_closed_form",
    "shuffle_delta",
    "shuffle_epsilon",
    "shuffle_local_noise",
    "shuffle_total_delta",
    "verify",
    "zcdp_delta",
    "zcdp_epsilon",
]
__dir__ = dir_of(__all__)
