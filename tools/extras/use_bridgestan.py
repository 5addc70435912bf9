"""Draw from a Stan model. It needs the extra ``bridgestan``."""

from pathlib import Path
from tempfile import mkdtemp

import bridgestan
import numpy as np

import dpsample as dps

program = Path(mkdtemp(), "pair.stan")
program.write_text("""
parameters { vector[2] x; }
model { x[1] ~ normal(1, 1); x[2] ~ normal(-1, 1); }
""")
model = bridgestan.StanModel(str(program), make_args=["STAN_THREADS=true"])
bridge = dps.interop.from_bridgestan(model)


draws = dps.sample(bridge.density, num_draws=500, seed=1, threads=1, progress=False)
values = bridge.unpack(draws).posterior["x"].values.reshape(-1, 2)
assert np.allclose(values.mean(axis=0), [1.0, -1.0], atol=0.3), values.mean(axis=0)
