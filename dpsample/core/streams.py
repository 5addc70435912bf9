"""Random streams: one independent generator per chain, replicate or purpose.

A seed gives the same streams on every machine and for every thread count. Without a
seed the operating system's entropy is used, which `release` needs.
"""

import numpy as np

from dpsample.core import check

Seed = int | np.random.SeedSequence | None


def seed_sequence(seed: Seed) -> np.random.SeedSequence:
    """Root of all streams of one call; None means operating-system entropy."""
    if isinstance(seed, np.random.SeedSequence):
        # Spawning moves a counter inside the object: a copy keeps calls repeatable.
        return np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)
    if seed is not None:
        remedy = "Use a non-negative integer, or None."
        check.integer(0, most=check.SEED, seed=seed, remedy=remedy)
        seed = int(seed)
    return np.random.SeedSequence(seed)


def streams(seed: Seed, num_streams: int) -> list[np.random.Generator]:
    """Independent PCG64DXSM generators spawned from one root."""
    return [
        np.random.Generator(np.random.PCG64DXSM(child))
        for child in seed_sequence(seed).spawn(num_streams)
    ]


def save_state(rng: np.random.Generator) -> dict[str, object]:
    """State that `restore` turns back into a generator at the same place."""
    return dict(rng.bit_generator.state)


def restore(state: dict[str, object]) -> np.random.Generator:
    """Return a generator that continues bit for bit where `save_state` was called."""
    bits = np.random.PCG64DXSM()
    bits.state = state  # type: ignore[assignment]
    return np.random.Generator(bits)
