"""First calls: CPU seconds with an empty and a warm cache, and what is compiled.

    python benchmarks/start.py [--only NAME,NAME] [--peer-python PATH] [--repeats N]

Each call is the first one of a process of its own, with one thread. Imports and the
problem are not counted. The cache of compiled functions is a temporary directory: empty
for one process, filled for the next. `functions` counts what Numba compiled, and the
longest of them follow with the seconds that each took without its callees. Peers draw
from the posterior of the same records; they keep nothing on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
NUM_LONGEST = 10
NUM_RECORDS = 2000
DIM = 5
# Peers make as many draws as the samplers of the package.
NUM_DRAWS = 50
NUM_CHAINS = 2

PROBLEM = """
import dpsample as dps
from dpsample.api.sample import _load_libraries

_load_libraries()

data = dps.datasets.logistic({num_records}, {dim}, seed=1)
problem = dps.Problem(
    data.features, data.response, loss=dps.losses.{loss}(),
    domain=dps.domains.Ball(radius=2.0), row_bound=1.0,
)
budget = dps.Budget(epsilon=1.0, delta=1e-6)
target = dps.Gibbs(
    problem, k=500.0, mu=0.01, regularizer=dps.regularizers.SquaredNorm(2.0)
)
options = dict(num_draws={num_draws}, num_chains={num_chains}, seed=1, progress=False)
dps.minimize, dps.release, dps.sample, dps.optimizers, dps.samplers, dps.noise
"""
# By name: the loss and the call.
CALLS = {
    "release": ("Logistic", "dps.release(problem, budget, seed=1)"),
    "release hinge": ("Hinge", "dps.release(problem, budget, seed=1)"),
    "minimize NoisyGD": (
        "Logistic",
        "dps.minimize(problem, dps.optimizers.NoisyGD(), budget, seed=1)",
    ),
    "minimize DPSGD": (
        "Logistic",
        "dps.minimize(problem, dps.optimizers.DPSGD(sampling_rate=0.1, num_steps=20), "
        "budget, seed=1)",
    ),
    "minimize ObjectivePerturbation": (
        "Logistic",
        "dps.minimize(problem, dps.optimizers.ObjectivePerturbation(), budget, seed=1)",
    ),
    "sample auto": ("Logistic", "dps.sample(target, **options)"),
    "sample BilliardHMC": (
        "Logistic",
        "dps.sample(target, sampler=dps.samplers.BilliardHMC(), **options)",
    ),
    "sample Proximal": (
        "Logistic",
        "dps.sample(target, sampler=dps.samplers.Proximal(), **options)",
    ),
    "noise": (
        "Logistic",
        "dps.noise.generalized_gaussian(np.random.default_rng(1), size=(10, 5), r=3.0)",
    ),
}
RUN = """
import json, sys, time, warnings
import numpy as np
from benchmarks.start import Compilations

warnings.simplefilter("ignore")
{problem}
compilations = Compilations()
begin = time.process_time()
{call}
seconds = time.process_time() - begin
print(json.dumps({{"seconds": seconds, "functions": compilations.functions}}))
"""
PEER_PROBLEM = """
import json, time, warnings
import numpy as np

warnings.simplefilter("ignore")
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(1)
rows = rng.standard_normal(({num_records}, {dim}))
labels = np.sign(rows[:, 0] + rng.standard_normal({num_records}))

def log_density(theta):
    return -jnp.logaddexp(0.0, -labels * (rows @ theta)).sum() - theta @ theta / 8.0

{imports}
begin = time.process_time()
{call}
print(json.dumps({{"seconds": time.process_time() - begin, "functions": []}}))
"""
PEERS = {
    "blackjax NUTS": (
        "import blackjax",
        """
key = jax.random.key(0)
adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
(state, parameters), _ = adaptation.run(key, jnp.zeros({dim}), num_steps=200)
step = blackjax.nuts(log_density, **parameters).step

def draw(state, key):
    state, _ = step(key, state)
    return state, state.position

_, draws = jax.lax.scan(draw, state, jax.random.split(key, {num_draws}))
draws.block_until_ready()
""",
    ),
    "numpyro NUTS": (
        "from numpyro.infer import MCMC, NUTS",
        """
kernel = NUTS(potential_fn=lambda theta: -log_density(theta))
mcmc = MCMC(kernel, num_warmup=200, num_samples={num_draws}, progress_bar=False)
mcmc.run(jax.random.key(0), init_params=jnp.zeros({dim}))
mcmc.get_samples().block_until_ready()
""",
    ),
}


class Compilations:
    """Functions that Numba compiles from now on, with the seconds of each alone.

    A compilation is one run of Numba's pipeline. A callee's lies within its caller's,
    so its seconds are subtracted.
    """

    def __init__(self) -> None:
        from numba.core.compiler import CompilerBase

        self.functions: list[tuple[str, float]] = []
        self._nested = [0.0]  # seconds of the callees, for each function at work
        usual = CompilerBase._compile_core
        clock, nested = time.process_time, self._nested

        def compile_core(compiler: Any) -> object:
            begin = clock()
            nested.append(0.0)
            try:
                return usual(compiler)
            finally:
                seconds, of_callees = clock() - begin, nested.pop()
                nested[-1] += seconds
                identity = compiler.state.func_id
                name = f"{identity.modname}.{identity.func_qualname}"
                self.functions.append((name, seconds - of_callees))

        CompilerBase._compile_core = compile_core


def first_call(name: str, cache: Path, *, python: str = sys.executable) -> Any:
    """Run a call, or a peer's, in a new process; its seconds and its functions."""
    sizes = {"num_records": NUM_RECORDS, "dim": DIM}
    sizes |= {"num_draws": NUM_DRAWS, "num_chains": NUM_CHAINS}
    if name in PEERS:
        imports, call = PEERS[name]
        code = PEER_PROBLEM.format(imports=imports, call=call.format(**sizes), **sizes)
    else:
        loss, call = CALLS[name]
        code = RUN.format(problem=PROBLEM.format(loss=loss, **sizes), call=call)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [python, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def longest(functions: list[tuple[str, float]]) -> list[tuple[str, float, int]]:
    """Names that took longest, their seconds and how often each was compiled."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for name, cost in functions:
        seconds[name].append(cost)
    rows = [(name, sum(costs), len(costs)) for name, costs in seconds.items()]
    return sorted(rows, key=lambda row: -row[1])[:NUM_LONGEST]


def print_call(name: str, repeats: int) -> None:
    """Print a line of one call, the best of several, and its longest functions."""
    cold, warm, functions = float("inf"), float("inf"), []
    for _ in range(repeats):
        with TemporaryDirectory() as cache:
            first = first_call(name, Path(cache))
            second = first_call(name, Path(cache))
        cold, functions = min(cold, first["seconds"]), first["functions"]
        warm = min(warm, second["seconds"])
    print(f"{name:32s} {cold:8.2f} {warm:8.2f} {len(functions):10d}", flush=True)
    for function, seconds, times in longest(functions):
        print(f"    {seconds:6.2f} {times:3d} x {function}")


def main() -> None:
    """Print the table, and the peers' first calls if they are installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(CALLS), help="names of calls")
    parser.add_argument("--peer-python", help="Python that has blackjax and numpyro")
    parser.add_argument("--repeats", type=int, default=1, help="the best counts")
    options = parser.parse_args()
    print(f"{'first call':32s} {'empty s':>8s} {'warm s':>8s} {'functions':>10s}")
    for name in options.only.split(","):
        print_call(name, options.repeats)
    for name in PEERS if options.peer_python else ():
        runs = []
        for _ in range(options.repeats):
            with TemporaryDirectory() as cache:
                run = first_call(name, Path(cache), python=options.peer_python)
            runs.append(run["seconds"])
        print(f"{name:32s} {min(runs):8.2f} {'-':>8s} {'-':>10s}", flush=True)


if __name__ == "__main__":
    main()
