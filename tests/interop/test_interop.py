"""Models of other libraries: values, gradients, draws, names, and refusals."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import expon, norm

import dpsample as dps
from dpsample import interop
from tests.support.statistics import assert_law, rejected

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


@pytest.mark.slow
def test_no_library_is_loaded_before_it_is_needed():
    code = "import sys, dpsample as dps; dps.interop.from_jax\n"
    code += f"assert not set(sys.modules) & {set(NEEDS)}"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
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


@pytest.mark.slow
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


def negative_log_density(theta):
    """Minus the logarithm of the density of (log scale, units), with its constant."""
    log_scale, units = theta[0], theta[1:]
    return np.exp(log_scale) - log_scale + 0.5 * units @ units + np.log(2.0 * np.pi)


class TestOneModelInThreeLibraries:
    def test_values_and_gradients(self, bridge):
        rng = np.random.default_rng(1)
        for theta in rng.standard_normal((5, 3)):
            energy = bridge.density.energy(theta)
            assert energy == pytest.approx(negative_log_density(theta), rel=1e-12)
            slope = [np.exp(theta[0]) - 1.0, *theta[1:]]
            np.testing.assert_allclose(
                bridge.density.gradient(theta), slope, rtol=1e-12, atol=1e-12
            )

    def test_draws_have_the_distribution_and_the_names(self, bridge):
        draws = bridge.unpack(self.draw(bridge.density))
        posterior = draws.posterior
        if "log_scale" in posterior:
            posterior = posterior.assign(scale=np.exp(posterior["log_scale"]))
        assert_law(posterior["scale"].values.ravel(), expon.cdf)
        assert posterior["units"].shape == (4, 500, 2)
        for units in np.moveaxis(posterior["units"].values, -1, 0):
            assert_law(units.ravel(), norm.cdf)
        if "products" in posterior:
            units = posterior["units"].values
            np.testing.assert_allclose(
                posterior["products"], units[..., :, None] * units[..., None, :]
            )
        wrong = dataclasses.replace(bridge.density, k=0.5)
        with rejected():
            units = bridge.unpack(self.draw(wrong)).posterior["units"]
            assert_law(units.values[..., 0].ravel(), norm.cdf)

    @staticmethod
    def draw(density):
        """Nearly independent draws: each is the last of ten trajectories."""
        sampler = dps.samplers.BilliardHMC(num_steps=10)
        return dps.sample(density, sampler=sampler, num_draws=500, progress=False)

    def test_threads_change_nothing(self, bridge):
        draws = [
            dps.sample(
                bridge.density,
                num_draws=30,
                threads=threads,
                progress=False,
                check=False,
            ).posterior["theta"]
            for threads in (1, 4)
        ]
        np.testing.assert_array_equal(*draws)

    def test_identity_depends_on_the_model_alone(self, bridge):
        digests = bridge.density.functions.digests()
        assert digests == bridge.density.functions.digests()
        assert len(set(digests)) > 1


def test_errors_of_a_function_in_jax_end_the_run_with_their_text():
    jax = pytest.importorskip("jax", reason="the extra `jax` is not installed")
    calls = []

    def count(theta):
        calls.append(theta)
        if len(calls) > 2000:
            raise RuntimeError("my own text")
        return np.float64(0.0)

    def log_density(theta):
        shape = jax.ShapeDtypeStruct((), np.float64)
        zero = jax.pure_callback(count, shape, jax.lax.stop_gradient(theta))
        return -0.5 * theta @ theta + zero

    bridge = interop.from_jax(log_density, 2)
    with pytest.raises(ValueError, match=r"function must be .* my own text"):
        dps.sample(bridge.density, num_draws=10_000, progress=False)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x, r"function must be .* returns shapes \[\(2,\)\]"),
        (lambda x: x @ x, "function must be one that falls"),
        (lambda x: x[0] + unknown, "function must be .* NameError"),  # noqa: F821
        (3.0, "function must be a function of JAX arrays"),
    ],
)
def test_functions_that_are_no_log_density_are_refused(function, message):
    pytest.importorskip("jax", reason="the extra `jax` is not installed")
    with pytest.raises(ValueError, match=message):
        interop.from_jax(function, 2)


def test_models_that_cannot_be_drawn_from_are_refused():
    pm = pytest.importorskip("pymc", reason="the extra `pymc` is not installed")
    with pm.Model() as discrete:
        pm.Poisson("count", 1.0)
    with pytest.raises(ValueError, match="continuous variables, got discrete count"):
        interop.from_pymc(discrete)
    with pytest.raises(ValueError, match="model must be one with variables"):
        interop.from_pymc(pm.Model())


def test_data_of_a_model_are_copied():
    pm = pytest.importorskip("pymc", reason="the extra `pymc` is not installed")
    records = np.random.default_rng(0).standard_normal(40)
    with pm.Model() as model:
        data = pm.Data("records", records)
        center = pm.Normal("center", 0.0, 10.0)
        pm.Normal("observed", center, 1.0, observed=data)
    bridge = interop.from_pymc(model)
    energies = [bridge.density.energy([0.5])]
    identity = bridge.density.functions.digests()
    with model:
        pm.set_data({"records": 2.0 * records})
    energies.append(bridge.density.energy([0.5]))
    assert energies[0] == energies[1]
    densities = [norm.logpdf(records, 0.5).sum(), norm.logpdf(0.5, 0.0, 10.0)]
    assert energies[0] == pytest.approx(-sum(densities), rel=1e-8)
    assert identity != interop.from_pymc(model).density.functions.digests()
