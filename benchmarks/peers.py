"""One peer on one target in a process of its own, with one thread.

    python peers.py PEER TARGET.npz OUT.npz --seconds SECONDS

Clocks count CPU seconds of this process. A peer gets what a careful user would give it:
compiled densities, its own adaptation, as many warm-up draws as the target asks for.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

os.environ["XLA_FLAGS"] = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import numpy as np
import targets
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]
Result = tuple[Array, dict[str, Any]]
NUM_CHAINS = 2
CHUNK = 25  # draws per call of a compiled loop
clock = time.process_time


def to_ball(points: Any, radius: float, xp: Any) -> Any:
    """Map R^d to the ball: R z / sqrt(1 + |z|^2)."""
    return radius * points / xp.sqrt(1.0 + (points**2).sum(-1, keepdims=True))


def jax_log_density(case: targets.Case) -> Callable[[Any], Any]:
    """Log density in JAX, in the coordinates z of `to_ball` on a ball."""
    import jax.numpy as jnp

    # A dense product is faster here than gathers, also for sparse rows.
    rows = case.rows.toarray() if sparse.issparse(case.rows) else case.rows
    turned = jnp.asarray((rows * case.labels[:, None]).T.copy())

    def risk(theta: Any) -> Any:
        u = theta @ turned
        if case.loss == "hinge":
            return jnp.maximum(1.0 - u, 0.0).mean()
        return (jnp.maximum(-u, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(u)))).mean()

    def on_space(theta: Any) -> Any:
        return -case.k * (risk(theta) + 0.5 * case.mu * (theta**2).sum())

    def on_ball(z: Any) -> Any:
        volume = (0.5 * case.dim + 1.0) * jnp.log1p((z**2).sum())
        return on_space(to_ball(z, case.radius, jnp)) - volume

    return on_ball if case.domain == targets.BALL else on_space


def jax_nuts(case: targets.Case, seconds: float, warm_fn: Any, draw_fn: Any) -> Result:
    """NUTS in JAX: warm_fn(key, start) to (carry, leapfrogs), then chunks of draws."""
    import jax

    keys = jax.random.split(jax.random.PRNGKey(7), NUM_CHAINS)
    starts = 0.01 * np.random.default_rng(5).standard_normal((NUM_CHAINS, case.dim))
    begin = clock()
    warm = jax.jit(warm_fn).lower(keys[0], starts[0]).compile()
    carry = jax.eval_shape(warm_fn, keys[0], starts[0])[0]
    draw = jax.jit(draw_fn).lower(keys[0], carry).compile()
    facts = {"first": clock() - begin, "cpu": 0.0, "warm": 0.0, "gradients": 0.0}
    chains = []
    for key, start in zip(keys, starts, strict=True):
        begin = clock()
        carry, _ = jax.block_until_ready(warm(key, start))
        middle = clock()
        parts: list[Array] = []
        lengths = []
        while not parts or clock() - middle < seconds / NUM_CHAINS:
            key, now = jax.random.split(key)
            carry, (points, steps) = jax.block_until_ready(draw(now, carry))
            parts.append(np.asarray(points))
            lengths.append(int(steps.sum()))
        facts["warm"] += middle - begin
        chains.append((np.concatenate(parts), clock() - middle, sum(lengths)))
    count = min(len(chain[0]) for chain in chains)
    for points, cpu, leapfrogs in chains:
        facts["cpu"] += cpu * count / len(points)
        facts["gradients"] += leapfrogs * count / len(points)
    draws = np.stack([chain[0][:count] for chain in chains])
    if case.domain == targets.BALL:
        draws = to_ball(draws, case.radius, np)
    return draws, facts | {"passes": facts["gradients"]}


def blackjax(case: targets.Case, seconds: float) -> Result:
    """NUTS of blackjax with a diagonal mass matrix."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import blackjax

    log_density = jax_log_density(case)
    adapt = blackjax.window_adaptation(blackjax.nuts, log_density)

    def warm(key: Any, start: Any) -> Any:
        (state, options), info = adapt.run(key, start, num_steps=case.num_warmup)
        return (state, options), info.info.num_integration_steps.sum()

    def draw(key: Any, carry: Any) -> Any:
        state, options = carry
        step = blackjax.nuts(log_density, **options).step

        def one(state: Any, now: Any) -> Any:
            state, info = step(now, state)
            return state, (state.position, info.num_integration_steps)

        state, found = jax.lax.scan(one, state, jax.random.split(key, CHUNK))
        return (state, options), found

    return jax_nuts(case, seconds, warm, draw)


def numpyro(case: targets.Case, seconds: float) -> Result:
    """NUTS of numpyro with a diagonal mass matrix."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from numpyro.infer import NUTS

    log_density = jax_log_density(case)
    nuts = NUTS(potential_fn=lambda theta: -log_density(theta))

    def one(state: Any, _: Any) -> Any:
        state = nuts.sample(state, (), {})
        return state, (state.z, state.num_steps)

    first = nuts.init(
        jax.random.PRNGKey(0), case.num_warmup, np.zeros(case.dim), (), {}
    )

    def warm(key: Any, start: Any) -> Any:
        begin = first._replace(z=start, rng_key=key)
        begin = begin._replace(potential_energy=-log_density(start))
        begin = begin._replace(z_grad=-jax.grad(log_density)(start))
        state, found = jax.lax.scan(one, begin, length=case.num_warmup)
        return state, found[1].sum()

    def draw(key: Any, carry: Any) -> Any:
        del key  # the state carries its own
        return jax.lax.scan(one, carry, length=CHUNK)

    return jax_nuts(case, seconds, warm, draw)


def numba_log_density(case: targets.Case) -> Callable[[Array], tuple[float, Array]]:
    """Log density and gradient in Numba: one fused loop over CSR or dense rows."""
    import math

    import numba

    is_hinge, k, mu, dim = case.loss == "hinge", case.k, case.mu, case.dim
    has_ball, radius, size = case.domain == targets.BALL, case.radius, case.num_records
    is_sparse = sparse.issparse(case.rows)
    rows = sparse.csr_array(case.rows)
    values = rows.data * np.repeat(case.labels, np.diff(rows.indptr))
    columns, starts = rows.indices.astype(np.int32), rows.indptr.astype(np.int64)

    @numba.njit(fastmath=True)
    def term(u: float) -> tuple[float, float]:
        if is_hinge:
            return max(1.0 - u, 0.0), -1.0 if u < 1.0 else 0.0
        e = math.exp(-abs(u))
        return math.log1p(e) + max(-u, 0.0), -(e if u >= 0.0 else 1.0) / (1.0 + e)

    @numba.njit(fastmath=True)
    def risk(values: Array, columns: Any, starts: Any, theta: Any, out: Any) -> float:
        total = 0.0
        for i in range(size):
            u = 0.0
            if is_sparse:
                for place in range(starts[i], starts[i + 1]):
                    u += values[place] * theta[columns[place]]
            else:
                for j in range(dim):
                    u += values[i * dim + j] * theta[j]
            value, slope = term(u)
            total += value
            if is_sparse:
                for place in range(starts[i], starts[i + 1]):
                    out[columns[place]] += slope * values[place]
            else:
                for j in range(dim):
                    out[j] += slope * values[i * dim + j]
        return total / size

    @numba.njit(fastmath=True)
    def compiled(values: Any, columns: Any, starts: Any, z: Any) -> Any:
        root = math.sqrt(1.0 + (z * z).sum()) if has_ball else 1.0
        theta = radius * z / root if has_ball else z
        out = np.zeros(dim)
        value = risk(values, columns, starts, theta, out)
        value = -k * (value + 0.5 * mu * (theta * theta).sum())
        out = -k * (out / size + mu * theta)
        if has_ball:
            value -= (dim + 2.0) * math.log(root)
            along = (out * z).sum() / root**2
            out = radius / root * (out - along * z) - (dim + 2.0) / root**2 * z
        return value, out

    return lambda z: compiled(values, columns, starts, z)


def nutpie(case: targets.Case, seconds: float) -> Result:
    """NUTS of nutpie on a Numba density; time is split by leapfrogs."""
    import nutpie

    begin = clock()
    log_density = numba_log_density(case)
    log_density(np.zeros(case.dim))
    model = nutpie.compiled_pyfunc.from_pyfunc(
        case.dim,
        lambda: log_density,
        lambda *_: lambda theta: {"theta": np.array(theta)},
        [np.dtype("float64")],
        [(case.dim,)],
        ["theta"],
    )
    first = clock() - begin
    begin = clock()
    for t in range(20):
        log_density(np.full(case.dim, 1e-3 * t))
    cost = (clock() - begin) / 20 * case.leapfrogs * NUM_CHAINS
    begin = clock()
    trace = nutpie.sample(
        model,
        draws=int(np.clip(seconds / cost, 50, 5000)),
        tune=case.num_warmup,
        chains=NUM_CHAINS,
        cores=1,
        seed=1,
        progress_bar=False,
        save_warmup=True,
    )
    spent = clock() - begin
    made = int(trace.sample_stats["n_steps"].sum())
    share = made / (made + int(trace.warmup_sample_stats["n_steps"].sum()))
    draws = np.asarray(trace.posterior["theta"])
    if case.domain == targets.BALL:
        draws = to_ball(draws, case.radius, np)
    facts = {"cpu": share * spent, "warm": (1.0 - share) * spent, "first": first}
    return draws, facts | {"gradients": made, "passes": made}


def emcee(case: targets.Case, seconds: float) -> Result:
    """Affine-invariant ensemble with differential evolution; walkers are chains."""
    import emcee
    from scipy.optimize import minimize

    signed = case.rows * case.labels[:, None]

    def log_density(points: Array) -> Array:
        u = points @ signed.T
        if case.loss == "hinge":
            loss = np.maximum(1.0 - u, 0.0)
        else:
            loss = np.maximum(-u, 0.0) + np.log1p(np.exp(-np.abs(u)))
        square = (points**2).sum(1)
        value = -case.k * (loss.mean(1) + 0.5 * case.mu * square)
        return np.where(square <= case.radius**2, value, -np.inf)

    moves = [(emcee.moves.DEMove(), 0.8), (emcee.moves.DESnookerMove(), 0.2)]
    walkers = 4 * case.dim
    ensemble = emcee.EnsembleSampler(
        walkers, case.dim, log_density, vectorize=True, moves=moves
    )
    ensemble.random_state = np.random.RandomState(3).get_state()
    begin = clock()
    mode = minimize(lambda theta: -log_density(theta[None])[0], np.zeros(case.dim)).x
    noise = np.random.default_rng(3).standard_normal((walkers, case.dim))
    points = mode + 0.1 * noise
    state = ensemble.run_mcmc(points, case.num_warmup)
    warm, count = clock() - begin, 0
    ensemble.reset()
    begin = clock()
    while count == 0 or clock() - begin < seconds:
        state, count = ensemble.run_mcmc(state, CHUNK), count + CHUNK
    facts = {"cpu": clock() - begin, "warm": warm, "values": count * walkers}
    facts |= {"passes": facts["values"], "first": 0.0}
    return ensemble.get_chain().transpose(1, 0, 2), facts


def growing(draw: Callable[[int], Array], seconds: float) -> tuple[Array, float, float]:
    """Draws of about that many seconds, CPU seconds of them and of all trials."""
    count, warm = 50, 0.0
    while True:
        begin = clock()
        draws = draw(count)
        spent = clock() - begin
        if spent >= 0.5 * seconds or count >= 100_000:
            return draws, spent, warm
        warm += spent
        count = int(min(100_000, count * min(50.0, 1.1 * seconds / max(spent, 1e-4))))


def hopsy(case: targets.Case, seconds: float, kind: str = "coordinate") -> Result:
    """Walk with hopsy on a polytope; warm-up is the shorter trial runs."""
    import hopsy

    normal = hopsy.Gaussian(mean=np.zeros(case.dim), covariance=np.eye(case.dim))
    is_normal = case.mu > 0.0
    law = "Gaussian" if is_normal else "Uniform"
    problem = hopsy.Problem(case.facets, case.limits, *([normal] if is_normal else []))
    start = hopsy.compute_chebyshev_center(problem).flatten()
    proposal, thinning = {
        "coordinate": (f"{law}CoordinateHitAndRunProposal", case.dim),
        "truncated": ("TruncatedGaussianProposal", 1),
        "billiard": ("BilliardWalkProposal", 1),
    }[kind]
    walks = [
        hopsy.MarkovChain(problem, getattr(hopsy, proposal), starting_point=start)
        for _ in range(NUM_CHAINS)
    ]
    if is_normal and kind == "coordinate":
        for walk in walks:
            walk.proposal.stepsize = 2.0
    rngs = [hopsy.RandomNumberGenerator(11, c) for c in range(NUM_CHAINS)]

    def draw(count: int) -> Array:
        return np.asarray(
            hopsy.sample(walks, rngs, n_samples=count, thinning=thinning, n_procs=1)[1]
        )

    draws, cpu, warm = growing(draw, seconds)
    steps = draws.shape[0] * draws.shape[1] * thinning
    return draws, {"cpu": cpu, "warm": warm, "steps": steps, "first": 0.0}


def polytopewalk(case: targets.Case, seconds: float) -> Result:
    """Hit and run of polytopewalk, thinned by the dimension."""
    from polytopewalk import dense

    start, walk = np.zeros(case.dim), dense.HitAndRun()
    seeds = iter(range(1, 1000))

    def draw(count: int) -> Array:
        def chain(seed: int) -> Array:
            return walk.generateCompleteWalk(
                count * case.dim,
                start,
                case.facets,
                case.limits,
                thin=case.dim,
                seed=seed,
            )

        return np.stack([chain(next(seeds)) for _ in range(NUM_CHAINS)])

    draws, cpu, warm = growing(draw, seconds)
    drop = draws.shape[1] // 10
    share = 1.0 - drop / draws.shape[1]
    kept = draws[:, drop:]
    steps = kept.shape[0] * kept.shape[1] * case.dim
    facts = {"cpu": share * cpu, "warm": warm + (1.0 - share) * cpu, "first": 0.0}
    return kept, facts | {"steps": steps}


PEERS: dict[str, Callable[[targets.Case, float], Result]] = {
    "blackjax": blackjax,
    "numpyro": numpyro,
    "nutpie": nutpie,
    "emcee": emcee,
    "hopsy": hopsy,
    "hopsy-truncated": lambda case, seconds: hopsy(case, seconds, "truncated"),
    "hopsy-billiard": lambda case, seconds: hopsy(case, seconds, "billiard"),
    "polytopewalk": polytopewalk,
}
NUTS = ("blackjax", "numpyro", "nutpie")


def fits(peer: str, case: targets.Case) -> bool:
    """Whether the peer can sample the target with less than hundreds of walkers."""
    if peer in NUTS:
        return case.has_records
    if peer == "emcee":
        return case.has_records and case.dim <= 50
    if case.domain != targets.POLYTOPE:
        return False
    laws = {"polytopewalk": (False,), "hopsy-truncated": (True,)}
    return (case.mu > 0.0) in laws.get(peer, (False, True))


def main() -> None:
    """Read the target, measure, write draws and facts; a missing peer is a fact."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("target")
    parser.add_argument("output")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    case = targets.load(options.target)
    try:
        draws, facts = PEERS[options.peer](case, options.seconds)
    except ModuleNotFoundError as error:
        np.savez(options.output, facts=json.dumps({"missing": f"needs {error.name}"}))
        return
    facts = {name: float(value) for name, value in facts.items()}
    facts["version"] = version(options.peer.split("-")[0])
    np.savez(options.output, draws=draws, facts=json.dumps(facts))


if __name__ == "__main__":
    main()
