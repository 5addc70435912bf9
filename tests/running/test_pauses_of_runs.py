"""Pauses of optimizers, noise and releases; nothing is as long as a run."""

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.warm import LOGISTIC, make
from dpsample.core.streams import restore_state, save_state
from dpsample.noise import noise
from dpsample.optimizers.loop.optimizer import EQUAL_WEIGHTS, Loop
from dpsample.optimizers.loop.pieces import BLOCK
from dpsample.optimizers.loop.steps import MAX_LISTED, GradientStep, step_numbers
from dpsample.running import chains, descent
from dpsample.samplers.localized.exact_rejection import ExactRejection
from dpsample.samplers.localized.localized import PreparedLocalized
from dpsample.samplers.proximal import lp_tilt
from tests.support.allowances import Allowance, assert_same_bits
from tests.support.descent_problems import problem as records
from tests.support.descent_problems import recipe
from tests.support.tiers import one_in

OPTIMIZERS = {
    "noisy": lambda: dps.optimizers.NoisySGD(),
    "clipped": lambda: dps.optimizers.ClippedGD(num_steps=25, clip=1.0),
    "phases": lambda: dps.optimizers.PhasedSGD(),
    "svrg": lambda: dps.optimizers.SVRG(ridge=0.3),
    "objective": lambda: dps.optimizers.ObjectivePerturbation(ridge=1.0),
}


SEVERAL_BLOCKS = {
    "poisson": lambda: dps.optimizers.DPSGD(sampling_rate=0.9, num_steps=3, clip=1.0),
    "median": lambda: dps.optimizers.PrivateProximalSGD(
        estimator="bucketed_median",
        moment_bound=1.0,
        batch_size=2 * BLOCK + 7,
        num_steps=3,
    ),
    "envelope": lambda: dps.optimizers.ProxGD(num_steps=3),
    "svrg": OPTIMIZERS["svrg"],
    "objective": OPTIMIZERS["objective"],
}


def blocks():
    """Problem whose passes over the records are cut into three."""
    rows = np.random.default_rng(0).standard_normal((2 * BLOCK + 7, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return dps.Problem(
        rows,
        np.sign(rows[:, 0]),
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        response_bound=1.0,
    )


@one_in(3)
@pytest.mark.parametrize(
    ("name", "optimizers"),
    [(name, OPTIMIZERS) for name in OPTIMIZERS]
    + [(name, SEVERAL_BLOCKS) for name in SEVERAL_BLOCKS],
)
def test_pauses_change_no_bit_of_an_optimizer(name, optimizers, monkeypatch):  # S11
    is_small = optimizers is OPTIMIZERS
    problem = make(LOGISTIC, dps.domains.Ball(1.0)).problem if is_small else blocks()
    budget = dps.Budget(epsilon=1.0, delta=1e-5)

    def fitted(units):
        with monkeypatch.context() as patch:
            allowance = Allowance(patch, units)
            return dps.minimize(problem, optimizers[name](), budget, seed=3), allowance

    whole, uncut = fitted(np.inf)
    for units in (1, 7):
        cut, allowance = fitted(units)
        np.testing.assert_array_equal(cut.theta, whole.theta)
        assert cut.num_gradients == whole.num_gradients
        assert is_small or units > 1 or allowance.calls > uncut.calls


def test_no_array_is_sized_by_a_number_of_steps():  # S6
    loop = Loop(num_steps=2**31 - 1, step=GradientStep(1e-3), weights=EQUAL_WEIGHTS)
    seen = []

    def stop(done):
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program = descent.Program(records(), recipe(loop))
        program.run(np.random.default_rng(0), on_chunk=stop)
    assert len(seen) == 3
    method = dps.optimizers.DPSGD(sampling_rate=0.5, num_steps=2**31 - 1)
    made = method.recipe(make(LOGISTIC, dps.domains.Ball(1.0)).problem.facts, None)
    assert all(np.size(phase.weights) <= 1 for phase in made.phases)


def test_equal_weights_are_a_list_of_ones():
    """The sum of ones is exact, and so is its product with one."""
    step = GradientStep(0.1)
    listed_ones = Loop(num_steps=40, step=step, weights=np.ones(40))
    equal = Loop(num_steps=40, step=step, weights=EQUAL_WEIGHTS)
    ends = [
        descent.Program(records(), recipe(loop)).run(np.random.default_rng(0)).theta
        for loop in (listed_ones, equal)
    ]
    np.testing.assert_array_equal(*ends)


def test_sizes_that_differ_are_listed_up_to_a_limit():  # S6
    assert step_numbers(3).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match=r"^num_steps must be <= \d+, got"):
        step_numbers(MAX_LISTED + 1)


@pytest.mark.slow
def test_tries_of_a_separable_draw_may_be_cut_anywhere():  # S11
    """What `draws.separable` does when its allowed tries do not suffice."""
    dim = 6
    arguments = (
        np.full(dim, 2.0),
        1.0,
        0.5,
        1.5,
        np.zeros(dim),
        np.full(dim, -np.inf),
        np.full(dim, np.inf),
        1.0,
        1.2,
    )
    whole, cut = np.empty(dim), np.empty(dim)
    first, second = np.random.default_rng(5), np.random.default_rng(5)
    num_cut = 0
    for _ in range(20):
        lp_tilt.draw_lp(first, *arguments, 10**6, whole)
        while lp_tilt.draw_lp(second, *arguments, 1, cut) == -1:
            num_cut += 1
        np.testing.assert_array_equal(cut, whole)
    assert num_cut > 0


@pytest.mark.parametrize("r", [1.0, 3.0])
def test_rows_of_noise_do_not_depend_on_their_calls(r, monkeypatch):
    def drawn():
        rng = np.random.default_rng(4)
        return [
            dps.noise.generalized_gaussian(rng, size=(20, 3), r=r),
            dps.noise.schatten_gaussian(rng, size=(20, 2, 3), r=r),
            dps.noise.k_norm(rng, size=(20, 3), domain=dps.domains.Ball(1.0)),
        ]

    whole = drawn()
    monkeypatch.setattr(noise, "CALL_NUMBERS", 9)
    assert_same_bits(drawn(), whole)


@pytest.mark.parametrize("sampler", [None, dps.Proximal()], ids=repr)
def test_ctrl_c_in_a_release_says_that_nothing_is_released(sampler, monkeypatch):
    problem = make(LOGISTIC, dps.domains.Ball(1.0)).problem

    def press(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(chains, "advance", press)
    for way in (PreparedLocalized, ExactRejection):
        monkeypatch.setattr(way, "draw", press)
    with pytest.raises(KeyboardInterrupt, match="Nothing is released"):
        dps.release(
            problem, dps.Budget(epsilon=1.0, delta=1e-5), sampler=sampler, seed=1
        )


def test_a_saved_stream_is_restored_after_a_chunk_that_was_given_up():
    rng = np.random.Generator(np.random.PCG64DXSM(3))
    saved = save_state(rng)
    first = rng.random(4)
    np.testing.assert_array_equal(restore_state(saved).random(4), first)
