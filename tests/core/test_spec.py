"""Specs: they compare by content, as keys of a cache too."""

import pytest

import dpsample as dps
from dpsample.privacy import GaussianEvent

EQUAL = [
    (GaussianEvent(0.0), GaussianEvent(-0.0)),
    (dps.domains.Ball(1.0, center=[0.0]), dps.domains.Ball(1.0, center=[-0.0])),
    (dps.optimizers.NoisyGD(clip=1), dps.optimizers.NoisyGD(clip=1.0)),
]


@pytest.mark.parametrize(("first", "second"), EQUAL)
def test_equal_specs_have_equal_hashes(first, second):
    assert first == second and hash(first) == hash(second)
    assert len({first, second}) == 1
