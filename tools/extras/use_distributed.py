"""Compute a risk on a Dask cluster. It needs the extra ``distributed``."""

import numpy as np
from dask import array
from distributed import Client, LocalCluster

import dpsample as dps

data = dps.datasets.logistic(500, 2, seed=1)
problem = dps.Problem(
    data.features,
    data.response,
    loss=dps.losses.Logistic(),
    domain=dps.domains.Ball(1.0),
    row_bound=1.0 + 1e-6,
)
budget = dps.Budget(epsilon=1.0, delta=1e-6)


options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
with LocalCluster(processes=False, **options) as cluster, Client(cluster):
    remote = dps.Problem(
        array.from_array(data.features, (250, 2)),
        array.from_array(data.response, 250),
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0 + 1e-6,
    )
    theta = np.array([0.3, -0.2])
    assert np.isclose(remote.risk(theta), problem.risk(theta), rtol=1e-12)
