"""Audits of the compiled optimizers: default noise stands, half of it is refuted.

An audit that refutes nothing shows little, so each is repeated with half of the noise
that was calibrated, and then has to refute, with the same draws and the same pair. What
is claimed is the whole privacy curve of the certificate's event.
"""

from dataclasses import replace

import pytest

from dpsample import Budget
from dpsample import optimizers as opt
from dpsample.domains import Ball
from dpsample.losses import Squared
from tests.support.audit_cases import (
    BUDGET,
    FAR,
    FOUR,
    FREE,
    HINGE,
    HUBER,
    HUGE,
    TRUNCATED,
    Case,
    audit,
    facts,
    with_noise,
)

HALF, QUARTER = 0.5, 0.25
LASSO = facts(Squared(), Ball(0.01, p=1.0), row_bound=HUGE, bound=HUGE)
VERTICES = facts(domain=Ball(1.0, p=1.0), num_records=3, row_bound=HUGE)
ROBUST = {"batch_size": 2, "num_steps": 2, "smoothness": 1.0}
NEAR = {"distance": 1.0}
STEPS = {"num_steps": 2, "step_size": 1.0}
GENERALIZED = {"p": 1.5, "noise": "generalized_gaussian"}
CASES = (
    Case(opt.NoisyGD(**STEPS), FREE),
    Case(opt.NoisyGD(**STEPS, output="tail"), FREE),
    Case(opt.NoisyGD(num_steps=4, step_size=1.0, output="scaled"), FREE),
    Case(opt.NoisyGD(**STEPS, output="decaying"), FREE),
    Case(opt.NoisyGD(num_steps=2, output="decaying"), FAR),
    Case(opt.NoisyGD(num_steps=9, step_size=1.0, output="last", ridge=0.5), FREE),
    Case(opt.AdaSSP(matrix_share=0.01), facts(Squared(), bound=1.0)),
    Case(opt.NoisySGD(**STEPS, batches="poisson", batch_size=1), FREE, 5000),
    Case(opt.ProxGD(**STEPS), HINGE),
    Case(opt.DPSGD(**STEPS, sampling_rate=0.75), FREE),
    Case(opt.ObjectivePerturbation(ridge=1.0), FREE, 5000),
    Case(opt.ObjectivePerturbation(ridge=1.0, tilt="norm"), FREE, 5000),
    Case(opt.ApproximateObjectivePerturbation(ridge=1.0), FREE, 5000),
    Case(opt.SVRG(ridge=1.0), FREE),
    Case(opt.PhasedSGD(**NEAR), FREE),
    Case(opt.NoisyMirrorDescent(p=1.5, **NEAR), FREE),
    Case(opt.NoisyMirrorDescent(**GENERALIZED, **NEAR), FREE),
    Case(opt.TruncatedMirrorDescent(num_steps=2, step_size=0.02), FAR),
    Case(
        opt.TruncatedMirrorDescent(num_steps=2, step_size=0.02, scheme="poisson"),
        FAR,
        5000,
    ),
    Case(opt.ClippedGD(num_steps=4, clip=1.0), HUBER),
    Case(opt.ClippedGD(num_steps=2, clip=1.0, noise="steps"), HUBER),
    Case(opt.LocalizedClippedGD(**NEAR), FREE),
    Case(opt.PrivateStochasticApproximation(**NEAR), FREE),
    Case(opt.IteratedLocalizedClippedGD(**NEAR), FOUR),
    Case(opt.AcceleratedClippedSGD(num_steps=2, **NEAR), FREE),
    Case(
        opt.AcceleratedClippedSGD(num_steps=2, scheme="disjoint", **NEAR),
        FREE,
        pair="last",
    ),
    Case(opt.IteratedAcceleratedClippedSGD(num_steps=1, **NEAR), FOUR),
    Case(opt.PrivateProximalSGD(**ROBUST), FAR),
    Case(
        opt.PrivateProximalSGD(estimator="bucketed_median", num_buckets=2, **ROBUST),
        TRUNCATED,
    ),
    Case(
        opt.PrivateProximalSGD(estimator="catoni", **ROBUST | {"num_steps": 1}),
        TRUNCATED,
    ),
    Case(opt.HeavyTailedLasso(num_steps=1), LASSO, 10_000, pair="duplicated"),
    # Pure privacy: only rare vertices show the whole epsilon.
    Case(
        opt.HeavyTailedFrankWolfe(num_steps=1),
        VERTICES,
        60_000,
        Budget(epsilon=2.0, delta=1e-9),
        "duplicated",
    ),
)
# Noise on every record is 1.6 times what the two of them need, and both noises are in
# the output: half of it is still private.
SHUFFLED = (
    Case(
        opt.TruncatedMirrorDescent(num_steps=2, step_size=0.02, scheme="shuffle"),
        FAR,
        8000,
        pair="last",
    ),
    Case(
        opt.AcceleratedClippedSGD(num_steps=2, scheme="shuffle", **NEAR),
        FREE,
        5000,
        pair="last",
    ),
)


def check(case, planted=HALF):
    """The calibrated noise stands, a share of it does not."""
    recipe = case.recipe()
    assert not audit(case, recipe, event=recipe.event).is_refuted
    less = with_noise(recipe, planted)
    assert audit(case, less, event=recipe.event).is_refuted


def test_every_private_optimizer_is_audited():
    audited = {type(case.optimizer).__name__ for case in CASES}
    assert audited == set(opt.__all__) - {"ProximalSGD"}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_calibrated_noise_is_not_refuted_and_half_of_it_is(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", SHUFFLED, ids=str)
def test_shuffled_noise_is_not_refuted_and_a_quarter_of_it_is(case):
    check(case, QUARTER)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if c.pair != "duplicated"], ids=str)
def test_zero_out(case):
    check(replace(case, budget=replace(BUDGET, relation="zero_out")))
