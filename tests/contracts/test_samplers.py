"""What every public sampler promises beside its law."""

import dataclasses
import inspect
import json

import numba
import numpy as np
import pytest
from numba import typeof
from numba.core.runtime import _nrt_python, rtsys

import dpsample as dps
from dpsample.samplers import chain
from tests.contracts.sampler_runs import cell_of, draw, prepare
from tests.support.processes import run_python
from tests.support.sampler_grid import (
    DOMAINS,
    ROWS,
    SAMPLERS,
    grid_case,
    prepared_cell,
    supported_losses,
)
from tests.support.tiers import one_in, usual

FIELDS = ("position", "energy", "counts", "memory")
# From the last to the first: test_sampler_invariance.py goes the other way, so two
# workers with an empty cache compile different samplers.
NAMES = tuple(reversed(SAMPLERS))
CELLS = ROWS[::-1]


def test_every_sampler_is_found():
    words = inspect.getsource(dps.samplers)
    assert len(SAMPLERS) >= 14
    assert all(name in words for name in SAMPLERS)


@pytest.mark.parametrize("name", NAMES)
def test_the_sampler_says_what_it_is(name):
    sampler = SAMPLERS[name]
    kind = type(sampler)
    assert sampler.exactness in ("iid", "invariant", "biased")
    assert isinstance(sampler.is_reversible, bool)
    assert eval(repr(sampler), {name: kind, "inf": np.inf}) == sampler
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampler.anything = 1
    words = inspect.getdoc(kind)
    assert "**Guarantee.**" in words and "Examples\n--------" in words
    assert all(f"{f.name} : " in words for f in dataclasses.fields(kind) if f.init)


@pytest.mark.parametrize("name", NAMES)
def test_the_state_begins_with_the_common_fields_and_keeps_its_type(name):
    prepared = prepared_cell(name, *cell_of(name))
    state = prepared.init()
    assert state._fields[:4] == FIELDS
    assert state.position.dtype == state.energy.dtype == state.memory.dtype == float
    assert state.energy.shape == (1,) and state.memory.ndim == 1
    assert state.counts.dtype == np.int64 and len(state.counts) >= len(chain.COUNT)
    before = typeof(state)
    _, _, after = draw(prepared, [3], state=state)
    assert after is state and typeof(after) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_run_frees_what_it_allocates(name):
    """Kernels that count no references are to make none."""
    if numba.config.DISABLE_JIT:
        pytest.skip("nothing is compiled")
    prepared = prepared_cell(name, *cell_of(name))
    _nrt_python.memsys_enable_stats()
    kept = []
    for size in (3, 3, 30):
        draw(prepared, [size])
        stats = rtsys.get_allocation_stats()
        kept.append(stats.mi_alloc - stats.mi_free)
    _nrt_python.memsys_disable_stats()
    assert kept[1:] == kept[:1] * 2


@usual("-ball]")
@pytest.mark.parametrize(("name", "domain"), CELLS)
def test_the_stored_energy_is_the_targets(name, domain):
    for loss in supported_losses(name, domain):
        target = grid_case(domain, loss).target
        prepared = prepared_cell(name, domain, loss)
        draws, stats, state = draw(prepared, [1] * 12)
        for point, energy in zip(draws, stats[:, chain.STAT.energy], strict=True):
            if not np.isnan(energy):
                assert energy == pytest.approx(target.energy(point), rel=1e-9)
        np.testing.assert_array_equal(state.position, draws[-1])


@pytest.mark.parametrize("name", NAMES)
def test_counts_grow_and_the_statistics_are_their_differences(name):
    prepared = prepared_cell(name, *cell_of(name))
    state, rng, advance = prepared.init(), np.random.default_rng(3), prepared.runner()
    out, stats = np.empty((1, state.position.size)), np.empty((1, chain.NUM_STATS))
    seen = state.counts.copy()
    for _ in range(40):
        advance(state, rng, out, stats)
        made, seen = state.counts - seen, state.counts.copy()
        assert (made >= 0).all()
        assert made[chain.COUNT.accepted] <= made[chain.COUNT.proposals]
        if made[chain.COUNT.proposals] > 0:
            rate = made[chain.COUNT.accepted] / made[chain.COUNT.proposals]
            assert stats[0, chain.STAT.acceptance_rate] == rate
        names = (chain.COUNT.values, chain.COUNT.gradients, chain.COUNT.records)
        assert stats[0, chain.STAT.num_values :].tolist() == [made[i] for i in names]
    assert seen.sum() > 0


@pytest.mark.parametrize("name", NAMES)
def test_draws_depend_on_the_seed_alone_and_not_on_chunks(name):
    prepared, again = prepare(name), prepare(name)
    whole, stats, _ = draw(prepared, [20])
    for other, chunks in ((again, [20]), (prepared, [10]), (again, [7, 1, 12])):
        part, part_stats, _ = draw(other, chunks)
        np.testing.assert_array_equal(part, whole[: len(part)])
        if name != "LaplaceIndependence" or chunks == [20]:
            np.testing.assert_array_equal(part_stats, stats[: len(part)])
    assert not np.array_equal(draw(prepared, [20], seed=3)[0], whole)


@one_in(3)
@pytest.mark.parametrize("name", NAMES)
def test_the_plan_depends_on_the_pilot_stream_alone(name):
    for first, second in zip(
        chain.flatten_plan(tuple(prepare(name).numbers())),
        chain.flatten_plan(tuple(prepare(name).numbers())),
        strict=True,
    ):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", NAMES)
def test_neither_target_nor_plan_is_changed(name):
    target = grid_case(*cell_of(name)).target
    before = [np.copy(part) for part in chain.flatten_plan(target.numbers)]
    prepared = prepare(name, target)
    plan = [np.copy(p) for p in prepared.numbers() if isinstance(p, np.ndarray)]
    start = prepared.start.copy()
    draw(prepared, [30])
    after = [p for p in prepared.numbers() if isinstance(p, np.ndarray)]
    pairs = zip(
        before + plan, [*chain.flatten_plan(target.numbers), *after], strict=True
    )
    for old, new in pairs:
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(prepared.start, start)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_plan_has_one_type_for_all_targets(name):
    found = {}
    for domain in DOMAINS:
        for loss in supported_losses(name, domain):
            plan = getattr(prepared_cell(name, domain, loss), "plan", None)
            if isinstance(plan, tuple):
                found.setdefault(str(typeof(plan)), (domain, loss))
    # Exact has one loop for Gaussians and one for grids.
    assert len(found) <= (2 if name == "Exact" else 1), found


@usual("-ball]")
@pytest.mark.parametrize(("name", "domain"), CELLS)
def test_starts_lie_in_the_domain(name, domain):
    for loss in supported_losses(name, domain):
        prepared = prepared_cell(name, domain, loss)
        assert DOMAINS[domain].contains(prepared.start)
        rng = np.random.default_rng(4)
        for _ in range(5):
            assert DOMAINS[domain].contains(prepared.draw_start(rng))


@pytest.mark.parametrize("name", NAMES)
def test_words_of_the_settings_can_be_written(name):
    settings = prepared_cell(name, *cell_of(name)).settings
    assert json.loads(json.dumps(settings)) == settings
    assert all(isinstance(key, str) for key in settings)


@one_in(3, 1)
@pytest.mark.parametrize("name", NAMES)
def test_options_do_what_they_say(name):
    sampler = SAMPLERS[name]
    names = {f.name for f in dataclasses.fields(sampler)}
    if "num_steps" in names:
        few, many = (
            prepare(name),
            prepare(name, sampler=dataclasses.replace(sampler, num_steps=3)),
        )
        assert few.num_steps == 1 or sampler.num_steps is None
        assert many.num_steps == 3
    if "step_size" in names:
        fixed = dataclasses.replace(sampler, step_size=0.25)
        assert prepare(name, sampler=fixed).settings["step_size"] == 0.25


INTERPRETED = """
import json
import numpy as np
from tests.support.sampler_grid import SAMPLERS
from tests.contracts.sampler_runs import draw, prepare
found = {}
for name in SAMPLERS:
    draws, stats, _ = draw(prepare(name), [4])
    found[name] = draws.tolist()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_interpreted_samplers_draw_the_same():
    found = json.loads(run_python(INTERPRETED, NUMBA_DISABLE_JIT="1")[0])
    for name in SAMPLERS:
        compiled = draw(prepare(name), [4])[0]
        np.testing.assert_allclose(found[name], compiled, rtol=1e-6, err_msg=name)
