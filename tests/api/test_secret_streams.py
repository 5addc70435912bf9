"""Which calls draw from secret bits: those whose answer may be released."""

import numpy as np
import pytest

import dpsample as dps
from dpsample.core.secret_bits import SecretState
from dpsample.noise import gaussian_mechanism

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)


def problem():
    data = dps.datasets.logistic(200, 2, seed=1)
    loss, domain = dps.losses.Logistic(), dps.domains.Ball(radius=1.0)
    return dps.Problem(
        data.features, data.response, row_bound=1.0, loss=loss, domain=domain
    )


CALLS = {
    "release": lambda seed: dps.release(problem(), BUDGET, seed=seed).theta,
    "proximal": lambda seed: (
        dps.release(problem(), BUDGET, sampler=dps.samplers.Proximal(), seed=seed).theta
    ),
    "minimize": lambda seed: (
        dps.minimize(problem(), dps.optimizers.NoisyGD(), BUDGET, seed=seed).theta
    ),
    "mechanism": lambda seed: (
        gaussian_mechanism(BUDGET, sensitivity=1.0).release([0.0, 1.0], seed=seed).value
    ),
}
NUMBERS = {"release": 2, "proximal": 2, "minimize": 1, "mechanism": 1}


@pytest.mark.parametrize("name", CALLS)
def test_an_unseeded_answer_comes_from_secret_bits_which_are_erased(name, monkeypatch):
    made = []
    begin = SecretState.__init__

    def recorded(state):
        begin(state)
        made.append(state)

    monkeypatch.setattr(SecretState, "__init__", recorded)
    first, second = CALLS[name](None), CALLS[name](None)
    assert (first != second).all()
    assert len(made) == 2 * NUMBERS[name]
    for state in made:
        with pytest.raises(RuntimeError, match="has been erased"):
            state.check()
    np.testing.assert_array_equal(CALLS[name](3), CALLS[name](3))
    assert len(made) == 2 * NUMBERS[name]


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_returned_that_a_fork_has_copied(name, monkeypatch):
    """As if a fork had come in mid-call: the copy is poisoned, the call goes on."""
    begin = SecretState.__init__

    def poisoned(state):
        begin(state)
        monkeypatch.setattr(state, "check", checks(state))

    def checks(state):
        seen = []

        def check():
            seen.append(1)
            if len(seen) > 1:
                state.poison()
                SecretState.check(state)

        return check

    monkeypatch.setattr(SecretState, "__init__", poisoned)
    with pytest.raises(RuntimeError, match="a fork has copied it"):
        CALLS[name](None)
