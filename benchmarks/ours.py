"""One sampler of dpsample on one target in a process of its own.

    python ours.py SAMPLER TARGET.npz OUT.npz --seconds SECONDS [--box]

Clocks count CPU seconds of this process; its start counts towards the first draw.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from typing import Any

import numpy as np
import targets
from numba.core import event
from scipy import sparse

import dpsample as dps
from dpsample import samplers
from dpsample.core import pauses
from dpsample.samplers.chain import COUNT, NUM_STATS

NUM_CHAINS = 2
CHUNK_SECONDS = 0.2
MAX_NUMBERS = 8_000_000  # numbers in the draws of all chains
NAMES = [
    name
    for name in samplers.__all__
    if hasattr(getattr(samplers, name), "supports") and name != "Sampler"
]
LOSSES = {
    "linear": lambda option: dps.losses.Linear(),
    "logistic": lambda option: dps.losses.Logistic(),
    "hinge": lambda option: dps.losses.Hinge(),
    "absolute": lambda option: dps.losses.Absolute(),
    "quantile": lambda option: dps.losses.Quantile(level=option),
    "huber": lambda option: dps.losses.Huber(width=option),
    "squared": lambda option: dps.losses.Squared(),
}
DOMAINS = {
    targets.WHOLE: lambda case: dps.domains.WholeSpace(),
    targets.BALL: lambda case: dps.domains.Ball(case.radius, p=case.p),
    targets.BOX: lambda case: dps.domains.Box(
        np.full(case.dim, -case.radius), np.full(case.dim, case.radius)
    ),
    targets.SIMPLEX: lambda case: dps.domains.Simplex(),
    targets.POLYTOPE: lambda case: dps.domains.Polytope(case.facets, case.limits),
    targets.SCHATTEN: lambda case: dps.domains.SchattenBall(
        case.radius, p=case.p, shape=case.shape
    ),
}


def gibbs(case: targets.Case, *, as_box: bool = False) -> dps.Gibbs:
    """Target of a case; the cube as a Box or as a Polytope."""
    if as_box:
        case = dataclasses.replace(case, domain=targets.BOX, radius=1.0)
    squares = case.rows.power(2) if sparse.issparse(case.rows) else np.square(case.rows)
    # The bound that a user would have to declare; it only matters for releases.
    bound = max(1.0, 1.001 * float(np.sqrt(squares.sum(axis=1).max())))
    problem = dps.Problem(
        case.rows,
        case.labels,
        loss=LOSSES[case.loss](case.option),
        domain=DOMAINS[case.domain](case),
        row_bound=bound,
        response_bound=float(np.abs(case.labels).max()),
    )
    regularizer = dps.regularizers.Entropy() if case.is_entropic else None
    return dps.Gibbs(problem, k=case.k, mu=case.mu, regularizer=regularizer)


def run_chain(prepared: Any, rng: np.random.Generator, seconds: float) -> Any:
    """Warm up, then draw for some seconds: draws, counts, both CPU times."""
    dim, runner = prepared.target.dim, prepared.runner()
    state = prepared.init(prepared.draw_start(rng))

    def draw(count: int) -> tuple[Any, float]:
        draws, stats = np.empty((count, dim)), np.empty((count, NUM_STATS))
        begin = time.process_time()
        runner(state, rng, draws, stats)
        return draws, time.process_time() - begin

    warm = draw(max(1, prepared.num_warmup))[1]
    before = state.counts.copy()
    parts, spent, num_draws, count = [], 0.0, 0, 8
    max_kept = MAX_NUMBERS // (NUM_CHAINS * dim)
    while spent < seconds or num_draws < 8:
        draws, cpu = draw(count)
        if num_draws < max_kept:
            parts.append(draws)
        spent, num_draws = spent + cpu, num_draws + count
        count = int(num_draws / max(spent, 1e-4) * CHUNK_SECONDS)
        count = min(
            max(8, count),
            max(8, max_kept - num_draws) if num_draws < max_kept else max_kept,
        )
    # Draws past those that are kept are timed too, and cost as much as those.
    draws = np.concatenate(parts)
    share = len(draws) / num_draws
    counts = share * (state.counts - before)[: len(COUNT)]
    return draws, counts, warm, share * spent


def first_draw(prepared: Any, rng: np.random.Generator) -> None:
    """One draw of a chain that is thrown away."""
    dim = prepared.target.dim
    prepared.runner()(
        prepared.init(), rng, np.empty((1, dim)), np.empty((1, NUM_STATS))
    )


def sampler_of(name: str, target: dps.Gibbs) -> Any:
    """Sampler by class name, or the one that "auto" chooses."""
    if name != "auto":
        return getattr(samplers, name)()
    from dpsample.samplers.choice import choose

    return choose(target)[0]


def measure(name: str, case: targets.Case, seconds: float, *, as_box: bool) -> Any:
    """Draws and facts of one sampler; the first draw only if seconds is 0."""
    loaded = time.process_time()
    target = gibbs(case, as_box=as_box)
    rng, *streams = np.random.default_rng(1).spawn(1 + NUM_CHAINS)
    sampler = sampler_of(name, target)
    is_supported, reason = sampler.supports(target)
    if not is_supported:
        return None, {"missing": reason}
    with event.install_recorder("numba:compile") as recorder:
        prepared = sampler.prepare(target, rng)
        ready = time.process_time()
        first_draw(prepared, rng)
    facts = {
        "version": dps.__version__,
        "chosen": repr(sampler),
        "first": time.process_time(),
        "prepare": ready - loaded,
        "num_compiled": len(recorder.buffer),
    }
    if seconds == 0.0:
        return None, facts
    runs = [run_chain(prepared, stream, seconds / NUM_CHAINS) for stream in streams]
    length = min(len(run[0]) for run in runs)
    # Draws past the end of the shorter chain are left out, and so is their cost.
    shares = [length / len(run[0]) for run in runs]
    counts = sum(share * run[1] for share, run in zip(shares, runs, strict=True))
    totals = dict(zip(COUNT._fields, counts, strict=True))
    facts |= {
        "cpu": sum(share * run[3] for share, run in zip(shares, runs, strict=True)),
        "warm": sum(run[2] for run in runs),
        "steps": totals["proposals"],
        "values": totals["values"],
        "gradients": totals["gradients"],
        "passes": totals["records"] / case.num_records,
        "acceptance": totals["accepted"] / max(totals["proposals"], 1),
    }
    return np.stack([run[0][:length] for run in runs]), facts


def main() -> None:
    """Read the target, measure, write draws and facts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sampler")
    parser.add_argument("target")
    parser.add_argument("output")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--box", action="store_true")
    options = parser.parse_args()
    case = targets.load(options.target)
    with pauses.single_threaded_blas():
        draws, facts = measure(
            options.sampler, case, options.seconds, as_box=options.box
        )
    arrays = {} if draws is None else {"draws": draws}
    np.savez(options.output, facts=json.dumps(facts), **arrays)


if __name__ == "__main__":
    main()
