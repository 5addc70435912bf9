"""Two worker processes, one of which is killed in the middle: the same bits."""

import os
import signal
from contextlib import contextmanager, suppress

import numpy as np
import pytest

import dpsample as dps
from dpsample.problem.cluster import ClusterStorage

pytestmark = pytest.mark.slow
KILL = "kill"  # file that tells a worker to end in the middle of its task
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
FACTS = {"loss": dps.losses.Logistic(), "domain": dps.domains.Ball(1.0)}


def records(num=100_000, dim=100):
    data = dps.datasets.logistic(num, dim, seed=1, signal=0.3)
    return data.features, data.response


@pytest.fixture
def client():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(processes=True, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def some(path, start, stop):
    with suppress(FileNotFoundError):
        path.with_name(KILL).unlink()  # by one task only
        os.kill(os.getpid(), signal.SIGKILL)
    return np.load(path, mmap_mode="r")[start:stop]


def on_cluster(folder, **arrays):
    """The records in files that workers read, cut otherwise than we cut them."""
    from dask import array, delayed

    given, step = [], 17_000
    for name, values in arrays.items():
        np.save(folder / name, values)
        parts = []
        for start in range(0, len(values), step):
            part = delayed(some)(folder / f"{name}.npy", start, start + step)
            shape = values[start : start + step].shape
            parts.append(array.from_delayed(part, shape, values.dtype))
        given.append(array.concatenate(parts))
    return dps.Problem(*given, row_bound=1.0, **FACTS)


@contextmanager
def killed_in_pass(number, name, client, monkeypatch, folder):
    """Of two workers one is killed in a task of a pass, whenever that is."""
    calls, run = [], getattr(ClusterStorage, name)
    before = set(client.run(os.getpid).values())

    def counted(self, *args):
        calls.append(0)
        if len(calls) == number:
            (folder / KILL).touch()
        return run(self, *args)

    monkeypatch.setattr(ClusterStorage, name, counted)
    yield
    assert len(calls) > number and not (folder / KILL).exists()
    assert len(before & set(client.run(os.getpid).values())) == 1


def test_a_killed_worker_changes_no_bit(client, monkeypatch, tmp_path):
    rows, labels = records()
    kept = dps.Problem(rows, labels, row_bound=1.0, **FACTS)
    wanted = dps.release(kept, BUDGET, seed=5)
    assert wanted.nonprivate_diagnostics["method"] == "rejection"
    made = on_cluster(tmp_path, rows=rows, labels=labels)
    assert isinstance(made.storage, ClusterStorage)
    with killed_in_pass(4, "fold", client, monkeypatch, tmp_path):
        answer = dps.release(made, BUDGET, seed=5)
    np.testing.assert_array_equal(answer.theta, wanted.theta)
    for name in ("non_private_theta", "risk"):
        mine, memory = (a.nonprivate_diagnostics[name] for a in (answer, wanted))
        np.testing.assert_array_equal(mine, memory)


def test_a_killed_worker_changes_no_bit_of_gradient_steps(
    client, monkeypatch, tmp_path
):
    rows, labels = records(num=60_000)
    method = dps.optimizers.NoisyGD(num_steps=3)
    kept = dps.Problem(rows, labels, row_bound=1.0, **FACTS)
    wanted = dps.minimize(kept, method, BUDGET, seed=5).theta
    made = on_cluster(tmp_path, rows=rows, labels=labels)
    with killed_in_pass(2, "windows", client, monkeypatch, tmp_path):
        fit = dps.minimize(made, method, BUDGET, seed=5)
    np.testing.assert_array_equal(fit.theta, wanted)
