"""Random allocation: closed forms, simulated losses, refusals."""

import math
import sys

import numpy as np
import pytest
from scipy.special import logsumexp

from dpsample.privacy.accounting.poisson import allocation_epsilon
from dpsample.privacy.curves.gaussian import gaussian_epsilon

ONE = {"delta": 1e-2, "noise_multiplier": 1.0, "num_steps": 10}


def test_one_step_an_epoch_is_gaussian_composition():
    pytest.importorskip("PLD_accounting")
    found = allocation_epsilon(**ONE | {"num_steps": 1, "num_epochs": 4})
    exact = gaussian_epsilon(1e-2, 2.0)
    assert exact <= found <= 1.03 * exact


def test_simulated_losses_bracket_it():
    """Delta of the pair in both orders, at the bound and at 0.9 of it."""
    pytest.importorskip("PLD_accounting")
    epsilon, rng, size = allocation_epsilon(**ONE), np.random.default_rng(1), 400_000
    noise = rng.normal(size=(2, size, 10))
    noise[0, np.arange(size), rng.integers(10, size=size)] += 1.0
    loss = logsumexp(noise - 0.5, axis=2) - math.log(10.0)

    def delta(epsilon):
        gains = [-np.expm1(np.minimum(epsilon - x, 0.0)) for x in (loss[0], -loss[1])]
        return max(gain.mean() for gain in gains)

    assert delta(epsilon) <= 1e-2 < delta(0.9 * epsilon)


def test_what_is_not_proved_or_not_installed_is_said(monkeypatch):
    with pytest.raises(ValueError, match="relation must be 'zero_out' for random"):
        allocation_epsilon(**ONE, relation="replace_one")
    with pytest.raises(ValueError, match="num_steps must be"):
        allocation_epsilon(**ONE | {"num_steps": 0})
    monkeypatch.setitem(sys.modules, "PLD_accounting", None)
    with pytest.raises(ImportError, match=r"dpsample\[allocation\]"):
        allocation_epsilon(**ONE)
