"""Gradient-based peers in all their metrics, two chains one after the other.

NUTS of blackjax, numpyro and nutpie, and blackjax's adjusted microcanonical HMC.
"""

from __future__ import annotations

import os
import time
from typing import Any

os.environ["XLA_FLAGS"] = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import numpy as np
import targets
from densities import free_dim, jax_log_density, numba_log_density, to_domain
from numpy.typing import NDArray

Array = NDArray[np.float64]
Result = tuple[Array, dict[str, Any]]
NUM_CHAINS = 2
CHUNK = 25  # draws per call of a compiled loop
clock = time.process_time


def jax_nuts(case: targets.Case, seconds: float, warm_fn: Any, draw_fn: Any) -> Result:
    """NUTS in JAX: warm_fn(key, start) to (carry, leapfrogs), then chunks of draws."""
    import jax

    keys = jax.random.split(jax.random.PRNGKey(7), NUM_CHAINS)
    shape = (NUM_CHAINS, free_dim(case))
    starts = 0.01 * np.random.default_rng(5).standard_normal(shape)
    begin = clock()
    warm = jax.jit(warm_fn).lower(keys[0], starts[0]).compile()
    carry = jax.eval_shape(warm_fn, keys[0], starts[0])[0]
    draw = jax.jit(draw_fn).lower(keys[0], carry).compile()
    facts = {"first": clock() - begin, "cpu": 0.0, "warm": 0.0, "gradients": 0.0}
    chains = []
    for first_key, start in zip(keys, starts, strict=True):
        key, begin = first_key, clock()
        carry, _ = jax.block_until_ready(warm(key, start))
        middle = clock()
        parts: list[Array] = []
        lengths = []
        while len(parts) * CHUNK < case.max_draws:
            if parts and clock() - middle >= seconds / NUM_CHAINS:
                break
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
    return to_domain(case, draws, np)[0], facts | {"passes": facts["gradients"]}


def blackjax(case: targets.Case, seconds: float, *, is_dense: bool = False) -> Result:
    """NUTS of blackjax with a diagonal or dense mass matrix."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import blackjax

    log_density = jax_log_density(case)
    adapt = blackjax.window_adaptation(
        blackjax.nuts, log_density, is_mass_matrix_diagonal=not is_dense
    )

    def warm(key: Any, start: Any) -> Any:
        (state, options), info = adapt.run(key, start, num_steps=case.num_warmup)
        return (state, options), info.info.num_integration_steps.sum()

    def draw(key: Any, carry: Any) -> Any:
        state, options = carry
        step = blackjax.nuts(log_density, **options).step

        def one(state: Any, now: Any) -> Any:
            state, info = step(now, state)
            return state, (state.position, info.num_integration_steps)

        state, points = jax.lax.scan(one, state, jax.random.split(key, CHUNK))
        return (state, options), points

    return jax_nuts(case, seconds, warm, draw)


def microcanonical(case: targets.Case, seconds: float) -> Result:
    """Run adjusted microcanonical HMC of blackjax, tuned by its own search."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from blackjax import adjusted_mclmc_find_L_and_step_size
    from blackjax.mcmc import adjusted_mclmc_dynamic as mclmc

    log_density = jax_log_density(case)
    kernel = mclmc.build_kernel(mclmc.make_random_trajectory_length_fn(True))

    def warm(key: Any, start: Any) -> Any:
        first, now = jax.random.split(key)
        # Twice as many transitions as NUTS gets: they are some gradients long each.
        state, options, spent = adjusted_mclmc_find_L_and_step_size(
            mclmc_kernel=kernel,
            logdensity_fn=log_density,
            num_steps=10 * case.num_warmup,
            state=mclmc.init(start, log_density, first),
            rng_key=now,
            target=0.9,
            frac_tune3=0.0,
        )
        return (state, options), spent

    def draw(key: Any, carry: Any) -> Any:
        state, options = carry
        fields = {
            "logdensity_fn": log_density,
            "step_size": options.step_size,
            "inverse_mass_matrix": options.inverse_mass_matrix,
            "integration_steps_params": (options.L / options.step_size,),
        }

        def one(state: Any, now: Any) -> Any:
            state, info = kernel(now, state, **fields)
            return state, (state.position, info.num_integration_steps)

        state, points = jax.lax.scan(one, state, jax.random.split(key, CHUNK))
        return (state, options), points

    return jax_nuts(case, seconds, warm, draw)


def numpyro(case: targets.Case, seconds: float, *, is_dense: bool = False) -> Result:
    """NUTS of numpyro with a diagonal or dense mass matrix."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from numpyro.infer import NUTS

    log_density = jax_log_density(case)
    nuts = NUTS(potential_fn=lambda z: -log_density(z), dense_mass=is_dense)

    def one(state: Any, _: Any) -> Any:
        state = nuts.sample(state, (), {})
        return state, (state.z, state.num_steps)

    first = nuts.init(
        jax.random.PRNGKey(0), case.num_warmup, np.zeros(free_dim(case)), (), {}
    )

    def warm(key: Any, start: Any) -> Any:
        begin = first._replace(z=start, rng_key=key)
        begin = begin._replace(potential_energy=-log_density(start))
        begin = begin._replace(z_grad=-jax.grad(log_density)(start))
        state, points = jax.lax.scan(one, begin, length=case.num_warmup)
        return state, points[1].sum()

    def draw(key: Any, carry: Any) -> Any:
        del key  # the state carries its own
        return jax.lax.scan(one, carry, length=CHUNK)

    return jax_nuts(case, seconds, warm, draw)


def nutpie(case: targets.Case, seconds: float, *, is_low_rank: bool = False) -> Result:
    """NUTS of nutpie on a Numba density; time is split by leapfrogs.

    The mass matrix is diagonal, or diagonal plus low rank.
    """
    import nutpie

    begin, dim = clock(), free_dim(case)
    log_density = numba_log_density(case)
    log_density(np.zeros(dim))
    model = nutpie.compiled_pyfunc.from_pyfunc(
        dim,
        lambda: log_density,
        lambda *_: lambda z: {"theta": np.array(z)},
        [np.dtype("float64")],
        [(dim,)],
        ["theta"],
    )
    first = clock() - begin
    begin = clock()
    for t in range(20):
        log_density(np.full(dim, 1e-3 * t))
    cost = (clock() - begin) / 20 * case.leapfrogs * NUM_CHAINS
    begin = clock()
    trace = nutpie.sample(
        model,
        draws=int(np.clip(seconds / cost, 50, min(5000, case.max_draws))),
        tune=case.num_warmup,
        chains=NUM_CHAINS,
        cores=1,
        seed=1,
        progress_bar=False,
        save_warmup=True,
        low_rank_modified_mass_matrix=is_low_rank,
    )
    spent = clock() - begin
    num_gradients = int(trace.sample_stats["n_steps"].sum())
    share = num_gradients / (
        num_gradients + int(trace.warmup_sample_stats["n_steps"].sum())
    )
    draws = to_domain(case, np.asarray(trace.posterior["theta"]), np)[0]
    facts = {"cpu": share * spent, "warm": (1.0 - share) * spent, "first": first}
    return draws, facts | {"gradients": num_gradients, "passes": num_gradients}
