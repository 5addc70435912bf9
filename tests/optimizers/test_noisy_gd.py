"""The full-batch method and the one that draws batches: what each name says."""

import numpy as np
import pytest

import dpsample as dps
from dpsample.optimizers import NoisyGD, NoisySGD
from dpsample.problem.problem import Problem
from dpsample.verbs.minimize import minimize
from tests.support.clipped_cases import BUDGET, logistic


# U6
def test_noisy_gd_is_what_full_batches_were():
    # Recorded when full batches were a setting of another name; with noise, when it
    # came to grids.
    recorded = {
        "logistic": (
            ["-0x1.d7c6eb18a0496p-4", "-0x1.6b459e281afc2p-2", "0x1.66176836e7ae8p-2"],
            ["0x1.a0f4a5591c89ep-8", "-0x1.462ef502812c5p-5", "-0x1.423d5608a3124p-4"],
        ),
        "squared": (
            ["-0x1.bc00630cf7683p-5", "-0x1.41f2a7cc14401p-2", "0x1.2c55c9c5f2ee3p-2"],
            ["0x1.817acf8bd248dp-8", "-0x1.362a711e27cdfp-5", "-0x1.30eb13f8de72bp-4"],
        ),
        "hinge": (
            ["-0x1.a72c4a9dd4913p-5", "-0x1.2fc54b67bc435p-2", "0x1.c89f758f6e64cp-3"],
            ["0x1.4d625b582499ap-7", "-0x1.fc25033dc953dp-5", "-0x1.f85689839ded1p-4"],
        ),
    }
    rng = np.random.default_rng(11)
    rows = rng.uniform(-0.5, 0.5, (50, 3))
    labels = np.where(rng.random(50) < 0.5, -1.0, 1.0)
    for loss in (dps.losses.Logistic(), dps.losses.Squared(), dps.losses.Hinge()):
        problem = Problem(
            rows,
            labels,
            loss=loss,
            domain=dps.domains.Ball(1.0),
            row_bound=1.0,
            response_bound=1.0,
        )
        for budget, words in zip((BUDGET, None), recorded[loss.name], strict=True):
            theta = minimize(problem, NoisyGD(), budget, seed=5).theta
            expected = [float.fromhex(word) for word in words]
            # To the last bit on one machine; another BLAS sums in another order.
            np.testing.assert_allclose(theta, expected, rtol=1e-12)


# U6
def test_noisy_gd_reads_all_records_and_noisy_sgd_random_ones():
    problem = logistic(200, 3)
    fit = minimize(problem, NoisyGD(), BUDGET, seed=0)
    steps = dict(fit.certificate.inputs)["num_steps"]
    assert fit.num_gradients == steps * 200
    with pytest.raises(TypeError, match="batches"):
        NoisyGD(batches="poisson")
    with pytest.raises(ValueError, match="batches must be one of"):
        NoisySGD(batches="full")
    for budget in (BUDGET, dps.Budget(epsilon=500.0, delta=1e-6)):
        found = NoisySGD(num_steps=20).recipe(problem.facts, budget)
        assert found.inputs["batches"] == "poisson"
        assert 1 <= found.inputs["batch_size"] <= 100
    counts = {
        minimize(problem, NoisySGD(num_steps=20), BUDGET, seed=seed).num_gradients
        for seed in range(4)
    }
    assert len(counts) > 1 and max(counts) < 20 * 100
