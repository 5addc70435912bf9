"""Everything public can be pickled and copied, fresh and used, and means the same."""

import copy
import inspect
import pickle
from functools import cached_property

import numba
import numpy as np
import pytest

import dpsample as dps
from dpsample.core.spec import Spec
from tests.contracts import public_objects
from tests.contracts.public_objects import BASES, example, public_classes
from tests.support.processes import run_python
from tests.support.tiers import one_in

WAYS = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
KINDS = [kind for kind in public_classes() if kind.__name__ not in BASES]
POINT = np.array([0.1, -0.2])


def skip_if_interpreted():
    """Numba carries functions over; plain closures, which stand for them, stay."""
    if numba.config.DISABLE_JIT:
        pytest.skip("the pieces of a custom loss are closures")


def use(value):
    """Look at every attribute, which fills whatever is cached."""
    for name, attribute in inspect.getmembers(type(value)):
        if isinstance(attribute, property | cached_property):
            try:
                getattr(value, name)
            except Exception:  # not defined for this one, or for made-up numbers
                continue


def contents(value):
    """Public content as nested tuples of plain values and the bytes of arrays."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, dict):
        return tuple((k, contents(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return type(value).__name__, *(contents(v) for v in value)
    if hasattr(value, "tocsr") or isinstance(value, str | int | float | type(None)):
        return repr(value)
    if inspect.isroutine(value) or hasattr(value, "py_func"):
        return getattr(value, "__name__", "")
    state = value.__getstate__()
    return type(value).__name__, contents(state) if state else str(value)


@one_in(9)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_copy_has_the_type_and_content_of_the_original(kind, way):  # S4
    value = example(kind)
    if kind is dps.losses.Custom and way is WAYS["pickle"]:
        skip_if_interpreted()
    for _ in ("fresh", "used"):
        made = way(value)
        assert type(made) is type(value)
        assert contents(made) == contents(value)
        use(value)


def test_arrays_that_a_spec_forbids_to_write_stay_so_in_its_copies():
    """Constants and hashes are computed from them once."""
    specs = [example(kind) for kind in KINDS if issubclass(kind, Spec)]
    specs += [dps.domains.Ball(1.0, center=[0.0]), dps.regularizers.SquaredNorm(2.0)]
    copies = [way(spec) for spec in specs for way in WAYS.values()]
    values = [value for each in copies for value in vars(each).values()]
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    assert len(arrays) >= 3 and not any(array.flags.writeable for array in arrays)


def test_every_public_class_is_there():
    names = {kind.__name__ for kind in public_classes()}
    assert len(names) >= 90 and names >= BASES
    assert set(public_objects.EXAMPLES) <= names


@pytest.mark.parametrize("make_loss", [dps.losses.Logistic, public_objects.custom])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_used_target_gives_the_same_numbers_after_a_copy(make_loss, way):  # S4
    loss = make_loss()
    if loss.name == "custom" and way is WAYS["pickle"]:
        skip_if_interpreted()
    target = dps.Gibbs(public_objects.problem(loss=loss), k=5.0, mu=1.0)
    before = target.energy(POINT)
    again = way(target)
    assert again.energy(POINT) == before and target.energy(POINT) == before
    np.testing.assert_array_equal(again.gradient(POINT), target.gradient(POINT))


def test_draws_and_replicates_travel():
    target = public_objects.target()
    draws = dps.sample(target, num_draws=4, num_chains=2, progress=False)
    for way in WAYS.values():
        assert way(draws).identical(draws)


IN_A_CHILD = """
import pathlib, pickle, sys
for name in {names}:
    target = pickle.loads(pathlib.Path(name).read_bytes())
    print(float(target.energy([0.1, -0.2])).hex())
"""


@pytest.mark.slow
def test_another_process_evaluates_a_used_target(tmp_path):  # S4
    """As multiprocessing by spawn does; the functions of `local` are in no module."""
    skip_if_interpreted()
    local = dps.losses.custom(
        lambda u, y: np.sqrt(1.0 + (u - y) ** 2),
        lambda u, y: (u - y) / np.sqrt(1.0 + (u - y) ** 2),
        slope_bound=1.0,
        upper_curvature=1.0,
        labels=True,
    )
    names, expected = [], []
    for i, loss in enumerate((dps.losses.Hinge(), public_objects.custom(), local)):
        target = dps.Gibbs(public_objects.problem(loss=loss), k=5.0, mu=1.0)
        expected.append(float(target.energy(POINT)).hex())
        names.append(str(tmp_path / str(i)))
        (tmp_path / str(i)).write_bytes(pickle.dumps(target))
    assert run_python(IN_A_CHILD.format(names=names))[0].split() == expected


def energy(target):
    return float(target.energy(np.full(20, 0.1)))


@pytest.mark.slow
def test_loky_hands_over_a_target_whose_records_it_maps_read_only():  # S4
    joblib = pytest.importorskip("joblib")
    rows = np.random.default_rng(1).uniform(-0.2, 0.2, (10_000, 20))
    problem = public_objects.problem(
        features=rows, response=np.where(rows[:, 0] > 0.0, 1.0, -1.0)
    )
    target = dps.Gibbs(problem, k=5.0, mu=1.0)
    expected = energy(target)
    assert problem.data.dense.nbytes > 10**6  # the size from which joblib maps
    with joblib.parallel_config("loky", n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(energy)(target) for _ in range(2))
    assert found == [expected] * 2
