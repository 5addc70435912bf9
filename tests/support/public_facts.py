"""Public facts, budgets and certificates that the privacy tests share."""

from dpsample import domains, losses
from dpsample.privacy import Budget, calibrate
from dpsample.problem.facts import PublicFacts

BUDGET = Budget(epsilon=1.0, delta=1e-6)
ZERO_OUT = Budget(epsilon=1.0, delta=1e-6, relation="zero_out")
BALL = {"domain": domains.Ball(1.0), "row_bound": 1.0, "row_norm": 2.0}
LINEAR = BALL | {"num_records": 2000, "dim": 20, "loss": losses.Linear()}
LOGISTIC = BALL | {"num_records": 10_000, "dim": 6, "loss": losses.Logistic()}


def linear_facts(**changes):
    return PublicFacts(**(LINEAR | changes))


def logistic_facts(**changes):
    return PublicFacts(**(LOGISTIC | changes))


def final(known=None, *, budget=BUDGET, seeded=False, **options):
    """Certificate of a finished draw."""
    mech = calibrate(known or logistic_facts(), budget, **options)
    sampler = "Proximal(oracle='metric')" if mech.gamma > 0.0 else "Exact()"
    return mech.certificate.with_sampler(sampler=sampler, seeded=seeded)
