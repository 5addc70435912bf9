"""Public functions give the same under any ``np.seterr``: rounding to 0 is no error."""

import warnings

import numpy as np
import pytest

import dpsample as dps
from dpsample.losses import BUILT_IN
from dpsample.privacy import PoissonGaussianEvent, delta_of, epsilon_of
from tests.contracts import door_objects as O
from tests.contracts.door_calls import REFUSING, call, valid
from tests.contracts.doors import doors
from tests.support.tiers import one_in

DOORS = {d.name: d for d in doors() if valid(d) is not None and d.name not in REFUSING}


@pytest.fixture(autouse=True)
def strict(tmp_path, monkeypatch):
    """All floating-point errors of the caller's thread raise."""
    monkeypatch.chdir(tmp_path)
    O.write_files(tmp_path)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
def test_a_door_works_where_floating_point_errors_raise(name):  # P4
    call(DOORS[name])


MARGINS = [0.0, 1e-320, 1e-160, 1e-20, 1.0, 800.0, 1e5, 1e100]


@pytest.mark.parametrize("name", BUILT_IN)
def test_losses_work_at_any_margin(name):  # P4
    loss = BUILT_IN[name]()
    for m in MARGINS:
        u, y = np.array([m, -m]), np.array([1.0, -1.0])
        loss.value(u, y)
        loss.slope(u, y)
        loss.curvature(-abs(u), abs(u), y)
        loss.prox(u, y, np.ones(2))


def problem(loss, radius):
    return dps.Problem(
        O.ROWS, O.LABELS, loss=loss, domain=dps.domains.Ball(radius), row_bound=1.0
    )


@one_in(6)
@pytest.mark.parametrize("radius", [1.0, 1e3, 1e6])
@pytest.mark.parametrize(
    "loss", [dps.losses.Logistic(), dps.losses.CalibratedLogistic()], ids=repr
)
def test_declared_margins_may_be_large(loss, radius):  # P4
    given = problem(loss, radius)
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    dps.advise(given, budget)
    dps.release(given, budget, seed=1)
    optimizers = (
        dps.optimizers.ObjectivePerturbation(),
        dps.optimizers.NoisyGD(num_steps=5),
    )
    for method in optimizers:
        dps.minimize(given, method, budget, seed=1)


@one_in(3)
@pytest.mark.parametrize("noise", [0.3, 30.0, 1e4])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_accounting_rounds_its_tails_to_0(noise, relation):  # P4
    event = PoissonGaussianEvent(
        sampling_rate=0.01, noise_multiplier=noise, num_steps=100
    )
    assert delta_of(event, epsilon=300.0, relation=relation) >= 0.0
    assert epsilon_of(event, delta=1e-300, relation=relation) > 0.0
