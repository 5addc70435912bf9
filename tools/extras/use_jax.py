"""Draw from a function of JAX. It needs the extra ``jax``."""

import jax.numpy as jnp
import numpy as np

import dpsample as dps

center = jnp.array([1.0, -1.0])
bridge = dps.interop.from_jax(
    lambda parameters: -0.5 * jnp.sum((parameters["x"] - center) ** 2), {"x": (2,)}
)


draws = dps.sample(bridge.density, num_draws=500, seed=1, threads=1, progress=False)
values = bridge.unpack(draws).posterior["x"].values.reshape(-1, 2)
assert np.allclose(values.mean(axis=0), [1.0, -1.0], atol=0.3), values.mean(axis=0)
