"""The cells of the robustness benchmark, and the coordinates that peers get."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
NAMES = ("targets", "polytopes", "densities", "robust_cells")


@pytest.fixture(scope="module")
def modules():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield {name: importlib.import_module(name) for name in NAMES}
        for name in NAMES:
            del sys.modules[name]


@pytest.mark.parametrize("seed", [0, 1])
def test_points_of_reduced_polytopes_satisfy_everything(modules, seed):
    polytopes = modules["polytopes"]
    for name, build in polytopes.BODIES.items():
        whole = build(np.random.default_rng(seed))
        body = polytopes.reduce_dimension(whole)
        assert np.all(whole.facets @ whole.point < whole.limits), name
        assert np.all(body.facets @ body.point < body.limits), name
        assert len(body.cost) == len(whole.cost) - len(whole.equations), name


def volume_error(case, densities, z):
    """Error of the log Jacobian's change from z / 2 to z."""

    def log_volume(z):
        steps = 1e-5 * np.eye(len(z))
        ends = [densities.to_domain(case, z + s * steps, np)[0] for s in (1.0, -1.0)]
        rows = (ends[0] - ends[1]) / 2e-5
        return 0.5 * np.linalg.slogdet(rows @ rows.T)[1]

    stated = [densities.to_domain(case, x, np)[1] for x in (z, 0.5 * z)]
    return stated[0] - stated[1] - log_volume(z) + log_volume(0.5 * z)


@pytest.mark.parametrize("domain", ["ball", "box", "simplex"])
def test_peers_get_the_jacobian_of_their_coordinates(modules, domain):
    densities = modules["densities"]
    case = modules["targets"].Case(
        name="",
        title="",
        rows=np.ones((1, 4)),
        labels=np.ones(1),
        loss="logistic",
        k=1.0,
        mu=0.0,
        domain=domain,
        radius=1.7,
    )
    z = np.random.default_rng(3).standard_normal(densities.free_dim(case))
    assert abs(volume_error(case, densities, z)) < 1e-7


def test_synthetic_cells_keep_their_names_and_take_seeds(modules, monkeypatch):
    monkeypatch.delenv("DPSAMPLE_DATA", raising=False)
    builders, missing = modules["robust_cells"].cells()
    assert len(builders) >= 104
    assert any("DPSAMPLE_DATA" in line for line in missing)
    name = next(iter(builders))
    first, again, other = (builders[name](seed) for seed in (0, 0, 1))
    assert first.name == name
    np.testing.assert_array_equal(first.rows, again.rows)
    assert not np.array_equal(first.rows, other.rows)
