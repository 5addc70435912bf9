"""Printed noise of published algorithms: audits refute every claim that is wrong.

Where the certificate of calibration "paper" proves no more than the claim nothing can
be refuted. Everywhere else an audit refutes the claim, and not what is proved instead.
Where epsilon is large, outputs are of a known law, and its likelihood ratio is used:
events that refute would be too rare.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom

import dpsample as dps
from dpsample import optimizers as opt
from dpsample.domains import Ball
from dpsample.losses import Linear, Logistic, Squared
from dpsample.noise import GeneralizedGaussian
from dpsample.optimizers.loop.optimizer import Minimization
from dpsample.privacy import epsilon_of
from tests.contracts.hostile_cases import REQUIRED
from tests.support.audit_cases import (
    FAR,
    FREE,
    HINGE,
    TRUNCATED,
    Case,
    audit,
    facts,
)

BUDGETS = tuple(
    dps.Budget(epsilon=epsilon, delta=delta)
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-6), (2.0, 0.05), (8.0, 0.1), (16, 0.1))
)
LARGE = BUDGETS[3]
BALL, L1, MANY = Ball(1.0), Ball(1.0, p=1.0), 1000
LOGISTIC = facts(Logistic(), BALL, MANY, dim=5)
WHOLE = facts(Logistic(), None, MANY, dim=5)
HEAVY = {"order": 4.0, "max_steps": 10}
PROVED = (
    Case(opt.ApproximateObjectivePerturbation(printed="su"), LOGISTIC),
    Case(opt.NoisyMirrorDescent(p=1.5, distance=1.0), WHOLE),
    Case(opt.NoisyMirrorDescent(p=1.05, distance=1.0), WHOLE),
    Case(opt.LocalizedClippedGD(**HEAVY), LOGISTIC),
    Case(opt.PrivateStochasticApproximation(**HEAVY), LOGISTIC),
    Case(opt.IteratedLocalizedClippedGD(**HEAVY), LOGISTIC),
    Case(opt.HeavyTailedFrankWolfe(), facts(Logistic(), L1, MANY, dim=5)),
    Case(opt.HeavyTailedLasso(), facts(Squared(), L1, MANY, bound=1.0, dim=5)),
)

# The noise forgets the number of steps (gradient-E25).
POISSON = {"batch_size": 3, "num_steps": 12, "smoothness": 1.0}
FULL = {"batch_size": 2, "smoothness": 1.0}
MEDIAN = {"estimator": "bucketed_median", "num_buckets": 2, "num_steps": 64}
CATONI = {"estimator": "catoni", "num_steps": 16}
# sqrt(log(1/delta)) for a record bound of 1, that is half of what it can move.
SMALL_CLIP = {"num_steps": 2, "distance": 1.0, "moment": 0.1}
SEEN = (
    Case(opt.PrivateProximalSGD(**POISSON), facts(domain=Ball(1e3), num_records=4)),
    Case(opt.PrivateProximalSGD(**FULL, num_steps=4), FAR),
    Case(opt.PrivateProximalSGD(**FULL, **MEDIAN), TRUNCATED),
    Case(opt.PrivateProximalSGD(**FULL, **CATONI), TRUNCATED),
    Case(
        opt.AcceleratedClippedSGD(**SMALL_CLIP),
        facts(num_records=4),
        4000,
        pair="last",
    ),
    Case(
        opt.IteratedAcceleratedClippedSGD(**SMALL_CLIP | {"num_steps": 1}),
        facts(num_records=4),
        4000,
    ),
)


@dataclass(frozen=True)
class Mixture:
    """Law of the output on the first data set: centers +- mean, one spread.

    ``weights`` are those of the multiples 0, 1, 2, ... of the mean.
    """

    mean: float
    stddev: float
    weights: np.ndarray

    def log_ratio(self, outputs):
        """Log of the density with -mean over that with mean."""
        multiples = self.mean * np.arange(len(self.weights))
        with np.errstate(divide="ignore"):
            weights = np.log(self.weights)

        def log_density(sign):
            z = (outputs - sign * multiples) / self.stddev
            return logsumexp(weights - 0.5 * z**2, axis=1)

        return log_density(-1.0) - log_density(1.0)


def law_of(case, recipe):
    """Law of one step, or one tilted minimizer, on a linear loss of slope -+1."""
    (phase,) = recipe.phases
    n, once = case.facts.num_records, np.array([0.0, 1.0])
    if isinstance(phase, Minimization):
        unit = 1.0 / (n * phase.ridge)
        stddev = math.hypot(unit * phase.tilt_stddev, phase.output_stddev)
        return Mixture(unit, stddev, once)
    assert phase.num_steps == 1
    size, stddev = float(np.max(phase.step.sizes)), phase.noise.stddev
    if recipe.inputs["batches"] == "full":
        return Mixture(size / n, size * stddev, once)
    count = recipe.inputs["batch_size"]
    weights = binom.pmf(np.arange(count + 1), count, 1.0 / n)
    return Mixture(size / count, size * stddev, weights)


ONE = {"num_steps": 1, "step_size": 1.0}
WIDE = {"num_draws": 4000, "budget": LARGE}
KNOWN = (
    # With replacement: the record is drawn twice or more often (BFTT-4).
    Case(
        opt.NoisySGD(step_size=1.0),
        facts(num_records=8),
        20_000,
        dps.Budget(epsilon=8.0, delta=0.01),
    ),
    Case(opt.NoisyGD(**ONE), FREE, **WIDE),
    Case(opt.ProxGD(**ONE, batches="full", smoothing=1.0), HINGE, **WIDE),
    Case(opt.ObjectivePerturbation(), FAR, 4000, dps.Budget(epsilon=16.0, delta=0.1)),
    Case(
        opt.ApproximateObjectivePerturbation(),
        facts(domain=Ball(1e3), num_records=100),
        4000,
        dps.Budget(epsilon=32.0, delta=0.1),
    ),
)
# A single record, which no order hides: the noise assumes that many others do.
ALONE = Case(
    opt.TruncatedMirrorDescent(scheme="shuffle", p=1.5, num_steps=1),
    facts(Linear(), Ball(100.0, p=1.5), 1, row_bound=1.6, dim=2),
    **WIDE,
)


def proved(case):
    """Epsilon that is proved of the printed noise; infinite if none is."""
    event, budget = case.recipe("paper").event, case.budget
    if event is None:
        return math.inf
    return epsilon_of(event, delta=budget.delta, relation=budget.relation)


@pytest.mark.parametrize("case", PROVED, ids=str)
def test_these_printed_claims_are_proved(case):
    for budget in BUDGETS:
        assert proved(replace(case, budget=budget)) <= budget.epsilon * (1.0 + 1e-9)


@pytest.mark.parametrize("case", [*SEEN, *KNOWN, ALONE], ids=str)
def test_these_printed_claims_are_not_proved(case):
    assert proved(case) > case.budget.epsilon


def prints_noise(name):
    """Whether a paper gives the optimizer noise of its own."""
    if name in ("ProximalSGD", "AdaSSP"):  # refuse every budget, or this loss
        return False
    method = getattr(opt, name)(**REQUIRED.get(name, {}))
    try:
        method.recipe(LOGISTIC, BUDGETS[0], "paper")
    except ValueError as refusal:
        return " is printed for " not in str(refusal)
    return True


def test_every_printed_noise_is_proved_or_audited():
    listed = {type(c.optimizer).__name__ for c in (*PROVED, *SEEN, *KNOWN, ALONE)}
    assert listed == set(filter(prints_noise, opt.__all__))


def check(case, **options):
    """The claim is refuted; what the certificate says instead is not."""
    report = audit(case, case.recipe("paper"), **options)
    assert report.is_refuted
    assert report.epsilon_lower <= proved(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", SEEN, ids=str)
def test_printed_noise_is_refuted(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", KNOWN, ids=str)
def test_printed_noise_is_refuted_by_the_law_of_its_outputs(case):
    check(case, log_ratio=law_of(case, case.recipe("paper")).log_ratio)


@pytest.mark.slow
@pytest.mark.parametrize("case", KNOWN[1:2], ids=str)
def test_the_law_of_the_outputs_does_not_refute_calibrated_noise(case):
    recipe = case.recipe()
    options = {"event": recipe.event, "log_ratio": law_of(case, recipe).log_ratio}
    assert not audit(case, recipe, **options).is_refuted


@pytest.mark.slow
def test_printed_noise_of_shuffled_records_is_refuted():
    recipe = ALONE.recipe("paper")
    (phase,) = recipe.phases
    step = phase.step
    noise = GeneralizedGaussian(r=phase.noise.r, sigma=phase.noise.sigma)
    row = np.array([1.6, 0.0])

    def log_ratio(outputs):
        # The mirror step is one to one: its gradient is the dual point over the size.
        sizes = np.linalg.norm(outputs, step.exponent, axis=1, keepdims=True)
        powers = np.sign(outputs) * np.abs(outputs) ** (step.exponent - 1.0)
        dual = step.kappa * sizes ** (2.0 - step.exponent) * powers
        gradients = -dual / float(np.max(step.sizes))
        first, second = (gradients + row, gradients - row)
        return noise.log_density(second) - noise.log_density(first)

    check(ALONE, log_ratio=log_ratio)
