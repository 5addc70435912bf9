"""Draw a figure of chains. It needs the extra ``plots``."""

import matplotlib

import dpsample as dps
from dpsample.diagnostics import plot_rank

data = dps.datasets.logistic(500, 2, seed=1)
problem = dps.Problem(
    data.features,
    data.response,
    loss=dps.losses.Logistic(),
    domain=dps.domains.Ball(1.0),
    row_bound=1.0 + 1e-6,
)
budget = dps.Budget(epsilon=1.0, delta=1e-6)

matplotlib.use("Agg")

target = dps.calibrate(problem, budget).target(problem)
draws = dps.sample(target, num_draws=200, num_chains=2, seed=1, progress=False)
assert plot_rank(draws) is not None
