"""Peers of open densities and bodies: a walk of hopsy, and NUTS in coordinates of R^d.

They get what a careful user would give them. hopsy walks on our round coordinates of a
polytope. NUTS of blackjax gets a density in JAX after a transform with its Jacobian,
and adapts its step and a diagonal metric. Clocks count CPU seconds of one core, without
the compilation. A peer that is not installed raises ModuleNotFoundError.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample.domains import Polytope

Array = NDArray[np.float64]
NUM_CHAINS = 4
clock = time.process_time


def hopsy_walk(body: Polytope, dim: int, seconds: float) -> tuple[Array, float]:
    """Return uniform draws by coordinate hit and run, and CPU seconds.

    A draw is d^2 / 6 steps, a share of the mixing time, so that few draws are kept.
    """
    import hopsy

    inner = body.in_coordinates(dim)
    origin, basis, *_ = body.coordinates(dim)
    rank = basis.shape[1]
    problem = hopsy.Problem(inner.A, inner.b)
    start = np.zeros(rank)
    kind = hopsy.UniformCoordinateHitAndRunProposal
    walks = [
        hopsy.MarkovChain(problem, proposal=kind, starting_point=start)
        for _ in range(NUM_CHAINS)
    ]
    streams = [hopsy.RandomNumberGenerator(7, chain) for chain in range(NUM_CHAINS)]
    thinning = max(1, rank * rank // 6)

    def draw(count: int) -> Array:
        return np.asarray(
            hopsy.sample(walks, streams, n_samples=count, thinning=thinning, n_procs=1)[
                1
            ]
        )

    begin = clock()
    draw(4)
    pace = (clock() - begin) / 4
    count = int(np.clip(seconds / pace, 8, 4000))
    draw(count // 4)  # the warm-up
    begin = clock()
    draws = draw(count)
    cpu = clock() - begin
    return np.asarray(origin + draws @ basis.T), cpu


def nuts(
    log_density: Callable[[Any], Any],
    dim: int,
    *,
    num_warmup: int = 1000,
    num_draws: int = 1000,
) -> tuple[Array, float, float]:
    """Return draws of NUTS, and CPU seconds of warm-up and of draws, without compiling.

    The density is a function of JAX in the whole space.
    """
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    )
    import jax

    jax.config.update("jax_enable_x64", True)
    import blackjax

    adapt = blackjax.window_adaptation(blackjax.nuts, log_density)

    def warm(key: Any, start: Any) -> Any:
        (state, options), _ = adapt.run(key, start, num_steps=num_warmup)
        return state, options

    def draw(key: Any, carry: Any) -> Any:
        state, options = carry
        step = blackjax.nuts(log_density, **options).step

        def one(state: Any, now: Any) -> Any:
            state, _ = step(now, state)
            return state, state.position

        return jax.lax.scan(one, state, jax.random.split(key, num_draws))[1]

    keys = jax.random.split(jax.random.PRNGKey(7), 2 * NUM_CHAINS)
    starts = 0.1 * np.random.default_rng(5).standard_normal((NUM_CHAINS, dim))
    compiled_warm = jax.jit(warm).lower(keys[0], starts[0]).compile()
    carry = jax.eval_shape(warm, keys[0], starts[0])
    compiled_draw = jax.jit(draw).lower(keys[0], carry).compile()
    seconds, chains = np.zeros(2), []
    for chain, start in enumerate(starts):
        begin = clock()
        carry = jax.block_until_ready(compiled_warm(keys[2 * chain], start))
        middle = clock()
        points = jax.block_until_ready(compiled_draw(keys[2 * chain + 1], carry))
        seconds += middle - begin, clock() - middle
        chains.append(np.asarray(points))
    return np.stack(chains), float(seconds[0]), float(seconds[1])


def ball_posterior(
    rows: Array, labels: Array, k: float, mu: float, radius: float
) -> tuple[Callable[[Any], Any], Callable[[Array], Array]]:
    """Return a logistic log density in z, theta = R z / sqrt(1 + |z|^2), and the map.

    The Jacobian is (1 + |z|^2)^(-(d + 2) / 2), up to a constant.
    """
    import jax
    import jax.numpy as jnp

    signed = jnp.asarray(labels[:, None] * rows)
    dim = rows.shape[1]

    def log_density(z: Any) -> Any:
        size = 1.0 + z @ z
        theta = radius * z / jnp.sqrt(size)
        risk = jax.nn.softplus(-(signed @ theta)).mean() + 0.5 * mu * theta @ theta
        return -0.5 * (dim + 2.0) * jnp.log(size) - k * risk

    def to_ball(z: Array) -> Array:
        return radius * z / np.sqrt(1.0 + (z**2).sum(axis=-1, keepdims=True))

    return log_density, to_ball


def ordered_posterior(
    treated: Array, cured: Array
) -> tuple[Callable[[Any], Any], Callable[[Array], Array]]:
    """Return a binomial log density of ordered effects, by stick breaking, and the map.

    e_1 = s(z_1) and e_j = e_(j-1) + (1 - e_(j-1)) s(z_j), with the logistic function s.
    """
    import jax
    import jax.numpy as jnp

    treated, cured = jnp.asarray(treated), jnp.asarray(cured)

    def log_density(z: Any) -> Any:
        # log(1 - e_j) is the sum of log(1 - s(z_i)) up to j.
        log_rest = jnp.cumsum(-jax.nn.softplus(z))
        log_effect = jnp.log1p(-jnp.exp(log_rest))
        before = jnp.concatenate([jnp.zeros(1), log_rest[:-1]])
        jacobian = before - jax.nn.softplus(-z) - jax.nn.softplus(z)
        likelihood = cured * log_effect + (treated - cured) * log_rest
        return (likelihood + jacobian).sum()

    def to_effects(z: Array) -> Array:
        return np.asarray(-np.expm1(np.cumsum(-np.logaddexp(0.0, z), axis=-1)))

    return log_density, to_effects


def simplex_posterior(
    spectra: Array, measured: Array, noise: float
) -> tuple[Callable[[Any], Any], Callable[[Array], Array]]:
    """Return a Gaussian log density of weights on the simplex in z, and the map.

    It is stick breaking. Weight j takes the share s(z_j - log(K - 1 - j)) of the rest,
    as in Stan.
    """
    import jax
    import jax.numpy as jnp

    size = spectra.shape[1]
    shift = np.log(np.arange(size - 1, 0, -1))
    rows, y = jnp.asarray(spectra), jnp.asarray(measured)

    def log_density(z: Any) -> Any:
        logit = z - shift
        log_rest = jnp.cumsum(-jax.nn.softplus(logit))
        before = jnp.concatenate([jnp.zeros(1), log_rest[:-1]])
        log_weights = before - jax.nn.softplus(-logit)
        weights = jnp.exp(jnp.append(log_weights, log_rest[-1]))
        jacobian = (log_weights - jax.nn.softplus(logit)).sum()
        return jacobian - 0.5 * ((y - rows @ weights) ** 2).sum() / noise**2

    def to_simplex(z: Array) -> Array:
        logit = z - shift
        log_rest = np.cumsum(-np.logaddexp(0.0, logit), axis=-1)
        before = np.concatenate([np.zeros_like(z[..., :1]), log_rest[..., :-1]], -1)
        parts = np.exp(before - np.logaddexp(0.0, -logit))
        return np.concatenate([parts, np.exp(log_rest[..., -1:])], -1)

    return log_density, to_simplex


def schools(seed: int = 1) -> tuple[Any, Array]:
    """Return groups and scores of eight schools with twenty pupils each."""
    rng = np.random.default_rng(seed)
    school = np.repeat(np.arange(8), 20)
    return school, rng.normal(0.3 * school, 1.0)


def pymc_schools() -> Any:
    """Return a PyMC model of the schools' means."""
    import pymc as pm

    school, score = schools()
    with pm.Model() as model:
        center = pm.Normal("center", 0.0, 2.0)
        spread = pm.HalfNormal("spread", 1.0)
        units = pm.Normal("units", 0.0, 1.0, shape=8)
        effect = pm.Deterministic("effect", center + spread * units)
        pm.Normal("score", effect[school], 1.0, observed=score)
    return model


def pymc_nuts(model: Any) -> tuple[Array, float, float]:
    """Return effects by PyMC's own NUTS, and CPU seconds of warm-up and of draws."""
    import pymc as pm

    clocks = np.full((NUM_CHAINS, 2), np.nan)

    def note(trace: Any, draw: Any) -> None:
        del trace
        column = 0 if draw.tuning else 1
        if np.isnan(clocks[draw.chain, column]):
            clocks[draw.chain, column] = clock()

    with model:
        tree = pm.sample(
            1000,
            tune=1000,
            chains=NUM_CHAINS,
            cores=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
            callback=note,
        )
    # A chain ends where the next one begins. The last one ends with the call.
    ends = np.append(clocks[1:, 0], clock())
    warm = float((clocks[:, 1] - clocks[:, 0]).sum())
    return tree.posterior["effect"].values, warm, float((ends - clocks[:, 1]).sum())


def numpyro_nuts() -> tuple[Array, float, float]:
    """Return effects by numpyro's NUTS, and CPU seconds of warm-up and of draws."""
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    )
    import jax
    import numpyro
    from numpyro import distributions as dist

    jax.config.update("jax_enable_x64", True)
    school, score = schools()

    def model() -> None:
        center = numpyro.sample("center", dist.Normal(0.0, 2.0))
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        units = numpyro.sample("units", dist.Normal(0.0, 1.0).expand([8]).to_event(1))
        effect = numpyro.deterministic("effect", center + spread * units)
        numpyro.sample("score", dist.Normal(effect[school], 1.0), obs=score)

    kernel = numpyro.infer.NUTS(model)
    keys = jax.random.split(jax.random.PRNGKey(7), NUM_CHAINS)
    # The kernel finds its functions here. In a compiled loop it would not keep them.
    starts = [kernel.init(key, 1000, None, (), {}) for key in keys]

    def warm(state: Any) -> Any:
        return jax.lax.fori_loop(
            0, 1000, lambda i, state: kernel.sample(state, (), {}), state
        )

    def draw(state: Any) -> Any:
        def one(state: Any, i: Any) -> Any:
            state = kernel.sample(state, (), {})
            values = kernel.postprocess_fn((), {})(state.z)
            return state, values["effect"]

        return jax.lax.scan(one, state, None, length=1000)[1]

    compiled_warm = jax.jit(warm).lower(starts[0]).compile()
    compiled_draw = jax.jit(draw).lower(starts[0]).compile()
    seconds, chains = np.zeros(2), []
    for start in starts:
        begin = clock()
        state = jax.block_until_ready(compiled_warm(start))
        middle = clock()
        chains.append(np.asarray(jax.block_until_ready(compiled_draw(state))))
        seconds += middle - begin, clock() - middle
    return np.stack(chains), float(seconds[0]), float(seconds[1])
