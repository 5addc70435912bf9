"""Models of other libraries: values, gradients, draws, names, and refusals."""

import subprocess
import sys

import numpy as np
import pytest

import dpsample as dps
from dpsample import interop

# Names of libraries, and the functions that need them.
NEEDS = {
    "bridgestan": interop.from_bridgestan,
    "jax": interop.from_jax,
    "pymc": interop.from_pymc,
}


@pytest.mark.parametrize("name", NEEDS)
def test_a_missing_library_is_named_with_its_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    arguments = (abs, 1) if name == "jax" else (None,)
    message = f"from_{name} needs {name}: pip install 'dpsample\\[{name}\\]'"
    with pytest.raises(ImportError, match=message):
        NEEDS[name](*arguments)


def test_no_library_is_loaded_before_it_is_needed():
    code = "import sys, dpsample as dps; dps.interop.from_jax\n"
    code += f"assert not set(sys.modules) & {set(NEEDS)}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_tree_must_have_draws_of_the_density():
    density = dps.Density(energy=lambda x: x @ x, dim=2)
    bridge = interop.Bridge(density=density, variables_fn=lambda x: {"x": x})
    other = dps.Density(energy=lambda x: x @ x, dim=1)
    tree = dps.sample(other, num_draws=10, num_chains=2, progress=False, check=False)
    with pytest.raises(ValueError, match=r"draws of shape \(chain, draw, 2\)"):
        bridge.unpack(tree)
    del tree["posterior"]
    with pytest.raises(ValueError, match="tree must be draws of dps.sample"):
        bridge.unpack(tree)


def test_variables_have_their_dims_and_coords():
    density = dps.Density(energy=lambda x: x @ x, dim=3)
    bridge = interop.Bridge(
        density=density,
        variables_fn=lambda x: {"a": x[:, :2], "b": x[:, 2], "c": x[:, None]},
        dims={"a": ("side",)},
        coords={"side": ["left", "right"]},
    )
    tree = dps.sample(density, num_draws=10, num_chains=2, progress=False, check=False)
    draws = bridge.unpack(tree)
    assert list(draws.children) == list(tree.children)
    assert draws.attrs == tree.attrs
    theta = tree.posterior["theta"].values
    posterior = draws.posterior
    np.testing.assert_array_equal(posterior["a"].sel(side="right"), theta[..., 1])
    np.testing.assert_array_equal(posterior["b"], theta[..., 2])
    assert posterior["c"].dims == ("chain", "draw", "c_dim_0", "c_dim_1")
    assert "theta" in tree.posterior  # the given tree is unchanged
