"""Draw from a PyMC model. It needs the extra ``pymc``."""

import numpy as np
import pymc as pm

import dpsample as dps

with pm.Model() as model:
    pm.Normal("x", np.array([1.0, -1.0]), 1.0, shape=2)
bridge = dps.interop.from_pymc(model)


draws = dps.sample(bridge.density, num_draws=500, seed=1, threads=1, progress=False)
values = bridge.unpack(draws).posterior["x"].values.reshape(-1, 2)
assert np.allclose(values.mean(axis=0), [1.0, -1.0], atol=0.3), values.mean(axis=0)
