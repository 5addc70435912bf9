"""Former public names: they warn, give the same bits, and exclude the present ones."""

import json
import pickle
from copy import copy
from dataclasses import replace

import pytest

import dpsample as dps
from dpsample.audits import neighbors
from dpsample.core import check
from dpsample.core.renamed import text_with_former_names, text_with_present_names
from dpsample.losses import CappedLogistic
from dpsample.optimizers import NoisyGD
from dpsample.samplers import BilliardHMC
from dpsample.tables import Encoding, Schema

CAPPED = CappedLogistic(cap=0.5)
# For each class: an object under present names, one attribute and its former name.
BILLIARD = BilliardHMC(trajectory_length=2.0, max_leapfrog_steps=9)
SPECS = [
    (NoisyGD(output="scaled", boundary_loss=CAPPED), "boundary_loss", "wall_loss"),
    (BILLIARD, "trajectory_length", "length"),
    (BILLIARD, "max_leapfrog_steps", "max_leaps"),
]


def files_of(seen):
    """Return the files of whose lines a DeprecationWarning is."""
    return [w.filename for w in seen if w.category is DeprecationWarning]


def options_of(spec):
    return dict(vars(spec))


@pytest.mark.parametrize(("spec", "present", "former"), SPECS)
def test_a_former_parameter_warns_and_makes_the_same_object(spec, present, former):
    options = options_of(spec)
    options[former] = options.pop(present)
    message = f"{former} of .* is now {present}"
    with pytest.warns(DeprecationWarning, match=message) as seen:
        again = type(spec)(**options)
    assert again == spec and repr(again) == repr(spec)
    assert files_of(seen) == [__file__]


@pytest.mark.parametrize(("spec", "present", "former"), SPECS)
def test_both_names_at_once_are_an_error(spec, present, former):
    options = options_of(spec) | {former: getattr(spec, present)}
    with pytest.raises(TypeError, match=f"got {present} and its former name {former}"):
        type(spec)(**options)


@pytest.mark.parametrize(("spec", "present", "former"), SPECS)
def test_a_former_attribute_warns(spec, present, former):
    with pytest.warns(DeprecationWarning, match=f"{former} is now .*{present}") as seen:
        assert getattr(spec, former) == getattr(spec, present)
    assert seen[0].filename == __file__


@pytest.mark.parametrize(("spec", "present", "former"), SPECS)
def test_present_names_do_not_warn(spec, present, former):
    assert replace(spec) == pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(TypeError, match="unexpected keyword"):
        type(spec)(**options_of(spec), nothing=1)


@pytest.mark.parametrize(("spec", "present", "former"), SPECS)
def test_what_an_earlier_version_wrote_is_read_without_a_warning(spec, present, former):
    fields = options_of(spec)
    fields[former] = fields.pop(present)
    assert check.build("data", type(spec), fields) == spec
    with pytest.raises(ValueError, match=f"and its former name {former}"):
        check.build("data", type(spec), fields | {present: getattr(spec, present)})


def small_problem():
    data = dps.datasets.logistic(50, 2, seed=1)
    return dps.Problem(
        data.features,
        data.response,
        row_bound=1.0,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(radius=1.0),
    )


def test_the_former_work_of_a_release_warns_and_gives_the_same_bits():
    options = {"constant_time": True, "seed": 1}
    problem, budget = small_problem(), dps.Budget(epsilon=1.0, delta=1e-6)
    least = dps.release(problem, budget, **options)
    count = least.nonprivate_diagnostics["num_passes"] + 1
    expected = dps.release(problem, budget, num_passes=count, **options)
    with pytest.warns(DeprecationWarning, match="work of release is now num_p") as seen:
        answer = dps.release(problem, budget, work=count, **options)
    assert files_of(seen) == [__file__]
    assert answer.theta.tobytes() == expected.theta.tobytes()
    assert answer.certificate.to_json() == expected.certificate.to_json()
    with pytest.raises(TypeError, match="num_passes and its former name work"):
        dps.release(problem, budget, work=count, num_passes=count, **options)
    with pytest.warns(DeprecationWarning, match="work of release is now num_p") as seen:
        runs = dps.replicate(
            dps.release,
            problem,
            budget,
            num_replicates=1,
            seed=1,
            work=count,
            constant_time=True,
        )
    assert files_of(seen) == [__file__]
    assert runs.thetas.shape == (1, 2)


def test_a_pickle_of_an_earlier_version_is_read():
    spec, former = SPECS[0][0], copy(SPECS[0][0])
    fields = vars(former)
    fields["wall_loss"] = fields.pop("boundary_loss")
    again = pickle.loads(pickle.dumps(former))
    assert again == spec and repr(again) == repr(spec)


def test_checkpoints_are_identified_by_the_former_names():
    text = text_with_former_names(BilliardHMC, repr(BILLIARD))
    assert text == "BilliardHMC(num_steps=None, length=2.0, max_leaps=9)"
    assert text_with_present_names(BilliardHMC, text) == repr(BILLIARD)


def test_the_former_units_of_an_encoding_warn_and_are_the_same():
    encoding = Encoding(schema=Schema(numeric={"age": (0, 100)}))
    with pytest.warns(DeprecationWarning, match=r"is now Encoding.feature_s") as seen:
        former = encoding.units()
    assert files_of(seen) == [__file__]
    for old, new in zip(former, encoding.feature_scales(), strict=True):
        assert old.tobytes() == new.tobytes()


def test_the_former_key_of_counts_warns_and_has_the_same_number():
    budget = dps.Budget(epsilon=1.0, delta=1e-6)
    answer = dps.release(small_problem(), budget, seed=1)
    counts = answer.nonprivate_diagnostics["counts"]
    for read in (lambda: counts["asked"], lambda: counts.get("asked")):
        with pytest.warns(DeprecationWarning, match="'asked' is now 'candid") as seen:
            number = read()
        assert files_of(seen) == [__file__]
        assert number == counts["candidates"] >= 1
    assert "asked" in counts and "nothing" not in counts
    assert set(counts) == {"proposals", "candidates", "records"}
    assert json.loads(json.dumps(counts)) == counts == copy(counts)
    assert pickle.loads(pickle.dumps(counts)).get("nothing", 3) == 3
    with pytest.raises(KeyError, match="nothing"):
        counts["nothing"]


@pytest.mark.parametrize(
    ("former", "present"), [("duplicated", "copies"), ("zeroed", "zero_out")]
)
def test_a_former_function_of_a_module_warns(former, present):
    with pytest.warns(DeprecationWarning, match=f"{former} is now .*{present}") as seen:
        assert getattr(neighbors, former) is getattr(neighbors, present)
    assert files_of(seen) == [__file__]
    with pytest.raises(AttributeError, match="no attribute 'copied'"):
        neighbors.copied  # noqa: B018 - a name that never was
