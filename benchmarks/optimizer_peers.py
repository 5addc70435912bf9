"""DP-SGD of one peer on one task in a process of its own, with one thread.

    python optimizer_peers.py PEER TASK.npz OUT.npz

Poisson batches, per-record gradients clipped, Gaussian noise, a step, a projection onto
a ball, the last iterate, in the peer's usual precision (float32). The seconds are CPU
seconds of this process per step, the least of several runs after two to warm up.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import numpy as np

Run = Callable[[int], Any]
REPEATS = {"jax": 8, "jax-privacy": 5, "opacus": 3}


@dataclass(frozen=True)
class Task:
    """Records and numbers of DP-SGD; `stddev` is that of the mean gradient's noise."""

    rows: Any
    labels: Any
    rate: float
    stddev: float
    clip: float
    size: float
    radius: float
    num_steps: int

    @property
    def batch(self) -> float:
        """Expected size of a batch."""
        return self.rate * len(self.labels)


def load(path: str) -> Task:
    """Task of a file, its records in single precision."""
    with np.load(path) as file:
        numbers = json.loads(str(file["numbers"]))
        rows, labels = (file[name].astype(np.float32) for name in ("rows", "labels"))
        return Task(rows, labels, **numbers)


def jax_loop(task: Task) -> Run:
    """Plain JAX: the whole run is one compiled scan, batches padded to 10 sd."""
    import jax
    import jax.numpy as jnp

    rows, labels = jnp.asarray(task.rows), jnp.asarray(task.labels)
    count, dim = rows.shape
    max_batch = math.ceil(task.batch + 10.0 * math.sqrt(task.batch))

    def loss(w: Any, row: Any, label: Any) -> Any:
        return jax.nn.softplus(-label * (row @ w))

    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))

    def step(w: Any, key: Any) -> Any:
        choice, noise = jax.random.split(key)
        is_in = jax.random.uniform(choice, (count,)) < task.rate
        (batch,) = jnp.nonzero(is_in, size=max_batch, fill_value=count)
        per_record = gradients(
            w,
            rows.at[batch].get(mode="fill", fill_value=0.0),
            labels.at[batch].get(mode="fill", fill_value=0.0),
        )
        norms = jnp.linalg.norm(per_record, axis=1)
        factors = task.clip / jnp.maximum(norms, task.clip)
        g = factors @ per_record / task.batch
        w = w - task.size * (g + task.stddev * jax.random.normal(noise, (dim,)))
        return w * (task.radius / jnp.maximum(jnp.linalg.norm(w), task.radius)), None

    @jax.jit
    def run(key: Any) -> Any:
        keys = jax.random.split(key, task.num_steps)
        return jax.lax.scan(step, jnp.zeros(dim), keys)[0]

    return lambda seed: np.asarray(run(jax.random.PRNGKey(seed)))


def jax_privacy(task: Task) -> Run:
    """JAX Privacy: its batches, padded to 128, clipped gradients and noise."""
    import jax
    import jax.numpy as jnp
    import jax_privacy as jp

    rows, labels = jnp.asarray(task.rows), jnp.asarray(task.labels)
    choice = jp.batch_selection.CyclicPoissonSampling(task.rate, task.num_steps)

    def loss(w: Any, row: Any, label: Any) -> Any:
        return jax.nn.softplus(-label * (row @ w))

    gradient = jp.clipped_grad(
        loss,
        l2_clip_norm=task.clip,
        normalize_by=task.batch,
        batch_argnums=(1, 2),
        keep_batch_dim=False,
    )

    def noise(seed: int) -> Any:
        key = jax.random.key(seed)
        return jp.noise_addition.gaussian_privatizer(stddev=task.stddev, prng_key=key)

    add_noise = noise(0).update  # its state carries the key

    @jax.jit
    def step(w: Any, state: Any, batch: Any) -> Any:
        g = gradient(w, rows[batch], labels[batch], is_padding_example=batch < 0)
        g, state = add_noise(g, state)
        w = w - task.size * g
        factor = task.radius / jnp.maximum(jnp.linalg.norm(w), task.radius)
        return w * factor, state

    def run(seed: int) -> Any:
        w = jnp.zeros(rows.shape[1])
        state = noise(seed).init(w)
        for batch in choice.batch_iterator(len(task.labels), rng=seed):
            padded = jp.batch_selection.pad_to_multiple_of(batch, 128)
            w, state = step(w, state, padded)
        return np.asarray(w)

    return run


def opacus(task: Task) -> Run:
    """Opacus: a linear module, its Poisson loader and its DP optimizer."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    rows = torch.from_numpy(task.rows)
    targets = torch.from_numpy(0.5 * (task.labels + 1.0))[:, None]
    loss = torch.nn.BCEWithLogitsLoss()

    def run(seed: int) -> Any:
        torch.manual_seed(seed)
        module: Any = torch.nn.Linear(rows.shape[1], 1, bias=False)
        torch.nn.init.zeros_(module.weight)
        module, optimizer, batches = PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=task.size),
            data_loader=DataLoader(
                TensorDataset(rows, targets), batch_size=round(task.batch)
            ),
            noise_multiplier=task.stddev * task.batch / task.clip,
            max_grad_norm=task.clip,
        )
        weight, done = next(module.parameters()), 0
        while done < task.num_steps:
            for features, response in batches:
                optimizer.zero_grad()
                loss(module(features), response).backward()
                optimizer.step()
                with torch.no_grad():
                    weight *= task.radius / max(float(weight.norm()), task.radius)
                done += 1
                if done == task.num_steps:
                    break
        return weight.detach().numpy().ravel()

    return run


PEERS: dict[str, Callable[[Task], Run]] = {
    "jax": jax_loop,
    "jax-privacy": jax_privacy,
    "opacus": opacus,
}


def main() -> None:
    """Measure one peer; that it is missing is a result too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("task")
    parser.add_argument("output")
    options = parser.parse_args()
    task = load(options.task)
    try:
        run = PEERS[options.peer](task)
    except ModuleNotFoundError as error:
        np.savez(options.output, missing=str(error.name))
        return
    seconds = []
    for seed in range(REPEATS[options.peer] + 2):
        begin = time.process_time()
        theta = run(seed)
        seconds.append(time.process_time() - begin)
    np.savez(
        options.output,
        theta=np.asarray(theta, dtype=float),
        seconds=min(seconds[2:]) / task.num_steps,
        version=version(options.peer),
    )


if __name__ == "__main__":
    main()
