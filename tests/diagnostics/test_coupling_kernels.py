"""Coupled kernels: each chain has the sampler's law, equal chains stay equal."""

import dataclasses

import numpy as np
import pytest

from dpsample.diagnostics.couplings import coupled_steps
from dpsample.diagnostics.couplings.coupled_steps import Twins, compile_pair
from dpsample.diagnostics.couplings.meeting import prepare_pair
from dpsample.samplers import (
    MALA,
    LaplaceIndependence,
    PreconditionedCrankNicolson,
    Proximal,
    RandomWalk,
    TiltedGibbs,
)
from dpsample.samplers.chain import NUM_STATS
from tests.support.coupling_mutants import walk_with_common_noise, walk_with_two_coins
from tests.support.gibbs_targets import CASES
from tests.support.replicates import law_margin
from tests.support.statistics import assert_rejected
from tests.support.tiers import usual

SAMPLERS = {
    "random walk": RandomWalk(step_size=1.0),
    "mala": MALA(step_size=0.4),
    "crank nicolson": PreconditionedCrankNicolson(step_size=0.6),
    "independence": LaplaceIndependence(batch=1),
    "tilted gibbs": TiltedGibbs(step_size=1.0),
    "proximal": Proximal(step_size=0.5),
}
STEPS = {
    "random walk": coupled_steps.couple_random_walks,
    "mala": coupled_steps.couple_langevin,
    "crank nicolson": coupled_steps.couple_crank_nicolson,
    "independence": coupled_steps.couple_independence,
    "tilted gibbs": coupled_steps.couple_tilted_gibbs,
}
# One with its mode on the boundary, so that proposals leave the domain; one with kinks.
TARGETS = ("logistic, mode on the sphere", "hinge on the plane")


def coupled(name, case, seed=1):
    """Prepared chain and its coupled kernel."""
    rng = np.random.default_rng(seed)
    prepared, pair, _ = prepare_pair(SAMPLERS[name], case.target, rng)
    return prepared, pair


def one_step(pair, x, y, rng):
    first, second = pair.init(x), pair.init(y)
    draws, others = np.empty((2, 1, len(x)))
    _, has_met = pair.advance(first, second, rng, draws, others)
    return draws[0], others[0], has_met


@pytest.mark.slow
@pytest.mark.parametrize("case_name", TARGETS)
@pytest.mark.parametrize("name", [n for n in STEPS if n != "independence"])
def test_the_first_chain_is_the_sampler_bit_for_bit(name, case_name):
    case = CASES[case_name]
    prepared, pair = coupled(name, case)
    points = case.exact(np.random.default_rng(21), 120)
    moved = 0
    for i, (x, y) in enumerate(zip(points[::2], points[1::2], strict=True)):
        alone, stats = np.empty((1, 2)), np.empty((1, NUM_STATS))
        prepared.runner()(prepared.init(x), np.random.default_rng(i), alone, stats)
        together, _, _ = one_step(pair, x, y, np.random.default_rng(i))
        np.testing.assert_array_equal(together, alone[0])
        moved += int(not np.array_equal(together, x))
    assert moved >= 5


@pytest.mark.slow
def test_the_first_independence_chain_is_the_sampler():
    # Energies of a batch are summed in another order: equal up to rounding.
    case = CASES["hinge on the plane"]
    prepared, pair = coupled("independence", case)
    for i, x in enumerate(case.exact(np.random.default_rng(22), 60)):
        alone, stats = np.empty((1, 2)), np.empty((1, NUM_STATS))
        prepared.runner()(prepared.init(x), np.random.default_rng(i), alone, stats)
        together, _, _ = one_step(pair, x, x + 0.1, np.random.default_rng(i))
        np.testing.assert_allclose(together, alone[0], rtol=1e-12)


@pytest.fixture(scope="module")
def exact():
    """Independent draws of both targets, two halves for two chains."""
    rng = np.random.default_rng(23)
    return {name: CASES[name].exact(rng, 6000) for name in TARGETS}


def margins(case, pair, points, seed):
    """Deviation of either chain's law after steps that must keep it."""
    half, rng = len(points) // 2, np.random.default_rng(seed)
    results = [
        one_step(pair, x, y, rng)
        for x, y in zip(points[:half], points[half:], strict=True)
    ]
    draws, others, met = (np.array(part) for part in zip(*results, strict=True))
    return law_margin(case, draws), law_margin(case, others), met.mean()


def name_and_target():
    """The default tier sees each sampler on one target, the slow one on the other."""
    for name in SAMPLERS:
        for case_name in TARGETS:
            is_slow = (case_name == TARGETS[0]) == (
                name == "proximal"
            ) or name == "mala"
            marks = [pytest.mark.slow] if is_slow else []
            yield pytest.param(name, case_name, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case_name"), list(name_and_target()))
def test_both_chains_keep_the_target(name, case_name, exact):
    case = CASES[case_name]
    _, pair = coupled(name, case)
    if name != "proximal":
        prepared = dataclasses.replace(pair.prepared, num_steps=3)
        pair = dataclasses.replace(pair, prepared=prepared)
    first, second, share_met = margins(case, pair, exact[case_name], 24)
    assert first < 1.0 and second < 1.0
    assert 0.05 < share_met < 1.0


@pytest.mark.slow
def test_common_noise_after_a_lost_coin_is_rejected():
    case = CASES["hinge on the plane"]
    points = case.exact(np.random.default_rng(24), 16_000)
    _, pair = coupled("random walk", case)
    run = compile_pair(walk_with_common_noise)
    broken = dataclasses.replace(
        pair,
        prepared=dataclasses.replace(pair.prepared, num_steps=3),
        coupling=dataclasses.replace(pair.coupling, run=run),
    )
    first, second, _ = margins(case, broken, points, 25)
    assert first < 1.0
    assert_rejected(second)


@usual("crank nicolson")
@pytest.mark.parametrize("name", SAMPLERS)
def test_chains_that_met_stay_equal(name):
    case = CASES["logistic, mode on the sphere"]
    _, pair = coupled(name, case)
    x, y = case.exact(np.random.default_rng(26), 2)
    first, second = pair.init(x), pair.init(y)
    rng = np.random.default_rng(27)
    draws, others = np.empty((2, 1000, 2))
    count, has_met = pair.advance(first, second, rng, draws, others)
    assert has_met and count < 1000
    np.testing.assert_array_equal(draws[count - 1], others[count - 1])
    seen = set()
    for _ in range(100):
        count, has_met = pair.advance(first, second, rng, draws[:1], others[:1])
        assert has_met
        np.testing.assert_array_equal(draws[0], others[0])
        np.testing.assert_array_equal(first.memory, second.memory)
        seen.add(draws[0].tobytes())
    assert len(seen) > 10


def steps_together(couple, target, plan, state, other, count):
    """How many coupled steps two equal chains with memory of their own stay equal."""
    rng = np.random.default_rng(28)
    for i in range(count):
        couple(target.numbers, target.pieces, plan, state, other, rng)
        if not np.array_equal(state.position, other.position):
            return i
        np.testing.assert_array_equal(state.energy, other.energy)
        np.testing.assert_array_equal(state.memory, other.memory)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_coupled_steps_are_faithful_before_anything_is_copied(name):
    case = CASES["hinge on the plane"]
    _, pair = coupled(name, case)
    chains = [pair.init(np.array([0.2, -0.1])) for _ in range(2)]
    assert steps_together(STEPS[name], case.target, pair.plan, *chains, 60) == 60


@pytest.mark.slow
def test_two_coins_are_not_faithful():
    case = CASES["hinge on the plane"]
    _, pair = coupled("random walk", case)
    chains = [pair.init(np.array([0.2, -0.1])) for _ in range(2)]
    seen = steps_together(walk_with_two_coins, case.target, pair.plan, *chains, 60)
    assert seen < 60


class Continued(Twins):
    """Twins that go on where the first one stopped; the second may have read on."""

    def restart(self, rng):
        del rng
        self.bits[1].state = self.bits[0].state
        return self.streams


@pytest.mark.parametrize(("kind", "distinct"), [(Twins, 1500), (Continued, 1010)])
def test_twins_read_the_same_numbers_and_never_old_ones(kind, distinct):
    twins, rng = kind(), np.random.default_rng(29)
    seen = set()
    for _ in range(50):
        one, two = twins.restart(rng)
        numbers = two.random(30)
        np.testing.assert_array_equal(one.random(20), numbers[:20])
        seen.update(numbers.tolist())
    assert len(seen) == distinct
