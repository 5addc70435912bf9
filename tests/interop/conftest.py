"""One model in three libraries: Exponential(1), and two standard normals."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dpsample import interop
from tests.support.project_files import ROOT

FILES = ROOT / "tests" / "support" / "files"


def from_jax():
    pytest.importorskip("jax", reason="the extra `jax` is not installed")
    import jax.numpy as jnp

    def log_density(parameters):
        log_scale, units = parameters["log_scale"], parameters["units"]
        constant = -jnp.log(2.0 * jnp.pi)
        density = -jnp.exp(log_scale) - 0.5 * jnp.sum(units**2)
        return density + log_scale + constant

    return interop.from_jax(log_density, {"log_scale": (), "units": 2})


def from_pymc():
    pm = pytest.importorskip("pymc", reason="the extra `pymc` is not installed")

    with pm.Model(coords={"side": ["left", "right"]}) as model:
        pm.Exponential("scale", 1.0)
        units = pm.Normal("units", 0.0, 1.0, dims="side")
        pm.Deterministic("products", units[:, None] * units[None, :])
    return interop.from_pymc(model)


def library_in_c(folder: Path) -> Path:
    """Shared library with the functions of BridgeStan, from a file in C."""
    bridgestan = pytest.importorskip("bridgestan", reason="the extra is not installed")
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("there is no C compiler")
    numbers = bridgestan.__version__.split(".")
    names = ("MAJOR", "MINOR", "PATCH")
    flags = [f"-D{name}={n}" for name, n in zip(names, numbers, strict=True)]
    library = folder / "exponential_model.so"
    source = FILES / "exponential.c"
    command = [compiler, "-O2", "-fPIC", "-shared", "-D_GNU_SOURCE", *flags]
    subprocess.run([*command, source, "-o", library, "-lm"], check=True)
    return library


def library_in_stan(folder: Path) -> Path:
    """Shared library that BridgeStan makes of the model in Stan, in minutes."""
    bridgestan = pytest.importorskip("bridgestan", reason="the extra is not installed")
    if "BRIDGESTAN" not in os.environ:
        pytest.skip("BRIDGESTAN does not name a folder with the sources of BridgeStan")
    source = shutil.copy(FILES / "exponential.stan", folder)
    return bridgestan.compile_model(source)


@pytest.fixture(scope="session", params=["jax", "pymc", "c", "stan"])
def bridge(request, tmp_path_factory):
    if request.param == "jax":
        return from_jax()
    if request.param == "pymc":
        return from_pymc()
    folder = tmp_path_factory.mktemp("stan")
    compile_library = library_in_c if request.param == "c" else library_in_stan
    library = compile_library(folder)
    import bridgestan

    return interop.from_bridgestan(bridgestan.StanModel(str(library)))
