"""Budgets, the Gaussian privacy curve, calibration and certificates."""

from dpsample.core.public import dir_of
from dpsample.privacy.accounting.accounting import delta_of, epsilon_of
from dpsample.privacy.accounting.attack_risk import AttackRisk
from dpsample.privacy.accounting.concentrated import (
    compose_gdp,
    rho_from_bounded_range,
    rho_from_budget,
    rho_from_gdp,
    rho_from_pure,
    zcdp_delta,
    zcdp_epsilon,
)
from dpsample.privacy.accounting.events import (
    AllocatedGaussianEvent,
    ApproximateEvent,
    BestOfEvent,
    BoundedRangeEvent,
    ComposedEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    NearEvent,
    ParallelEvent,
    PoissonGaussianEvent,
    PureEvent,
    TiltEvent,
)
from dpsample.privacy.accounting.fixed_size import fixed_size_epsilon
from dpsample.privacy.accounting.groups import group_delta, group_epsilon, group_event
from dpsample.privacy.accounting.poisson import (
    allocated_noise_multiplier,
    poisson_noise_multiplier,
)
from dpsample.privacy.accounting.renyi import rdp_delta, rdp_epsilon
from dpsample.privacy.budget import Budget
from dpsample.privacy.calibration.exponent_choice import (
    ExponentChoice,
    best_exponent,
    noise_cost,
)
from dpsample.privacy.calibration.exponential_mechanism import (
    ExponentialMechanism,
    calibrate,
)
from dpsample.privacy.calibration.objective_calibration import (
    ApproximateNoise,
    approximate_noise,
    objective_event,
    objective_stddev,
)
from dpsample.privacy.certificates.certificate import Certificate
from dpsample.privacy.certificates.event_certificate import EventCertificate
from dpsample.privacy.certificates.ledger import Entry, Ledger, Remaining
from dpsample.privacy.certificates.ledger_file import LedgerFile
from dpsample.privacy.certificates.verification_report import (
    CertificateError,
    VerificationReport,
)
from dpsample.privacy.curves.additive import (
    gaussian_stddev,
    generalized_gaussian_gdp,
    generalized_gaussian_sigma,
    pure_scale,
)
from dpsample.privacy.curves.gaussian import (
    closed_form_gdp,
    gaussian_delta,
    gaussian_epsilon,
    gdp_from_budget,
    paper_gdp,
)
from dpsample.privacy.curves.objective_perturbation import (
    PerturbedObjective,
    minimizer_error,
    minimizer_sensitivity,
)
from dpsample.privacy.curves.shuffling import (
    LocalNoise,
    shuffle_closed_form,
    shuffle_delta,
    shuffle_epsilon,
    shuffle_local_noise,
    shuffle_total_delta,
)

__all__ = [
    "AllocatedGaussianEvent",
    "ApproximateEvent",
    "ApproximateNoise",
    "AttackRisk",
    "BestOfEvent",
    "BoundedRangeEvent",
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
    "LedgerFile",
    "LocalNoise",
    "NearEvent",
    "ParallelEvent",
    "PerturbedObjective",
    "PoissonGaussianEvent",
    "PureEvent",
    "Remaining",
    "TiltEvent",
    "VerificationReport",
    "allocated_noise_multiplier",
    "approximate_noise",
    "best_exponent",
    "calibrate",
    "closed_form_gdp",
    "compose_gdp",
    "delta_of",
    "epsilon_of",
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
    "zcdp_delta",
    "zcdp_epsilon",
]
__dir__ = dir_of(__all__)
