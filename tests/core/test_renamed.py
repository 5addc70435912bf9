"""Former public names: they warn, give the same bits, and exclude the present ones."""

import pickle
from copy import copy
from dataclasses import replace

import pytest

from dpsample.core import check
from dpsample.losses import CappedLogistic
from dpsample.optimizers import NoisyGD

CAPPED = CappedLogistic(cap=0.5)
# For each class: an object under present names, one attribute and its former name.
SPECS = [(NoisyGD(output="scaled", boundary_loss=CAPPED), "boundary_loss", "wall_loss")]


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
    assert [warning.filename for warning in seen] == [__file__]


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
    again = copy(spec)
    vars(again).clear()
    again.__setstate__(fields)  # as pickle does
    assert again == spec and present in vars(again)
